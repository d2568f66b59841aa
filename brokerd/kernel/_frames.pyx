# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The compiled kernel. :mod:`brokerd.kernel.frames` defines the behaviour and has the docstrings."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memchr, memcmp, memcpy, memset

from nsqwire import histogram as _histogram

cdef extern from *:
    """
    #define prefetch(at) __builtin_prefetch(at)
    """
    void prefetch(const void*) nogil

cdef extern from "xxh3.h":
    uint64_t xxh3_64(const uint8_t*, size_t) nogil

cdef enum:
    FIN_LINE = 21
    TOUCH_LINE = 23
    REQ_TIMEOUT_AT = 21
    COMPLETE = 0
    MORE = 1
    BAD_SIZE = 2
    SEQ_BITS = 40
    FREE = 0
    IN_FLIGHT = 1
    FIRST_CAPACITY = 64
    CACHE_LINE = 64
    PREFETCHED_BYTES = 4096
    KEPT_CAPACITY = 4096
    PUB_WORD = 4
    MPUB_WORD = 5

cdef uint64_t SEQ_MASK = (<uint64_t>1 << SEQ_BITS) - 1
cdef uint64_t NEWLINES = 0x0A0A0A0A0A0A0A0A
cdef uint64_t SPACES = 0x2020202020202020
cdef const char* HEX = b"0123456789abcdef"
cdef signed char[256] HEX_VALUE
cdef int MAX_BUCKETS = _histogram.MAX_BUCKETS
cdef int FIRST_BUCKET = _histogram.FIRST_BUCKET
cdef int64_t ZERO_THRESHOLD = _histogram.ZERO_THRESHOLD_NS
cdef int64_t[4096] UPPER_BOUNDS


cdef void _fill_tables() except *:
    cdef int i
    if MAX_BUCKETS > 4096:
        raise ImportError("more histogram buckets than the compiled kernel holds")
    for i in range(256):
        HEX_VALUE[i] = -1
    for i in range(16):
        HEX_VALUE[<uint8_t>HEX[i]] = i
    for i in range(MAX_BUCKETS):
        UPPER_BOUNDS[i] = _histogram.UPPER_BOUNDS[i]


_fill_tables()


cdef inline bint has_byte(const uint8_t* at, uint64_t pattern) noexcept nogil:
    """Return whether one of eight bytes equals the byte that ``pattern`` has eight times."""
    cdef uint64_t word
    memcpy(&word, at, 8)
    word ^= pattern
    return ((word - <uint64_t>0x0101010101010101) & ~word & <uint64_t>0x8080808080808080) != 0


cdef inline bint is_id(const uint8_t* at) noexcept nogil:
    """Return whether sixteen bytes are a parameter of a line, without a separator."""
    return not (
        has_byte(at, NEWLINES) or has_byte(at + 8, NEWLINES) or has_byte(at, SPACES) or has_byte(at + 8, SPACES)
    )


cdef inline bint is_last_id(const uint8_t* at) noexcept nogil:
    """Return whether sixteen bytes are the last parameter of a line, without the CR of its CR LF."""
    return is_id(at) and at[15] != 13


cdef inline void count_up(uint8_t* digits) noexcept nogil:
    """Increment a number of ten hex digits."""
    cdef int i = 9
    while i >= 0:
        if digits[i] == c"9":
            digits[i] = c"a"
            return
        if digits[i] != c"f":
            digits[i] += 1
            return
        digits[i] = c"0"
        i -= 1


cdef void write_head(
    uint8_t* at, uint32_t body_size, uint64_t timestamp_be, const uint8_t* id_head, uint64_t seq
) noexcept nogil:
    cdef uint32_t field = to_be32(HEAD_BYTES - 4 + body_size)
    cdef int i
    memcpy(at, &field, 4)
    field = to_be32(2)
    memcpy(at + 4, &field, 4)
    memcpy(at + 8, &timestamp_be, 8)
    at[16] = 0
    at[17] = 1
    memcpy(at + 18, id_head, 6)
    for i in range(10):
        at[33 - i] = HEX[seq & 15]
        seq >>= 4


