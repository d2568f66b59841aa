"""Masks: values in messages that lower roles do not see, at every interface that returns bodies."""

from __future__ import annotations

import asyncio
import json
import re
from base64 import b64decode
from collections.abc import Callable
from typing import Any, NamedTuple
from urllib.parse import urlencode

import jsonpath
import pytest
from asgiref.sync import async_to_sync
from hypothesis import given
from hypothesis import strategies as st

from nsqanalytics.life_events import EVENT_SCHEMA
from nsqplatform.accounts.models import AuditEntry
from nsqplatform.cluster.messages.hidden_paths import MASKED, HiddenPaths
from nsqplatform.console.api import api
from tests.platform.callers import ROLES

SECRET = b"4111111111111111"
CARD = b'{"order":7,"card":{"number":"' + SECRET + b'"}}'
NOT_JSON = b"card=" + SECRET


# ---- the endpoints


class Endpoint(NamedTuple):
    """A path of the API that returns bodies, and the query for a message."""

    path: str
    ask: Callable[[Any, dict[str, str]], Any]


def get(path: str, **more: str) -> Callable[[Any, dict[str, str]], Any]:
    def ask(browser: Any, message: dict[str, str]) -> Any:
        query = {"topic": "orders", "channel": "billing"} | more
        if "{id}" in path:
            query["node"] = message["node"]
        return browser.request("GET", f"{path.format(id=message['id'])}?{urlencode(query)}")

    return ask


ENDPOINTS = {
    "the list": Endpoint("/messages", get("messages", max_body_bytes="4096")),
    "a list of beginnings": Endpoint("/messages", get("messages", max_body_bytes="40")),
    "one message": Endpoint("/messages/{id}", get("messages/{id}")),
    "the download of a body": Endpoint("/messages/{id}/body", get("messages/{id}/body")),
    "the search for everything": Endpoint("/messages/search", get("messages/search", max_size="100000")),
    "the search for a secret": Endpoint("/messages/search", get("messages/search", text=SECRET.decode())),
    "the search by pattern": Endpoint("/messages/search", get("messages/search", text="4{1}1+", match="regex")),
    "the search for bytes": Endpoint("/messages/search", get("messages/search", text=SECRET.hex(), match="hex")),
    "the export as NDJSON": Endpoint("/messages/export", get("messages/export")),
    "the export as CSV": Endpoint("/messages/export", get("messages/export", format="csv")),
}
"""``/ws/tail`` has a test of its own in test_tail.py."""


COUNT = "/messages/count"
"""It returns no body: test_a_masked_value_cannot_be_guessed_by_counting calls it."""
LIFE = "/messages/{id}/life"
"""What happened to a message, from the archive, which has no bodies and headers."""


def test_every_path_that_returns_messages_is_called_here():
    """A new one fails here until it is tested."""
    paths = {
        path.removeprefix("/api/v1") for path, methods in api.get_openapi_schema()["paths"].items() if "get" in methods
    }
    called = {each.path for each in ENDPOINTS.values()} | {COUNT, LIFE}
    assert {path for path in paths if path.startswith("/messages")} == called
    assert not {"body", "headers"} & {*EVENT_SCHEMA.names}


def text_of(response: Any) -> bytes:
    """All of a response, base64 in JSON decoded, so that a secret in it is found."""
    if not response.streaming:
        whole = response.content
    else:

        async def collected() -> bytes:
            return b"".join([piece async for piece in response.streaming_content])

        whole = async_to_sync(collected)()
    return whole + b"".join(decoded(whole))


def decoded(text: bytes) -> list[bytes]:
    return [b64decode(found) for found in re.findall(rb'"body": ?"([A-Za-z0-9+/=]*)"', text) if len(found) % 4 == 0]


@pytest.fixture
def people(browser, account, nsqadmin_settings):
    """One browser for each role; all of them may read messages."""
    nsqadmin_settings(message_role="viewer")
    found = {}
    for role in ROLES:
        user = account("operator" if role == "limited" else role, role)
        if role == "limited":
            user.topic_patterns = ["orders"]
            user.save()
        found[role] = browser()
        found[role].sign_in(role)
    return found


