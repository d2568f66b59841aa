"""The registry's HTTP interface, row by row."""

from typing import Any

import pytest

NSQ = b"X-Nsq-Content-Type: nsq; version=1.0"


@pytest.mark.parametrize(
    ("target", "body"),
    [
        ("/ping", b"OK"),
        ("/info", b'{"version":"1.3.0"}'),
        ("/topics", b'{"topics":[]}'),
        ("/channels?topic=unknown", b'{"channels":[]}'),
        ("/nodes", b'{"producers":[]}'),
        ("/debug", b"{}"),
    ],
)
def test_an_empty_registry_answers_with_empty_lists(world: Any, target: str, body: bytes) -> None:
    """Lists are [], never null; only /ping lacks the NSQ header."""
    response = world.request("GET", target)
    assert (response.status, response.body) == (200, body)
    assert (NSQ in response.head) == (target != "/ping")


@pytest.mark.parametrize(
    ("method", "target", "status", "code"),
    [
        ("GET", "/lookup", 400, "MISSING_ARG_TOPIC"),
        ("GET", "/lookup?topic=a;b", 400, "INVALID_REQUEST"),
        ("GET", "/lookup?topic=unknown", 404, "TOPIC_NOT_FOUND"),
        ("GET", "/lookup?topic=", 404, "TOPIC_NOT_FOUND"),
        ("GET", "/lookup?topic=%ff", 404, "TOPIC_NOT_FOUND"),
        ("GET", "/channels", 400, "MISSING_ARG_TOPIC"),
        ("GET", "/channels?topic=%zz", 400, "INVALID_REQUEST"),
        ("POST", "/topic/create", 400, "MISSING_ARG_TOPIC"),
        ("POST", "/topic/create?topic=", 400, "INVALID_ARG_TOPIC"),
        ("POST", "/topic/create?topic=a$", 400, "INVALID_ARG_TOPIC"),
        ("POST", "/topic/create?topic=%zz", 400, "INVALID_REQUEST"),
        ("POST", "/topic/delete", 400, "MISSING_ARG_TOPIC"),
        ("POST", "/topic/tombstone", 400, "MISSING_ARG_TOPIC"),
        ("POST", "/topic/tombstone?topic=t", 400, "MISSING_ARG_NODE"),
        ("POST", "/channel/create", 400, "MISSING_ARG_TOPIC"),
        ("POST", "/channel/create?topic=a$", 400, "INVALID_ARG_TOPIC"),
        ("POST", "/channel/create?topic=t", 400, "MISSING_ARG_CHANNEL"),
        ("POST", "/channel/create?topic=t&channel=*", 400, "INVALID_ARG_CHANNEL"),
        ("POST", "/channel/delete?topic=t", 400, "MISSING_ARG_CHANNEL"),
        ("POST", "/channel/delete?topic=t&channel=c", 404, "CHANNEL_NOT_FOUND"),
        ("GET", "/topic/create?topic=t", 405, "METHOD_NOT_ALLOWED"),
        ("POST", "/lookup?topic=t", 405, "METHOD_NOT_ALLOWED"),
        ("GET", "/stats", 404, "NOT_FOUND"),
        ("GET", "/config/log_level", 404, "NOT_FOUND"),
        ("POST", "/create_topic?topic=t", 404, "NOT_FOUND"),
        ("POST", "/tombstone_topic_producer", 404, "NOT_FOUND"),
    ],
)
def test_an_error_is_a_status_and_a_code(world: Any, method: str, target: str, status: int, code: str) -> None:
    """{"message":"CODE"}, and the registry is unchanged."""
    response = world.request(method, target)
    assert (response.status, response.body) == (status, b'{"message":"%s"}' % code.encode())
    assert world.get("/topics") == {"topics": []}


def test_topics_and_channels_can_be_made_without_a_producer(world: Any) -> None:
    """Creating a channel creates its topic; success is an empty response, also the second time."""
    for _ in range(2):
        world.post("/channel/create?topic=t&channel=c%23ephemeral")
        world.post("/topic/create?topic=u")
    assert world.get("/topics") == {"topics": ["t", "u"]}
    assert world.get("/lookup?topic=t") == {"channels": ["c#ephemeral"], "producers": []}


def test_deleting_or_tombstoning_an_unknown_topic_succeeds(world: Any) -> None:
    """Clean-up scripts may run twice; these two endpoints never check the name."""
    world.post("/topic/delete?topic=unknown$")
    world.post("/topic/tombstone?topic=unknown&node=a:1")


def test_the_registry_can_be_looked_into(world: Any) -> None:
    """Go's debug paths exist; the index has no trailing slash, unlike nsqd's, and /debug is the database."""
    index = world.request("GET", "/debug/pprof")
    assert index.status == 200
    assert b'href="/debug/pprof/goroutine"' in index.body
    redirect = world.request("GET", "/debug/pprof/")
    assert (redirect.status, b"Location: /debug/pprof\r\n" in redirect.head) == (301, True)
    assert b"thread MainThread" in world.request("GET", "/debug/pprof/threadcreate").body
    assert world.get("/debug") == {}
