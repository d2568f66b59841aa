"""Publishes the dead messages of a channel to the dead topic of its policy."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, Protocol

from brokerd.supervisor import Supervised
from nsqwire.errors import NSQError
from nsqwire.frame import MESSAGE_HEAD_BYTES
from nsqwire.units import Seconds

if TYPE_CHECKING:
    from brokerd.dead import DeadMessages
    from brokerd.runtime import Runtime

AT_ONCE: Final = 1000
BYTES_AT_ONCE: Final = 1 << 20
"""A portion has at most this many bytes, or one message."""
RETRY_S: Final = 1.0

logger = logging.getLogger("brokerd")


class Source(Supervised, Protocol):
    """The part of a channel whose dead messages are published."""

    @property
    def dead(self) -> DeadMessages:
        """Its dead messages."""
        ...

    def frame_of(self, seq: int) -> memoryview | None:
        """The frame of a message; None if it is damaged or missing."""
        ...

    def header_block_of(self, frame: bytes | memoryview) -> bytes:
        """The header block of the message with this frame; empty without headers."""
        ...

    def require_room_to_forget(self, count: int) -> None:
        """Check that the journal has room for the end of ``count`` dead messages. Raises OSError."""
        ...

    def forget_dead(self, seqs: Sequence[int]) -> None:
        """Finish those messages of ``seqs``, ascending, that are dead. Raises OSError, with nothing changed."""
        ...


class Forwarding:
    """Publishes in portions. The messages of a portion leave the channel once the target's are on the disk.

    A kill in between leaves them in both, so a message is published at least once. ``schedule(when)`` schedules the
    channel's timer, monotonic seconds.
    """

    def __init__(self, channel: Source, runtime: Runtime, schedule: Callable[[Seconds], None]) -> None:
        self._channel = channel
        self._runtime = runtime
        self._schedule = schedule
        self._is_storing = False
        self._stored_seqs: Sequence[int] = ()
        """A portion that the target has, and that the channel could not forget yet."""
        self._unreadable: set[int] = set()
        self._at_once = AT_ONCE
        """Fewer while the target has no room for as many."""
        self._retry_at: Seconds = 0.0
        self._has_failed = False

    def run(self, target: str, now: Seconds) -> None:
        """Publish a portion to topic ``target``, unless one is being stored or a failed one is to be retried later."""
        if self._is_storing or self._runtime.is_stopping:
            return
        if now < self._retry_at:
            self._schedule(self._retry_at)
        elif self._stored_seqs:
            self._forget(target, now)
        else:
            self._publish(target, now)

    def _publish(self, target: str, now: Seconds) -> None:
        seqs, bodies, blocks = self._portion()
        if not seqs:
            return
        try:
            self._channel.require_room_to_forget(len(seqs))
            self._runtime.publish(target, bodies, blocks)
        except (NSQError, OSError) as error:
            self._at_once = len(seqs) // 2
            if self._at_once:
                self._runtime.wake(self._channel)
            else:
                self._failed(target, now, str(error))
            return
        self._at_once = AT_ONCE
        self._is_storing = True
        self._runtime.when_stored(lambda error: self._stored(target, seqs, error))

    def _portion(self) -> tuple[list[int], list[bytes], list[bytes]]:
        """The numbers, bodies and header blocks of the first dead messages. Those that cannot be read stay where they
        are."""
        seqs, bodies, blocks, nbytes = list[int](), list[bytes](), list[bytes](), 0
        for message in self._channel.dead:
            frame = None if message.seq in self._unreadable else self._channel.frame_of(message.seq)
            if frame is None:
                self._unreadable.add(message.seq)
                continue
            if seqs and (len(seqs) >= self._at_once or nbytes + len(frame) > BYTES_AT_ONCE):
                break
            seqs.append(message.seq)
            bodies.append(bytes(frame[MESSAGE_HEAD_BYTES:]))
            blocks.append(self._channel.header_block_of(frame))
            nbytes += len(frame) + len(blocks[-1])
        return seqs, bodies, blocks

    def _stored(self, target: str, seqs: Sequence[int], error: OSError | None) -> None:
        self._is_storing = False
        now = self._runtime.now()
        if error is not None:
            self._failed(target, now, str(error))
        else:
            self._stored_seqs = seqs
            self._forget(target, now)

    def _forget(self, target: str, now: Seconds) -> None:
        """Let the messages of the stored portion leave the channel. Only this is retried if it fails."""
        channel = self._channel
        if channel.gone:
            return
        try:
            channel.forget_dead(self._stored_seqs)
        except OSError as error:
            self._failed(target, now, str(error))
            return
        self._stored_seqs, self._has_failed = (), False
        if channel.dead:
            self._runtime.wake(channel)

    def _failed(self, target: str, now: Seconds, reason: str) -> None:
        if not self._has_failed:
            channel = self._channel
            logger.error(
                "TOPIC(%s): CHANNEL(%s): dead messages are not moved to topic %s: %s",
                channel.topic_name,
                channel.name,
                target,
                reason,
            )
        self._has_failed = True
        self._retry_at = now + RETRY_S
        self._schedule(self._retry_at)