def append_messages(
    uint8_t[::1] log, Py_ssize_t offset, const uint8_t[::1] messages, Py_ssize_t count, int64_t timestamp,
    const uint8_t[::1] id_head, uint64_t first_seq, Py_ssize_t gap=0,
):
    cdef uint64_t timestamp_be = to_be64(<uint64_t>timestamp)
    cdef const uint8_t* source = &messages[0]
    cdef uint8_t* target = &log[0]
    cdef const uint8_t* head = &id_head[0]
    cdef uint32_t size
    cdef Py_ssize_t i
    for i in range(count):
        source += gap
        size = read32(source)
        write_head(target + offset, size, timestamp_be, head, first_seq + i)
        memcpy(target + offset + HEAD_BYTES, source + 4, size)
        offset += HEAD_BYTES + size
        source += 4 + size
    return offset


def append_batches(
    uint8_t[::1] log, Py_ssize_t offset, const uint8_t[::1] commands, Py_ssize_t count, int64_t timestamp,
    const uint8_t[::1] id_head, uint64_t first_seq, Py_ssize_t gap,
):
    cdef uint64_t timestamp_be = to_be64(<uint64_t>timestamp)
    cdef const uint8_t* source = &commands[0]
    cdef uint8_t* target = &log[0]
    cdef const uint8_t* head = &id_head[0]
    cdef uint32_t size
    cdef uint32_t messages
    while count:
        messages = read32(source + gap)
        source += gap + 4
        while messages:
            size = read32(source)
            write_head(target + offset, size, timestamp_be, head, first_seq)
            memcpy(target + offset + HEAD_BYTES, source + 4, size)
            offset += HEAD_BYTES + size
            source += 4 + size
            first_seq += 1
            messages -= 1
        count -= 1
    return offset


def append_bodies(
    uint8_t[::1] log, Py_ssize_t offset, bodies, int64_t timestamp, const uint8_t[::1] id_head, uint64_t first_seq
):
    cdef uint64_t timestamp_be = to_be64(<uint64_t>timestamp)
    cdef uint8_t* target = &log[0]
    cdef const uint8_t* head = &id_head[0]
    cdef const uint8_t[::1] body
    cdef Py_ssize_t size
    for each in bodies:
        body = each
        size = body.shape[0]
        write_head(target + offset, <uint32_t>size, timestamp_be, head, first_seq)
        if size:
            memcpy(target + offset + HEAD_BYTES, &body[0], size)
        offset += HEAD_BYTES + size
        first_seq += 1
    return offset


cdef void write_commit(
    uint8_t* at, uint64_t first_seq, uint64_t end, uint64_t timestamp_be, uint64_t data_hash, uint32_t messages,
    uint32_t defer_ms, uint32_t length
) noexcept nogil:
    cdef uint64_t[4] fields
    cdef uint32_t[4] rest
    fields[0] = to_be64(first_seq)
    fields[1] = to_be64(end)
    fields[2] = timestamp_be
    fields[3] = to_be64(data_hash)
    rest[0] = to_be32(messages)
    rest[1] = to_be32(defer_ms)
    rest[2] = to_be32(length)
    memcpy(at, fields, 32)
    memcpy(at + COMMIT_MESSAGES_AT, rest, 12)
    rest[3] = to_be32(<uint32_t>xxh3_64(at, COMMIT_BYTES - 4))
    memcpy(at + COMMIT_BYTES - 4, &rest[3], 4)


cdef Py_ssize_t walk_commands(
    const uint8_t* at, Py_ssize_t rest, const uint8_t* line, Py_ssize_t length, Py_ssize_t max_size,
    Py_ssize_t max_body, Py_ssize_t* commands
) noexcept nogil:
    """Return the number of messages in the publishes that fill ``rest`` bytes; 0 if there is anything else."""
    cdef bint is_mpub = line[0] == c"M"
    cdef Py_ssize_t most = (max_body - 4) // 5
    cdef Py_ssize_t messages = 0
    cdef int32_t body, left, size
    commands[0] = 0
    while rest:
        if rest < length + 4 or memcmp(at, line, length) != 0:
            return 0
        at += length
        rest -= length
        left = 1
        if is_mpub:
            if rest < 8:
                return 0
            body = <int32_t>read32(at)
            left = <int32_t>read32(at + 4)
            if body <= 0 or body > max_body or left <= 0 or left > most:
                return 0
            at += 8
            rest -= 8
        commands[0] += 1
        messages += left
        while left:
            if rest < 4:
                return 0
            size = <int32_t>read32(at)
            if size <= 0 or size > max_size or rest - 4 < size:
                return 0
            at += 4 + size
            rest -= 4 + size
            left -= 1
    return messages


