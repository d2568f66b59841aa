"""Rates of a channel's clients, and the mark on the slow one."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import ExitStack
from statistics import median
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsqplatform.cluster import store
from nsqplatform.cluster.clients.rates import SLOW_AFTER_S, WINDOW_S, ClientRates, median_without
from nsqplatform.cluster.live.broadcast import unpacked
from nsqplatform.cluster.store import Channel
from nsqplatform.number_format import number
from tests.harness.v2 import V2Client
from tests.harness.waiting import wait_until

BILLING = Channel("orders", "billing")


def client(name: str, finished: int = 0, in_flight: int = 1, timed_out: int | None = 0, **more: Any) -> Any:
    """A client's row, with the counts that rates are computed from."""
    row = {"node": "n", "remote_address": name, "in_flight_count": in_flight, "finish_count": finished}
    return row | {"requeue_count": 0, "timeout_count": timed_out} | more


def play(*polls: list[Any]) -> dict[str, Any]:
    """The clients after these polls, a second apart, by address."""
    rates = ClientRates()
    for second, rows in enumerate(polls):
        rates.keep([BILLING])
        found = rates.add(BILLING, rows, {"n": 100.0 + second})
    return {row["remote_address"]: row for row in found}


SECONDS = range(int(WINDOW_S) + 1)


def test_rates_are_those_of_the_last_seconds():
    """A client that finished 5 a second with 10 in flight takes two seconds a message; before, it was idle."""
    idle = [[client("a")] for _ in range(30)]
    busy = [[client("a", 5 * s, 10, s, requeue_count=2 * s)] for s in SECONDS]
    row = play(*idle, *busy)["a"]
    assert (row["finish_rate"], row["requeue_rate"], row["timeout_rate"]) == (5.0, 2.0, 1.0)
    assert row["message_ms"] == pytest.approx(2000.0)


def test_one_reading_is_no_rate():
    """Unknown is None, not 0; a Go node counts no timeouts."""
    first = play([client("a", 7)])["a"]
    assert (first["finish_rate"], first["requeue_rate"], first["timeout_rate"], first["message_ms"]) == (None,) * 4
    assert play(*[[client("a", s, timed_out=None)] for s in SECONDS])["a"]["timeout_rate"] is None


def test_a_new_connection_with_the_same_address_starts_at_zero():
    """Its counts are those of another connection."""
    polls = [[client("a", 1000 + s)] for s in SECONDS] + [[client("a", 2)]]
    assert play(*polls)["a"]["finish_rate"] is None


def test_the_slow_client_is_marked_with_its_rule():
    """Three times the median time of the others, or nothing finished while others did; the others are not marked."""
    found = play(*[[client("a", 10 * s), client("b", 10 * s), client("c", 2 * s), client("d")] for s in SECONDS])
    assert found["a"]["slow"] == found["b"]["slow"] == ""
    assert found["c"]["slow"] == "0.5 s a message, 5 times the median of the other clients (0.1 s)"
    assert found["d"]["slow"] == "Finished nothing in 20 s with messages in flight, while other clients did"


def test_long_and_short_times_are_written_out():
    """No exponents: a client may take half an hour a message, others microseconds."""
    slow = client("c", in_flight=2500)
    found = play(*[[client("a", 100_000 * s), client("b", 100_000 * s), slow | {"finish_count": s}] for s in SECONDS])
    assert found["c"]["slow"] == ("2,500 s a message, 250,000,000 times the median of the other clients (0.00001 s)")


@given(st.floats(1e-6, 1e9))
def test_numbers_in_sentences_have_three_digits_and_no_exponent(value: float):
    """The number that is read is the value, rounded; no digit before the point is lost."""
    text = number(value)
    assert set(text) <= set("0123456789.,")
    assert float(text.replace(",", "")) == pytest.approx(value, rel=0.0051)
    assert value < 1000 or float(text.replace(",", "")) == round(value)


def test_no_client_is_slow_without_others_to_compare_with():
    """Alone, among equals, idle, or in its first seconds."""
    assert play(*[[client("a", 0)] for _ in SECONDS])["a"]["slow"] == ""
    assert play(*[[client("a", 0), client("b", 0)] for _ in SECONDS])["a"]["slow"] == ""
    assert play(*[[client("a", 0, 0), client("b", 10 * s)] for s in SECONDS])["a"]["slow"] == ""
    assert play(*[[client("a", 0), client("b", 10 * s)] for s in range(int(SLOW_AFTER_S))])["a"]["slow"] == ""


def test_clients_that_left_are_forgotten():
    """Also those of a channel that nobody watches any more."""
    rates = ClientRates()
    rates.add(BILLING, [client("a"), client("b")], {"n": 1.0})
    rates.add(BILLING, [client("a")], {"n": 2.0})
    assert [*rates._tracks[BILLING]] == [("n", "a")]
    rates.keep([])
    assert rates._tracks == {}


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    """Ends what a test has entered."""
    with ExitStack() as entered:
        yield entered


@pytest.mark.django_db(transaction=True)
@pytest.mark.database
def test_a_watched_channel_sends_its_clients_figures(cluster, collect, redis, stack):
    """Of a real client with a message in flight: how long, at what rate it finishes, and that none timed out."""
    broker = cluster.brokers[0]
    cluster.make_channel("orders", "billing")
    collect()
    received = redis.pubsub()
    received.subscribe(store.LIVE())
    peer = stack.enter_context(V2Client(broker.tcp))
    peer.sub("orders", "billing", ready_count=1)
    broker.post("/pub", b"x", topic="orders")
    peer.message()

    async def watch() -> None:
        async with store.connect_async() as connection:
            await store.renew_watches(connection, [], [BILLING])

    def figures() -> dict[str, Any] | None:
        asyncio.run(watch())
        published = (received.get_message(timeout=1.0) or {}).get("data")
        for envelope in unpacked(published) if isinstance(published, bytes) else ():
            if envelope.group == BILLING.group:
                row = next(iter(json.loads(envelope.text)["clients"]), None)
                return row if row and row["finish_rate"] is not None and row["oldest_in_flight_ms"] else None
        return None

    row = wait_until(figures, "the client's figures")
    assert (row["finish_rate"], row["timeout_rate"], row["timeout_count"], row["message_ms"]) == (0.0, 0.0, 0, None)
    assert (row["in_flight_count"], row["slow"]) == (1, "")
    assert row["oldest_in_flight_ms"] > 0
    received.close()


@given(st.lists(st.floats(0.001, 1000), min_size=1, max_size=30), st.data())
def test_a_client_is_compared_with_the_median_of_the_others(times: list[float], data: st.DataObject):
    """Its own time is left out, and one that has none is compared with all."""
    own = data.draw(st.sampled_from(times))
    others = list(times)
    others.remove(own)
    assert median_without(sorted(times), own) == (median(others) if others else None)
    assert median_without(sorted(times), None) == median(times)
