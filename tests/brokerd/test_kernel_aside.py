"""The compiled set-aside messages and runs behave like their plain twins."""

from __future__ import annotations

import struct
from array import array

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from brokerd.kernel import aside, frames, runs
from brokerd.kernel.commit import pack_record
from brokerd.kernel.waiting import WAITING_RANGE

compiled_frames = pytest.importorskip("brokerd.kernel._frames", reason="no compiler built it here")
compiled_aside = pytest.importorskip("brokerd.kernel._aside", reason="no compiler built it here")
compiled_runs = pytest.importorskip("brokerd.kernel._runs", reason="no compiler built it here")

ID_HEAD = b"9a4001"
FIRST = 3000
CLIENTS = st.integers(1, 3)
TIMES = st.integers(0, 40).map(float)
KIND_FRAME = struct.Struct(">iIqH")


def frame_of(seq: int) -> bytes:
    body = b"b" * (seq % 7)
    return KIND_FRAME.pack(30 + len(body), 2, seq * 1000, 1) + b"%b%010x" % (ID_HEAD, seq) + body


class SetAsideMachine(RuleBasedStateMachine):
    """Any sequence of deliveries, answers and times leaves both kernels with the same messages in the same states."""

    @initialize()
    def start(self) -> None:
        self.windows = [frames.Window(FIRST), compiled_frames.Window(FIRST)]
        self.asides = [aside.SetAside(), compiled_aside.SetAside()]
        self.runs = {client: [runs.Runs(), compiled_runs.Runs()] for client in (1, 2, 3)}
        self.now = 100.0
        self.published = FIRST

    @property
    def plain(self) -> aside.SetAside:
        return self.asides[0]

    def both(self, method: str, *arguments: object, windows: bool = False, client_runs: int = 0) -> object:
        results = []
        for at in range(2):
            given_first = [self.windows[at]] if windows else []
            given_first += [self.runs[client_runs][at]] if client_runs else []
            results.append(getattr(self.asides[at], method)(*given_first, *arguments))
        assert results[0] == results[1], (method, arguments)
        return results[0]

    def lines(self, data: st.DataObject, word: bytes, rest: bytes = b"") -> tuple[bytes, int]:
        head = self.windows[0].head
        known = st.sampled_from(self.plain.numbers() or [FIRST]) | st.integers(max(0, head - 30), head + 2)
        runs_of = st.tuples(known, st.integers(1, 8)).map(lambda run: list(range(run[0], sum(run))))
        seqs = [seq for run in data.draw(st.lists(runs_of, min_size=1, max_size=4)) for seq in run]
        ids = [b"%b%010x" % (ID_HEAD, seq) for seq in seqs]
        ids += data.draw(st.lists(st.sampled_from([b"0000000000000000", b"9a4001000000000G"]), max_size=2))
        return b"".join(word + message_id + rest for message_id in ids), len(ids)

    @rule(count=st.integers(1, 25), client=CLIENTS)
    def deliver_fresh(self, count: int, client: int) -> None:
        log = b"".join(frame_of(seq) for seq in range(self.published, self.published + count))
        for window in self.windows:
            window.deliver(log, 0, len(log), count, 10**6, client)
        for each in self.runs[client]:
            each.add(self.published, self.published + count, self.now, self.now + 20, self.windows[0].floor)
        self.published += count

    @rule(data=st.data(), client=CLIENTS, due=st.sampled_from([0.0, 0.0, 5.0]))
    def requeue(self, data: st.DataObject, client: int, due: float) -> None:
        lines, count = self.lines(data, b"REQ ", b" 17\n")
        due = self.now + due if due else 0.0
        self.both("requeue", lines, count, 4, ID_HEAD, client, due, int(due * 1e9), windows=True)

    @rule(data=st.data(), client=CLIENTS, later=TIMES)
    def touch(self, data: st.DataObject, client: int, later: float) -> None:
        lines, count = self.lines(data, b"TOUCH ", b"\n")
        arguments = (lines, count, 6, ID_HEAD, client, self.now + later, 30.0)
        self.both("touch", *arguments, windows=True, client_runs=client)

    @rule(data=st.data(), client=CLIENTS)
    def finish(self, data: st.DataObject, client: int) -> None:
        lines, count = self.lines(data, b"FIN ", b"\n")
        results = [window.finish(lines, count, ID_HEAD, client, 10**12) for window in self.windows]
        assert results[0] == results[1]
        self.both("finish", results[0][1], ID_HEAD, client, 10**12, windows=True)

    @rule(client=CLIENTS)
    def leave(self, client: int) -> None:
        while len(self.runs[client][0]):
            popped = [each.pop() for each in self.runs[client]]
            assert popped[0] == popped[1]
            self.both("requeue_run", *popped[0], client, windows=True)
        self.both("leave", client)

    @rule(data=st.data())
    def take_over(self, data: st.DataObject) -> None:
        held = self.windows[0].in_flight_below(self.published)
        if held:
            seq, client = data.draw(st.sampled_from(held))
            self.both("take_over", seq, client, self.now, self.now + 7, windows=True)

    @precondition(lambda self: self.plain.requeued_count)
    @rule(client=CLIENTS)
    def deliver_copy(self, client: int) -> None:
        [first] = self.plain.requeued(0, 1)
        self.both("deliver_copy", frame_of(first), client, self.now, self.now + 15)

    @rule(data=st.data(), limit=st.integers(1, 30), nbytes=st.integers(1, 900), client=CLIENTS)
    def deliver_scattered(self, data: st.DataObject, limit: int, nbytes: int, client: int) -> None:
        """The segments have batches of several sizes, some with missing messages; some segments cannot be opened."""
        places: list[aside.Place] = []
        seq = self.published - data.draw(st.sampled_from([1500, 60, 20]))
        for sizes in data.draw(st.lists(st.lists(st.sampled_from([1, 1, 7, 40]), min_size=1, max_size=4), max_size=20)):
            log, index, batches, first = bytearray(b"xy"), bytearray(), 0, seq
            for messages in sizes:
                frames_of_batch = b"".join(frame_of(each) for each in range(seq, seq + messages))
                log += frames_of_batch
                if messages != 7 or batches == 0:
                    index += pack_record(seq, len(log), 0, 0, messages, 0, len(frames_of_batch))
                    batches += 1
                seq += messages
            for at in range(first - 3, seq + 3, 9):
                assert aside.find_batch(index, batches, at) == compiled_aside.find_batch(index, batches, at)
            places.append((bytes(log), bytes(index), batches, first + (seq - first > 40), seq))
        broken = data.draw(st.sampled_from([None, None, *places]))

        def place_of(seq: int) -> aside.Place | None:
            found = next((each for each in places if each[3] <= seq < each[4]), None)
            if found is not None and found is broken:
                raise OSError("out of descriptors")
            return found

        results = []
        for each in self.asides:
            try:
                results.append(each.deliver_from(place_of, limit, nbytes, client, self.now, self.now + 15))
            except OSError as error:
                results.append(str(error))
        assert results[0] == results[1]

    @precondition(lambda self: self.plain.requeued_count)
    @rule()
    def drop_next(self) -> None:
        self.both("drop_next")

    @rule(behind=st.integers(1, 2000), delays=st.lists(st.sampled_from([1, 900, 900, 7001, 40_000]), min_size=1))
    def defer(self, behind: int, delays: list[int]) -> None:
        """Also far from each other and below existing ones; never messages in flight: the cursor skips deferred
        ones."""
        count = len(delays)
        first = min(self.published + behind - 1500, self.published)
        if first == self.published:
            for window in self.windows:
                window.skip(count)
            self.published += count
        else:
            count = min(count, self.published - first)
        if all(self.windows[0].client_of(seq) < 0 for seq in range(first, first + count)):
            self.both("defer", first, array("I", delays[:count]).tobytes(), self.now, 17)

    @rule(later=TIMES, limit=st.integers(1, 50))
    def expire(self, later: float, limit: int) -> None:
        self.now += later
        timed_out = list[tuple[int, int]](), list[tuple[int, int]]()
        results = [each.expire(self.now, limit, of) for each, of in zip(self.asides, timed_out, strict=True)]
        plain, fast = ((sorted(clients), count, due) for clients, count, due in results)
        assert plain == fast
        assert timed_out[0] == timed_out[1]

    @precondition(lambda self: len(self.plain))
    @rule(data=st.data())
    def drop(self, data: st.DataObject) -> None:
        seqs = data.draw(st.lists(st.sampled_from(sorted(self.plain.numbers())), unique=True, max_size=20))
        assert sorted(self.asides[0].drop(seqs)) == sorted(self.asides[1].drop(seqs))

    @precondition(lambda self: len(self.plain))
    @rule(data=st.data())
    def keep_frame(self, data: st.DataObject) -> None:
        seq = data.draw(st.sampled_from(sorted(self.plain.numbers())))
        self.both("keep_frame", seq, frame_of(seq))

    @rule(really=st.integers(0, 5))
    def clear(self, really: int) -> None:
        if not really:
            self.both("clear")

    @rule(count=st.integers(0, 20))
    def look(self, count: int) -> None:
        self.both("deferred", count)
        self.both("numbers_from", FIRST + 7 * count, count)
        self.both("numbers_from", 0, count)
        self.both("requeued", count // 2, count)
        self.both("lowest_requeued", FIRST + 7 * count, count)
        self.both("lowest_requeued", 2**63, count)
        for name in ("requeued_count", "in_flight_count", "deferred_count", "next_time", "lowest", "lowest_undeferred"):
            assert getattr(self.asides[0], name) == getattr(self.asides[1], name), name

    def teardown(self) -> None:
        if not hasattr(self, "asides"):
            return
        self.look(10**6)
        plain, fast = self.asides
        assert sorted(plain.numbers()) == sorted(fast.numbers())
        assert sorted(plain.in_flight()) == sorted(fast.in_flight())
        assert len(plain) == len(fast)
        assert plain.frames == fast.frames
        for seq in plain.numbers():
            assert plain.get(seq) == fast.get(seq)
            assert seq in fast
        packed = [
            sorted(
                (first + at, *rest) for first, count, *rest in WAITING_RANGE.iter_unpack(data) for at in range(count)
            )
            for data in (each.packed(12345) for each in self.asides)
        ]
        assert packed[0] == packed[1]
        assert self.windows[0].in_flight_ranges() == self.windows[1].in_flight_ranges()
        assert self.windows[0].in_flight_below(self.published) == self.windows[1].in_flight_below(self.published)
        assert self.windows[0].latencies() == self.windows[1].latencies()


SetAsideMachine.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestSetAside = SetAsideMachine.TestCase


@given(st.lists(st.tuples(st.integers(1, 5), st.integers(0, 3), st.integers(0, 40)), max_size=40), st.data())
def test_runs_know_when_each_message_was_sent(sent: list[tuple[int, int, int]], data: st.DataObject) -> None:
    """Entries are added, dropped from the front and looked up alike."""
    plain, fast = runs.Runs(), compiled_runs.Runs()
    first = floor = 0
    for now, (count, gap, finished) in enumerate(sent):
        first += gap
        floor = max(floor, min(finished, first))
        for each in (plain, fast):
            each.add(first, first + count, now + 0.5, now + 9.0, floor)
        first += count
    assert len(plain) == len(fast)
    assert [plain.sent_at(seq) for seq in range(first + 3)] == [fast.sent_at(seq) for seq in range(first + 3)]
    while len(plain):
        assert plain.next_deadline == fast.next_deadline
        assert plain.pop() == fast.pop()
    assert plain.next_deadline == fast.next_deadline
    with pytest.raises(IndexError):
        fast.pop()


@pytest.mark.parametrize("stride", [1, 3, 1000, 4096])
def test_a_hundred_thousand_messages_are_set_aside_and_removed(stride: int) -> None:
    """The tables grow through all their sizes and are emptied from the front; the remaining messages are found."""
    messages = compiled_aside.SetAside()
    count = 100_000
    for seq in range(0, count * stride, stride):
        messages.add(seq, 1, 0.0 if seq % 2 else 50.0 + seq % 97)
    assert len(messages) == count
    kept = set(range(0, count * stride, stride * 9973))
    for seq in range(0, count * stride, stride):
        assert messages.lowest == min(seq, *kept)
        if seq not in kept:
            messages.drop([seq])
    assert sorted(messages.numbers()) == sorted(kept)
    assert all(messages.get(seq).attempts == 1 for seq in kept)
    assert messages.deferred_count + messages.requeued_count == len(kept)
    assert messages.expire(1000.0, 10**6)[1] == sum(1 for seq in kept if not seq % 2)
    assert sorted(messages.requeued(0, 10**6)) == sorted(kept)
