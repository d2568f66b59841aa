"""An operator finishes or requeues single messages of a channel, in whatever state they are."""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Callable
from typing import Any
from urllib.parse import urlencode

import pytest

from tests.brokerd.conftest import create_channel, publish
from tests.harness.waiting import wait_until

Connect = Callable[..., Any]
Start = Callable[..., Any]

ERROR = 1


def act(broker: Any, verb: str, ids: list[str], *, channel: str = "c") -> dict[str, Any]:
    """POST the ids, one a line."""
    path = f"/channel/{verb}?{urlencode({'topic': 't', 'channel': channel})}"
    answer = broker.request("POST", path, "\n".join(ids).encode())
    assert answer.status == 200, answer.text
    return dict(json.loads(answer.text))


def channel_of(broker: Any, name: str = "c") -> dict[str, Any]:
    channels = broker.stats(topic="t")["topics"][0]["channels"]
    return next(each for each in channels if each["channel_name"] == name)


def counts(broker: Any, name: str = "c") -> tuple[int, int, int]:
    """depth, in flight, deferred."""
    found = channel_of(broker, name)
    return found["depth"], found["in_flight_count"], found["deferred_count"]


def ids_of(broker: Any, *, channel: str = "c") -> dict[bytes, str]:
    """The ids of all messages, by body."""
    answer = broker.request("GET", f"/channel/scan?{urlencode({'topic': 't', 'channel': channel})}")
    return {b64decode(each["body"]): each["id"] for each in json.loads(answer.text)["messages"]}


def consumer_of(connect: Connect, broker: Any, *, ready_count: int = 100, channel: bytes = b"c") -> Any:
    consumer = connect(broker)
    consumer.ok(b"SUB t %b\n" % channel)
    consumer.send(b"RDY %d\n" % ready_count)
    return consumer


@pytest.fixture
def broker(start_broker: Start) -> Any:
    """A broker with a topic ``t`` and its channel ``c``."""
    started = start_broker("--retention=1h")
    create_channel(started)
    return started


def test_a_waiting_message_is_finished_and_never_delivered(broker: Any, connect: Connect) -> None:
    """Its neighbours are delivered, in order; the depth is right at once."""
    publish(broker, b"a", b"b", b"c", b"d")
    ids = ids_of(broker)
    assert act(broker, "finish", [ids[b"b"], ids[b"d"]]) == {"finished": 2, "not_found": []}
    assert counts(broker) == (2, 0, 0)
    assert list(ids_of(broker)) == [b"a", b"c"]
    consumer = consumer_of(connect, broker)
    assert [consumer.message()[2] for _ in range(2)] == [b"a", b"c"]
    publish(broker, b"e")
    assert consumer.message()[2] == b"e"


def test_ids_that_the_channel_does_not_have_are_listed(broker: Any) -> None:
    """They are no error: another consumer may just have finished the message."""
    publish(broker, b"a")
    ids = ids_of(broker)
    unknown = ["0000000000000000", "nonsense"]
    assert act(broker, "finish", [ids[b"a"], ids[b"a"], *unknown]) == {"finished": 1, "not_found": unknown}
    assert act(broker, "finish", [ids[b"a"]]) == {"finished": 0, "not_found": [ids[b"a"]]}
    assert act(broker, "requeue", [ids[b"a"]]) == {"requeued": 0, "not_found": [ids[b"a"]]}


def test_a_message_in_flight_is_taken_from_its_client(broker: Any, connect: Connect) -> None:
    """The client's FIN fails, its in-flight count is right, and it gets the next message."""
    publish(broker, b"a", b"b")
    consumer = consumer_of(connect, broker, ready_count=1)
    message_id, _, body = consumer.message()
    assert body == b"a"
    assert act(broker, "finish", [message_id.decode()]) == {"finished": 1, "not_found": []}
    assert consumer.message()[2] == b"b"
    assert counts(broker) == (0, 1, 0)
    consumer.send(b"FIN " + message_id + b"\n")
    kind, error = consumer.frame()
    assert (kind, error) == (ERROR, b"E_FIN_FAILED FIN %b failed ID not in flight" % message_id)
    assert channel_of(broker)["clients"][0]["finish_count"] == 0


