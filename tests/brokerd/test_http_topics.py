"""Managing topics and channels over HTTP."""

from __future__ import annotations

import httpx
import pytest

from tests.harness import web
from tests.harness.waiting import wait_until


@pytest.fixture
def http(broker):
    """A client of a running broker."""
    with web.client(base_url=broker.url, trust_env=False) as client:
        yield client


def done(answer: httpx.Response) -> None:
    """The body of a successful request, which is empty."""
    assert (answer.status_code, answer.content) == (200, b"")
    assert answer.headers["x-nsq-content-type"] == "nsq; version=1.0"
    assert "content-type" not in answer.headers


def channel_of(http: httpx.Client, topic: str = "t", channel: str = "c") -> dict:
    found = http.get("/stats", params={"format": "json", "topic": topic, "channel": channel}).json()["topics"]
    return found[0]["channels"][0]


TOPIC_MISTAKES = [
    ("create", "?topic=%", 400, "INVALID_REQUEST"),
    ("create", "", 400, "MISSING_ARG_TOPIC"),
    ("create", "?topic=a b", 400, "INVALID_TOPIC"),
    ("delete", "?topic=;", 400, "INVALID_REQUEST"),
    ("delete", "", 400, "MISSING_ARG_TOPIC"),
    ("delete", "?topic=a b", 404, "TOPIC_NOT_FOUND"),
    ("delete", "?topic=none", 404, "TOPIC_NOT_FOUND"),
    ("empty", "?topic=%", 400, "INVALID_REQUEST"),
    ("empty", "", 400, "MISSING_ARG_TOPIC"),
    ("empty", "?topic=a b", 400, "INVALID_TOPIC"),
    ("empty", "?topic=none", 404, "TOPIC_NOT_FOUND"),
    ("pause", "?topic=%", 400, "INVALID_REQUEST"),
    ("pause", "", 400, "MISSING_ARG_TOPIC"),
    ("pause", "?topic=a b", 404, "TOPIC_NOT_FOUND"),
    ("unpause", "", 400, "MISSING_ARG_TOPIC"),
    ("unpause", "?topic=none", 404, "TOPIC_NOT_FOUND"),
]
CHANNEL_MISTAKES = [
    ("?topic=%&channel=c", 400, "INVALID_REQUEST"),
    ("?channel=c", 400, "MISSING_ARG_TOPIC"),
    ("?topic=a b&channel=c", 400, "INVALID_ARG_TOPIC"),
    ("?topic=t", 400, "MISSING_ARG_CHANNEL"),
    ("?topic=t&channel=", 400, "INVALID_ARG_CHANNEL"),
    ("?topic=t&channel=*", 400, "INVALID_ARG_CHANNEL"),
    ("?topic=none&channel=c", 404, "TOPIC_NOT_FOUND"),
]


def test_each_mistake_on_a_topic_is_answered_with_its_code(broker):
    """As in nsqd, some verbs check the name and others do not."""
    for verb, query, status, code in TOPIC_MISTAKES:
        answer = broker.request("POST", f"/topic/{verb}{query.replace(' ', '+')}")
        assert (answer.status, answer.text) == (status, f'{{"message":"{code}"}}'), (verb, query)


@pytest.mark.parametrize("verb", ["create", "delete", "empty", "pause", "unpause"])
def test_each_mistake_on_a_channel_is_answered_with_its_code(broker, http, verb):
    """All verbs of channels check names alike, and all but create require the channel."""
    done(http.post("/topic/create?topic=t"))
    for query, status, code in CHANNEL_MISTAKES:
        answer = broker.request("POST", f"/channel/{verb}{query.replace(' ', '+')}")
        assert (answer.status, answer.text) == (status, f'{{"message":"{code}"}}'), query
    if verb != "create":
        answer = http.post(f"/channel/{verb}?topic=t&channel=none")
        assert (answer.status_code, answer.json()) == (404, {"message": "CHANNEL_NOT_FOUND"})


