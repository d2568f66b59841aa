"""Headers of messages in the platform: shown, searched, exported, masked, copied and tailed."""

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
from nsqplatform.cluster.messages.hidden_paths import MASKED, HiddenPaths
from nsqplatform.cluster.models import Mask
from tests.harness.waiting import wait_until

pytestmark = pytest.mark.django_db(transaction=True)

SECRET = "Bearer 4111"
BODY = '{"order":7}'
HEADERS = {"tenant": "Acme", "authorization": SECRET}


def envelope(body: str = BODY, **headers: str) -> dict[str, Any]:
    return {"headers": headers, "body": body} if headers else {"body": body}


def publish(broker: Any, *envelopes: dict[str, Any], topic: str = "orders") -> None:
    text = "\n".join(map(json.dumps, envelopes))
    assert broker.post("/mpub", text.encode(), topic=topic, envelope="true") == "OK"
    wait_until(lambda: broker.topics()[topic]["depth"] == 0, "the messages are in the channel")


def stored(broker: Any, topic: str = "orders", channel: str = "billing") -> list[tuple[str, dict[str, str]]]:
    """The bodies and headers of the channel's messages on one node."""
    page = broker.get(f"/channel/scan?{urlencode({'topic': topic, 'channel': channel})}")
    return [(b64decode(each["body"]).decode(), each.get("headers", {})) for each in page["messages"]]


def ids_of(broker: Any) -> list[str]:
    return [each["id"] for each in broker.get("/channel/scan?topic=orders&channel=billing")["messages"]]


def ask(browser: Any, path: str = "messages", **more: Any) -> Any:
    return browser.request("GET", f"{path}?{urlencode({'topic': 'orders', 'channel': 'billing'} | more)}")


def content(response: Any) -> bytes:
    assert response.status_code == 200, response.content

    async def collected() -> bytes:
        return b"".join([piece async for piece in response.streaming_content])

    return async_to_sync(collected)()


def found(browser: Any, header: str, **more: Any) -> list[str]:
    """The bodies of the messages that a search finds."""
    lines = [json.loads(line) for line in content(ask(browser, "messages/search", header=header, **more)).splitlines()]
    return [b64decode(each["message"]["body"]).decode() for each in lines if each["type"] == "message"]


@pytest.fixture
def broker(cluster):
    cluster.make_channel("orders", "billing")
    return cluster.brokers[0]


@pytest.fixture
def signed_in(browser, account):
    """A browser of somebody with this role."""

    def sign_in(role: str) -> Any:
        account(role, role)
        someone = browser()
        someone.sign_in(role)
        return someone

    return sign_in


@pytest.fixture
def operator(signed_in):
    return signed_in("operator")


def test_headers_are_shown_in_lists_in_one_message_and_in_searches(broker, operator):
    """A message without any has an empty object."""
    publish(broker, envelope(**HEADERS), envelope("plain"))
    listed = ask(operator).json()["messages"]
    assert [each["headers"] for each in listed] == [HEADERS, {}]
    one = ask(operator, f"messages/{listed[0]['id']}", node=listed[0]["node"]).json()
    assert (one["headers"], b64decode(one["body"]).decode()) == (HEADERS, BODY)
    searched = [json.loads(line) for line in content(ask(operator, "messages/search")).splitlines()]
    assert [each["message"]["headers"] for each in searched if each["type"] == "message"] == [HEADERS, {}]


def test_messages_are_found_by_a_header_and_by_a_text_in_its_value(broker, operator):
    """Names and values in any case; all criteria must hold, and the count has the same."""
    publish(broker, envelope("a", tenant="Acme", url="http://a:1"), envelope("b", tenant="globex"), envelope("c"))
    for header, bodies in {
        "tenant": ["a", "b"],
        "TENANT:": ["a", "b"],
        "tenant:acme": ["a"],
        "Tenant: GLOB": ["b"],
        "url:http://a": ["a"],
        "tenant:c": ["a"],
        "absent": [],
    }.items():
        assert found(operator, header) == bodies, header
    assert found(operator, "tenant", text="b") == ["b"]
    counted = ask(operator, "messages/count", header="tenant:acme").json()
    assert (counted["matching"], counted["total"]) == (1, 3)


def test_a_search_for_no_header_is_refused_with_its_field(broker, operator):
    """A name has letters, digits, dots, underscores and hyphens."""
    for header in (":acme", "two words", "x" * 65):
        refused = ask(operator, "messages/search", header=header)
        assert (refused.status_code, [each["field"] for each in refused.json()["field_errors"]]) == (422, ["header"])


