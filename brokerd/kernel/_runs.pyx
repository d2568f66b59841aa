# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The compiled ``Runs``. :mod:`brokerd.kernel.runs` defines the behaviour and has the docstrings."""

from libc.math cimport INFINITY
from libc.stdint cimport uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memmove

cdef enum:
    FIRST_CAPACITY = 4
    KEPT_CAPACITY = 64


cdef class Runs:
    """``runs[start:stop]``, ascending. Memory is allocated with the first run."""

    def __cinit__(self):
        self.runs = NULL
        self.start = self.stop = self.capacity = 0

    def __dealloc__(self):
        free(self.runs)

    def __len__(self):
        return self.stop - self.start

    @property
    def next_deadline(self):
        return self.runs[self.start].deadline if self.start < self.stop else INFINITY

    cdef int make_room(self) except -1:
        """Allocate space for one more run after the last."""
        cdef Py_ssize_t length = self.stop - self.start
        cdef Py_ssize_t capacity
        cdef Run* grown
        if self.stop < self.capacity:
            return 0
        if self.start > self.capacity // 2:
            memmove(self.runs, self.runs + self.start, length * sizeof(Run))
        else:
            capacity = max(<Py_ssize_t>FIRST_CAPACITY, 2 * self.capacity)
            grown = <Run*>malloc(capacity * sizeof(Run))
            if grown == NULL:
                raise MemoryError()
            if length:
                memmove(grown, self.runs + self.start, length * sizeof(Run))
            free(self.runs)
            self.runs = grown
            self.capacity = capacity
        self.start, self.stop = 0, length
        return 0

    def add(self, uint64_t first, uint64_t end, double sent_at, double deadline, uint64_t floor):
        cdef Run* run
        while self.start < self.stop and self.runs[self.start].end <= floor:
            self.start += 1
        if self.start == self.stop:
            self.clear()
        self.make_room()
        run = &self.runs[self.stop]
        run.first, run.end, run.sent_at, run.deadline = first, end, sent_at, deadline
        self.stop += 1

    def pop(self):
        if self.start == self.stop:
            raise IndexError("no run is left")
        cdef Run* run = &self.runs[self.start]
        self.start += 1
        return run.first, run.end

    cdef double sent_at_of(self, uint64_t seq) noexcept:
        cdef Py_ssize_t low = self.start
        cdef Py_ssize_t high = self.stop
        cdef Py_ssize_t middle
        while low < high:
            middle = (low + high) // 2
            if self.runs[middle].end <= seq:
                low = middle + 1
            else:
                high = middle
        if low < self.stop and self.runs[low].first <= seq:
            return self.runs[low].sent_at
        return 0.0

    def sent_at(self, uint64_t seq):
        return self.sent_at_of(seq)

    def clear(self):
        self.start = self.stop = 0
        if self.capacity > KEPT_CAPACITY:
            free(self.runs)
            self.runs = NULL
            self.capacity = 0
