"""The compiled kernel behaves like its plain twin on any input."""

from __future__ import annotations

import operator
import os
import struct
import subprocess
import sys
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from brokerd.kernel import deferred, frames
from brokerd.log.commits import Commit, CommitRecords
from nsqwire.frame import MESSAGE, FrameReader, decode_message

compiled = pytest.importorskip("brokerd.kernel._frames", reason="the kernel is not compiled: no C compiler was found")
compiled_deferred = pytest.importorskip("brokerd.kernel._deferred", reason="no compiler built it here")

ID_HEAD = b"9a4001"
bodies = st.lists(st.binary(min_size=1, max_size=40), min_size=1, max_size=12)


def body_of_mpub(messages: list[bytes]) -> bytes:
    return b"".join(struct.pack(">i", len(body)) + body for body in messages)


@given(bodies, st.integers(0, 2**63 - 1), st.integers(0, 2**41), st.integers(0, 7), st.binary(max_size=9))
def test_records_are_the_frames_a_consumer_reads(
    messages: list[bytes], timestamp: int, seq: int, offset: int, gap: bytes
) -> None:
    """Both kernels write the same bytes, and they are message frames with dense ids."""
    logs = []
    for kernel in (frames, compiled):
        for write in ("messages", "bodies", "commands"):
            log = bytearray(offset + sum(34 + len(body) for body in messages) + 5)
            if write == "messages":
                packed = body_of_mpub(messages)
                end = kernel.append_messages(log, offset, packed, len(messages), timestamp, ID_HEAD, seq)
            elif write == "commands":
                packed = b"".join(gap + body_of_mpub([body]) for body in messages)
                end = kernel.append_messages(log, offset, packed, len(messages), timestamp, ID_HEAD, seq, len(gap))
            else:
                end = kernel.append_bodies(log, offset, messages, timestamp, ID_HEAD, seq)
            assert end == len(log) - 5
            logs.append(bytes(log))
    assert len(set(logs)) == 1
    reader = FrameReader()
    reader.feed(logs[0][offset:-5])
    read = [(kind, decode_message(data)) for kind, data in reader]
    assert [(kind, message.body) for kind, message in read] == [(MESSAGE, body) for body in messages]
    ids = [b"%b%010x" % (ID_HEAD, number & (2**40 - 1)) for number in range(seq, seq + len(messages))]
    assert [message.id for _, message in read] == ids
    assert {(message.timestamp, message.attempts) for _, message in read} == {(timestamp, 1)}


ids = st.sampled_from(
    [
        b"0123456789abcdef",
        b"0123456789abcde\n",
        b"01234567 9abcdef",
        b" 123456789abcdef",
        b"0123456789abcde\r",
        b"0123456789\0bcd\r\xff",
        bytes(range(16, 32)),
        b"\x80\x8a\xa0\xff\x0b\x09\x21\x1f" * 2,
    ]
)
fin_lines = st.lists(ids.map(lambda message_id: b"FIN %b\n" % message_id), max_size=4).map(b"".join)


@given(st.binary(max_size=60) | st.builds(operator.add, fin_lines, st.binary(max_size=25)))
def test_runs_of_fin_are_counted_alike(data: bytes) -> None:
    """Whatever the buffer contains, both kernels find the same run of FIN lines."""
    buffer = bytearray(b"x" + data)
    assert frames.fin_run(buffer, 1, len(buffer)) == compiled.fin_run(buffer, 1, len(buffer))


req_lines = st.builds(
    lambda message_id, rest: b"REQ " + message_id + rest,
    ids,
    st.sampled_from(
        [b" 0\n", b" 10\n", b" 0\r\n", b" \n", b"\n", b" -1\n", b" " + b"9" * 18 + b"\n", b" " + b"9" * 19 + b"\n"]
    ),
)


@given(st.lists(st.tuples(req_lines, st.integers(1, 3))), st.integers(0, 30))
def test_runs_of_req_are_counted_alike(runs: list[tuple[bytes, int]], cut: int) -> None:
    """Both kernels find the same run of REQ lines with the same timeout, and leave irregular ones to the parser."""
    buffer = bytearray((b"x" + b"".join(line * count for line, count in runs))[: -cut or None] or b"x")
    assert frames.req_run(buffer, 1, len(buffer)) == compiled.req_run(buffer, 1, len(buffer))