cdef Py_ssize_t write_commands(
    const uint8_t* at, Py_ssize_t commands, Py_ssize_t length, bint is_mpub, uint8_t* target,
    uint64_t timestamp_be, const uint8_t* id_head, uint64_t seq
) noexcept nogil:
    """Write the frames of publishes that are already counted. Returns the number of bytes."""
    cdef uint8_t* start = target
    cdef uint32_t left, size
    while commands:
        at += length
        left = 1
        if is_mpub:
            left = read32(at + 4)
            at += 8
        while left:
            size = read32(at)
            write_head(target, size, timestamp_be, id_head, seq)
            memcpy(target + HEAD_BYTES, at + 4, size)
            target += HEAD_BYTES + size
            at += 4 + size
            seq += 1
            left -= 1
        commands -= 1
    return target - start


def append_commands(
    commands, Py_ssize_t nbytes, bytes line, Py_ssize_t max_size, Py_ssize_t max_body, log, Py_ssize_t offset,
    Py_ssize_t end, bytes id_head, uint64_t first_seq, int64_t timestamp, index, Py_ssize_t index_offset,
    uint64_t segment_offset,
):
    cdef Py_buffer source
    cdef Py_buffer target
    cdef Py_buffer record
    cdef const uint8_t* wanted = line
    cdef Py_ssize_t length = len(line)
    cdef Py_ssize_t count = 0
    cdef Py_ssize_t messages
    cdef Py_ssize_t written
    cdef bint is_mpub = wanted[0] == c"M"
    cdef uint8_t* at
    PyObject_GetBuffer(commands, &source, PyBUF_SIMPLE)
    try:
        messages = walk_commands(<const uint8_t*>source.buf, nbytes, wanted, length, max_size, max_body, &count)
        # A message's head replaces its size; the lines, and the sizes and counts of MPUBs, are not written.
        written = nbytes - (length + (8 if is_mpub else 0)) * count + (HEAD_BYTES - 4) * messages
        if messages == 0 or offset + written > end:
            return 0, 0, 0
        PyObject_GetBuffer(index, &record, PyBUF_WRITABLE)
        try:
            if index_offset + COMMIT_BYTES > record.len:
                return 0, 0, 0
            PyObject_GetBuffer(log, &target, PyBUF_WRITABLE)
            try:
                at = <uint8_t*>target.buf + offset
                write_commands(
                    <const uint8_t*>source.buf, count, length, is_mpub, at, to_be64(<uint64_t>timestamp),
                    <const uint8_t*>id_head, first_seq
                )
                write_commit(
                    <uint8_t*>record.buf + index_offset, first_seq, segment_offset + <uint64_t>written,
                    to_be64(<uint64_t>timestamp), xxh3_64(at, written), <uint32_t>messages, 0, <uint32_t>written
                )
                return count, messages, written
            finally:
                PyBuffer_Release(&target)
        finally:
            PyBuffer_Release(&record)
    finally:
        PyBuffer_Release(&source)


def write_record(log, Py_ssize_t offset, bytes record):
    cdef Py_buffer target
    cdef Py_ssize_t length = len(record)
    cdef Py_ssize_t end = offset + 8 + length
    cdef uint32_t[2] head
    head[0] = to_be32(<uint32_t>length)
    head[1] = to_be32(<uint32_t>xxh3_64(<const uint8_t*>record, length))
    PyObject_GetBuffer(log, &target, PyBUF_WRITABLE)
    if offset < 0 or end > target.len:
        PyBuffer_Release(&target)
        raise ValueError("the record does not fit")
    memcpy(<uint8_t*>target.buf + offset + 8, <const uint8_t*>record, length)
    memcpy(<uint8_t*>target.buf + offset, head, 8)
    PyBuffer_Release(&target)
    return end


