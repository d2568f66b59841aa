"""Requeueing, finishing, copying and moving messages of a channel: chosen ones, and all that match a search."""

from __future__ import annotations

import signal
import time
from base64 import b64decode
from typing import Any
from urllib.parse import urlencode

import pytest

from nsqcluster.publishing import publish_all
from nsqplatform.accounts.models import AuditEntry
from nsqplatform.cluster.messages import actions
from tests.harness.waiting import wait_until

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.database]


def publish(broker: Any, *bodies: bytes, topic: str = "orders", **query: str) -> None:
    for body in bodies:
        assert broker.post("/pub", body, topic=topic, **query) == "OK"
    wait_until(lambda: broker.topics()[topic]["depth"] == 0, "the messages are in the channel")


def listed(broker: Any, topic: str = "orders", channel: str = "billing") -> dict[bytes, str]:
    """The ids of the channel's messages on one node, by body."""
    ids: dict[bytes, str] = {}
    start: int | None = 0
    while start is not None:
        page = broker.get(f"/channel/scan?{urlencode({'topic': topic, 'channel': channel, 'from': start})}")
        ids |= {b64decode(each["body"]): each["id"] for each in page["messages"]}
        start = page["next"]
    return ids


def node_of(broker: Any) -> str:
    return str(broker.http_address)


def act(operator: Any, action: str, broker: Any, ids: list[str], **more: Any) -> Any:
    body = {"action": action, "topic": "orders", "channel": "billing", "node": node_of(broker), "ids": ids}
    return operator.browser.request("POST", "messages/actions", body | more)


def start(operator: Any, action: str, *, as_of: int | None = None, **more: Any) -> Any:
    """Request a job on all messages that match."""
    body = {"action": action, "topic": "orders", "channel": "billing", "criteria": {}, "as_of": as_of or now_ms()}
    return operator.browser.request("POST", "jobs/messages", body | more)


def now_ms() -> int:
    return time.time_ns() // 1_000_000 + 1


def last_entry(operator: Any) -> dict[str, Any]:
    return operator.audit()[0]


@pytest.fixture
def operator(sign_in):
    return sign_in()


@pytest.fixture
def channel(cluster):
    cluster.make_channel("orders", "billing")
    return cluster


# ---- chosen messages


def test_a_message_is_finished_and_the_audit_trail_has_the_nodes_outcome(channel, operator):
    """It leaves the channel of its node; ids that are not there are returned."""
    broker = channel.brokers[0]
    publish(broker, b"a", b"b")
    ids = listed(broker)
    answer = act(operator, "finish", broker, [ids[b"a"], "0000000000000000"])
    assert answer.json() == {"count": 1, "not_found": ["0000000000000000"]}
    assert set(listed(broker)) == {b"b"}
    entry = last_entry(operator)
    assert (entry["action"], entry["topic"], entry["channel"], entry["outcome"]) == (
        "finish messages", "orders", "billing", "done",
    )  # fmt: skip
    (result,) = entry["results"]
    assert (result["node"], result["detail"]) == (node_of(broker), "1 message finished; 1 no longer there")


def test_a_deferred_message_is_requeued(channel, operator):
    """It waits for delivery at once."""
    broker = channel.brokers[0]
    publish(broker, b"later", defer="600000")
    assert act(operator, "requeue", broker, list(listed(broker).values())).json()["count"] == 1
    (found,) = broker.topics()["orders"]["channels"]
    assert (found["depth"], found["deferred_count"]) == (1, 0)


def test_whole_bodies_are_copied_in_order(channel, operator):
    """Bytes of any length, to a topic on the same node that did not exist; the originals stay."""
    broker = channel.brokers[0]
    sent = [bytes(range(256)), b"x" * 900_000, b"y" * 900_000, *(b"%d" % number for number in range(30))]
    publish(broker, *sent)
    answer = act(operator, "copy", broker, list(listed(broker).values()), target="returns")
    assert answer.json() == {"count": 33, "not_found": []}
    broker.post("/channel/create", topic="returns", channel="all")
    wait_until(lambda: broker.topics()["returns"]["depth"] == 0, "the copies are in the channel")
    assert list(listed(broker, "returns", "all")) == sent
    assert list(listed(broker)) == sent
    assert "returns" not in channel.brokers[1].topics()