@pytest.mark.parametrize("is_again", [False, True])
def test_a_message_in_flight_is_requeued_and_redelivered(broker: Any, connect: Connect, is_again: bool) -> None:
    """At its first delivery or at a later one: it comes again with one more attempt."""
    publish(broker, b"a")
    consumer = consumer_of(connect, broker, ready_count=1)
    message_id, attempts, _ = consumer.message()
    if is_again:
        consumer.send(b"REQ " + message_id + b" 0\n")
        message_id, attempts, _ = consumer.message()
    before = channel_of(broker)["requeue_count"]
    assert act(broker, "requeue", [message_id.decode()]) == {"requeued": 1, "not_found": []}
    assert consumer.message() == (message_id, attempts + 1, b"a")
    assert counts(broker) == (0, 1, 0)
    assert channel_of(broker)["requeue_count"] == before + 1


def test_a_deferred_message_becomes_due(broker: Any, connect: Connect) -> None:
    """A deferred publish, long before its time."""
    assert broker.request("POST", "/pub?topic=t&defer=3600000", b"later").status == 200
    ids = ids_of(broker)
    assert counts(broker) == (0, 0, 1)
    assert act(broker, "requeue", [ids[b"later"]]) == {"requeued": 1, "not_found": []}
    assert counts(broker) == (1, 0, 0)
    assert consumer_of(connect, broker).message() == (ids[b"later"].encode(), 1, b"later")


def test_a_deferred_message_is_finished(broker: Any) -> None:
    """It never becomes due."""
    assert broker.request("POST", "/pub?topic=t&defer=3600000", b"later").status == 200
    assert act(broker, "finish", list(ids_of(broker).values()))["finished"] == 1
    assert counts(broker) == (0, 0, 0)


def test_requeueing_a_waiting_message_changes_nothing(broker: Any, connect: Connect) -> None:
    """It is counted, and keeps its place."""
    publish(broker, b"a", b"b")
    assert act(broker, "requeue", [ids_of(broker)[b"b"]]) == {"requeued": 1, "not_found": []}
    assert channel_of(broker)["requeue_count"] == 0
    consumer = consumer_of(connect, broker)
    assert [consumer.message()[2] for _ in range(2)] == [b"a", b"b"]


def test_other_channels_keep_the_message(broker: Any, connect: Connect) -> None:
    """Each channel has its own copy."""
    assert broker.request("POST", "/channel/create?topic=t&channel=other").status == 200
    publish(broker, b"a", b"b")
    act(broker, "finish", [ids_of(broker)[b"a"]])
    consumer = consumer_of(connect, broker, channel=b"other")
    assert [consumer.message()[2] for _ in range(2)] == [b"a", b"b"]


def test_removed_messages_count_as_emptied(broker: Any) -> None:
    """An operator removed them; no consumer finished them."""
    publish(broker, b"a", b"b")
    act(broker, "finish", [ids_of(broker)[b"a"]])
    found = json.loads(broker.request("GET", "/stats?format=json&include_histograms=true").text)
    assert found["topics"][0]["channels"][0]["emptied_count"] == 1


def test_finished_messages_stay_finished_after_kill_9(broker: Any, connect: Connect) -> None:
    """Waiting, in flight and deferred ones; and again after a clean stop, whose checkpoint has them too."""
    publish(broker, b"in flight", b"a", b"b", b"c")
    assert broker.request("POST", "/pub?topic=t&defer=3600000", b"later").status == 200
    ids = ids_of(broker)
    assert consumer_of(connect, broker, ready_count=1).message()[2] == b"in flight"
    act(broker, "finish", [ids[b"in flight"], ids[b"b"], ids[b"later"]])
    for end in (broker.kill, broker.stop):
        end()
        broker.launch()
        assert set(ids_of(broker)) == {b"a", b"c"}
        assert counts(broker) == (2, 0, 0)
    consumer = consumer_of(connect, broker)
    assert {consumer.message()[2] for _ in range(2)} == {b"a", b"c"}