@given(st.lists(st.tuples(ids, st.sampled_from([b"\n", b"\n", b"\r\n", b" \n"]))), st.integers(0, 30))
def test_runs_of_touch_are_counted_alike(lines: list[tuple[bytes, bytes]], cut: int) -> None:
    """Both kernels find the same run of TOUCH lines."""
    sent = b"".join(b"TOUCH " + message_id + rest for message_id, rest in lines)
    buffer = bytearray((b"x" + sent)[: -cut or None] or b"x")
    assert frames.touch_run(buffer, 1, len(buffer)) == compiled.touch_run(buffer, 1, len(buffer))


@given(st.lists(st.sampled_from([b"NOP\n", b"NOP\r\n", b"NOP\r", b"NOP", b"NOP \n", b"PUB t\n"])), st.integers(0, 9))
def test_runs_of_nop_end_at_the_same_byte(lines: list[bytes], cut: int) -> None:
    """Both kernels skip the same NOP lines."""
    buffer = bytearray((b"x" + b"".join(lines))[: -cut or None] or b"x")
    assert frames.nop_run(buffer, 1, len(buffer)) == compiled.nop_run(buffer, 1, len(buffer))


@given(st.lists(st.sampled_from([b"", b"x", b"\n", b"\r\n", b"long line", b"\0"])).map(b"".join), st.integers(1, 12))
def test_lines_are_packed_alike(body: bytes, max_size: int) -> None:
    """Both kernels make the same messages from a body of lines, or refuse it alike."""
    packed, count = frames.pack_lines(body, max_size)
    assert compiled.pack_lines(body, max_size) == (packed, count)
    if count >= 0:
        assert packed == body_of_mpub([line for line in body.split(b"\n") if line])


head_pieces = st.sampled_from(
    [
        *(b"POST /pub?topic=t HTTP/1.1\r\n", b"GET / HTTP/1.1\r\n", b"GET /%20 HTTP/1.0\r\n", b"PUT / HTTP/1.1\r\n"),
        *(b"Host: h\r\n", b"host:h\r\n", b"Content-Length: 5\r\n", b"content-length:0\r\n", b"Content-Length: 05\r\n"),
        *(b"Content-Length: \r\n", b"Content-Length: 1234567890\r\n", b"Content-Length: 123456789\r\n"),
        *(b"Connection: keep-alive\r\n", b"Connection: close\r\n", b"Proxy-Connection: close\r\n", b"Upgrade: x\r\n"),
        *(b"Transfer-Encoding: chunked\r\n", b"Expect: 100-continue\r\n", b"X-Request-Id: 17\r\n", b" folded\r\n"),
        *(b"a : b\r\n", b"a: b \r\n", b"a:  b\r\n", b"a:\r\n", b"a: \r\n", b"a: b\n", b"a: \xff\r\n"),
        *(b"\r\n", b"\r", b"\n", b"x", b"\0"),
    ]
)
heads = st.lists(head_pieces, max_size=8).map(b"".join) | st.lists(head_pieces, max_size=6).map(
    lambda lines: b"POST /pub HTTP/1.1\r\nHost: h\r\n" + b"".join(lines) + b"\r\n"
)


@given(heads, st.integers(0, 3), st.binary(max_size=3), st.integers(0, 3))
def test_plain_heads_are_found_alike(head: bytes, start: int, tail: bytes, cut: int) -> None:
    """Both kernels consider the same request heads plain, and find the same parts of them."""
    data = (bytes(start) + head + tail)[: -cut or None]
    assert frames.plain_head(data, start) == compiled.plain_head(data, start)


pub_lines = st.sampled_from([b"t", b"u", b"", b"a b", b"a\r", b"n" * 64, b"n" * 65]).map(
    lambda name: b"PUB %b\n" % name
)


@given(st.lists(st.tuples(pub_lines, bodies)), st.binary(max_size=9), st.integers(1, 41), st.integers(0, 100))
def test_runs_of_pub_are_counted_alike(
    runs: list[tuple[bytes, list[bytes]]], garbage: bytes, limit: int, cut: int
) -> None:
    """Complete, cut, too long, to several topics or invalid: both kernels find the same run of commands."""
    sent = b"".join(line + body_of_mpub([body]) for line, messages in runs for body in messages)
    buffer = bytearray((b"x" + sent + garbage)[: -cut or None])
    assert frames.pub_run(buffer, 1, len(buffer), limit) == compiled.pub_run(buffer, 1, len(buffer), limit)