def fin_run(const uint8_t[::1] buffer, Py_ssize_t start, Py_ssize_t end):
    cdef Py_ssize_t count = 0
    cdef const uint8_t* at
    while end - start >= FIN_LINE:
        at = &buffer[start]
        if memcmp(at, b"FIN ", 4) != 0 or at[20] != 10 or not is_last_id(at + 4):
            break
        count += 1
        start += FIN_LINE
    return count


def req_run(const uint8_t[::1] buffer, Py_ssize_t start, Py_ssize_t end):
    cdef Py_ssize_t count = 0
    cdef Py_ssize_t length = REQ_TIMEOUT_AT
    cdef const uint8_t* line
    cdef const uint8_t* at
    if end - start < REQ_TIMEOUT_AT + 2:
        return 0, 0
    line = at = &buffer[start]
    if memcmp(line, b"REQ ", 4) != 0 or line[REQ_TIMEOUT_AT - 1] != 32:
        return 0, 0
    while length < end - start and c"0" <= line[length] <= c"9":
        length += 1
    if length == REQ_TIMEOUT_AT or length > REQ_TIMEOUT_AT + MAX_DIGITS or length == end - start or line[length] != 10:
        return 0, 0
    length += 1
    while (
        end - start >= length
        and memcmp(at, b"REQ ", 4) == 0
        and is_id(at + 4)
        and memcmp(at + 20, line + 20, length - 20) == 0
    ):
        count += 1
        at += length
        start += length
    return length if count else 0, count


def touch_run(const uint8_t[::1] buffer, Py_ssize_t start, Py_ssize_t end):
    cdef Py_ssize_t count = 0
    cdef const uint8_t* at
    while end - start >= TOUCH_LINE:
        at = &buffer[start]
        if memcmp(at, b"TOUCH ", 6) != 0 or at[22] != 10 or not is_last_id(at + 6):
            break
        count += 1
        start += TOUCH_LINE
    return count


def nop_run(const uint8_t[::1] buffer, Py_ssize_t start, Py_ssize_t end):
    cdef const uint8_t* base
    if start == end:
        return start
    base = &buffer[0]
    while end - start >= 4 and memcmp(base + start, b"NOP", 3) == 0:
        if base[start + 3] == 10:
            start += 4
        elif end - start >= 5 and base[start + 3] == 13 and base[start + 4] == 10:
            start += 5
        else:
            break
    return start


cdef Py_ssize_t line_of(const uint8_t* line, Py_ssize_t room, const char* word, Py_ssize_t length) noexcept nogil:
    """Return the length of ``word``, a name and a newline at ``line``; 0 for other bytes."""
    cdef Py_ssize_t start = length
    cdef uint8_t c
    if room <= length or memcmp(line, word, length) != 0:
        return 0
    while length < room:
        c = line[length]
        length += 1
        if c == 10:
            return 0 if length == start + 1 else length
        if c == 32 or c == 13 or length > start + MAX_NAME:
            return 0
    return 0


def pub_run(const uint8_t[::1] buffer, Py_ssize_t start, Py_ssize_t end, Py_ssize_t max_size):
    cdef Py_ssize_t count = 0
    cdef Py_ssize_t length
    cdef const uint8_t* line
    cdef const uint8_t* at
    cdef int32_t size
    if start == end:
        return 0, 0, start
    line = at = &buffer[start]
    length = line_of(line, end - start, b"PUB ", PUB_WORD)
    if length == 0:
        return 0, 0, start
    while end - start >= length + 4 and memcmp(at, line, length) == 0:
        size = <int32_t>read32(at + length)
        if size <= 0 or size > max_size or end - start - length - 4 < size:
            break
        at += length + 4 + size
        start += length + 4 + size
        count += 1
    return length, count, start