def mask(admin: Any, **more: Any) -> Any:
    body = {"topic_pattern": "ord*", "paths": ["$.card.number"]} | more
    return admin.request("POST", "masks", body)


def publish(cluster: Any, *bodies: bytes) -> list[dict[str, str]]:
    """Publish to one node; its messages, in order."""
    cluster.make_channel("orders", "billing")
    broker = cluster.brokers[0]
    for body in bodies:
        broker.post("/pub", body, topic="orders")
    cluster.wait_until_routed("orders")
    found = broker.get("/channel/scan?topic=orders&channel=billing")["messages"]
    return [{"id": each["id"], "node": broker.http_address} for each in found]


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("visible_to", ["operator", "admin"])
def test_a_masked_value_is_in_no_answer_to_lower_roles(visible_to, cluster, people):
    """Each role at each endpoint, for a body that can be masked, a long one, and one that cannot be masked."""
    padded = CARD[:-1] + b',"pad":"' + b"x" * 70_000 + b'"}'
    messages = publish(cluster, CARD, padded, NOT_JSON)
    assert mask(people["admin"], visible_to=visible_to).status_code == 201
    sees = {"admin"} | ({"operator", "limited"} if visible_to == "operator" else set())
    leaked, blind = [], []
    for role, caller in people.items():
        for name, endpoint in ENDPOINTS.items():
            answers = [endpoint.ask(caller, each) for each in (messages if "{id}" in endpoint.path else messages[:1])]
            assert {answer.status_code for answer in answers} <= {200, 403}, (role, name)
            shown = any(SECRET in text_of(answer) for answer in answers)
            if shown and role not in sees:
                leaked.append((role, name))
            if not shown and role in sees and name != "a list of beginnings":
                blind.append((role, name))
    assert (leaked, blind) == ([], [])


@pytest.mark.django_db(transaction=True)
def test_a_masked_value_cannot_be_guessed_by_counting(cluster, people):
    """A search for it matches only for who sees it; a body that cannot be masked is counted as withheld."""
    publish(cluster, CARD, NOT_JSON)
    assert mask(people["admin"], visible_to="admin").status_code == 201
    counted = {}
    for role in ("operator", "admin"):
        query = urlencode({"topic": "orders", "channel": "billing", "text": SECRET.decode()})
        answer = people[role].request("GET", f"messages/count?{query}").json()
        counted[role] = (answer["matching"], answer["withheld"], answer["total"])
    assert counted == {"operator": (0, 1, 2), "admin": (2, 0, 2)}


@pytest.mark.django_db(transaction=True)
def test_a_body_that_cannot_be_masked_is_withheld_and_the_rest_is_readable(cluster, people):
    """The download is refused with the reason, and a search says how many bodies it could not search."""
    messages = publish(cluster, CARD, NOT_JSON)
    mask(people["admin"])
    operator = people["operator"]
    listed = get("messages")(operator, messages[0]).json()["messages"]
    assert [each["visibility"] for each in listed] == ["masked", "withheld"]
    assert listed[1]["body"] == ""
    assert text_of(get("messages/{id}/body")(operator, messages[0])) == b'{"order": 7, "card": {"number": "***"}}'
    refused = get("messages/{id}/body")(operator, messages[1])
    assert (refused.status_code, "withholds the body" in refused.json()["message"]) == (403, True)
    end = json.loads(text_of(get("messages/search", text="order")(operator, messages[0])).splitlines()[2])
    assert (end["searched"], end["matching"], end["withheld"]) == (2, 1, 1)