def test_a_moved_message_is_in_the_target_topic_only(channel, operator):
    """The audit trail names the target."""
    broker = channel.brokers[0]
    publish(broker, b"a", b"b")
    assert act(operator, "move", broker, [listed(broker)[b"a"]], target="returns").json()["count"] == 1
    assert set(listed(broker)) == {b"b"}
    assert broker.topics()["returns"]["message_count"] == 1
    assert last_entry(operator)["detail"] == "1 message moved to topic returns"


def test_a_message_that_the_target_does_not_accept_stays(channel, operator, monkeypatch):
    """The node refuses the publish, so nothing is finished, and the answer has the node's reason."""
    broker = channel.brokers[0]
    publish(broker, b"a")
    broker.post("/topic/create", topic="returns")
    from nsqcluster.publishing import publish_all
    from nsqplatform.cluster.messages import actions

    async def publish_nothing(http: Any, address: str, target: str, bodies: Any) -> None:
        await publish_all(http, address, target, [b""])

    monkeypatch.setattr(actions, "publish_all", publish_nothing)
    answer = act(operator, "move", broker, list(listed(broker).values()), target="returns")
    assert (answer.status_code, set(listed(broker))) == (502, {b"a"})
    assert "MSG_EMPTY" in answer.json()["message"]
    assert last_entry(operator)["outcome"] == "failed"


@pytest.mark.parametrize(
    ("action", "more", "field"),
    [
        ("copy", {}, "target"),
        ("finish", {"target": "returns"}, "target"),
        ("move", {"target": "orders"}, "target"),
        ("burn", {}, "action"),
        ("copy", {"target": "not a name"}, "target"),
        ("finish", {"ids": []}, "ids"),
        ("finish", {"ids": ["../1"]}, "ids.0"),
    ],
)
def test_a_request_that_does_not_fit_names_the_field(channel, operator, action, more, field):
    """Status 422; nothing is changed."""
    broker = channel.brokers[0]
    publish(broker, b"a")
    ids = more.pop("ids", list(listed(broker).values()))
    answer = act(operator, action, broker, ids, **more)
    assert answer.status_code == 422
    assert [each["field"] for each in answer.json()["field_errors"]] == [field]
    assert set(listed(broker)) == {b"a"}


def test_gos_node_refuses_by_name(go_cluster, operator):
    """It has no such endpoint; the refusal is in the audit trail."""
    alpha, _ = go_cluster.nodes
    alpha.channel("orders", "billing", depth=5)
    node = alpha.address
    for action, more in (("finish", {}), ("requeue", {}), ("copy", {"target": "returns"})):
        body = {"action": action, "topic": "orders", "channel": "billing", "node": node, "ids": ["0" * 16]} | more
        answer = operator.browser.request("POST", "messages/actions", body)
        assert answer.status_code == 502, answer.content
        assert f"this nsqd cannot {action} single messages; brokerd can, Go's nsqd cannot" in answer.json()["message"]
        assert last_entry(operator)["outcome"] == "failed"


@pytest.mark.parametrize(
    ("action", "detail"),
    [
        ("copy", "8 messages copied to topic returns; the node does not have this channel any more"),
        (
            "move",
            "8 more were published to topic returns and not finished: the node does not have this channel any more",
        ),
    ],
)
def test_a_channel_deleted_meanwhile_leaves_what_was_published_in_the_audit_trail(
    channel, operator, monkeypatch, action, detail
):
    """Status 502. A channel that was deleted before is not found, and nothing is recorded."""
    broker = channel.brokers[0]
    publish(broker, *(b"%d" % number for number in range(9)))
    ids = list(listed(broker).values())

    async def publish_and_delete(*args: Any) -> None:
        await publish_all(*args)
        broker.post("/channel/delete", topic="orders", channel="billing")

    monkeypatch.setattr(actions, "publish_all", publish_and_delete)
    answer = act(operator, action, broker, ids, target="returns")
    assert (answer.status_code, detail in answer.json()["message"]) == (502, True), answer.content
    entry = last_entry(operator)
    assert (entry["action"], entry["outcome"]) == (f"{action} messages", "failed")
    assert detail in entry["results"][0]["detail"]
    assert act(operator, action, broker, ids, target="returns").status_code == 404
    assert last_entry(operator)["id"] == entry["id"]