def mpub_run(
    const uint8_t[::1] buffer, Py_ssize_t start, Py_ssize_t end, Py_ssize_t max_size, Py_ssize_t max_body
):
    cdef Py_ssize_t count = 0
    cdef Py_ssize_t messages = 0
    cdef Py_ssize_t length
    cdef Py_ssize_t rest
    cdef Py_ssize_t most = (max_body - 4) // 5
    cdef const uint8_t* line
    cdef const uint8_t* at
    cdef int32_t body, held, left, size
    if start == end:
        return 0, 0, 0, start
    line = at = &buffer[start]
    rest = end - start
    length = line_of(line, rest, b"MPUB ", MPUB_WORD)
    if length == 0:
        return 0, 0, 0, start
    while rest >= length + 8 and memcmp(at, line, length) == 0:
        body = <int32_t>read32(at + length)
        held = left = <int32_t>read32(at + length + 4)
        if body <= 0 or body > max_body or held <= 0 or held > most:
            break
        at += length + 8
        rest -= length + 8
        while left and rest >= 4:
            size = <int32_t>read32(at)
            if size <= 0 or size > max_size or rest - 4 < size:
                break
            at += 4 + size
            rest -= 4 + size
            left -= 1
        if left:
            break
        count += 1
        messages += held
        start = end - rest
    return length, count, messages, start


cdef enum:
    MAX_PLAIN_HEAD = 8192
    # character classes
    IN_TARGET = 1
    IN_NAME = 2
    IN_VALUE = 4  # and visible

cdef uint8_t[256] KIND


cdef void _fill_kinds() noexcept:
    cdef int c
    for c in range(256):
        KIND[c] = 0
        if 33 <= c <= 126:
            KIND[c] = IN_VALUE
    for c in b"!$%&'()*+,-./0123456789:;=?@ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz~":
        KIND[c] |= IN_TARGET
    for c in b"-0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz":
        KIND[c] |= IN_NAME


_fill_kinds()


cdef bint same(const uint8_t* text, const char* lower, Py_ssize_t length) noexcept nogil:
    """Return whether ``length`` bytes equal ``lower``, a name of letters and dashes, in any case."""
    cdef Py_ssize_t i
    cdef uint8_t c
    for i in range(length):
        c = text[i]
        if 65 <= c <= 90:
            c += 32
        if c != <uint8_t>lower[i]:
            return False
    return True


def plain_head(bytes data, Py_ssize_t start):
    cdef Py_ssize_t end = min(<Py_ssize_t>len(data), start + MAX_PLAIN_HEAD)
    cdef Py_ssize_t at = start
    cdef Py_ssize_t target_start, target_end, name, value, size, i
    cdef int64_t length = -1
    cdef int hosts = 0
    cdef const uint8_t* base = data
    if end - start < 16:
        return None
    if memcmp(base + at, b"POST /", 6) == 0:
        at += 5
    elif memcmp(base + at, b"GET /", 5) == 0:
        at += 4
    else:
        return None
    target_start = at
    while at < end and KIND[base[at]] & IN_TARGET:
        at += 1
    target_end = at
    if end - at < 11 or memcmp(base + at, b" HTTP/1.1\r\n", 11) != 0:
        return None
    at += 11
    while True:
        name = at
        while at < end and KIND[base[at]] & IN_NAME:
            at += 1
        size = at - name
        if size == 0:
            break
        if at == end or base[at] != 58:  # ":"
            return None
        at += 1
        if at < end and base[at] == 32:
            at += 1
        value = at
        while at < end and (KIND[base[at]] & IN_VALUE or base[at] == 32):
            at += 1
        if end - at < 2 or base[at] != 13 or base[at + 1] != 10:
            return None
        if at > value and (base[value] == 32 or base[at - 1] == 32):
            return None
        if size == 4:
            if same(base + name, b"host", 4):
                hosts += 1
        elif size == 14:
            if same(base + name, b"content-length", 14):
                if length >= 0 or not 0 < at - value <= 9 or (base[value] == 48 and at - value > 1):
                    return None
                length = 0
                for i in range(value, at):
                    if not 48 <= base[i] <= 57:
                        return None
                    length = length * 10 + base[i] - 48
        elif size == 10:
            if same(base + name, b"connection", 10) and not (
                at - value == 10 and same(base + value, b"keep-alive", 10)
            ):
                return None
        elif size == 6:
            if same(base + name, b"expect", 6):
                return None
        elif size == 7:
            if same(base + name, b"upgrade", 7):
                return None
        elif size == 16:
            if same(base + name, b"proxy-connection", 16):
                return None
        elif size == 17:
            if same(base + name, b"transfer-encoding", 17):
                return None
        at += 2
    if hosts != 1 or end - at < 2 or base[at] != 13 or base[at + 1] != 10:
        return None
    return target_start, target_end, at + 2, max(length, 0)