def mpub(line: bytes, messages: list[bytes]) -> bytes:
    body = struct.pack(">i", len(messages)) + body_of_mpub(messages)
    return b"M" + line + struct.pack(">i", len(body)) + body


@given(
    st.lists(st.tuples(pub_lines, bodies)),
    st.binary(max_size=9),
    st.integers(1, 41),
    st.integers(5, 400),
    st.integers(0, 100),
)
def test_runs_of_mpub_are_counted_alike(
    batches: list[tuple[bytes, list[bytes]]], garbage: bytes, limit: int, body_limit: int, cut: int
) -> None:
    """As with PUB, both kernels find the same run of commands, and the same number of messages in them."""
    buffer = bytearray((b"x" + b"".join(mpub(*batch) for batch in batches * 2) + garbage)[: -cut or None])
    arguments = (buffer, 1, len(buffer), limit, body_limit)
    assert frames.mpub_run(*arguments) == compiled.mpub_run(*arguments)


@given(st.lists(bodies, min_size=1, max_size=4), st.integers(0, 2**41), st.integers(0, 7))
def test_a_run_of_mpub_is_written_as_its_messages_are(batches: list[list[bytes]], seq: int, offset: int) -> None:
    """Both kernels write the same records as for the bodies one by one."""
    commands = b"".join(mpub(b"PUB t\n", batch) for batch in batches)
    messages = [body for batch in batches for body in batch]
    logs = [bytearray(offset + sum(34 + len(body) for body in messages) + 5) for _ in range(3)]
    ends = {frames.append_bodies(logs[0], offset, messages, 77, ID_HEAD, seq)}
    for log, kernel in zip(logs[1:], (frames, compiled), strict=True):
        ends.add(kernel.append_batches(log, offset, commands, len(batches), 77, ID_HEAD, seq, len(b"MPUB t\n") + 4))
    assert logs[0] == logs[1] == logs[2]
    assert ends == {len(logs[0]) - 5}


@given(bodies, st.binary(max_size=9), st.integers(1, 41), st.integers(0, 100))
def test_both_kernels_read_mpub_bodies_alike(messages: list[bytes], garbage: bytes, limit: int, cut: int) -> None:
    """Complete, cut, too long or invalid: both kernels stop at the same place with the same result."""
    buffer = bytearray((body_of_mpub(messages) + garbage)[: -cut or None])
    for count in (len(messages), len(messages) + 1):
        arguments = (buffer, 0, len(buffer), count, limit)
        assert frames.scan_messages(*arguments) == compiled.scan_messages(*arguments)


def commands_with(line: bytes, batches: list[list[bytes]]) -> bytes:
    """Encode each batch as an MPUB, or its messages as PUBs, depending on ``line``."""
    if line.startswith(b"P"):
        return b"".join(line + body_of_mpub([body]) for batch in batches for body in batch)
    return b"".join(line + struct.pack(">ii", 9, len(batch)) + body_of_mpub(batch) for batch in batches)


@given(
    st.sampled_from([b"PUB t\n", b"MPUB t\n"]),
    st.sampled_from([b"PUB t\n", b"MPUB t\n", b"PUB u\n"]),
    st.lists(st.lists(st.binary(max_size=30) | st.binary(min_size=90, max_size=700), max_size=4), max_size=4),
    st.integers(0, 2**41),
    st.integers(0, 9),
    st.integers(-60, 60),
    st.integers(0, 60),
    st.integers(0, 2**31),
    st.binary(max_size=5) | st.just(b""),
)
def test_publishes_are_appended_and_committed_alike(
    line: bytes,
    wanted: bytes,
    batches: list[list[bytes]],
    seq: int,
    offset: int,
    more_room: int,
    index_offset: int,
    segment_offset: int,
    garbage: bytes,
) -> None:
    """Both kernels frame, hash and commit the same batches, or write nothing."""
    commands = commands_with(line, batches) + garbage
    end = offset + sum(34 + len(body) for batch in batches for body in batch) + more_room
    results = []
    for kernel in (frames, compiled):
        log, index = bytearray(max(end, 0) + 9), bytearray(100)
        result = kernel.append_commands(
            commands,
            len(commands),
            wanted,
            600,
            5000,
            log,
            offset,
            end,
            ID_HEAD,
            seq,
            7,
            index,
            index_offset,
            segment_offset,
        )
        results.append((result, bytes(log), bytes(index)))
    assert results[0] == results[1]
    (count, messages, written), log, index = results[0]
    if not count:
        assert (messages, written, any(log), any(index)) == (0, 0, False, False)
    else:
        commit = Commit(*struct.unpack_from(">QQqQIII", index, index_offset))
        assert (commit.first_seq, commit.messages, commit.timestamp) == (seq, messages, 7)
        assert (commit.start, commit.end) == (segment_offset, segment_offset + written)
        in_log = commit._replace(end=offset + written)
        assert in_log.matches(memoryview(log))