@pytest.mark.django_db(transaction=True)
def test_masks_apply_to_matching_topics_until_they_are_deleted(cluster, people):
    """They are created and deleted by administrators, and audited."""
    (message,) = publish(cluster, CARD)
    operator, admin = people["operator"], people["admin"]
    other = mask(admin, topic_pattern="returns*").json()
    assert SECRET in text_of(ENDPOINTS["the list"].ask(operator, message))
    made = mask(admin).json()
    assert SECRET not in text_of(ENDPOINTS["the list"].ask(operator, message))
    assert [each["id"] for each in operator.request("GET", "masks").json()["masks"]] == [made["id"], other["id"]]
    assert operator.request("DELETE", f"masks/{made['id']}").status_code == 403
    assert mask(operator).status_code == 403
    assert admin.request("DELETE", f"masks/{made['id']}").status_code == 204
    assert SECRET in text_of(ENDPOINTS["the list"].ask(operator, message))
    entries = AuditEntry.objects.filter(action__endswith="mask", outcome="done").order_by("id")
    assert [(each.action, each.subject) for each in entries] == [
        ("create mask", "returns*"),
        ("create mask", "ord*"),
        ("delete mask", "ord*"),
    ]


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("path", ["card.number", "$.", "$.card[", "", "$.card & $.number", "$.card.~number"])
def test_a_mask_with_an_invalid_path_is_refused_with_its_number(path, people):
    """A path that cannot be parsed, or that RFC 9535 does not have, would hide nothing."""
    refused = mask(people["admin"], paths=["$.ok", path])
    assert refused.status_code == 422
    assert [each["field"] for each in refused.json()["field_errors"]] == ["paths.1"]


@pytest.mark.django_db(transaction=True)
def test_a_mask_whose_pattern_can_match_no_topic_is_refused(people):
    """It would hide nothing."""
    refused = mask(people["admin"], topic_pattern="no topic")
    assert refused.status_code == 422
    assert [each["field"] for each in refused.json()["field_errors"]] == ["topic_pattern"]


@pytest.mark.django_db(transaction=True)
def test_a_mask_is_changed_by_administrators(cluster, people):
    """What it hides changes at once; the audit trail has both states."""
    (message,) = publish(cluster, CARD)
    operator, admin = people["operator"], people["admin"]
    made = mask(admin, paths=["$.order"]).json()
    assert SECRET in text_of(ENDPOINTS["the list"].ask(operator, message))
    changed = admin.request("PATCH", f"masks/{made['id']}", {"paths": ["$.card"]})
    assert (changed.status_code, changed.json()) == (200, made | {"paths": ["$.card"]})
    assert SECRET not in text_of(ENDPOINTS["the list"].ask(operator, message))
    assert operator.request("PATCH", f"masks/{made['id']}", {"paths": ["$.order"]}).status_code == 403
    assert admin.request("PATCH", "masks/999999", {"paths": ["$.order"]}).status_code == 404
    refused = admin.request("PATCH", f"masks/{made['id']}", {"paths": ["$.a", "b", "$.["]})
    assert [each["field"] for each in refused.json()["field_errors"]] == ["paths.1", "paths.2"]
    assert SECRET not in text_of(ENDPOINTS["the list"].ask(operator, message))
    entry = AuditEntry.objects.get(action="change mask", outcome="done")
    assert entry.detail == "$.order; visible to admin → $.card; visible to admin"


@pytest.mark.django_db(transaction=True)
def test_a_preview_shows_what_paths_leave_of_a_body(people):
    """Also of one that is withheld; nothing is stored."""

    def preview(body, *paths, caller="admin"):
        return people[caller].request("POST", "masks/preview", {"paths": list(paths), "body": body})

    shown = preview(CARD.decode(), "$.card.number")
    assert shown.json() == {"body": '{"order": 7, "card": {"number": "***"}}', "visibility": "masked"}
    assert preview("card=4111", "$.card").json() == {"body": "", "visibility": "withheld"}
    refused = preview("{}", "$.a", "card")
    assert [each["field"] for each in refused.json()["field_errors"]] == ["paths.1"]
    assert preview("{}", "$.a", caller="operator").status_code == 403
    assert people["admin"].request("GET", "masks").json() == {"masks": []}


# ---- hidden paths, as a function