@pytest.mark.parametrize("is_job", [False, True])
def test_topic_patterns_apply_to_both_topics(channel, sign_in, is_job):
    """An operator of orders* copies to orders.copy, and neither to returns nor from it."""
    channel.make_channel("returns", "billing")
    broker = channel.brokers[0]
    publish(broker, b"a")
    publish(broker, b"b", topic="returns")
    someone = sign_in("operator", "orders*")
    ids = list(listed(broker).values())

    def status(**more: str) -> int:
        if is_job:
            return int(start(someone, "copy", **more).status_code)
        return int(act(someone, "copy", broker, ids, **more).status_code)

    assert status(target="returns") == 403
    assert status(target="orders.copy", topic="returns") == 403
    assert status(target="orders.copy") == (202 if is_job else 200)


@pytest.mark.parametrize("is_job", [False, True])
def test_who_does_not_see_whole_bodies_cannot_copy_or_move_them(channel, sign_in, is_job):
    """A mask would leak, or the masked body would be published. Finishing needs no body."""
    admin, someone = sign_in("admin"), sign_in("operator")
    broker = channel.brokers[0]
    publish(broker, b'{"card": 1}')
    mask = {"topic_pattern": "ord*", "paths": ["$.card"], "visible_to": "admin"}
    assert admin.browser.request("POST", "masks", mask).status_code == 201
    ids = list(listed(broker).values())
    for action in ("copy", "move"):
        made = start(someone, action, target="x") if is_job else act(someone, action, broker, ids, target="x")
        assert made.status_code == 403
        assert "a mask hides values in the bodies of topic orders from you" in made.json()["message"]
    assert "x" not in broker.topics()
    assert act(someone, "finish", broker, ids).status_code == 200


# ---- all that match


def test_no_job_is_started_if_a_node_that_was_counted_does_not_answer(channel, operator, short_request_timeout):
    """Status 502, with the node. Otherwise its messages would be missing silently."""
    channel.publish("orders", 2)
    channel.wait_until_routed("orders")
    silent = channel.brokers[1]
    silent.signal(signal.SIGSTOP)
    try:
        answer = start(operator, "finish")
    finally:
        silent.signal(signal.SIGCONT)
    assert answer.status_code == 502, answer.content
    expected = f"not all messages that match would be included: node {node_of(silent)}: "
    assert answer.json()["message"].startswith(expected)
    assert operator.get("jobs")["jobs"] == []
    assert len(listed(channel.brokers[0])) == 2


def test_messages_that_match_are_counted(channel, operator):
    """On all nodes, as of a time."""
    channel.publish("orders", 20)
    channel.wait_until_routed("orders")
    before = now_ms() - 1
    found = operator.get(f"messages/count?{urlencode({'topic': 'orders', 'channel': 'billing', 'text': 'message 1'})}")
    assert (found["matching"], found["total"], [each["error"] for each in found["nodes"]]) == (22, 40, ["", ""])
    assert before <= found["as_of"] <= now_ms()


def test_all_that_match_are_finished_on_all_nodes(channel, operator, dispatcher):
    """Those published after the count stay; the job's entry counts messages."""
    channel.publish("orders", 250)
    channel.wait_until_routed("orders")
    as_of = now_ms()
    wait_until(lambda: now_ms() > as_of + 5, "later messages have a later time")
    publish(channel.brokers[0], b"message 1 came later")
    dispatcher()
    answer = start(operator, "finish", as_of=as_of, criteria={"text": "message 1"})
    assert answer.status_code == 202, answer.content
    job = operator.ended(answer.json()["id"])
    assert (job["state"], job["failed_count"], job["parameters"]) == ("finished", 0, {"messages": 222})
    left = [body for broker in channel.brokers for body in listed(broker) if b"message 1" in body]
    assert left == [b"message 1 came later"]
    assert len(listed(channel.brokers[0])) == 250 - 111 + 1
    results = [result["detail"] for entry in operator.audit(job=job["id"]) for result in entry["results"]]
    assert sorted(results) == ["100 messages finished"] * 2 + ["11 messages finished"] * 2