dpub_lines = st.builds(
    lambda name, delay: b"DPUB %b %b\n" % (name, delay),
    st.sampled_from([b"t", b"t", b"t", b"tt", b"n" * 64, b"n" * 65, b"", b"t\r"]),
    st.sampled_from([b"1", b"5", b"5", b"05", b"0", b"600", b"601", b"", b"-1", b"5\r", b"9" * 18, b"9" * 19]),
)


@given(
    st.lists(st.tuples(dpub_lines, st.binary(max_size=31)), max_size=8), st.integers(0, 40), st.sampled_from([0, 600])
)
def test_runs_of_dpub_are_counted_alike(commands: list[tuple[bytes, bytes]], cut: int, max_ms: int) -> None:
    """Both kernels find the same run of DPUBs to one topic, and leave irregular ones to the parser."""
    sent = b"".join(line + body_of_mpub([body]) for line, body in commands)
    buffer = bytearray((b"x" + sent)[: -cut or None] or b"x")
    results = [kernel.dpub_run(buffer, 1, len(buffer), 30, max_ms) for kernel in (deferred, compiled_deferred)]
    assert results[0] == results[1]


@given(
    st.lists(st.tuples(st.sampled_from([1, 5, 5, 4_000_000_000]), st.binary(min_size=1, max_size=40)), min_size=1),
    st.integers(0, 2**41),
    st.integers(0, 9),
    st.integers(0, 2**30),
)
def test_deferred_publishes_are_appended_and_committed_alike(
    messages: list[tuple[int, bytes]], seq: int, offset: int, behind: int
) -> None:
    """Both kernels write the same frames, a commit record for each batch of equal delays, and the delays."""
    commands = b"".join(b"DPUB t %d\n" % ms + body_of_mpub([body]) for ms, body in messages)
    nbytes = sum(34 + len(body) for _, body in messages)
    results = []
    for kernel in (deferred, compiled_deferred):
        log = bytearray(offset + nbytes + 5)
        found = kernel.append_deferred(log, offset, commands, len(messages), 7, ID_HEAD, seq, behind + offset)
        results.append((bytes(log), *found))
    assert results[0] == results[1]
    log, records, delays = results[0]
    expected = bytearray(len(log))
    frames.append_bodies(expected, offset, [body for _, body in messages], 7, ID_HEAD, seq)
    assert log == expected
    assert memoryview(delays).cast("I").tolist() == [ms for ms, _ in messages]
    found = CommitRecords(memoryview(records))
    commits = [commit for _, commit in found.valid()]
    assert not found.damaged()
    at = [ms for commit in commits for ms in [commit.defer_ms] * commit.messages]
    assert at == [ms for ms, _ in messages]
    assert all(first.defer_ms != second.defer_ms for first, second in pairwise(commits))
    assert [commit.first_seq for commit in commits[1:]] == [commit.next_seq for commit in commits[:-1]]
    assert (commits[0].first_seq, commits[0].start, commits[-1].end) == (seq, behind + offset, behind + offset + nbytes)
    moved = [commit._replace(end=commit.end - behind) for commit in commits]
    assert all(commit.matches(memoryview(log)) for commit in moved)