def test_creating_and_pausing_twice_is_as_good_as_once(http):
    """A repeated request succeeds."""
    for _ in range(2):
        done(http.post("/topic/create?topic=t"))
        done(http.post("/channel/create?topic=t&channel=c"))
        done(http.post("/topic/pause?topic=t"))
        done(http.post("/channel/pause?topic=t&channel=c"))
    stats = http.get("/stats?format=json").json()["topics"]
    assert [
        (t["topic_name"], t["paused"], [(c["channel_name"], c["paused"]) for c in t["channels"]]) for t in stats
    ] == [("t", True, [("c", True)])]
    for _ in range(2):
        done(http.post("/topic/unpause?topic=t"))
        done(http.post("/channel/unpause?topic=t&channel=c"))
    assert not http.get("/stats?format=json").json()["topics"][0]["paused"]
    assert not channel_of(http)["paused"]


def test_messages_of_a_paused_topic_wait_in_the_topic(http):
    """A pause keeps messages from the channels; the end of the pause sends all of them."""
    http.post("/topic/create?topic=t")
    http.post("/channel/create?topic=t&channel=c")
    http.post("/topic/pause?topic=t")
    for number in range(3):
        http.post("/pub?topic=t", content=b"%d" % number)
    topic = http.get("/stats?format=json").json()["topics"][0]
    assert (topic["depth"], topic["channels"][0]["depth"]) == (3, 0)
    done(http.post("/topic/unpause?topic=t"))
    topic = http.get("/stats?format=json").json()["topics"][0]
    assert (topic["depth"], topic["channels"][0]["depth"]) == (0, 3)


def test_emptying_a_topic_leaves_its_channels_alone(http):
    """Only messages that no channel has received yet are dropped."""
    http.post("/topic/create?topic=t")
    http.post("/channel/create?topic=t&channel=c")
    http.post("/pub?topic=t", content=b"held by the channel")
    http.post("/topic/pause?topic=t")
    http.post("/pub?topic=t", content=b"waits in the topic")
    done(http.post("/topic/empty?topic=t"))
    done(http.post("/topic/unpause?topic=t"))
    topic = http.get("/stats?format=json").json()["topics"][0]
    assert (topic["depth"], topic["channels"][0]["depth"]) == (0, 1)


def test_emptying_a_channel_drops_waiting_in_flight_and_deferred_messages(http, broker, connect):
    """Afterwards the channel is empty, and the id of a message that was in flight is unknown."""
    http.post("/topic/create?topic=t")
    http.post("/channel/create?topic=t&channel=c")
    http.post("/pub?topic=t&defer=60000", content=b"deferred")
    for number in range(3):
        http.post("/pub?topic=t", content=b"%d" % number)
    consumer = connect(broker)
    consumer.ok(b"SUB t c\n")
    consumer.send(b"RDY 1\n")
    message_id, _, _ = consumer.message()
    consumer.send(b"RDY 0\n")
    held = wait_until(lambda: (c := channel_of(http))["clients"][0]["ready_count"] == 0 and c)
    assert (held["depth"], held["in_flight_count"], held["deferred_count"]) == (2, 1, 1)
    done(http.post("/channel/empty?topic=t&channel=c"))
    emptied = channel_of(http)
    assert (emptied["depth"], emptied["in_flight_count"], emptied["deferred_count"]) == (0, 0, 0)
    kind, text = consumer.command(b"FIN " + message_id + b"\n")
    assert (kind, text) == (1, b"E_FIN_FAILED FIN " + message_id + b" failed ID not in flight")


@pytest.mark.parametrize("target", ["/channel/delete?topic=t&channel=c", "/topic/delete?topic=t"])
def test_deleting_disconnects_only_the_consumers(http, broker, connect, target):
    """Consumers are disconnected without an error frame; another topic's consumer keeps receiving."""
    for topic in ("t", "other"):
        http.post(f"/topic/create?topic={topic}")
        http.post(f"/channel/create?topic={topic}&channel=c")
    gone, stays = connect(broker), connect(broker)
    gone.ok(b"SUB t c\n")
    stays.ok(b"SUB other c\n")
    done(http.post(target))
    with pytest.raises((EOFError, ConnectionResetError)):
        gone.frame()
    http.post("/pub?topic=other", content=b"still here")
    stays.send(b"RDY 1\n")
    assert stays.message()[2] == b"still here"
    names = {t["topic_name"]: t["channels"] for t in http.get("/stats?format=json").json()["topics"]}
    assert names.get("t", []) == []
    assert ("t" in names) == target.startswith("/channel")