@pytest.mark.parametrize(
    ("path", "body", "left"),
    [
        ("$.card.number", {"card": {"number": 1, "kind": "a"}}, {"card": {"number": MASKED, "kind": "a"}}),
        ("$.items[*].price", {"items": [{"price": 1}, {"price": {"net": 2}}]}, {"items": [{"price": MASKED}] * 2}),
        (
            "$..number",
            [{"number": {"number": 1}}, {"a": [{"number": 2}]}],
            [{"number": MASKED}, {"a": [{"number": MASKED}]}],
        ),
        ("$['a b'][1]", {"a b": [1, 2]}, {"a b": [1, MASKED]}),
        ("$.absent", {"card": 1}, {"card": 1}),
    ],
)
def test_the_values_of_a_path_are_replaced(path, body, left):
    """Whatever their type, and wherever they are."""
    visible = HiddenPaths([path]).visible(json.dumps(body).encode())
    assert (json.loads(visible.body), visible.visibility) == (left, "masked")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"text",
        b'"a JSON string with {\\"card\\":1}"',
        b"4111111111111111",
        b'{"card":{"number":1}}\n{"card":{"number":2}}',
        b'{"card":{"number":1}',
        b"[" * 100_000,
        b'{"n":' + b"9" * 10_000 + b"}",
        b'{"card":{"number":1},"n":NaN}',
        b"\xff\xfe\x00",
        b'{"card":{"number":"\\ud800"},"name":"\\ud800"}',
        b"\x81\xa4card\x81\xa6number\xa44111",  # MessagePack
        b"\x0a\x06\x0a\x044111",  # Protocol Buffers
    ],
)
def test_a_body_in_which_a_value_cannot_be_found_is_withheld(body):
    """Other formats, several documents, torn, too deep or too large ones."""
    visible = HiddenPaths(["$.card.number"]).visible(body)
    assert (visible.body, visible.visibility) == (b"", "withheld")


def test_numbers_that_no_mask_hides_are_as_they_were_sent():
    """Also those that a double would round, and in filters."""
    body = b'{"card": {"number": 4.0}, "n": [12345678901234567.89, 1e999, 1.10, -0], "big": 12345678901234567890}'
    assert HiddenPaths(["$.card.number"]).visible(body).body == body.replace(b"4.0", b'"***"')
    assert HiddenPaths(["$.n[?@ > 1.5]"]).visible(b'{"n": [1.10, 1.60, 1e999]}').body == (
        b'{"n": [1.10, "***", "***"]}'
    )


def test_a_filter_compares_values_that_another_path_masks():
    """In any order of the paths."""
    kinds = [f"$.cards[*].kind{number}" for number in range(8)]
    numbers = [f"$.cards[?@.kind{number}=='credit'].number{number}" for number in range(8)]
    card = {f"kind{number}": "credit" for number in range(8)} | {f"number{number}": "4111" for number in range(8)}
    visible = HiddenPaths([*kinds, *numbers]).visible(json.dumps({"cards": [card]}).encode())
    assert json.loads(visible.body) == {"cards": [dict.fromkeys(card, MASKED)]}


def test_other_work_continues_while_a_long_body_is_masked():
    """Masking takes tens of milliseconds, in which the web process answers other requests."""

    async def turns_while_masking() -> int:
        turns = 0

        async def turn() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        turning = asyncio.create_task(turn())
        body = json.dumps([{"number": number} for number in range(2000)]).encode()
        assert (await HiddenPaths(["$..number"]).visible_in_thread(body)).visibility == "masked"
        turning.cancel()
        return turns

    assert asyncio.run(turns_while_masking()) > 0


def test_a_mask_of_the_whole_document_or_of_an_unknown_path_withholds_everything():
    """There is nothing left to show, or nothing that could be found."""
    for path in ("$", "$.a["):
        assert HiddenPaths([path]).visible(b'{"a":1}').visibility == "withheld"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["card", "number", "a"]), inner, max_size=3)
    ),
    max_leaves=12,
)


@given(JSON, st.lists(st.sampled_from(["$.card", "$.card.number", "$..number", "$[*].a"]), min_size=1, unique=True))
def test_no_masked_value_remains_in_any_document(document, paths):
    """After masking, each path finds only masked values; the order of the paths does not matter."""
    visible = HiddenPaths(paths).visible(json.dumps(document).encode())
    if visible.visibility == "withheld":
        assert not isinstance(document, dict | list)
        return
    left = json.loads(visible.body)
    assert all(value == MASKED for path in paths for value in jsonpath.findall(path, left))