def test_an_ephemeral_channel_has_them_too(broker: Any, connect: Connect) -> None:
    """Nothing is journalled for it."""
    consumer = consumer_of(connect, broker, ready_count=0, channel=b"e#ephemeral")
    publish(broker, b"a", b"b")
    act(broker, "finish", [ids_of(broker, channel="e#ephemeral")[b"a"]], channel="e#ephemeral")
    consumer.send(b"RDY 10\n")
    assert consumer.message()[2] == b"b"


def test_a_paused_channel_delivers_a_requeued_message_later(broker: Any, connect: Connect) -> None:
    """It is ready at once, and is delivered when the channel is unpaused."""
    publish(broker, b"a")
    consumer = consumer_of(connect, broker)
    message_id, _, _ = consumer.message()
    assert broker.request("POST", "/channel/pause?topic=t&channel=c").status == 200
    act(broker, "requeue", [message_id.decode()])
    assert counts(broker) == (1, 0, 0)
    assert broker.request("POST", "/channel/unpause?topic=t&channel=c").status == 200
    assert consumer.message()[1] == 2


def test_a_rewind_returns_removed_messages(broker: Any, connect: Connect) -> None:
    """Those ahead of the cursor, and those that were delivered."""
    publish(broker, b"a", b"b", b"c")
    consumer = consumer_of(connect, broker, ready_count=1)
    consumer.message()
    act(broker, "finish", [ids_of(broker)[b"c"]])
    consumer.send(b"RDY 0\n")
    answer = broker.request("POST", "/channel/rewind?topic=t&channel=c&since=1h")
    assert json.loads(answer.text)["messages"] == 2
    assert counts(broker) == (3, 0, 0)


def test_ids_of_a_former_node_id_are_found(start_broker: Start) -> None:
    """The node was given another id since."""
    before = start_broker("--node-id=1")
    create_channel(before)
    publish(before, b"a", b"b")
    ids = ids_of(before)
    before.stop()
    after = start_broker("--node-id=2", data_path=before.data_path)
    publish(after, b"c")
    assert act(after, "finish", [ids[b"a"]])["finished"] == 1
    assert set(ids_of(after)) == {b"b", b"c"}


@pytest.mark.parametrize(
    ("query", "body", "message"),
    [
        ("topic=t&channel=c", b"", "MISSING_ARG_ID"),
        ("topic=t&channel=c", b"0\n" * 5001, "TOO_MANY_IDS"),
        ("channel=c&id=0", b"", "MISSING_ARG_TOPIC"),
        ("topic=t&channel=!&id=0", b"", "INVALID_ARG_CHANNEL"),
        ("topic=t&channel=none&id=0", b"", "CHANNEL_NOT_FOUND"),
    ],
)
def test_a_refusal_names_what_is_wrong(broker: Any, query: str, body: bytes, message: str) -> None:
    """Status 400 or 404, with the reason."""
    for verb in ("finish", "requeue"):
        answer = broker.request("POST", f"/channel/{verb}?{query}", body)
        assert answer.status == (404 if message.endswith("NOT_FOUND") else 400)
        assert json.loads(answer.text) == {"message": message}


def test_thousands_of_messages_are_finished_at_once(broker: Any, connect: Connect) -> None:
    """Every second one of 4,000."""
    bodies = [b"%d" % number for number in range(4000)]
    publish(broker, *bodies)
    ids: list[str] = []
    start: int | None = 0
    while start is not None:
        page = json.loads(broker.request("GET", f"/channel/scan?topic=t&channel=c&from={start}").text)
        ids += [each["id"] for each in page["messages"]]
        start = page["next"]
    assert act(broker, "finish", ids[::2])["finished"] == 2000
    consumer = consumer_of(connect, broker, ready_count=2500)
    assert [consumer.message()[2] for _ in range(2000)] == bodies[1::2]
    wait_until(lambda: counts(broker) == (0, 2000, 0), "the rest is in flight")