def test_all_that_match_are_requeued_and_copied_on_all_nodes(channel, operator, dispatcher):
    """Deferred messages become ready; a copy is published on the node of the original, which stays."""
    for broker in channel.brokers:
        publish(broker, b"late", b"other", defer="600000")
    dispatcher()
    criteria = {"text": "late"}

    def done(action: str, **more: str) -> dict[str, Any]:
        answer = start(operator, action, criteria=criteria, **more)
        assert answer.status_code == 202, answer.content
        job = operator.ended(answer.json()["id"])
        assert (job["state"], job["failed_count"], job["parameters"]["messages"]) == ("finished", 0, 2)
        return job

    def counts(broker: Any) -> tuple[int, int]:
        (of,) = broker.topics()["orders"]["channels"]
        return of["depth"], of["deferred_count"]

    done("requeue")
    assert [counts(broker) for broker in channel.brokers] == [(1, 1)] * 2
    assert done("copy", target="returns")["parameters"]["target"] == "returns"
    assert [broker.topics()["returns"]["message_count"] for broker in channel.brokers] == [1, 1]
    assert [counts(broker) for broker in channel.brokers] == [(1, 1)] * 2


def test_nothing_is_started_if_nothing_matches(channel, operator):
    """Status 404."""
    answer = start(operator, "finish")
    assert (answer.status_code, answer.json()["message"]) == (404, "no message matches any more")


def test_a_move_whose_worker_was_killed_loses_nothing_and_repeats_one_batch(channel, operator, dispatcher):
    """kill -9 in the middle: every message is in the target topic, and at most one batch is there twice."""
    channel.publish("orders", 1000)
    channel.wait_until_routed("orders")
    for broker in channel.brokers:
        broker.post("/topic/create", topic="returns")
        broker.post("/channel/create", topic="returns", channel="all")
    first = dispatcher()
    job_id = start(operator, "move", target="returns").json()["id"]
    wait_until(lambda: operator.job(job_id)["done_count"] > 0, "the first batch is moved")
    first.signal(signal.SIGKILL)
    first.wait_for_exit()
    assert operator.job(job_id)["done_count"] < 20
    dispatcher()
    job = operator.ended(job_id)
    assert (job["state"], job["done_count"], job["total"]) == ("finished", 20, 20)
    assert [listed(broker) for broker in channel.brokers] == [{}, {}]
    for broker in channel.brokers:
        assert len(listed(broker, "returns", "all")) == 1000
    assert 2000 <= sum(broker.topics()["returns"]["message_count"] for broker in channel.brokers) <= 2100


def test_a_cancelled_job_leaves_the_rest(channel, operator):
    """Before a dispatcher takes it, nothing is changed."""
    publish(channel.brokers[0], b"a")
    job_id = start(operator, "finish").json()["id"]
    assert operator.cancel(job_id).json()["state"] == "cancelled"
    assert set(listed(channel.brokers[0])) == {b"a"}


def test_a_viewer_acts_on_no_message(channel, sign_in):
    """Status 403, in the audit trail."""
    viewer = sign_in("viewer")
    assert act(viewer, "finish", channel.brokers[0], ["0" * 16]).status_code == 403
    assert start(viewer, "finish").status_code == 403
    assert AuditEntry.objects.filter(user="viewer", outcome="refused").count() == 2


def test_a_job_on_messages_is_requested_with_criteria_only(channel, operator):
    """The general endpoint for jobs has no ids."""
    answer = operator.post("finish messages", ["orders/billing"])
    assert answer.status_code == 422
    assert "POST /api/v1/jobs/messages" in answer.content.decode()
