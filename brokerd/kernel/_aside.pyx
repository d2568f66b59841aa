# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The compiled ``SetAside``. :mod:`brokerd.kernel.aside` defines the behaviour and has the docstrings.

A message takes 56 bytes, 5 to 11 in the table of numbers, and 16 in the heap of times, which contains those in flight
and deferred and has room for all. The requeued messages, and those in flight with each client, are linked lists through
the messages.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.math cimport INFINITY
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, qsort, realloc
from libc.string cimport memcmp, memcpy, memset

from brokerd.kernel._frames cimport (
    COMMIT_BYTES, COMMIT_END_AT, COMMIT_LENGTH_AT, COMMIT_MESSAGES_AT, RANGE_BYTES, Window, bucket_of_latency,
    decode_seq, read32, read64, to_be32, to_be64
)
from brokerd.kernel._runs cimport Runs

from brokerd.kernel.aside import AsideMessage

cdef extern from *:
    """
    #define to_be16(x) __builtin_bswap16(x)
    """
    uint16_t to_be16(uint16_t) nogil

cdef enum:
    FREE = 0
    REQUEUED = 1
    IN_FLIGHT = 2
    DEFERRED = 3
    ATTEMPTS_AT = 16
    TIMESTAMP_AT = 8
    FIRST_CAPACITY = 16
    KEPT_CAPACITY = 1024
    SHRUNK_FROM = 4096
    BLOCK_BITS = 10
    FIRST_BLOCKS = 8
    ARITY = 4
    MAX_AT_ONCE = 4096
    MAX_PLACES = 16

cdef uint32_t NONE = 0xFFFFFFFF


cdef struct Message:
    uint64_t seq
    double when  # deadline or due time
    double sent_at
    int64_t timestamp
    uint32_t holder  # while in flight: index of its client's Holder
    uint32_t previous  # in the list of requeued messages, or of its client's messages
    uint32_t next
    uint32_t place  # index in times, while in flight or deferred
    uint16_t attempts
    uint8_t state
    uint8_t copied


cdef struct List:
    uint32_t first
    uint32_t last
    Py_ssize_t count


cdef struct Holder:
    uint32_t client
    List held


cdef struct Time:
    double when
    uint32_t at


cdef struct Block:
    uint32_t total
    uint32_t needed  # messages of the block that the log has to keep
    uint32_t undeferred  # messages of the block that are not deferred


cdef struct Ranges:
    uint8_t* packed
    Py_ssize_t used
    Py_ssize_t size
    uint64_t first
    uint32_t count
    uint16_t attempts
    uint64_t due_ns


cdef void begin(Ranges* ranges, uint64_t due_ns) noexcept:
    ranges.packed = NULL
    ranges.used = ranges.size = 0
    ranges.count = 0
    ranges.due_ns = to_be64(due_ns)


cdef int end_range(Ranges* ranges) except -1:
    """Pack the current range."""
    cdef uint8_t* grown
    cdef uint64_t first = to_be64(ranges.first)
    cdef uint32_t count = to_be32(ranges.count)
    cdef uint16_t attempts = to_be16(ranges.attempts)
    if not ranges.count:
        return 0
    if ranges.used + RANGE_BYTES > ranges.size:
        grown = <uint8_t*>realloc(ranges.packed, 2 * ranges.size + RANGE_BYTES)
        if grown == NULL:
            raise MemoryError()
        ranges.packed, ranges.size = grown, 2 * ranges.size + RANGE_BYTES
    grown = ranges.packed + ranges.used
    memcpy(grown, &first, 8)
    memcpy(grown + 8, &count, 4)
    memcpy(grown + 12, &attempts, 2)
    memcpy(grown + 14, &ranges.due_ns, 8)
    ranges.used += RANGE_BYTES
    ranges.count = 0
    return 0


cdef inline int add_to(Ranges* ranges, uint64_t seq, uint16_t attempts) except -1:
    if ranges.count and ranges.first + ranges.count == seq and ranges.attempts == attempts:
        ranges.count += 1
        return 0
    end_range(ranges)
    ranges.first, ranges.count, ranges.attempts = seq, 1, attempts
    return 0


cdef inline int set_due(Ranges* ranges, double due, int64_t clock_offset_ns) except -1:
    """Begin another range if the next messages have another due time; 0 means none."""
    cdef uint64_t due_ns = to_be64(<uint64_t>(<int64_t>(due * 1e9) + clock_offset_ns)) if due != 0 else 0
    if due_ns != ranges.due_ns:
        end_range(ranges)
        ranges.due_ns = due_ns
    return 0


cdef bytes finished(Ranges* ranges):
    """Return the packed ranges and free their memory."""
    cdef bytes packed
    try:
        end_range(ranges)
        packed = (<const char*>ranges.packed)[:ranges.used] if ranges.used else b""
    finally:
        free(ranges.packed)
        ranges.packed = NULL
    return packed


cdef Py_ssize_t batch_of(const uint8_t* index, Py_ssize_t batches, uint64_t seq) noexcept nogil:
    """The position of the first commit record whose batch ends above ``seq``."""
    cdef Py_ssize_t low = 0
    cdef Py_ssize_t high = batches
    cdef Py_ssize_t middle
    while low < high:
        middle = (low + high) // 2
        if read64(index + middle * COMMIT_BYTES) + read32(index + middle * COMMIT_BYTES + COMMIT_MESSAGES_AT) <= seq:
            low = middle + 1
        else:
            high = middle
    return low


