# The parts of _runs that the kernel's other compiled modules use.

from libc.stdint cimport uint64_t

cdef struct Run:
    uint64_t first
    uint64_t end
    double sent_at
    double deadline

cdef class Runs:
    cdef Run* runs
    cdef Py_ssize_t start
    cdef Py_ssize_t stop
    cdef Py_ssize_t capacity

    cdef double sent_at_of(self, uint64_t seq) noexcept
    cdef int make_room(self) except -1
