"""Acknowledges a primary's messages and changes once the follower has them, and with ``--sync-every=1`` once they are
synced too."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from brokerd.recorder import Recorder
from brokerd.storage import Storage, TooFewInSync
from nsqwire.units import Seconds

if TYPE_CHECKING:
    from brokerd.log.segment import Segment
    from brokerd.mirror.leader import Leader
    from brokerd.syncer import Done, Syncer


class _Waiting:
    """A response that waits for a group, and for the local disk if the node syncs each message."""

    __slots__ = ("done", "error", "group", "is_synced")

    def __init__(self, group: int, done: Done, *, is_synced: bool) -> None:
        self.group = group
        self.done = done
        self.is_synced = is_synced
        self.error: OSError | None = None


class Replication:
    """Passes the changes of a data path to the leader, and answers publishers once it has acknowledged their messages.

    ``may_answer`` returns whether the member still leads. ``changed`` is called after the leader was given changes, and
    has to call ``settle``. ``failed`` is called with an error after which the follower may lack changes.
    """

    acknowledges = keeps_changes = True

    def __init__(
        self,
        syncer: Syncer,
        recorder: Recorder,
        leader: Leader,
        storage: Storage,
        *,
        may_answer: Callable[[], bool],
        changed: Callable[[], None],
        failed: Callable[[OSError], None],
    ) -> None:
        self._syncer = syncer
        self._recorder = recorder
        self._leader = leader
        self._storage = storage
        self._accepts_publishes = True
        self._may_answer = may_answer
        self._changed = changed
        self._failed = failed
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[_Waiting] = deque()
        self._is_flush_due = False

    # -- the broker's side ----------------------------------------------------------------------------------------

    @property
    def is_stalled(self) -> bool:
        return self._syncer.acknowledges and self._syncer.is_stalled

    def wrote(self, segment: Segment, messages: int) -> None:
        self._recorder.wrote(segment)
        self._syncer.wrote(segment, messages)
        if not self._is_flush_due:
            self._is_flush_due = True
            self._loop.call_soon(self.flush)

    @property
    def _is_dirty(self) -> bool:
        """True if changes that an answer acknowledges are not recorded yet. While publishes are refused, a subscription
        to a new channel is answered without the follower, so that consumers go on."""
        recorder = self._recorder
        return recorder.is_dirty or (self._accepts_publishes and recorder.has_changed_channels)

    @property
    def delays_responses(self) -> bool:
        if self._waiting or self._is_dirty or self._leader.acknowledged < self._leader.group:
            return True
        return self._syncer.acknowledges and self._syncer.delays_responses

    def when_synced(self, done: Done) -> None:
        if self._syncer.acknowledges:
            waiting = self._wait(done, is_synced=False)
            self._syncer.when_synced(lambda error: self._synced(waiting, error))
        else:
            self._wait(done, is_synced=True)

    def when_synced_at_last(self, done: Done) -> None:
        waiting = self._wait(done, is_synced=False)
        self._syncer.when_synced_at_last(lambda error: self._synced(waiting, error))

    def when_kept(self, done: Done) -> None:
        """Call ``done`` once the follower has all changes so far. If too few members are in sync, that is no error: the
        changes were made nevertheless."""
        self.flush()

        def kept(error: OSError | None) -> None:
            done(None if isinstance(error, TooFewInSync) else error)

        self.when_synced(kept)

    async def synced(self) -> None:
        future: asyncio.Future[None] = self._loop.create_future()

        def done(error: OSError | None) -> None:
            if not future.done():
                future.set_result(None) if error is None else future.set_exception(error)

        self.when_synced_at_last(done)
        await future

    def check(self, interval_s: Seconds) -> None:
        self._syncer.check(interval_s)

    def _wait(self, done: Done, *, is_synced: bool) -> _Waiting:
        group = self._leader.group + 1 if self._is_dirty else self._leader.group
        waiting = _Waiting(group, done, is_synced=is_synced)
        self._waiting.append(waiting)
        if not self._is_flush_due:
            self._is_flush_due = True
            self._loop.call_soon(self.flush)
        return waiting

    def _synced(self, waiting: _Waiting, error: OSError | None) -> None:
        waiting.is_synced, waiting.error = True, error
        self.settle()

    # -- the mirror's side ----------------------------------------------------------------------------------------

    def flush(self, *, sweep: bool = False) -> None:
        """Pass the changes since the last call to the leader, at the end of a turn of the event loop with a publish."""
        self._is_flush_due = False
        try:
            if sweep or self._recorder.has_changes:
                entries = self._recorder.take_group(sweep=sweep)
                if entries:
                    self._leader.group_changed(entries)
        except OSError as error:
            self._failed(error)
            return
        self._changed()

    def settle(self) -> None:
        """Answer, in order, the requests whose groups are acknowledged, unless the lease has expired."""
        if self._leader.accepts_publishes != self._accepts_publishes:
            self._accepts_publishes = self._leader.accepts_publishes
            self._storage.set_too_few_in_sync(None if self._accepts_publishes else self._refusal())
        if not self._accepts_publishes:
            self._refuse()
            return
        acknowledged, waiting = self._leader.acknowledged, self._waiting
        if not (waiting and waiting[0].group <= acknowledged and waiting[0].is_synced and self._may_answer()):
            return
        ready = list[_Waiting]()
        while waiting and waiting[0].group <= acknowledged and waiting[0].is_synced:
            ready.append(waiting.popleft())
        for each in ready:
            each.done(each.error)

    def _refuse(self) -> None:
        if not self._waiting or not self._may_answer():
            return
        error, refused = self._refusal(), list(self._waiting)
        self._waiting.clear()
        for each in refused:
            each.done(error)

    def _refusal(self) -> TooFewInSync:
        return TooFewInSync(f"only {len(self._leader.record.in_sync)} member of the pair is in sync")