def test_headers_are_exported(broker, operator):
    """As an object in NDJSON; as JSON in CSV, where a message without headers has an empty cell."""
    publish(broker, envelope(**HEADERS), envelope("plain"))
    lines = [json.loads(line) for line in content(ask(operator, "messages/export")).splitlines()]
    assert [each["headers"] for each in lines] == [HEADERS, {}]
    table = list(csv.DictReader(io.StringIO(content(ask(operator, "messages/export", format="csv")).decode())))
    assert [each["headers"] for each in table] == [json.dumps(HEADERS), ""]


# ---- masks


def mask(admin: Any, **more: Any) -> Any:
    return admin.request("POST", "masks", {"topic_pattern": "ord*", "paths": ["$.card"]} | more)


def test_a_mask_hides_all_headers_that_it_does_not_name(broker, signed_in):
    """From lists, searches and exports, also of bodies that are withheld. Names are visible."""
    publish(broker, envelope(**HEADERS), envelope("not JSON", **HEADERS))
    admin, operator = signed_in("admin"), signed_in("operator")
    created = mask(admin, visible_headers=["Tenant"])
    assert (created.status_code, created.json()["visible_headers"]) == (201, ["tenant"])
    hidden = {"tenant": "Acme", "authorization": MASKED}
    listed = ask(operator).json()["messages"]
    assert [(each["headers"], each["visibility"]) for each in listed] == [(hidden, "masked"), (hidden, "withheld")]
    first = listed[0]
    answers = [
        ask(operator, f"messages/{first['id']}", node=first["node"]).content,
        content(ask(operator, "messages/search")),
        content(ask(operator, "messages/export")),
        content(ask(operator, "messages/export", format="csv")),
    ]
    for answer in answers:
        assert b"authorization" in answer
        assert SECRET.encode() not in answer
    assert [each["headers"] for each in ask(admin).json()["messages"]] == [HEADERS, HEADERS]


def test_a_mask_from_before_headers_hides_all_of_them(broker, operator):
    """Its paths were written when messages had none."""
    Mask.objects.create(topic_pattern="orders", paths=["$.card"], visible_to="admin", created_by="ada")
    publish(broker, envelope(**HEADERS))
    (message,) = ask(operator).json()["messages"]
    assert message["headers"] == dict.fromkeys(HEADERS, MASKED)


def test_a_hidden_header_cannot_be_guessed_by_searching(broker, signed_in):
    """The search is refused with its field, whatever the value; whether the header is there may be asked."""
    publish(broker, envelope(**HEADERS))
    admin, operator = signed_in("admin"), signed_in("operator")
    mask(admin, visible_headers=["tenant"])
    for path in ("messages/search", "messages/count", "messages/export"):
        for text in ("bearer", "*", "nothing"):
            refused = ask(operator, path, header=f"authorization:{text}")
            assert refused.status_code == 422, (path, text)
            (fault,) = refused.json()["field_errors"]
            assert fault["field"] == "header"
            assert "a mask hides the values of header authorization" in fault["message"]
    assert (found(operator, "authorization"), len(found(operator, "tenant:acme"))) == (['{"order": 7}'], 1)
    assert found(admin, "authorization:bearer") == [BODY]


def test_the_headers_that_a_mask_leaves_visible_are_changed_and_audited(broker, signed_in):
    """An invalid name is refused with its number."""
    admin, operator = signed_in("admin"), signed_in("operator")
    publish(broker, envelope(**HEADERS))
    made = mask(admin, visible_headers=["tenant"]).json()
    refused = admin.request("PATCH", f"masks/{made['id']}", {"visible_headers": ["tenant", "two words"]})
    assert [each["field"] for each in refused.json()["field_errors"]] == ["visible_headers.1"]
    assert admin.request("PATCH", f"masks/{made['id']}", {"visible_headers": []}).json()["visible_headers"] == []
    assert ask(operator).json()["messages"][0]["headers"] == dict.fromkeys(HEADERS, MASKED)
    entry = AuditEntry.objects.get(action="change mask", outcome="done")
    assert entry.detail == "$.card; visible to admin; shows headers tenant → $.card; visible to admin"


def test_a_header_is_visible_if_all_masks_of_a_topic_name_it(broker, operator):
    """One mask cannot show what another one hides."""
    for names in (["tenant", "traceparent"], ["tenant"]):
        Mask.objects.create(topic_pattern="orders", paths=["$.card"], visible_headers=names, created_by="ada")
    publish(broker, envelope(tenant="acme", traceparent="00-1"))
    assert ask(operator).json()["messages"][0]["headers"] == {"tenant": "acme", "traceparent": MASKED}