def pack_lines(bytes body, Py_ssize_t max_size):
    cdef const uint8_t* start = body
    cdef const uint8_t* end = start + len(body)
    cdef const uint8_t* at = start
    cdef const uint8_t* stop
    cdef uint8_t* to
    cdef Py_ssize_t count = 0
    cdef Py_ssize_t total = 0
    cdef uint32_t size
    cdef bytes packed
    while at < end:
        stop = <const uint8_t*>memchr(at, 10, end - at)
        if stop == NULL:
            stop = end
        if stop - at > max_size:
            return b"", -1
        if stop > at:
            count += 1
            total += stop - at
        at = stop + 1
    packed = PyBytes_FromStringAndSize(NULL, total + 4 * count)
    to = <uint8_t*>PyBytes_AS_STRING(packed)
    at = start
    while at < end:
        stop = <const uint8_t*>memchr(at, 10, end - at)
        if stop == NULL:
            stop = end
        if stop > at:
            size = to_be32(<uint32_t>(stop - at))
            memcpy(to, &size, 4)
            memcpy(to + 4, at, stop - at)
            to += 4 + (stop - at)
        at = stop + 1
    return packed, count


def scan_messages(
    const uint8_t[::1] buffer, Py_ssize_t offset, Py_ssize_t end, Py_ssize_t remaining, Py_ssize_t max_size
):
    cdef int32_t size
    while remaining:
        if end - offset < 4:
            return MORE, offset, remaining, 0
        size = <int32_t>read32(&buffer[offset])
        if size <= 0 or size > max_size:
            return BAD_SIZE, offset, remaining, size
        if end - offset - 4 < size:
            return MORE, offset, remaining, size
        offset += 4 + size
        remaining -= 1
    return COMPLETE, offset, 0, 0


cdef int64_t decode_seq(const uint8_t* digits, uint64_t head) noexcept nogil:
    """Return ten hex digits as the number of a message near ``head``; -1 for other characters."""
    cdef uint64_t low = 0
    cdef uint64_t seq
    cdef int i, value
    for i in range(10):
        value = HEX_VALUE[digits[i]]
        if value < 0:
            return -1
        low = (low << 4) | <uint64_t>value
    seq = (head & ~SEQ_MASK) | low
    if seq > head + (<uint64_t>1 << (SEQ_BITS - 1)):
        if seq < SEQ_MASK + 1:
            return -1
        seq -= SEQ_MASK + 1
    elif seq + (<uint64_t>1 << (SEQ_BITS - 1)) < head:
        seq += SEQ_MASK + 1
    return <int64_t>seq


cdef int bucket_of(int64_t value) noexcept nogil:
    """bisect_left of a value in the upper bounds."""
    cdef int low = FIRST_BUCKET
    cdef int high = MAX_BUCKETS
    cdef int middle
    while low < high:
        middle = (low + high) // 2
        if UPPER_BOUNDS[middle] < value:
            low = middle + 1
        else:
            high = middle
    return low


cdef bytes packed_range(uint64_t first, uint32_t count):
    """A WAITING_RANGE of messages that were delivered once."""
    cdef uint8_t[RANGE_BYTES] packed
    first = to_be64(first)
    count = to_be32(count)
    memset(packed, 0, RANGE_BYTES)
    memcpy(packed, &first, 8)
    memcpy(packed + 8, &count, 4)
    packed[13] = 1
    return (<const char*>packed)[:RANGE_BYTES]


cdef int64_t bucket_of_latency(int64_t latency_ns) noexcept nogil:
    """Return the bucket of a latency; -1 if it is not counted."""
    return -1 if latency_ns <= ZERO_THRESHOLD else bucket_of(latency_ns)


