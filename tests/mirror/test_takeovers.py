"""A primary is lost under load: what was acknowledged is there, and nothing else."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

from tests.harness.pair import Load
from tests.harness.waiting import wait_until

if TYPE_CHECKING:
    from tests.mirror.conftest import StartPair


def test_a_primary_that_is_killed_under_load_loses_nothing(start_pair: StartPair) -> None:
    pair, is_replaced = start_pair(), False
    with Load(pair) as load:
        while not is_replaced:
            load.wait_for(300)
            pair.wait_until_in_sync()
            killed = pair.wait_for_primary()
            killed.end(signal.SIGKILL)
            is_replaced = pair.wait_for_takeover(killed)
            killed.start()
            load.wait_for(100)
        pair.wait_until_in_sync()
        load.finish()
        assert not load.lost
        assert not load.unexpected


def test_a_primary_that_was_paused_does_not_lead_when_it_wakes(start_pair: StartPair) -> None:
    pair, is_replaced = start_pair(), False
    with Load(pair) as load:
        while not is_replaced:
            load.wait_for(200)
            pair.wait_until_in_sync()
            paused = pair.wait_for_primary()
            paused.signal(signal.SIGSTOP)
            is_replaced = pair.wait_for_takeover(paused)
            if is_replaced:
                load.wait_for(200)
            paused.signal(signal.SIGCONT)
        wait_until(lambda: not paused.leads, "the paused member does not lead")
        pair.wait_until_in_sync()
        load.finish()
        assert not load.lost
        assert not load.unexpected


def test_a_paused_primary_that_is_to_end_ends_when_it_wakes(start_pair: StartPair) -> None:
    """Its lease has ended meanwhile: the process would be replaced by a new one, which knew nothing of the signal."""
    pair = start_pair()
    pair.wait_until_in_sync()
    paused = pair.wait_for_primary()
    paused.signal(signal.SIGSTOP)
    pair.wait_for_takeover(paused)
    paused.signal(signal.SIGTERM)
    paused.signal(signal.SIGCONT)
    assert paused.wait_for_exit() == 0


def test_with_sync_every_1_both_members_sync_before_ok(start_pair: StartPair) -> None:
    pair, is_replaced = start_pair("--sync-every=1"), False
    with Load(pair) as load:
        while not is_replaced:
            load.wait_for(50)
            pair.wait_until_in_sync()
            killed = pair.wait_for_primary()
            killed.end(signal.SIGKILL)
            is_replaced = pair.wait_for_takeover(killed)
            killed.start()
        load.wait_for(50)
        load.finish()
        assert not load.lost
        assert not load.unexpected
