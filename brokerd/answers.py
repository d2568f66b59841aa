"""Execution of FIN, REQ and TOUCH, in runs of lines."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from brokerd.journal import records
from nsqwire.errors import FinFailed, NSQError, ReqFailed, TouchFailed

if TYPE_CHECKING:
    from brokerd.channel import Channel
    from brokerd.client import Client
    from brokerd.kernel.aside import Failures

Error = TypeVar("Error", bound=NSQError)

ID_BYTES = 16
REQ_ID_AT = len("REQ ")
TOUCH_ID_AT = len("TOUCH ")


class Answers:
    """FIN, REQ and TOUCH of one channel's clients. ``now`` is monotonic seconds, ``now_ns`` Unix nanoseconds.

    Every method returns an error for each message that is not in flight with the client, in the order of the lines.
    """

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    def finish(self, client: Client, lines: memoryview, count: int, now_ns: int) -> list[FinFailed]:
        """Execute ``count`` FIN lines of 21 bytes."""
        channel, number = self._channel, client.number
        window, id_head = channel.window, channel.topic.id_head
        ranges, missed = window.finish(lines, count, id_head, number, now_ns)
        failures: Failures = []

        def again(ids: list[bytes], id_head: bytes) -> Failures:
            """Finish messages that the window does not have, or has under another id head. Returns the failures."""
            if id_head != channel.topic.id_head:
                found, ids = window.finish(
                    b"".join(b"FIN %b\n" % each for each in ids), len(ids), id_head, number, now_ns
                )
                ranges.extend(found)
            found, failed = channel.aside.finish(window, ids, id_head, number, now_ns)
            ranges.extend(found)
            return failed

        if missed:
            failures = self._of_former_heads(again(missed, id_head), again)
        finished = count - len(failures)
        client.finish_count += finished
        client.in_flight_count -= finished
        if ranges:
            channel.journal(records.finished(channel.number, ranges))
            if window.floor >= channel.topic.log.first_end:
                channel.topic.release()
        channel.offer(client)
        return _errors("FIN", FinFailed, failures)

    def requeue(self, client: Client, lines: memoryview, count: int, delay: float, now: float) -> list[ReqFailed]:
        """Execute ``count`` REQ lines of the same length: the messages are redelivered after ``delay`` seconds."""
        channel = self._channel
        aside, window, topic = channel.aside, channel.window, channel.topic
        due = now + delay if delay > 0 else 0.0
        due_ns = topic.clock.keep(due) if due else 0
        taken, ranges, failures = aside.requeue(
            window, lines, count, REQ_ID_AT, topic.id_head, client.number, due, due_ns
        )
        channel.journal_waiting(ranges)

        def again(ids: list[bytes], id_head: bytes) -> Failures:
            nonlocal taken
            found, ranges, failed = aside.requeue(
                window, b"".join(ids), len(ids), 0, id_head, client.number, due, due_ns
            )
            channel.journal_waiting(ranges)
            taken += found
            return failed

        failures = self._of_former_heads(failures, again)
        channel.requeue_count += taken
        client.requeue_count += taken
        client.in_flight_count -= taken
        if due and taken:
            topic.timers.schedule(channel, due)
        channel.offer(client)
        topic.wake(channel)
        return _errors("REQ", ReqFailed, failures)

    def touch(self, client: Client, lines: memoryview, count: int, now: float) -> list[TouchFailed]:
        """Execute ``count`` TOUCH lines of 23 bytes: timeouts restart, up to the topic's limit since the delivery."""
        channel = self._channel
        aside, topic = channel.aside, channel.topic
        deadline, limit = now + client.touch_timeout, topic.max_msg_timeout
        failures = aside.touch(
            channel.window, client.runs, lines, count, TOUCH_ID_AT, topic.id_head, client.number, deadline, limit
        )

        def again(ids: list[bytes], id_head: bytes) -> Failures:
            data = b"".join(ids)
            return aside.touch(channel.window, client.runs, data, len(ids), 0, id_head, client.number, deadline, limit)

        failures = self._of_former_heads(failures, again)
        topic.timers.schedule(channel, aside.next_time)
        return _errors("TOUCH", TouchFailed, failures)

    def _of_former_heads(self, failures: Failures, again: Callable[[list[bytes], bytes], Failures]) -> Failures:
        """Retry the failures whose ids were assigned under another node id. Returns those that still fail."""
        topic, head = self._channel.topic, self._channel.window.head
        tried = {topic.id_head}
        for message_id, _ in list(failures):
            id_head = message_id[:6]
            if id_head not in tried and topic.is_former_id_head(message_id, head):
                tried.add(id_head)
                failed = deque(again([each for each, _ in failures if each[:6] == id_head], id_head))
                failures = [
                    failed.popleft() if failed and failed[0][0] == failure[0] else failure
                    for failure in failures
                    if failure[0][:6] != id_head or (failed and failed[0][0] == failure[0])
                ]
        return failures


def _errors(command: str, kind: Callable[[str], Error], failures: Failures) -> list[Error]:
    reasons = {True: "client does not own message", False: "ID not in flight"}
    return [
        kind(f"{command} {message_id.decode('utf-8', 'surrogateescape')} failed {reasons[is_held]}")
        for message_id, is_held in failures
    ]