cdef class Window:
    """A ring of entries, one for each number from ``floor`` to ``head``; no memory while nothing is in flight."""

    def __cinit__(self, uint64_t first_seq):
        self.ring = NULL
        self.buckets = NULL
        self.mask = 0
        self._floor = self._head = first_seq
        self._in_flight_count = 0
        self.zero_count = 0

    def __dealloc__(self):
        free(self.ring)
        free(self.buckets)

    @property
    def head(self):
        return self._head

    @property
    def floor(self):
        return self._floor

    @property
    def in_flight_count(self):
        return self._in_flight_count

    cdef int reserve(self, uint64_t count) except -1:
        """Allocate space for ``count`` more entries above ``head``."""
        cdef uint64_t needed = self._head - self._floor + count
        cdef uint64_t capacity = self.mask + 1 if self.ring != NULL else 0
        cdef Entry* grown
        cdef uint64_t seq
        if needed <= capacity:
            return 0
        if capacity == 0:
            capacity = FIRST_CAPACITY
        while capacity < needed:
            capacity *= 2
        grown = <Entry*>calloc(capacity, sizeof(Entry))
        if grown == NULL:
            raise MemoryError()
        for seq in range(self._floor, self._head):
            grown[seq & (capacity - 1)] = self.ring[seq & self.mask]
        free(self.ring)
        self.ring = grown
        self.mask = capacity - 1
        return 0

    cdef void advance_floor(self) noexcept:
        """Move ``floor`` up to the lowest entry in flight; free a large ring that is empty."""
        while self._floor < self._head and self.ring[self._floor & self.mask].state != IN_FLIGHT:
            self._floor += 1
        if self._floor == self._head and self.mask >= KEPT_CAPACITY:
            free(self.ring)
            self.ring = NULL
            self.mask = 0

    def deliver(
        self, const uint8_t[::1] log, Py_ssize_t offset, Py_ssize_t end, Py_ssize_t max_count, Py_ssize_t max_bytes,
        uint32_t client,
    ):
        cdef const uint8_t* base
        cdef Py_ssize_t start = offset
        cdef Py_ssize_t count = 0
        cdef Py_ssize_t size
        cdef Py_ssize_t fetched = offset
        cdef Py_ssize_t fetch_to
        cdef Entry* entry
        if offset >= end or max_count <= 0:
            return 0, offset
        base = &log[0]
        while count < max_count and offset < end:
            # The end of a frame is known only from its head, so the processor cannot prefetch by itself and would wait
            # for memory at each head. The prefetched bytes are then in the cache when the frames are sent.
            fetch_to = min(end, offset + PREFETCHED_BYTES)
            fetched = max(fetched, offset)
            while fetched < fetch_to:
                prefetch(base + fetched)
                fetched += CACHE_LINE
            size = 4 + <Py_ssize_t>read32(base + offset)
            if count and offset + size - start > max_bytes:
                break
            if self.ring == NULL or self._head - self._floor > self.mask:
                self.reserve(1)
            entry = &self.ring[self._head & self.mask]
            entry.timestamp = <int64_t>read64(base + offset + 8)
            entry.client = client
            entry.state = IN_FLIGHT
            self._head += 1
            offset += size
            count += 1
        self._in_flight_count += count
        return count, offset

    def skip(self, uint64_t count):
        cdef uint64_t i
        if self._floor == self._head:
            self._head += count
            self._floor = self._head
            return
        self.reserve(count)
        for i in range(count):
            self.ring[(self._head + i) & self.mask].state = FREE
        self._head += count

    cdef int observe(self, int bucket, uint64_t times) except -1:
        if bucket < 0:
            self.zero_count += times
            return 0
        if self.buckets == NULL:
            self.buckets = <uint64_t*>calloc(MAX_BUCKETS, sizeof(uint64_t))
            if self.buckets == NULL:
                raise MemoryError()
        self.buckets[bucket] += times
        return 0

    def finish(
        self, const uint8_t[::1] lines, Py_ssize_t count, const uint8_t[::1] id_head, uint32_t client, int64_t now_ns
    ):
        cdef list ranges = []
        cdef list missed = []
        cdef const uint8_t* at = &lines[0] + 4
        cdef const uint8_t* head = &id_head[0]
        cdef Py_ssize_t i
        cdef int64_t seq
        cdef uint8_t[16] next_id
        cdef int64_t next_seq = -1
        cdef int64_t first = -1
        cdef int64_t length = 0
        cdef int64_t last_timestamp = 0
        cdef int bucket = -2
        cdef uint64_t same = 0
        cdef Entry* entry
        for i in range(count):
            if next_seq >= 0 and memcmp(at, next_id, 16) == 0:  # usually in the order of delivery
                seq = next_seq
            elif memcmp(at, head, 6) == 0:
                seq = decode_seq(at + 6, self._head)
                memcpy(next_id, at, 16)
            else:
                seq = -1
            if seq >= 0:
                count_up(next_id + 6)
                next_seq = seq + 1
            else:
                next_seq = -1
            if seq < 0 or <uint64_t>seq < self._floor or <uint64_t>seq >= self._head:
                missed.append((<const char*>at)[:16])
                at += FIN_LINE
                continue
            entry = &self.ring[<uint64_t>seq & self.mask]
            if entry.state != IN_FLIGHT or entry.client != client:
                missed.append((<const char*>at)[:16])
                at += FIN_LINE
                continue
            at += FIN_LINE
            entry.state = FREE
            self._in_flight_count -= 1
            if bucket == -2 or entry.timestamp != last_timestamp:  # a batch has one timestamp and bucket
                if same:
                    self.observe(bucket, same)
                    same = 0
                last_timestamp = entry.timestamp
                if now_ns - last_timestamp <= ZERO_THRESHOLD:
                    bucket = -1
                else:
                    bucket = bucket_of(now_ns - last_timestamp)
            same += 1
            if first + length == seq and length:
                length += 1
            else:
                if length:
                    ranges.append((first, length))
                first = seq
                length = 1
        if same:
            self.observe(bucket, same)
        if length:
            ranges.append((first, length))
        self.advance_floor()
        return ranges, missed

    def take(self, uint64_t first_seq, uint64_t count, uint32_t client):
        cdef list taken = []
        cdef uint64_t seq
        cdef uint64_t last = min(first_seq + count, self._head)
        cdef Entry* entry
        for seq in range(max(first_seq, self._floor), last):
            entry = &self.ring[seq & self.mask]
            if entry.state == IN_FLIGHT and entry.client == client:
                entry.state = FREE
                self._in_flight_count -= 1
                taken.append(seq)
        self.advance_floor()
        return taken

    cdef bint release(self, uint64_t seq, uint32_t client, int64_t* timestamp) noexcept:
        """Remove a message in flight with ``client`` and return its timestamp. The caller then advances the floor."""
        cdef Entry* entry
        if seq < self._floor or seq >= self._head:
            return False
        entry = &self.ring[seq & self.mask]
        if entry.state != IN_FLIGHT or entry.client != client:
            return False
        entry.state = FREE
        timestamp[0] = entry.timestamp
        self._in_flight_count -= 1
        return True

    def pop(self, uint64_t seq, uint32_t client):
        cdef int64_t timestamp
        if not self.release(seq, client, &timestamp):
            return None
        self.advance_floor()
        return timestamp

    def in_flight_ranges(self):
        cdef uint64_t seq
        cdef uint64_t first = 0
        cdef uint32_t count = 0
        cdef list ranges = []
        for seq in range(self._floor, self._head):
            if self.ring[seq & self.mask].state == IN_FLIGHT:
                if not count:
                    first = seq
                count += 1
            elif count:
                ranges.append(packed_range(first, count))
                count = 0
        if count:
            ranges.append(packed_range(first, count))
        return b"".join(ranges)

    cdef int64_t client_number(self, uint64_t seq) noexcept:
        if seq < self._floor or seq >= self._head or self.ring[seq & self.mask].state != IN_FLIGHT:
            return -1
        return self.ring[seq & self.mask].client

    def client_of(self, uint64_t seq):
        return self.client_number(seq)

    def in_flight_below(self, uint64_t max_seq):
        cdef list held = []
        cdef uint64_t seq
        cdef uint64_t last = min(max_seq, self._head)
        for seq in range(self._floor, last):
            if self.ring[seq & self.mask].state == IN_FLIGHT:
                held.append((seq, self.ring[seq & self.mask].client))
        return held

    def clear(self, uint64_t head):
        free(self.ring)
        self.ring = NULL
        self.mask = 0
        self._floor = self._head = head
        self._in_flight_count = 0

    def record(self, int64_t latency_ns):
        self.observe(<int>bucket_of_latency(latency_ns), 1)

    def latencies(self):
        cdef dict counts = {}
        cdef int i
        if self.buckets != NULL:
            for i in range(MAX_BUCKETS):
                if self.buckets[i]:
                    counts[i] = self.buckets[i]
        return self.zero_count, counts
