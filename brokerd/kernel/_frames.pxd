# The parts of _frames that the kernel's other compiled modules use.

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

cdef extern from *:
    """
    #if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
    #error "the compiled kernel is for little-endian machines; this machine uses the plain one"
    #endif
    #define to_be32(x) __builtin_bswap32(x)
    #define to_be64(x) __builtin_bswap64(x)
    """
    uint32_t to_be32(uint32_t) nogil
    uint64_t to_be64(uint64_t) nogil

cdef enum:
    HEAD_BYTES = 34  # of a frame: brokerd.kernel.frames
    RANGE_BYTES = 22  # a waiting range: brokerd.kernel.waiting
    MAX_NAME = 64  # of a topic or channel
    MAX_DIGITS = 18  # of a delay: nsqwire.scan

cdef enum:  # the layout of a commit record: brokerd.kernel.commit
    COMMIT_BYTES = 48
    COMMIT_END_AT = 8
    COMMIT_MESSAGES_AT = 32
    COMMIT_LENGTH_AT = 40

cdef struct Entry:
    int64_t timestamp
    uint32_t client
    uint8_t state

cdef inline uint32_t read32(const uint8_t* at) noexcept nogil:
    cdef uint32_t value
    memcpy(&value, at, 4)
    return to_be32(value)


cdef inline uint64_t read64(const uint8_t* at) noexcept nogil:
    cdef uint64_t value
    memcpy(&value, at, 8)
    return to_be64(value)


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
