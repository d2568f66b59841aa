# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The compiled work on runs of DPUBs. :mod:`brokerd.kernel.deferred` defines the behaviour and has the docstrings.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy

from cpython.bytes cimport PyBytes_FromStringAndSize

from brokerd.kernel._frames cimport (
    COMMIT_BYTES, HEAD_BYTES, MAX_DIGITS, MAX_NAME, read32, to_be64, write_commit, write_head
)

cdef extern from "xxh3.h":
    uint64_t xxh3_64(const uint8_t*, size_t) nogil

cdef enum:
    WORD = 5  # "DPUB "
    MAX_RUN = 512

cdef uint64_t MAX_DEFER_MS = 0xFFFFFFFF


cdef inline Py_ssize_t read_line(
    const uint8_t* line, Py_ssize_t room, Py_ssize_t name, uint64_t* defer_ms
) noexcept nogil:
    """Return the length of a command line with a topic name of ``name`` bytes; 0 for other lines.

    The caller has compared ``line[:WORD + name]`` with the run's first line.
    """
    cdef Py_ssize_t at = WORD + name
    cdef Py_ssize_t stop = min(room, at + 1 + MAX_DIGITS + 1)
    cdef uint64_t value = 0
    if at + 2 >= room or line[at] != 32:
        return 0
    at += 1
    while at < stop and c"0" <= line[at] <= c"9":
        value = value * 10 + line[at] - 48
        at += 1
    if at == stop or line[at] != 10 or line[at - 1] == 32:
        return 0
    defer_ms[0] = value
    return at + 1


cdef Py_ssize_t name_of(const uint8_t* line, Py_ssize_t room) noexcept nogil:
    """Return the length of the topic's name; 0 if this is not the beginning of a DPUB."""
    cdef Py_ssize_t length = WORD
    if room <= WORD or memcmp(line, b"DPUB ", WORD) != 0:
        return 0
    while length < room and length <= WORD + MAX_NAME:
        if line[length] == 32:
            return length - WORD
        if line[length] == 10 or line[length] == 13:
            return 0
        length += 1
    return 0


def dpub_run(
    const uint8_t[::1] buffer, Py_ssize_t start, Py_ssize_t end, Py_ssize_t max_size, Py_ssize_t max_ms
):
    cdef Py_ssize_t count = 0
    cdef Py_ssize_t body_bytes = 0
    cdef Py_ssize_t name, length
    cdef uint64_t defer_ms = 0
    cdef uint64_t most = min(<uint64_t>max(max_ms, 0), MAX_DEFER_MS)
    cdef const uint8_t* first
    cdef const uint8_t* at
    cdef int32_t size
    if start == end:
        return 0, 0, 0, start
    first = at = &buffer[start]
    name = name_of(first, end - start)
    if name == 0:
        return 0, 0, 0, start
    while count < MAX_RUN and end - start > WORD + name and memcmp(at, first, WORD + name) == 0:
        length = read_line(at, end - start, name, &defer_ms)
        if length == 0 or defer_ms == 0 or defer_ms > most or end - start - length < 4:
            break
        size = <int32_t>read32(at + length)
        if size <= 0 or size > max_size or end - start - length - 4 < size:
            break
        at += length + 4 + size
        start += length + 4 + size
        body_bytes += size
        count += 1
    return name if count else 0, count, body_bytes, start


def append_deferred(
    uint8_t[::1] log, Py_ssize_t offset, const uint8_t[::1] commands, Py_ssize_t count, int64_t timestamp,
    const uint8_t[::1] id_head, uint64_t first_seq, uint64_t segment_offset,
):
    cdef uint64_t timestamp_be = to_be64(<uint64_t>timestamp)
    cdef const uint8_t* source = &commands[0]
    cdef uint8_t* target = &log[offset]
    cdef uint8_t* start = target  # of the batch
    cdef const uint8_t* head = &id_head[0]
    cdef Py_ssize_t rest = commands.shape[0]
    cdef Py_ssize_t name = name_of(source, rest)
    cdef Py_ssize_t length, position
    cdef Py_ssize_t batch = 0  # position of the first message of the batch
    cdef Py_ssize_t batches = 0
    cdef uint64_t defer_ms = 0
    cdef uint32_t before = 0
    cdef uint32_t size
    cdef bytes records = PyBytes_FromStringAndSize(NULL, count * COMMIT_BYTES)
    cdef bytes delays = PyBytes_FromStringAndSize(NULL, count * 4)
    cdef uint8_t* record = <uint8_t*><char*>records
    cdef uint32_t* delay = <uint32_t*><char*>delays
    for position in range(count):
        length = read_line(source, rest, name, &defer_ms)
        if position and defer_ms != before:
            segment_offset += target - start
            write_commit(
                record + batches * COMMIT_BYTES, first_seq + batch, segment_offset, timestamp_be,
                xxh3_64(start, target - start), <uint32_t>(position - batch), before, <uint32_t>(target - start)
            )
            batches += 1
            start, batch = target, position
        before = <uint32_t>defer_ms
        delay[position] = before
        size = read32(source + length)
        write_head(target, size, timestamp_be, head, first_seq + position)
        memcpy(target + HEAD_BYTES, source + length + 4, size)
        target += HEAD_BYTES + size
        source += length + 4 + size
        rest -= length + 4 + size
    write_commit(
        record + batches * COMMIT_BYTES, first_seq + batch, segment_offset + (target - start), timestamp_be,
        xxh3_64(start, target - start), <uint32_t>(count - batch), before, <uint32_t>(target - start)
    )
    return records[:(batches + 1) * COMMIT_BYTES], delays
