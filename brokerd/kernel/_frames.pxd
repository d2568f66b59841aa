# The parts of _frames that the kernel's other compiled modules use.

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

cdef enum:  # the layout of a commit record: brokerd.kernel.commit
    COMMIT_BYTES = 48
    COMMIT_END_AT = 8
    COMMIT_MESSAGES_AT = 32
    COMMIT_LENGTH_AT = 40

cdef struct Entry:
    int64_t timestamp
    uint32_t client
    uint8_t state

cdef void write_head(
    uint8_t* at, uint32_t body_size, uint64_t timestamp_be, const uint8_t* id_head, uint64_t seq
) noexcept nogil
cdef void write_commit(
    uint8_t* at, uint64_t first_seq, uint64_t end, uint64_t timestamp_be, uint64_t data_hash, uint32_t messages,
    uint32_t defer_ms, uint32_t length
) noexcept nogil
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
    cdef void advance_floor(self) noexcept
    cdef int observe(self, int bucket, uint64_t times) except -1
    cdef bint release(self, uint64_t seq, uint32_t client, int64_t* timestamp) noexcept
    cdef int64_t client_number(self, uint64_t seq) noexcept