def find_batch(const uint8_t[::1] index, Py_ssize_t batches, uint64_t seq):
    return batch_of(&index[0], batches, seq) if batches else 0


cdef struct Place:
    const uint8_t* log
    const uint8_t* index
    Py_ssize_t batches
    uint64_t first
    uint64_t end
    uint64_t walked  # the number of the message at ``offset``, in a batch up to ``batch_end``
    uint64_t batch_end
    Py_ssize_t offset


cdef const uint8_t* frame_in(Place* place, uint64_t seq) noexcept nogil:
    """Return the frame of message ``seq``; NULL if it is in no batch."""
    cdef const uint8_t* record
    cdef const uint8_t* frame
    cdef Py_ssize_t batch
    if not place.walked <= seq < place.batch_end:
        batch = batch_of(place.index, place.batches, seq)
        if batch == place.batches:
            return NULL
        record = place.index + batch * COMMIT_BYTES
        place.walked = read64(record)
        place.batch_end = place.walked + read32(record + COMMIT_MESSAGES_AT)
        place.offset = <Py_ssize_t>read64(record + COMMIT_END_AT) - <Py_ssize_t>read32(record + COMMIT_LENGTH_AT)
        if seq < place.walked:
            place.batch_end = 0
            return NULL
    while place.walked < seq:
        place.offset += 4 + <Py_ssize_t>read32(place.log + place.offset)
        place.walked += 1
    frame = place.log + place.offset
    place.offset += 4 + <Py_ssize_t>read32(frame)
    place.walked += 1
    return frame


cdef class Places:
    """The segments that one delivery reads."""

    cdef Place[MAX_PLACES] places
    cdef Py_buffer[2 * MAX_PLACES] buffers
    cdef int count
    cdef int buffer_count

    def __cinit__(self):
        self.count = self.buffer_count = 0

    def __dealloc__(self):
        cdef int i
        for i in range(self.buffer_count):
            PyBuffer_Release(&self.buffers[i])

    cdef Place* of(self, uint64_t seq) noexcept:
        """Return the place that has message ``seq``; NULL if there is none."""
        cdef int i
        for i in range(self.count):
            if self.places[i].first <= seq < self.places[i].end:
                return &self.places[i]
        return NULL

    cdef const uint8_t* hold(self, data) except? NULL:
        PyObject_GetBuffer(data, &self.buffers[self.buffer_count], PyBUF_SIMPLE)
        self.buffer_count += 1
        return <const uint8_t*>self.buffers[self.buffer_count - 1].buf

    cdef Place* add(self, found) except? NULL:
        """Add a result of ``place_of``. Returns NULL for None, and if there are too many."""
        cdef Place* place = &self.places[self.count]
        if found is None or self.count == MAX_PLACES:
            return NULL
        log, index, place.batches, place.first, place.end = found
        place.log, place.index = self.hold(log), self.hold(index)
        place.walked = place.batch_end = 0
        self.count += 1
        return place


cdef int by_value(const void* left, const void* right) noexcept nogil:
    cdef uint64_t a = (<const uint64_t*>left)[0]
    cdef uint64_t b = (<const uint64_t*>right)[0]
    return (a > b) - (a < b)


