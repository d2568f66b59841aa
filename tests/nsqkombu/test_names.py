"""Names of topics and channels, and the distribution of a prefetch count: functions without I/O."""

from __future__ import annotations

from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsqkombu import names
from nsqkombu.window import shares
from nsqwire.names import is_valid_name

texts = st.text(max_size=120)


@given(texts, st.booleans())
def test_every_text_becomes_a_name_that_nsq_permits(text: str, is_ephemeral: bool) -> None:
    name = names.nsq_name(text, is_ephemeral=is_ephemeral)
    assert is_valid_name(name)
    assert name.endswith("#ephemeral") == is_ephemeral


@given(texts, texts)
def test_two_texts_never_become_one_name(one: str, other: str) -> None:
    assert (names.nsq_name(one) == names.nsq_name(other)) == (one == other)


@pytest.mark.parametrize(
    ("exchange", "routing_key", "topic"),
    [
        ("", "celery", "celery"),
        ("celery", "celery", "celery"),
        ("media", "video", "media.video"),
        ("media", "", "media"),
    ],
)
def test_a_direct_exchange_has_a_topic_for_each_routing_key(exchange: str, routing_key: str, topic: str) -> None:
    """Celery's own queues have exchange, key and queue of one name, and so one topic."""
    assert names.route_topic(exchange, routing_key, is_ephemeral=False) == topic
    assert names.route_topic(exchange, routing_key, is_ephemeral=False, prefix="p.") == f"p.{topic}"


def test_a_queue_with_a_generated_name_is_in_memory() -> None:
    """Publisher and consumer see only the name. A name with a UUID in it may be anybody's."""
    generated = str(uuid4())
    assert names.queue_topic(generated) == f"{generated}#ephemeral"
    assert names.queue_topic(f"tenant-{generated}") == f"tenant-{generated}"


@given(st.integers(0, 50), st.lists(st.integers(0, 20), min_size=1, max_size=8), st.integers(0, 100))
def test_free_places_are_offered_once_if_there_are_enough(free: int, in_flight: list[int], turn: int) -> None:
    """Otherwise each subscription is offered one, because any of them may have messages."""
    given = shares(free, in_flight, turn)
    more = [share - mine for share, mine in zip(given, in_flight, strict=True)]
    if free >= len(in_flight):
        assert sum(more) == free
        assert max(more) - min(more) <= 1
    else:
        assert set(more) == {1 if free else 0}
