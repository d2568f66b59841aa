"""A primary that is cut off, or whose disk hangs, is replaced although its process runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.failures.disk import HANG
from tests.harness.pair import Load
from tests.harness.waiting import wait_until

if TYPE_CHECKING:
    from tests.mirror.conftest import StartPair


def test_a_primary_that_is_cut_off_is_replaced(start_pair: StartPair) -> None:
    """From the other member and from the arbiter, not from its clients."""
    pair, is_replaced = start_pair(), False
    with Load(pair) as load:
        while not is_replaced:
            load.wait_for(200)
            pair.wait_until_in_sync()
            primary = pair.wait_for_primary()
            links = pair.links(members=True, arbiter_of=(primary,))
            for link in links:
                link.cut()
            is_replaced = pair.wait_for_takeover(primary)
            for link in links:
                link.heal()
        wait_until(lambda: not primary.leads, "the member that was cut off does not lead")
        load.wait_for(200)
        pair.wait_until_in_sync()
        load.finish()
        assert not load.lost
        assert not load.unexpected


def test_a_primary_whose_disk_hangs_is_replaced(start_pair: StartPair) -> None:
    """Its network works, and the arbiter answers it."""
    pair, is_replaced = start_pair(disks_fail=True), False
    with Load(pair) as load:
        while not is_replaced:
            load.wait_for(200)
            pair.wait_until_in_sync()
            primary = pair.wait_for_primary()
            primary.fail(sync=HANG)
            is_replaced = pair.wait_for_takeover(primary)
            if is_replaced:
                load.wait_for(200)
            primary.fail()
        pair.wait_until_in_sync()
        load.finish()
        assert not load.lost
        assert not load.unexpected
