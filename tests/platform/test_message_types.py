"""Message types: descriptors of Protocol Buffers that people upload for the messages of topics."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import pytest

from nsqplatform.accounts.models import AuditEntry
from nsqplatform.cluster.messages.types import LARGEST_BYTES
from tests.platform.message_descriptors import ORDER, descriptors

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.database]


@pytest.fixture
def people(browser, account):
    found = {}
    for role in ("viewer", "operator", "admin"):
        account(role)
        found[role] = browser()
        found[role].sign_in(role)
    return found


def upload(caller: Any, file: bytes | None = None, **more: Any) -> Any:
    encoded = b64encode(descriptors() if file is None else file).decode()
    return caller.request(
        "POST", "message-types", {"topic_pattern": "orders.*", "name": ORDER, "descriptors": encoded} | more
    )


def test_an_operator_uploads_lists_and_deletes_a_message_type(people):
    """The file is returned as it was uploaded, the list is without files, and changes are audited."""
    operator = people["operator"]
    made = upload(operator)
    assert made.status_code == 201, made.text
    (listed,) = operator.request("GET", "message-types").json()["types"]
    assert listed == made.json()
    assert (listed["topic_pattern"], listed["name"], listed["created_by"]) == ("orders.*", ORDER, "operator")
    path = f"message-types/{listed['id']}"
    assert operator.request("GET", f"{path}/descriptors").content == descriptors()
    assert operator.request("DELETE", path).status_code == 204
    assert operator.request("GET", "message-types").json()["types"] == []
    gone = operator.request("GET", f"{path}/descriptors")
    assert (gone.status_code, gone.json()["message"]) == (404, f"there is no message type {listed['id']}")
    entries = AuditEntry.objects.filter(action__endswith="message type").order_by("id")
    assert [(each.action, each.subject, each.detail, each.outcome) for each in entries] == [
        ("create message type", "orders.*", ORDER, "done"),
        ("delete message type", "orders.*", ORDER, "done"),
    ]


def test_an_operator_of_some_topics_changes_the_message_types_of_these_only(people, browser, account):
    """A pattern that also matches other topics is refused, and so is deleting such a type."""
    limited = account("operator", "limited")
    limited.topic_patterns = ["orders.*", "mail?"]
    limited.save()
    caller = browser()
    caller.sign_in("limited")
    foreign = upload(people["admin"], topic_pattern="*").json()
    for pattern, status in (("orders.*", 201), ("orders.eu.*", 201), ("mail?", 201), ("*", 403), ("mail*", 403)):
        answer = upload(caller, topic_pattern=pattern)
        assert answer.status_code == status, (pattern, answer.text)
    assert answer.json()["message"] == "you may act on topics orders.*, mail?, not on all of mail*"
    assert caller.request("DELETE", f"message-types/{foreign['id']}").status_code == 403
    assert len(caller.request("GET", "message-types").json()["types"]) == 4


def test_who_may_not_read_messages_has_no_message_types(people):
    """A viewer neither lists, nor reads, nor uploads, nor deletes one."""
    made = upload(people["admin"]).json()
    viewer = people["viewer"]
    path = f"message-types/{made['id']}"
    refused = [
        viewer.request("GET", "message-types"),
        viewer.request("GET", f"{path}/descriptors"),
        upload(viewer),
        viewer.request("DELETE", path),
    ]
    assert [each.status_code for each in refused] == [403] * 4
    assert len(people["admin"].request("GET", "message-types").json()["types"]) == 1


@pytest.mark.parametrize(
    ("more", "field", "complaint"),
    [
        ({"file": b"message Order {}"}, "descriptors", "not a FileDescriptorSet"),
        ({"descriptors": "not base64!"}, "descriptors", "not base64"),
        ({"file": descriptors(with_imports=False)}, "descriptors", "order.proto imports money.proto, which is absent"),
        ({"file": b"\n" * (LARGEST_BYTES + 1)}, "descriptors", "1,048,577 bytes; at most 1,048,576"),
        ({"name": "shop.v1.Basket"}, "name", "no message type shop.v1.Basket; it has shop.v1.Money, shop.v1.Order"),
        ({"topic_pattern": ""}, "topic_pattern", "at least 1 character"),
        ({"topic_pattern": "no topic"}, "topic_pattern", "'no topic' is not a glob of topic names"),
    ],
)
def test_an_upload_that_cannot_decode_is_refused_with_its_field(more, field, complaint, people):
    """A file that is invalid, incomplete or too large, or without the message type."""
    refused = upload(people["operator"], **more)
    assert refused.status_code == 422, refused.text
    (fault,) = refused.json()["field_errors"]
    assert fault["field"] == field
    assert complaint in fault["message"]
    assert people["operator"].request("GET", "message-types").json()["types"] == []
