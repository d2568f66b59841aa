"""A mirrored pair on the pages: in sync, under-replicated, and handed over by the button."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.conftest import Stack
from tests.harness.etcd import EtcdServer
from tests.harness.pair import Member, Pair
from tests.harness.waiting import wait_until

LONG_LEASE = "60s"
"""A lease that does not end within a test, however slow the machine is."""


@pytest.fixture(scope="module")
def etcd_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdServer]:
    server = EtcdServer(tmp_path_factory.mktemp("etcd"))
    yield server
    server.stop()


@pytest.fixture
def pair(stack: Stack, etcd_server: EtcdServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """A pair in sync, registered with the platform's registry, with two messages of a channel without clients."""
    registry = f"--lookupd-tcp-address={stack.addresses['--lookupd-tcp-address']}"
    found = Pair(tmp_path_factory.mktemp("pair"), etcd_server, registry, lease=LONG_LEASE)
    for member in found.members:
        member.command.append(f"--broadcast-address={member.host}")
    try:
        found.start()
        primary = found.wait_for_primary()
        primary.post("/topic/create", topic="paired")
        primary.post("/channel/create", topic="paired", channel="all")
        for _ in range(2):
            primary.post("/pub", b"x", topic="paired")
        wait_until(lambda: primary.http_address in stack.registered(), "the pair is registered")
        yield found
    finally:
        found.close()


def figures(member: Member) -> dict[str, Any]:
    return dict(member.stats(include_histograms="true")["mirror"])


def row_of(page: Page, member: Member) -> Locator:
    return page.get_by_role("row").filter(has=page.get_by_role("link", name=member.http_address, exact=True))


def numbers(page: Page) -> Locator:
    """The section of the pair on a node's page."""
    return page.get_by_label("Mirrored pair")


def test_a_pair_is_handed_over_by_the_button(live: Any, pair: Pair, axe: Any) -> None:
    """The dialog says what it costs; afterwards the page leads to the member that leads."""
    primary = pair.wait_for_primary()
    other, before = pair.other(primary), pair.wait_until_in_sync()
    (to,) = set(before["in_sync"]) - {before["member"]}
    page = live("/nodes")
    expect(row_of(page, primary)).to_contain_text("mirrored, in sync")
    row_of(page, primary).get_by_role("link").click()
    for text in (f"Primary {before['member']}", "Term 1", f"Follower in sync {to}", "Lag 0 B"):
        expect(numbers(page)).to_contain_text(text)
    assert axe(page) == []

    page.get_by_role("button", name="Hand over…").click()
    dialog = page.get_by_role("dialog", name=f"Hand over node {primary.http_address}")
    cost = dialog.get_by_role("group", name="What this does")
    expect(cost).to_contain_text(f"Member {to} will lead, and member {before['member']} will follow.")
    expect(cost).to_contain_text("Producers lose their connections and have to connect again.")
    expect(cost).to_contain_text("Publishes without an answer have to be published again.")
    assert axe(page) == []
    answers: list[tuple[Any, Any]] = []
    page.route("**/hand-overs", lambda route: answers.append((route, route.fetch())))
    dialog.get_by_role("button", name="Hand over", exact=True).click()
    expect(page.get_by_text("The other member of the pair leads now")).to_be_attached()
    # The old primary is no node any more, and the outcome is not known yet: the dialog still says what the action does.
    expect(cost).to_contain_text(f"Member {to} will lead, and member {before['member']} will follow.")

    def is_answered() -> bool:
        page.wait_for_timeout(100)
        return bool(answers)

    wait_until(is_answered, "the hand-over has an answer")
    route, answer = answers[0]
    route.fulfill(response=answer)
    done = f"Node {primary.http_address} is handed over: member {to} leads term 2."
    expect(page.get_by_text(done)).to_be_visible()
    expect(page.get_by_text("The other member of the pair leads now")).to_be_visible()
    page.get_by_role("main").get_by_role("link", name=other.http_address).click()
    expect(numbers(page)).to_contain_text(f"Primary {to}")
    expect(numbers(page)).to_contain_text("Term 2")
    expect(numbers(page)).to_contain_text(f"Follower in sync {before['member']}")
    expect(page.get_by_label("Numbers of this node")).to_contain_text("Depth 2")

    page.get_by_role("navigation", name="Breadcrumb").get_by_role("link", name="Nodes").click()
    expect(row_of(page, other)).to_contain_text("mirrored, in sync")
    expect(row_of(page, primary)).to_have_count(0)
    page.goto("/audit")
    trail = page.get_by_role("list", name="Audit trail").get_by_role("listitem").filter(has_text=primary.http_address)
    expect(trail.first).to_contain_text("hand over")


def test_a_pair_without_a_follower_is_shown_as_under_replicated(live: Any, pair: Pair, axe: Any) -> None:
    """On Nodes and on its page, where nobody can hand it over. A viewer has no button at all.

    The overview lists it among what needs attention (frontend/src/snapshot/overview.test.ts).
    """
    primary = pair.wait_for_primary()
    follower, node = pair.other(primary), primary.http_address
    pair.wait_until_in_sync()
    page = live(f"/nodes/{node}")
    expect(page.get_by_role("button", name="Hand over…")).to_be_enabled()
    follower.end(signal.SIGKILL)
    expect(page.get_by_text("Under-replicated: no follower is in sync")).to_be_visible()
    expect(numbers(page)).to_contain_text("Follower in sync none")
    expect(page.get_by_role("button", name="Hand over…")).to_be_disabled()
    assert figures(primary)["under_replicated"] is True
    assert axe(page) == []
    page.get_by_role("navigation", name="Breadcrumb").get_by_role("link", name="Nodes").click()
    expect(row_of(page, primary)).to_contain_text("under-replicated")
    assert axe(page) == []

    viewer = live(f"/nodes/{node}", user="viktor")
    expect(viewer.get_by_text("Under-replicated: no follower is in sync")).to_be_visible()
    expect(viewer.get_by_role("button", name="Hand over…")).to_have_count(0)
    follower.start()
    expect(viewer.get_by_text("Under-replicated: no follower is in sync")).to_have_count(0)
    expect(numbers(viewer)).to_contain_text("Term 1")