cdef class SetAside:
    cdef readonly dict frames
    cdef Message* messages
    cdef uint32_t capacity
    cdef uint32_t used  # messages[used:] were never in use
    cdef uint32_t freed  # first in the list of free messages below ``used``
    cdef uint32_t count
    cdef uint32_t* table
    cdef uint64_t table_mask
    cdef Time* times  # a heap
    cdef uint32_t time_count
    cdef uint32_t time_capacity
    cdef List waiting
    cdef Py_ssize_t _in_flight_count
    cdef Py_ssize_t _deferred_count
    cdef Holder* holders
    cdef uint32_t holder_count
    cdef uint32_t holder_capacity
    cdef dict holder_of_client
    cdef list free_holders
    cdef Block* blocks  # a ring over the numbers from first_block to end_block, by 1,024
    cdef uint64_t block_mask
    cdef uint64_t first_block
    cdef uint64_t end_block
    cdef uint64_t needed_from  # no message below it is needed from the log
    cdef uint64_t undeferred_from  # no message below it is undeferred

    def __cinit__(self):
        self.frames = {}
        self.holder_of_client = {}
        self.free_holders = []
        self.messages = NULL
        self.table = NULL
        self.times = NULL
        self.holders = NULL
        self.blocks = NULL
        self.holder_count = self.holder_capacity = 0
        self.forget_all()

    def __dealloc__(self):
        self.forget_all()
        free(self.holders)

    cdef void forget_all(self) noexcept:
        """Remove all messages and free their memory; holders stay."""
        free(self.messages)
        free(self.table)
        free(self.times)
        free(self.blocks)
        self.messages = NULL
        self.table = NULL
        self.times = NULL
        self.blocks = NULL
        self.capacity = self.used = self.count = 0
        self.freed = NONE
        self.table_mask = self.block_mask = 0
        self.time_count = self.time_capacity = 0
        self.waiting.first = self.waiting.last = NONE
        self.waiting.count = 0
        self._in_flight_count = self._deferred_count = 0
        self.first_block = self.end_block = 0
        self.needed_from = self.undeferred_from = 0

    def __len__(self):
        return self.count

    def __contains__(self, uint64_t seq):
        return self.find(seq) != NONE

    @property
    def requeued_count(self):
        return self.waiting.count

    @property
    def in_flight_count(self):
        return self._in_flight_count

    @property
    def deferred_count(self):
        return self._deferred_count

    # -- the table of numbers -------------------------------------------------------------------------------------

    cdef inline uint64_t home(self, uint64_t seq) noexcept:
        """The slot of a number. Sixteen consecutive numbers share a cache line; such groups are scattered, because two
        dense ranges would collide otherwise."""
        cdef uint64_t row = (seq >> 4) * <uint64_t>0x9E3779B97F4A7C15
        return ((row >> 28) << 4 | (seq & 15)) & self.table_mask

    cdef inline uint32_t find(self, uint64_t seq) noexcept:
        cdef uint64_t i
        if self.table == NULL:
            return NONE
        i = self.home(seq)
        while self.table[i] != NONE:
            if self.messages[self.table[i]].seq == seq:
                return self.table[i]
            i = (i + 1) & self.table_mask
        return NONE

    cdef inline void enter(self, uint32_t at) noexcept:
        cdef uint64_t i = self.home(self.messages[at].seq)
        while self.table[i] != NONE:
            i = (i + 1) & self.table_mask
        self.table[i] = at

    cdef void leave_table(self, uint32_t at) noexcept:
        cdef uint64_t i = self.home(self.messages[at].seq)
        cdef uint64_t j, home
        while self.table[i] != at:
            i = (i + 1) & self.table_mask
        j = i
        while True:  # close the gap, so that entries displaced over it are still found
            j = (j + 1) & self.table_mask
            if self.table[j] == NONE:
                break
            home = self.home(self.messages[self.table[j]].seq)
            if (i < home <= j) if i <= j else (i < home or home <= j):
                continue
            self.table[i] = self.table[j]
            i = j
        self.table[i] = NONE

    cdef int resize_table(self, uint64_t size) except -1:
        cdef uint32_t at
        cdef uint32_t* table = <uint32_t*>malloc(size * sizeof(uint32_t))
        if table == NULL:
            raise MemoryError()
        memset(table, 0xFF, size * sizeof(uint32_t))
        free(self.table)
        self.table, self.table_mask = table, size - 1
        for at in range(self.used):
            if self.messages[at].state != FREE:
                self.enter(at)
        return 0

    # -- messages -------------------------------------------------------------------------------------------------

    cdef uint32_t make(self, uint64_t seq, uint16_t attempts) except? 0xFFFFFFFF:
        """Create a message. The caller sets its state, with ``put`` or one of the functions ``set_…``."""
        cdef uint32_t at
        cdef uint32_t capacity
        cdef void* grown
        cdef Message* message
        cdef uint64_t size
        if self.freed == NONE and self.used == self.capacity:
            capacity = 2 * self.capacity if self.capacity else FIRST_CAPACITY
            grown = realloc(self.messages, capacity * sizeof(Message))
            if grown == NULL:
                raise MemoryError()
            self.messages, self.capacity = <Message*>grown, capacity
        if self.time_capacity < self.count + 1:  # so that no change of state can fail
            capacity = self.capacity
            grown = realloc(self.times, capacity * sizeof(Time))
            if grown == NULL:
                raise MemoryError()
            self.times, self.time_capacity = <Time*>grown, capacity
        size = self.table_mask + 1 if self.table != NULL else 0
        if 4 * (<uint64_t>self.count + 1) > 3 * size:
            self.resize_table(2 * size if size else 2 * FIRST_CAPACITY)
        self.reach(seq >> BLOCK_BITS)
        if self.freed != NONE:
            at = self.freed
            self.freed = self.messages[at].next
        else:
            at = self.used
            self.used += 1
        message = &self.messages[at]
        message.seq, message.attempts = seq, attempts
        message.when = message.sent_at = 0
        message.timestamp = 0
        message.holder = message.previous = message.next = message.place = NONE
        message.state, message.copied = REQUEUED, False
        self.enter(at)
        self.count += 1
        self.note_needed(seq)
        return at

    cdef int forget(self, uint32_t at) except -1:
        """Remove a message. The caller must call ``shrink`` afterwards."""
        cdef Message* message = &self.messages[at]
        cdef Block* block = &self.blocks[(message.seq >> BLOCK_BITS) & self.block_mask]
        self.detach(at)
        self.leave_table(at)
        block.total -= 1
        if message.copied:
            self.frames.pop(message.seq, None)
        else:
            block.needed -= 1
        message.state = FREE
        message.next = self.freed
        self.freed = at
        self.count -= 1
        return 0

    cdef int shrink(self) except -1:
        """Free memory if most of it is unused."""
        if self.capacity > KEPT_CAPACITY and not self.count:
            self.forget_all()
        elif self.capacity > SHRUNK_FROM and self.count < self.capacity // 8:
            self.compact()
        return 0

    cdef int compact(self) except -1:
        """Move the messages to the front of a smaller array."""
        cdef uint32_t low = 0
        cdef uint32_t high = self.used
        cdef uint32_t capacity = FIRST_CAPACITY
        cdef void* smaller
        while True:
            while low < high and self.messages[low].state != FREE:
                low += 1
            while low < high and self.messages[high - 1].state == FREE:
                high -= 1
            if low >= high:
                break
            self.move(high - 1, low)
        self.used, self.freed = self.count, NONE
        while capacity < 2 * self.count:
            capacity *= 2
        smaller = realloc(self.messages, capacity * sizeof(Message))
        if smaller != NULL:
            self.messages, self.capacity = <Message*>smaller, capacity
        smaller = realloc(self.times, capacity * sizeof(Time))
        if smaller != NULL:
            self.times, self.time_capacity = <Time*>smaller, capacity
        self.resize_table(2 * <uint64_t>capacity)
        return 0

    cdef void move(self, uint32_t source, uint32_t target) noexcept:
        """Move a message to a free place. The caller rebuilds the table afterwards."""
        cdef Message* message = &self.messages[target]
        cdef List* links
        message[0] = self.messages[source]
        self.messages[source].state = FREE
        if message.state != REQUEUED:
            self.times[message.place].at = target
        if message.state == DEFERRED:
            return
        links = &self.waiting if message.state == REQUEUED else &self.holders[message.holder].held
        if message.previous != NONE:
            self.messages[message.previous].next = target
        else:
            links.first = target
        if message.next != NONE:
            self.messages[message.next].previous = target
        else:
            links.last = target

    # -- states ---------------------------------------------------------------------------------------------------

    cdef inline void link(self, List* links, uint32_t at) noexcept:
        cdef Message* message = &self.messages[at]
        message.previous, message.next = links.last, NONE
        if links.last != NONE:
            self.messages[links.last].next = at
        else:
            links.first = at
        links.last = at
        links.count += 1

    cdef inline void unlink(self, List* links, uint32_t at) noexcept:
        cdef Message* message = &self.messages[at]
        if message.previous != NONE:
            self.messages[message.previous].next = message.next
        else:
            links.first = message.next
        if message.next != NONE:
            self.messages[message.next].previous = message.previous
        else:
            links.last = message.previous
        links.count -= 1

    cdef inline void detach(self, uint32_t at) noexcept:
        """Remove a message from its state; the caller sets another."""
        cdef Message* message = &self.messages[at]
        if message.state == REQUEUED:
            self.unlink(&self.waiting, at)
        elif message.state == IN_FLIGHT:
            self.unlink(&self.holders[message.holder].held, at)
            self.take_time(message.place)
            self._in_flight_count -= 1
        else:
            self.take_time(message.place)
            self._deferred_count -= 1
            return
        self.blocks[(message.seq >> BLOCK_BITS) & self.block_mask].undeferred -= 1

    cdef inline void note_undeferred(self, uint64_t seq) noexcept:
        self.blocks[(seq >> BLOCK_BITS) & self.block_mask].undeferred += 1
        if seq < self.undeferred_from:
            self.undeferred_from = seq

    cdef inline void set_requeued(self, uint32_t at) noexcept:
        cdef Message* message = &self.messages[at]
        message.state = REQUEUED
        message.when = message.sent_at = 0
        self.link(&self.waiting, at)
        self.note_undeferred(message.seq)

    cdef inline void set_deferred(self, uint32_t at, double due) noexcept:
        cdef Message* message = &self.messages[at]
        message.state = DEFERRED
        message.when, message.sent_at = due, 0
        self._deferred_count += 1
        self.add_time(at)

    cdef inline void put(self, uint32_t at, double due) noexcept:
        if due != 0:
            self.set_deferred(at, due)
        else:
            self.set_requeued(at)

    cdef inline void set_in_flight(self, uint32_t at, uint32_t holder, double sent_at, double deadline) noexcept:
        cdef Message* message = &self.messages[at]
        message.state = IN_FLIGHT
        message.holder = holder
        message.when, message.sent_at = deadline, sent_at
        self._in_flight_count += 1
        self.link(&self.holders[holder].held, at)
        self.add_time(at)
        self.note_undeferred(message.seq)

    cdef uint32_t holder(self, uint32_t client) except? 0xFFFFFFFF:
        """Return the index of a client's Holder, created if needed."""
        cdef Holder* grown
        cdef uint32_t capacity
        cdef uint32_t index
        found = self.holder_of_client.get(client)
        if found is not None:
            return found
        if self.free_holders:
            index = self.free_holders.pop()
        else:
            if self.holder_count == self.holder_capacity:
                capacity = 2 * self.holder_capacity if self.holder_capacity else 4
                grown = <Holder*>realloc(self.holders, capacity * sizeof(Holder))
                if grown == NULL:
                    raise MemoryError()
                self.holders, self.holder_capacity = grown, capacity
            index = self.holder_count
            self.holder_count += 1
        self.holders[index].client = client
        self.holders[index].held.first = self.holders[index].held.last = NONE
        self.holders[index].held.count = 0
        self.holder_of_client[client] = index
        return index

    cdef uint32_t known_holder(self, uint32_t client) except? 0xFFFFFFFE:
        """As ``holder``, without creating it; NONE if the client has none."""
        found = self.holder_of_client.get(client)
        return NONE if found is None else found

    # -- times, a heap with four children a node --------------------------------------------------------------------

    cdef inline bint sooner(self, Time* left, Time* right) noexcept:
        if left.when != right.when:
            return left.when < right.when
        return self.messages[left.at].seq < self.messages[right.at].seq

    cdef inline void set_time(self, uint32_t place, Time time) noexcept:
        self.times[place] = time
        self.messages[time.at].place = place

    cdef void rise(self, uint32_t place, Time time) noexcept:
        cdef uint32_t parent
        while place:
            parent = (place - 1) // ARITY
            if not self.sooner(&time, &self.times[parent]):
                break
            self.set_time(place, self.times[parent])
            place = parent
        self.set_time(place, time)

    cdef void sink(self, uint32_t place, Time time) noexcept:
        cdef uint64_t child, least, stop
        while True:
            child = <uint64_t>place * ARITY + 1
            if child >= self.time_count:
                break
            stop = min(child + ARITY, <uint64_t>self.time_count)
            least = child
            child += 1
            while child < stop:
                if self.sooner(&self.times[child], &self.times[least]):
                    least = child
                child += 1
            if not self.sooner(&self.times[least], &time):
                break
            self.set_time(place, self.times[least])
            place = <uint32_t>least
        self.set_time(place, time)

    cdef inline void add_time(self, uint32_t at) noexcept:
        cdef Time time
        time.when, time.at = self.messages[at].when, at
        self.time_count += 1
        self.rise(self.time_count - 1, time)

    cdef inline void take_time(self, uint32_t place) noexcept:
        cdef Time last
        self.time_count -= 1
        if place == self.time_count:
            return
        last = self.times[self.time_count]
        if place and self.sooner(&last, &self.times[(place - 1) // ARITY]):
            self.rise(place, last)
        else:
            self.sink(place, last)

    # -- the lowest numbers ---------------------------------------------------------------------------------------

    cdef int reach(self, uint64_t block) except -1:
        """Extend the ring of blocks to ``block``."""
        cdef uint64_t first, end, each
        cdef uint64_t size = self.block_mask + 1 if self.blocks != NULL else 0
        cdef Block* grown
        if not self.count:
            self.first_block = self.end_block = block
        first, end = min(self.first_block, block), max(self.end_block, block + 1)
        if end - first > size:
            while self.first_block < min(self.end_block, block) and self.is_empty(self.first_block):
                self.first_block += 1
            first = min(self.first_block, block)
        if end - first > size:
            size = max(size, <uint64_t>FIRST_BLOCKS)
            while size < end - first:
                size *= 2
            grown = <Block*>calloc(size, sizeof(Block))
            if grown == NULL:
                raise MemoryError()
            for each in range(self.first_block, self.end_block):
                grown[each & (size - 1)] = self.blocks[each & self.block_mask]
            free(self.blocks)
            self.blocks, self.block_mask = grown, size - 1
        else:
            for each in range(first, self.first_block):
                memset(&self.blocks[each & self.block_mask], 0, sizeof(Block))
            for each in range(self.end_block, end):
                memset(&self.blocks[each & self.block_mask], 0, sizeof(Block))
        self.first_block, self.end_block = first, end
        return 0

    cdef inline bint is_empty(self, uint64_t block) noexcept:
        return self.blocks[block & self.block_mask].total == 0

    cdef inline void note_needed(self, uint64_t seq) noexcept:
        cdef Block* block = &self.blocks[(seq >> BLOCK_BITS) & self.block_mask]
        block.total += 1
        block.needed += 1
        if seq < self.needed_from:
            self.needed_from = seq

    cdef int64_t lowest_of(self, bint undeferred) noexcept:
        """The lowest number that is undeferred, or else needed; -1 if there is none."""
        cdef uint64_t seq = self.undeferred_from if undeferred else self.needed_from
        cdef Block* block
        cdef uint32_t at
        cdef int64_t found = -1
        seq = max(seq, self.first_block << BLOCK_BITS)
        while seq >> BLOCK_BITS < self.end_block:
            block = &self.blocks[(seq >> BLOCK_BITS) & self.block_mask]
            if not (block.undeferred if undeferred else block.needed):
                seq = ((seq >> BLOCK_BITS) + 1) << BLOCK_BITS
                continue
            at = self.find(seq)
            if at != NONE and (self.messages[at].state != DEFERRED if undeferred else not self.messages[at].copied):
                found = <int64_t>seq
                break
            seq += 1
        if undeferred:
            self.undeferred_from = seq
        else:
            self.needed_from = seq
        return found

    @property
    def lowest(self):
        cdef int64_t seq = self.lowest_of(False)
        return None if seq < 0 else seq

    @property
    def lowest_undeferred(self):
        cdef int64_t seq = self.lowest_of(True)
        return None if seq < 0 else seq

    # -- setting aside --------------------------------------------------------------------------------------------

    def add(self, uint64_t seq, uint16_t attempts, double due):
        self.put(self.make(seq, attempts), due)

    def defer(self, uint64_t first, bytes delays, double now, int64_t clock_offset_ns):
        cdef Ranges ranges
        cdef const uint32_t* delay_ms = <const uint32_t*><const char*>delays
        cdef Py_ssize_t i
        cdef double due
        begin(&ranges, 0)
        for i in range(len(delays) // 4):
            if self.find(first + i) != NONE:
                continue
            due = now + delay_ms[i] / 1000.0
            self.set_deferred(self.make(first + i, 0), due)
            set_due(&ranges, due, clock_offset_ns)
            add_to(&ranges, first + i, 0)
        return finished(&ranges)

    def take_over(self, Window window, uint64_t seq, uint32_t client, double sent_at, double deadline):
        cdef uint32_t holder = self.holder(client)
        cdef uint32_t at = self.from_window(window, seq, client)
        assert at != NONE
        window.advance_floor()
        self.set_in_flight(at, holder, sent_at, deadline)

    def requeue_run(self, Window window, uint64_t first, uint64_t end, uint32_t client):
        cdef uint64_t seq
        cdef uint32_t at
        cdef Py_ssize_t count = 0
        for seq in range(max(first, window._floor), min(end, window._head)):
            at = self.from_window(window, seq, client)
            if at != NONE:
                self.set_requeued(at)
                count += 1
        window.advance_floor()
        return count

    cdef uint32_t from_window(self, Window window, uint64_t seq, uint32_t client) except? 0xFFFFFFFE:
        """Create the message from its entry in the window, if it is in flight there with ``client``, otherwise return
        NONE. The caller sets its state, and must call the window's ``advance_floor`` afterwards.
        """
        cdef uint32_t at
        cdef int64_t timestamp
        if window.client_number(seq) != client:
            return NONE
        at = self.make(seq, 1)
        window.release(seq, client, &timestamp)
        self.messages[at].timestamp = timestamp
        return at

    # -- REQ, TOUCH, FIN ------------------------------------------------------------------------------------------

    cdef inline bint is_held(self, Window window, int64_t seq) noexcept:
        """Return whether a message is in flight with any client."""
        cdef uint32_t at
        if seq < 0:
            return False
        at = self.find(<uint64_t>seq)
        return window.client_number(<uint64_t>seq) >= 0 or (at != NONE and self.messages[at].state == IN_FLIGHT)

    cdef inline uint32_t held(self, int64_t seq, uint32_t holder) noexcept:
        """Return the message if it is in flight here with the client of ``holder``, otherwise NONE."""
        cdef uint32_t at
        if seq < 0 or holder == NONE:
            return NONE
        at = self.find(<uint64_t>seq)
        if at == NONE or self.messages[at].state != IN_FLIGHT or self.messages[at].holder != holder:
            return NONE
        return at

    def requeue(
        self, Window window, const uint8_t[::1] lines, Py_ssize_t count, Py_ssize_t id_at, const uint8_t[::1] id_head,
        uint32_t client, double due, uint64_t due_ns,
    ):
        cdef Ranges ranges
        cdef list failures = []
        cdef Py_ssize_t taken = 0
        cdef Py_ssize_t length = lines.shape[0] // count
        cdef const uint8_t* message_id = &lines[id_at]
        cdef uint32_t holder = self.known_holder(client)
        cdef uint32_t at
        cdef int64_t seq
        cdef Py_ssize_t i
        begin(&ranges, due_ns)
        for i in range(count):
            seq = decode_seq(message_id + 6, window._head) if memcmp(message_id, &id_head[0], 6) == 0 else -1
            at = self.from_window(window, <uint64_t>seq, client) if seq >= 0 else NONE
            if at == NONE:
                at = self.held(seq, holder)
                if at != NONE:
                    self.detach(at)
            if at == NONE:
                failures.append(((<const char*>message_id)[:16], self.is_held(window, seq)))
            else:
                self.put(at, due)
                taken += 1
                if due != 0:
                    add_to(&ranges, <uint64_t>seq, self.messages[at].attempts)
            message_id += length
        window.advance_floor()
        return taken, finished(&ranges), failures

    def touch(
        self, Window window, Runs runs, const uint8_t[::1] lines, Py_ssize_t count, Py_ssize_t id_at,
        const uint8_t[::1] id_head, uint32_t client, double deadline, double max_timeout_s,
    ):
        cdef list failures = []
        cdef Py_ssize_t length = lines.shape[0] // count
        cdef const uint8_t* message_id = &lines[id_at]
        cdef uint32_t holder = self.holder(client)
        cdef uint32_t at
        cdef int64_t seq
        cdef double sent_at
        cdef Py_ssize_t i
        for i in range(count):
            seq = decode_seq(message_id + 6, window._head) if memcmp(message_id, &id_head[0], 6) == 0 else -1
            at = self.from_window(window, <uint64_t>seq, client) if seq >= 0 else NONE
            if at != NONE:
                sent_at = runs.sent_at_of(<uint64_t>seq)
            else:
                at = self.held(seq, holder)
                if at != NONE:
                    sent_at = self.messages[at].sent_at
                    self.detach(at)
            if at == NONE:
                failures.append(((<const char*>message_id)[:16], self.is_held(window, seq)))
            else:
                self.set_in_flight(at, holder, sent_at, min(deadline, sent_at + max_timeout_s))
            message_id += length
        window.advance_floor()
        return failures

    def finish(self, Window window, list ids, const uint8_t[::1] id_head, uint32_t client, int64_t now_ns):
        cdef list ranges = []
        cdef list failures = []
        cdef uint32_t holder = self.known_holder(client)
        cdef const uint8_t* at_id
        cdef uint32_t at
        cdef int64_t seq
        cdef int64_t first = 0
        cdef int64_t length = 0
        cdef bytes message_id
        for message_id in ids:
            at_id = <const uint8_t*><const char*>message_id
            seq = decode_seq(at_id + 6, window._head) if memcmp(at_id, &id_head[0], 6) == 0 else -1
            at = self.held(seq, holder)
            if at == NONE:
                failures.append((message_id, self.is_held(window, seq)))
                continue
            window.observe(<int>bucket_of_latency(now_ns - self.messages[at].timestamp), 1)
            self.forget(at)
            if length and first + length == seq:
                length += 1
                continue
            if length:
                ranges.append((first, length))
            first, length = seq, 1
        if length:
            ranges.append((first, length))
        self.shrink()
        return ranges, failures

    def leave(self, uint32_t client):
        cdef uint32_t holder = self.known_holder(client)
        cdef Py_ssize_t count, i
        cdef uint64_t* seqs
        cdef uint32_t at
        if holder == NONE:
            return 0
        count = self.holders[holder].held.count
        if count:
            seqs = <uint64_t*>malloc(count * sizeof(uint64_t))
            if seqs == NULL:
                raise MemoryError()
            at = self.holders[holder].held.first
            for i in range(count):
                seqs[i] = self.messages[at].seq
                at = self.messages[at].next
            qsort(seqs, count, sizeof(uint64_t), by_value)
            for i in range(count):
                at = self.find(seqs[i])
                self.detach(at)
                self.set_requeued(at)
            free(seqs)
        del self.holder_of_client[client]
        self.free_holders.append(holder)
        return count

    # -- delivery -------------------------------------------------------------------------------------------------

    cdef inline int deliver_next(
        self, uint8_t* frame, Ranges* ranges, uint32_t holder, double sent_at, double deadline
    ) except -1:
        """Put the next requeued message in flight, and write its new attempts to ``frame``."""
        cdef uint32_t at = self.waiting.first
        cdef Message* message = &self.messages[at]
        cdef uint16_t attempts
        message.attempts += 1
        message.timestamp = <int64_t>read64(frame + TIMESTAMP_AT)
        attempts = to_be16(message.attempts)
        memcpy(frame + ATTEMPTS_AT, &attempts, 2)
        self.detach(at)
        self.set_in_flight(at, holder, sent_at, deadline)
        add_to(ranges, message.seq, message.attempts)
        return 0

    def deliver_copy(self, const uint8_t[::1] frame, uint32_t client, double sent_at, double deadline):
        cdef Ranges ranges
        cdef uint32_t holder = self.holder(client)
        cdef bytes changed = (<const char*>&frame[0])[:frame.shape[0]]  # not shared with other code yet
        if self.waiting.first == NONE:
            raise StopIteration
        begin(&ranges, 0)
        self.deliver_next(<uint8_t*><char*>changed, &ranges, holder, sent_at, deadline)
        return changed, finished(&ranges)

    def deliver_from(
        self, place_of, Py_ssize_t limit, Py_ssize_t max_bytes, uint32_t client, double sent_at, double deadline
    ):
        cdef Ranges ranges
        cdef uint32_t holder = self.holder(client)
        cdef Py_ssize_t delivered = 0
        cdef Py_ssize_t total = 0
        cdef Py_ssize_t size, i
        cdef uint32_t at = self.waiting.first
        cdef const uint8_t* frame
        cdef const uint8_t** found
        cdef bytes frames
        cdef uint8_t* target
        cdef Place* place
        cdef Places places = Places()
        limit = min(limit, self.waiting.count, MAX_AT_ONCE)
        if limit <= 0:
            return b"", 0, b""
        found = <const uint8_t**>malloc(limit * sizeof(uint8_t*))
        if found == NULL:
            raise MemoryError()
        try:
            while delivered < limit and not self.messages[at].copied:
                place = places.of(self.messages[at].seq)
                if place == NULL:
                    try:
                        place = places.add(place_of(self.messages[at].seq))
                    except OSError:
                        if not delivered:
                            raise
                        break
                if place == NULL or (frame := frame_in(place, self.messages[at].seq)) == NULL:
                    break
                size = 4 + <Py_ssize_t>read32(frame)
                if delivered and total + size > max_bytes:
                    break
                found[delivered] = frame
                total += size
                delivered += 1
                at = self.messages[at].next
            frames = bytes(total)
            target = <uint8_t*><char*>frames  # not shared with other code yet
            begin(&ranges, 0)
            for i in range(delivered):
                size = 4 + <Py_ssize_t>read32(found[i])
                memcpy(target, found[i], size)
                self.deliver_next(target, &ranges, holder, sent_at, deadline)
                target += size
        finally:
            free(found)
        return frames, delivered, finished(&ranges)

    def drop_next(self):
        if self.waiting.first == NONE:
            raise StopIteration
        self.forget(self.waiting.first)
        self.shrink()

    # -- times ----------------------------------------------------------------------------------------------------

    def expire(self, double now, Py_ssize_t limit, list timed_out=None):
        cdef Ranges ranges
        cdef dict clients = {}
        cdef Py_ssize_t count = 0
        cdef Message* message
        cdef uint32_t at
        cdef uint32_t holder = NONE
        cdef Py_ssize_t same = 0
        begin(&ranges, 0)
        while count < limit and self.time_count and self.times[0].when <= now:
            at = self.times[0].at
            message = &self.messages[at]
            if message.state == DEFERRED:
                add_to(&ranges, message.seq, message.attempts)
            else:
                if timed_out is not None:
                    timed_out.append((self.holders[message.holder].client, message.seq))
                if message.holder == holder:
                    same += 1
                else:
                    if same:
                        self.count_client(clients, holder, same)
                    holder, same = message.holder, 1
            self.detach(at)
            self.set_requeued(at)
            count += 1
        if same:
            self.count_client(clients, holder, same)
        return list(clients.items()), count, finished(&ranges)

    cdef int count_client(self, dict clients, uint32_t holder, Py_ssize_t count) except -1:
        client = self.holders[holder].client
        clients[client] = clients.get(client, 0) + count
        return 0

    @property
    def next_time(self):
        return self.times[0].when if self.time_count else INFINITY

    # -- removal and queries --------------------------------------------------------------------------------------

    def drop(self, seqs):
        cdef dict clients = {}
        cdef uint32_t at
        for seq in seqs:
            at = self.find(seq)
            if at == NONE:
                raise KeyError(seq)
            if self.messages[at].state == IN_FLIGHT:
                self.count_client(clients, self.messages[at].holder, 1)
            self.forget(at)
        self.shrink()
        return list(clients.items())

    def clear(self):
        cdef uint32_t i
        for i in range(self.holder_count):
            self.holders[i].held.first = self.holders[i].held.last = NONE
            self.holders[i].held.count = 0
        self.forget_all()
        self.frames.clear()

    def keep_frame(self, uint64_t seq, bytes frame):
        cdef uint32_t at = self.find(seq)
        assert at != NONE
        if not self.messages[at].copied:
            self.messages[at].copied = True
            self.blocks[(seq >> BLOCK_BITS) & self.block_mask].needed -= 1
        self.frames[seq] = frame

    def get(self, uint64_t seq):
        cdef uint32_t at = self.find(seq)
        cdef Message* message
        if at == NONE:
            return None
        message = &self.messages[at]
        client = self.holders[message.holder].client if message.state == IN_FLIGHT else -1
        return AsideMessage(message.state, message.attempts, client, message.sent_at, message.when)

    def numbers(self):
        cdef uint32_t at
        return [self.messages[at].seq for at in range(self.used) if self.messages[at].state != FREE]

    def numbers_from(self, uint64_t seq, Py_ssize_t count):
        cdef list found = []
        seq = max(seq, self.first_block << BLOCK_BITS)
        while count > 0 and seq >> BLOCK_BITS < self.end_block:
            if self.is_empty(seq >> BLOCK_BITS):
                seq = ((seq >> BLOCK_BITS) + 1) << BLOCK_BITS
                continue
            if self.find(seq) != NONE:
                found.append(seq)
                count -= 1
            seq += 1
        return found

    def requeued(self, Py_ssize_t offset, Py_ssize_t count):
        cdef list found = []
        cdef uint32_t at = self.waiting.first
        while at != NONE and count > 0:
            if offset:
                offset -= 1
            else:
                found.append(self.messages[at].seq)
                count -= 1
            at = self.messages[at].next
        return found

    def lowest_requeued(self, uint64_t end, Py_ssize_t count):
        cdef list found = []
        cdef uint64_t seq
        cdef uint32_t at
        if not self.waiting.count or self.lowest_of(True) < 0:
            return found
        seq = self.undeferred_from
        while count > 0 and seq < end and seq >> BLOCK_BITS < self.end_block:
            if not self.blocks[(seq >> BLOCK_BITS) & self.block_mask].undeferred:
                seq = ((seq >> BLOCK_BITS) + 1) << BLOCK_BITS
                continue
            at = self.find(seq)
            if at != NONE and self.messages[at].state == REQUEUED:
                found.append(seq)
                count -= 1
            seq += 1
        return found

    def in_flight(self):
        cdef uint32_t at
        return [self.messages[at].seq for at in range(self.used) if self.messages[at].state == IN_FLIGHT]

    def deferred(self, Py_ssize_t count):
        from heapq import nsmallest
        cdef uint32_t i
        due = [
            (self.times[i].when, self.messages[self.times[i].at].seq)
            for i in range(self.time_count)
            if self.messages[self.times[i].at].state == DEFERRED
        ]
        return [seq for _, seq in nsmallest(count, due)]

    def packed(self, int64_t clock_offset_ns):
        cdef Ranges ranges
        cdef Message* message
        cdef uint32_t at
        begin(&ranges, 0)
        for at in range(self.used):
            message = &self.messages[at]
            if message.state == FREE:
                continue
            set_due(&ranges, message.when if message.state == DEFERRED else 0, clock_offset_ns)
            add_to(&ranges, message.seq, message.attempts)
        return finished(&ranges)