def test_hidden_paths_are_equal_with_the_same_paths_and_headers():
    """A tail masks once for all viewers from whom the same is hidden."""
    hidden = HiddenPaths(["$.a", "$.b"], ["x"])
    assert hidden == HiddenPaths(["$.b", "$.a"], {"x"})
    assert len({hidden, HiddenPaths(["$.b", "$.a"], ["x"]), HiddenPaths(["$.a", "$.b"])}) == 2
    assert HiddenPaths([], []).visible_headers(HEADERS) == HEADERS


# ---- copies


def act(browser: Any, action: str, broker: Any, target: str) -> Any:
    request = {"action": action, "topic": "orders", "channel": "billing", "node": broker.http_address}
    return browser.request("POST", "messages/actions", request | {"ids": ids_of(broker), "target": target})


@pytest.mark.parametrize("action", ["copy", "move"])
def test_copied_and_moved_messages_keep_their_headers(broker, operator, action):
    """With bodies of any bytes, beside messages without headers, and alone."""
    sent = [envelope("first", tenant="Zürich, “a” = 1 "), envelope("plain"), envelope(**HEADERS)]
    binary = {"headers": {"kind": "binary"}, "body_base64": "//4AAQ=="}
    publish(broker, *sent, binary)
    before = [(each["body"], each["headers"]) for each in ask(operator).json()["messages"]]
    assert act(operator, action, broker, "returns").json() == {"count": 4, "not_found": []}
    broker.post("/channel/create", topic="returns", channel="billing")
    wait_until(lambda: broker.topics()["returns"]["depth"] == 0, "the copies are in the channel")
    copies = ask(operator, topic="returns").json()["messages"]
    assert [(each["body"], each["headers"]) for each in copies] == before
    assert len(ids_of(broker)) == (4 if action == "copy" else 0)


def test_a_large_message_is_copied_with_its_headers(broker, operator):
    """As large as nsqd's --max-msg-size allows."""
    publish(broker, envelope("x" * (1 << 20), tenant="acme"))
    assert act(operator, "copy", broker, "returns").json()["count"] == 1
    broker.post("/channel/create", topic="returns", channel="all")
    wait_until(lambda: broker.topics()["returns"]["depth"] == 0, "the copy is in the channel")
    ((body, headers),) = stored(broker, "returns", "all")
    assert (len(body), headers) == (1 << 20, {"tenant": "acme"})


def test_messages_whose_headers_a_mask_hides_are_not_copied(broker, operator):
    """A copy would lose or reveal the values."""
    Mask.objects.create(topic_pattern="orders", paths=["$.card"], visible_to="admin", created_by="ada")
    publish(broker, envelope(**HEADERS))
    refused = act(operator, "copy", broker, "returns")
    assert (refused.status_code, "returns" in broker.topics()) == (403, False)


def test_messages_are_published_with_headers(broker, cluster, signed_in):
    """Each message has them, also a deferred one; names are in lower case, and a value may have any characters."""
    operator = signed_in("operator")
    headers = {"Tenant": "acme", "note": "Zürich, “a” = 1"}
    sent = {"topic": "orders", "node": broker.http_address, "headers": headers}
    for bodies in (["a", "b"], ["c"]):
        assert operator.request("POST", "messages", sent | {"bodies": bodies}).json()["count"] == len(bodies)
    later = sent | {"bodies": ["later"], "defer_ms": 60_000}
    assert operator.request("POST", "messages", later).json()["count"] == 1
    wait_until(lambda: len(stored(broker)) == 4, "the messages are in the channel")
    expected = {"tenant": "acme", "note": "Zürich, “a” = 1"}
    assert stored(broker) == [(body, expected) for body in ("a", "b", "c", "later")]


def test_headers_lead_to_a_node_that_stores_them(broker, go_cluster, signed_in, settings):
    """Of a fleet with Go's nsqd. If no node stores headers, or the chosen one does not, nothing is published."""
    go, other = go_cluster.nodes
    go.topic("orders")
    other.topic("orders")
    settings.NSQLOOKUPD_HTTP_ADDRESSES = ()
    settings.NSQD_HTTP_ADDRESSES = (go.address, other.address, broker.http_address)
    operator = signed_in("operator")
    sent = {"topic": "orders", "bodies": ["x"], "headers": {"tenant": "acme"}}
    for number in range(1, 9):  # the nodes are asked in random order
        assert operator.request("POST", "messages", sent).json()["node"] == broker.http_address
        wait_until(lambda number=number: len(stored(broker)) == number, "the message is in the channel")
    settings.NSQD_HTTP_ADDRESSES = (go.address,)
    for chosen in (None, go.address):
        refused = operator.request("POST", "messages", sent | {"node": chosen})
        assert refused.status_code == 422
        assert refused.json()["message"] == (
            f"headers: node {go.address} does not store headers: only brokerd does, not Go's nsqd"
        )
    assert go.published == other.published == []
