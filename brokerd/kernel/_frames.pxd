# What the other compiled modules of the kernel use of _frames.

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

cdef struct Entry:
    int64_t timestamp
    uint32_t client
    uint8_t state

cdef int64_t decode_seq(const uint8_t* digits, uint64_t head) noexcept nogil
cdef int64_t bucket_of_latency(int64_t latency_ns) noexcept nogil

cdef class Window:
    cdef Entry* ring
    cdef uint64_t mask
    cdef uint64_t _floor
    cdef uint64_t _head
    cdef Py_ssize_t _in_flight_count
    cdef uint64_t* buckets
    cdef uint64_t zero_count

    cdef int reserve(self, uint64_t count) except -1
    cdef void settle(self) noexcept
    cdef int observe(self, int bucket, uint64_t times) except -1
    cdef bint release(self, uint64_t seq, uint32_t client, int64_t* timestamp) noexcept
    cdef int64_t holder_of(self, uint64_t seq) noexcept
