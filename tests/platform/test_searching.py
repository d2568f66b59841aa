"""Searching the messages of a channel, downloading whole bodies, and exporting what matches."""

from __future__ import annotations

import csv
import io
import json
from base64 import b64decode
from typing import Any
from urllib.parse import urlencode

import pytest
from asgiref.sync import async_to_sync

from nsqplatform.accounts.models import AuditEntry
from tests.harness.waiting import wait_until

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def operator(browser, account):
    account("operator")
    signed_in = browser()
    signed_in.sign_in("operator")
    return signed_in


def ask(browser: Any, path: str, **more: Any) -> Any:
    return browser.request("GET", f"messages/{path}?{urlencode({'topic': 'orders', 'channel': 'billing'} | more)}")


def content(response: Any) -> bytes:
    assert response.status_code == 200, response.content

    async def collected() -> bytes:
        return b"".join([piece async for piece in response.streaming_content])

    return async_to_sync(collected)()


def search(browser: Any, **more: Any) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The messages found, and the end."""
    lines = [json.loads(line) for line in content(ask(browser, "search", **more)).splitlines()]
    assert [line["type"] for line in lines].count("end") == 1
    assert lines[-1]["type"] == "end"
    return [line["message"] for line in lines if line["type"] == "message"], lines[-1]


def bodies(found: list[dict[str, Any]]) -> list[bytes]:
    return sorted(b64decode(each["body"]) for each in found)


def publish(broker: Any, *bodies: bytes, **query: str) -> None:
    for body in bodies:
        assert broker.post("/pub", body, topic="orders", **query) == "OK"
    wait_until(lambda: broker.topics()["orders"]["depth"] == 0, "the messages are in the channel")


def test_bodies_are_searched_on_all_nodes_to_the_end(cluster, operator):
    """By text in any case, by regular expression and by bytes; the end says how many were searched and match."""
    cluster.make_channel("orders", "billing")
    cluster.publish("orders", 600)
    cluster.wait_until_routed("orders")
    publish(cluster.brokers[0], b'{"name":"ZW\xc3\x96LF"}', bytes(range(256)))
    before = [broker.topics()["orders"]["channels"] for broker in cluster.brokers]
    found, end = search(operator, text="zwölf")
    assert bodies(found) == [b'{"name":"ZW\xc3\x96LF"}']
    assert (end["searched"], end["total"], end["matching"], end["reason"]) == (1202, 1202, 1, "complete")
    found, _ = search(operator, text="^message 59\\d$", match="regex")
    assert len(found) == 20
    found, _ = search(operator, text="fe FF", match="hex")
    assert bodies(found) == [bytes(range(256))]
    assert [broker.topics()["orders"]["channels"] for broker in cluster.brokers] == before


def test_messages_are_found_by_id_state_attempts_size_and_age(cluster, operator):
    """The criteria must all hold."""
    cluster.make_channel("orders", "billing")
    publish(cluster.brokers[0], b"small", b"x" * 5000)
    publish(cluster.brokers[0], b"later", defer="600000")
    found, _ = search(operator, min_size=4000)
    (large,) = found
    assert (large["size"], large["truncated"], large["state"]) == (5000, True, "ready")
    found, _ = search(operator, state="deferred")
    assert bodies(found) == [b"later"]
    found, end = search(operator, id=large["id"])
    assert ([each["id"] for each in found], end["searched"]) == ([large["id"]], 3)
    assert search(operator, min_attempts=1)[0] == []
    assert len(search(operator, max_attempts=0, max_age_ms=600_000)[0]) == 3
    assert search(operator, min_age_ms=600_000)[0] == []
    assert search(operator, max_size=5, text="s")[0][0]["size"] == 5


def test_a_search_ends_at_its_limit_and_says_so(cluster, operator):
    """The messages after it were not searched."""
    cluster.make_channel("orders", "billing")
    cluster.publish("orders", 700)
    cluster.wait_until_routed("orders")
    found, end = search(operator, text="message", limit=10)
    assert (len(found), end["reason"], end["searched"], end["total"]) == (10, "limit", 500, 1400)


def test_a_long_search_keeps_the_role_that_the_settings_give(cluster, browser, nsqadmin_settings, monkeypatch):
    """The account of somebody whom a proxy signs in is stored as a viewer, who may not read messages."""
    from nsqplatform.cluster.messages import search

    monkeypatch.setattr(search, "RIGHTS_CHECKED_EVERY_S", 0.0)
    nsqadmin_settings(operator_user=("olga",), trusted_proxy_cidr=("127.0.0.1/32",))
    cluster.make_channel("orders", "billing")
    publish(cluster.brokers[0], b"one")
    query = urlencode({"topic": "orders", "channel": "billing", "text": "one"})
    answer = browser().request("GET", f"messages/search?{query}", **{"X-Forwarded-User": "olga"})
    assert json.loads(content(answer).splitlines()[-1])["reason"] == "complete"


def test_a_go_node_is_named_as_not_searchable(go_cluster, operator):
    """A search that misses a node is incomplete, and an export is refused."""
    for node in go_cluster.nodes:
        node.channel("orders", "billing", depth=3)
    found, end = search(operator, text="x")
    assert (found, end["reason"]) == ([], "incomplete")
    assert all("cannot list the messages" in part["error"] for part in end["nodes"])
    refused = ask(operator, "export")
    assert refused.status_code == 502
    assert "would not be complete" in refused.json()["message"]


def test_a_mistake_in_a_search_names_its_field(cluster, operator):
    """An invalid pattern, odd hex digits, an unknown channel."""
    cluster.make_channel("orders", "billing")
    for more, field in (({"text": "(", "match": "regex"}, "text"), ({"text": "7b2", "match": "hex"}, "text")):
        refused = ask(operator, "search", **more)
        assert refused.status_code == 422
        assert [each["field"] for each in refused.json()["field_errors"]] == [field]
    assert ask(operator, "search", min_size=-1).status_code == 422
    assert ask(operator, "search", channel="none").status_code == 404


def test_a_whole_body_is_downloaded_however_large(cluster, operator):
    """A mebibyte, byte by byte; a finished message is not found."""
    cluster.make_channel("orders", "billing")
    body = bytes(range(256)) * 4096
    publish(cluster.brokers[1], b"short", body)
    (large,), _ = search(operator, min_size=1000)
    shown = ask(operator, large["id"], node=large["node"]).json()
    assert (len(b64decode(shown["body"])), shown["truncated"], shown["size"]) == (65_536, True, len(body))
    response = ask(operator, f"{large['id']}/body", node=large["node"])
    assert content(response) == body
    assert response["Content-Length"] == str(len(body))
    assert f"{large['id']}.bin" in response["Content-Disposition"]
    assert ask(operator, "0000000000000000/body", node=large["node"]).status_code == 404


def test_what_matches_is_exported_and_audited(cluster, operator):
    """As NDJSON and CSV, with whole bodies; the audit trail has the criteria's names, not the text."""
    cluster.make_channel("orders", "billing")
    publish(cluster.brokers[0], b"=cmd()", b"y" * 70_000, b"\xff\x00", b"other")
    lines = [json.loads(line) for line in content(ask(operator, "export", max_size=1_000_000)).splitlines()]
    assert [each["size"] for each in lines] == [6, 70_000, 2, 5]
    assert lines[1]["body"] == "y" * 70_000
    assert (lines[2]["encoding"], b64decode(lines[2]["body"])) == ("base64", b"\xff\x00")
    table = list(csv.DictReader(io.StringIO(content(ask(operator, "export", format="csv", text="cmd")).decode())))
    assert [(row["state"], row["body"]) for row in table] == [("ready", "'=cmd()")]
    first, second = AuditEntry.objects.filter(action="export messages").order_by("id")
    assert (first.user, first.topic, first.channel, first.detail) == (
        "operator",
        "orders",
        "billing",
        "ndjson, by max_size",
    )
    assert second.detail == "csv, by text"