@given(st.binary(min_size=1, max_size=300) | st.binary(min_size=1, max_size=9000), st.integers(0, 20))
def test_records_of_the_journal_are_written_alike(record: bytes, offset: int) -> None:
    """Both kernels write the same head and hash, whatever the length, and nothing where there is no room."""
    logs = [bytearray(offset + 8 + len(record)) for _ in range(2)]
    for kernel, log in zip((frames, compiled), logs, strict=True):
        assert kernel.write_record(log, offset, record) == len(log)
        with pytest.raises(ValueError):
            kernel.write_record(log, offset + 1, record)
    assert logs[0] == logs[1]
    assert logs[0][offset + 8 :] == record


class WindowMachine(RuleBasedStateMachine):
    """Any sequence of deliveries and answers leaves both windows in the same state."""

    @initialize(first=st.sampled_from([0, 5, 2**40 - 3, 2**40 + 7]))
    def start(self, first: int) -> None:
        self.windows = [frames.Window(first), compiled.Window(first)]
        self.log = bytearray()
        self.offset = 0
        self.published = first
        self.clock = 10**9

    def both(self, method: str, *arguments: object) -> object:
        results = [getattr(window, method)(*arguments) for window in self.windows]
        assert results[0] == results[1], (method, arguments)
        return results[0]

    @rule(messages=bodies, later=st.integers(0, 10**9))
    def publish(self, messages: list[bytes], later: int) -> None:
        self.clock += later
        grown = bytearray(sum(34 + len(body) for body in messages))
        frames.append_bodies(grown, 0, messages, self.clock, ID_HEAD, self.published)
        self.log += grown
        self.published += len(messages)

    @rule(count=st.integers(0, 20), nbytes=st.integers(0, 600), client=st.integers(1, 3))
    def deliver(self, count: int, nbytes: int, client: int) -> None:
        _, self.offset = self.both("deliver", bytes(self.log), self.offset, len(self.log), count, nbytes, client)

    @precondition(lambda self: self.offset < len(self.log))
    @rule()
    def skip_one(self) -> None:
        (size,) = struct.unpack_from(">i", self.log, self.offset)
        self.offset += 4 + size
        self.both("skip", 1)

    @rule(data=st.data(), client=st.integers(1, 3), later=st.integers(-(10**6), 10**12))
    def finish(self, data: st.DataObject, client: int, later: int) -> None:
        head = self.windows[0].head
        runs = st.tuples(st.integers(max(0, head - 30), head + 2), st.integers(1, 20)).map(
            lambda run: b"".join(b"FIN %b%010x\n" % (ID_HEAD, seq & (2**40 - 1)) for seq in range(run[0], sum(run)))
        )
        others = st.sampled_from([b"FIN 0000000000000000\n", b"FIN 9a4001000000000G\n"])
        lines = b"".join(data.draw(st.lists(runs | others, max_size=6)))
        if lines:
            self.both("finish", lines, len(lines) // 21, ID_HEAD, client, self.clock + later)

    @rule(data=st.data(), client=st.integers(1, 3))
    def take(self, data: st.DataObject, client: int) -> None:
        head = self.windows[0].head
        self.both("take", data.draw(st.integers(max(0, head - 30), head + 2)), data.draw(st.integers(0, 9)), client)

    @rule(latency=st.integers(0, 2**62))
    def record(self, latency: int) -> None:
        self.both("record", latency)

    @rule(ahead=st.integers(0, 3))
    def clear(self, ahead: int) -> None:
        if self.offset == len(self.log):
            self.both("clear", self.windows[0].head)

    def teardown(self) -> None:
        if not hasattr(self, "windows"):
            return
        plain, fast = self.windows
        assert (plain.head, plain.floor, plain.in_flight_count) == (fast.head, fast.floor, fast.in_flight_count)
        assert plain.in_flight_below(plain.head) == fast.in_flight_below(fast.head)
        assert plain.latencies() == fast.latencies()
        for seq in range(max(0, plain.floor - 3), plain.head + 3):
            assert plain.client_of(seq) == fast.client_of(seq)


WindowMachine.TestCase.settings = settings(max_examples=150, stateful_step_count=30, deadline=None)
TestWindow = WindowMachine.TestCase


def test_the_plain_kernel_has_all_that_the_compiled_one_has() -> None:
    """A broker installed without a compiler starts."""
    environment = os.environ | {"BROKERD_KERNEL": "python"}
    script = "import brokerd.broker, brokerd.kernel as k; print(k.COMPILED, *map(k.__dict__.get, k.__all__))"
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("False ")
    assert "None" not in done.stdout
