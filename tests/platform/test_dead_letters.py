"""Dead messages of the cluster: counting them, and requeueing or removing all of chosen channels, as jobs."""

from __future__ import annotations

import json
import signal
import time
from base64 import b64decode
from collections import Counter
from typing import Any
from urllib.parse import urlencode

import pytest

from nsqcluster import Client, Refused
from nsqcluster.messages import ChosenDead, remove_dead
from nsqplatform.cluster import store
from nsqplatform.cluster.messages import dead
from tests.harness.v2 import V2Client
from tests.harness.waiting import wait_until

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.database]

ORDERS = {"topic": "orders", "name": "billing"}
EMAILS = {"topic": "emails", "name": "sender"}


def of(channel: dict[str, str], **more: object) -> dict[str, object]:
    return {"topic": channel["topic"], "channel": channel["name"], **more}


def stats_of(broker: Any, channel: dict[str, str] = ORDERS) -> dict[str, Any]:
    query = urlencode({"format": "json", "include_histograms": "true", "topic": channel["topic"]})
    (topic,) = broker.get(f"/stats?{query}")["topics"]
    return next(each for each in topic["channels"] if each["channel_name"] == channel["name"])


def states(broker: Any, channel: dict[str, str] = ORDERS) -> tuple[int, int, int]:
    """Number of ready, deferred and dead messages."""
    found = stats_of(broker, channel)
    return found["depth"], found["deferred_count"], found["dead_count"]


def bury(broker: Any, *bodies: bytes, channel: dict[str, str] = ORDERS) -> None:
    """Publish messages and let them die, for the reason ``operator``."""
    for body in bodies:
        assert broker.post("/pub", body, topic=channel["topic"]) == "OK"
    wanted = urlencode(of(channel, limit=100))
    wait_until(lambda: broker.get(f"/channel/peek?{wanted}")["total"] == len(bodies), "they are in the channel")
    ids = [each["id"] for each in broker.get(f"/channel/peek?{wanted}")["messages"]]
    broker.post("/channel/bury", "\n".join(ids).encode(), **of(channel))


def let_fail(broker: Any, body: bytes) -> None:
    """Publish a message and let its only delivery fail, so that it dies for the reason ``attempts``."""
    broker.post("/policy", b'{"max_attempts": 1}', pattern="orders", channel="billing")
    broker.post("/pub", body, topic="orders")
    before = stats_of(broker)["dead_count"]
    with V2Client(broker.tcp) as consumer:
        consumer.sub("orders", "billing", 1)
        message_id, _, _ = consumer.message()
        consumer.send(b"REQ %b 0\n" % message_id)
        wait_until(lambda: stats_of(broker)["dead_count"] == before + 1, "it is dead")


def node_of(broker: Any) -> str:
    return str(broker.http_address)


def count(operator: Any, *channels: dict[str, str], **chosen: object) -> Any:
    return operator.browser.request("POST", "jobs/dead/count", {"channels": list(channels), **chosen})


def start(operator: Any, action: str, *channels: dict[str, str], **more: object) -> Any:
    body = {"action": action, "channels": list(channels), **more}
    return operator.browser.request("POST", "jobs/dead", body)


def run(operator: Any, action: str, *channels: dict[str, str], **more: object) -> dict[str, Any]:
    answer = start(operator, action, *channels, **more)
    assert answer.status_code == 202, answer.content
    return dict(operator.ended(answer.json()["id"]))


def outcomes(operator: Any, job: dict[str, Any]) -> dict[tuple[str, str], str]:
    """What was done, by topic and node."""
    found = operator.get(f"jobs/{job['id']}/subjects")["subjects"]
    return {(each["topic"], each["node"]): each["message"] for each in found}


@pytest.fixture
def operator(sign_in):
    return sign_in()


@pytest.fixture
def channels(cluster):
    for channel in (ORDERS, EMAILS):
        cluster.make_channel(channel["topic"], channel["name"])
    return cluster


# ---- counting


def test_dead_messages_are_counted_by_node_and_reason(channels, operator):
    """Nodes without any are left out, and nothing changes."""
    first, second = channels.brokers
    bury(first, b"a", b"b")
    let_fail(first, b"c")
    bury(second, b"d", channel=EMAILS)
    before = time.time_ns() // 1_000_000
    answer = count(operator, ORDERS, EMAILS, {"topic": "orders", "name": "none"}, {"topic": "nowhere", "name": "x"})
    assert answer.status_code == 200, answer.content
    assert before <= answer.json()["counted_at"] <= time.time_ns() // 1_000_000
    assert answer.json()["parts"] == [
        of(EMAILS, node=node_of(second), dead=1, by_reason={"operator": 1}, matching=1, exact=True, error=""),
        of(
            ORDERS,
            node=node_of(first),
            dead=3,
            by_reason={"attempts": 1, "operator": 2},
            matching=3,
            exact=True,
            error="",
        ),
    ]
    (part,) = count(operator, ORDERS, reason="attempts").json()["parts"]
    assert (part["dead"], part["matching"]) == (3, 1)
    assert states(first) == (0, 0, 3)


def test_those_that_died_since_a_time_are_counted_by_their_times(channels, operator, monkeypatch):
    """If there are too many to read their times, the count is an upper limit."""
    broker = channels.brokers[0]
    bury(broker, b"a", b"b")
    wait_until(lambda: time.time_ns() // 1_000_000 > at_ms(broker) + 5, "a later death has a later time")
    since = time.time_ns() // 1_000_000
    bury(broker, b"c")
    (part,) = count(operator, ORDERS, since=since).json()["parts"]
    assert (part["dead"], part["matching"], part["exact"]) == (3, 1, True)
    (part,) = count(operator, ORDERS, since=since, reason="expired").json()["parts"]
    assert (part["matching"], part["exact"]) == (0, True)
    monkeypatch.setattr(dead, "MESSAGES_IN_A_PAGE", 2)
    (part,) = count(operator, ORDERS, since=since).json()["parts"]
    assert (part["matching"], part["exact"]) == (1, True)
    monkeypatch.setattr(dead, "READ_AT_MOST", 2)
    (part,) = count(operator, ORDERS, since=since).json()["parts"]
    assert (part["dead"], part["matching"], part["exact"]) == (3, 3, False)


def at_ms(broker: Any) -> int:
    """When the last of the dead messages died."""
    found = broker.get(f"/channel/peek?{urlencode(of(ORDERS, state='dead'))}")["messages"]
    return max(int(each["death"]["died"]) for each in found) // 1_000_000


# ---- jobs


def test_all_dead_messages_are_requeued_on_all_nodes(channels, operator, dispatcher):
    """One request to each node of a channel; the outcome of each has its number, and the audit trail one group."""
    first, second = channels.brokers
    bury(first, b"a", b"b")
    bury(second, b"c")
    bury(second, b"d", channel=EMAILS)
    dispatcher()
    job = run(operator, "requeue", ORDERS, EMAILS)
    assert (job["kind"], job["noun"], job["state"]) == ("requeue dead messages", "request", "finished")
    assert (job["total"], job["done_count"]) == (3, 3)
    assert job["parameters"] == {"messages": 4, "exact": True, "reason": None, "since": None, "rate": 0}
    assert outcomes(operator, job) == {
        ("emails", node_of(second)): "1 dead message requeued",
        ("orders", node_of(first)): "2 dead messages requeued",
        ("orders", node_of(second)): "1 dead message requeued",
    }
    assert [states(first), states(second), states(second, EMAILS)] == [(2, 0, 0), (1, 0, 0), (1, 0, 0)]
    entries = operator.audit(job=job["id"])
    assert {entry["action"] for entry in entries} == {"requeue dead messages"}
    assert sorted(result["detail"] for entry in entries for result in entry["results"]) == [
        "1 dead message requeued", "1 dead message requeued", "2 dead messages requeued",
    ]  # fmt: skip
    (group,) = [entry for entry in operator.audit() if entry["subject_count"]]
    assert (group["outcome"], group["subject"]) == ("done", f"4 messages, job {job['id']}")


def test_a_rate_defers_the_messages_and_the_job_ends_at_once(channels, operator, dispatcher):
    """The node has their due times when it answers; the outcome says when the last one is due."""
    broker = channels.brokers[0]
    bury(broker, b"a", b"b", b"c")
    dispatcher()
    job = run(operator, "requeue", ORDERS, rate=1)
    (said,) = outcomes(operator, job).values()
    assert said.startswith("3 dead messages requeued at 1 a second: the last is due at 20"), said
    ready, deferred, left = states(broker)
    assert (ready + deferred, left) == (3, 0)
    wait_until(lambda: states(broker) == (3, 0, 0), "all are ready")


def test_only_messages_of_a_reason_or_time_are_removed(channels, operator, dispatcher):
    """The others stay dead."""
    broker = channels.brokers[0]
    bury(broker, b"a")
    let_fail(broker, b"b")
    wait_until(lambda: time.time_ns() // 1_000_000 > at_ms(broker) + 5, "a later death has a later time")
    since = time.time_ns() // 1_000_000
    let_fail(broker, b"c")
    dispatcher()
    job = run(operator, "remove", ORDERS, reason="attempts", since=since)
    assert list(outcomes(operator, job).values()) == ["1 dead message removed"]
    left = broker.get(f"/channel/peek?{urlencode(of(ORDERS, state='dead'))}")["messages"]
    assert Counter(b64decode(each["body"]) for each in left) == Counter([b"a", b"b"])
    assert stats_of(broker)["message_count"] == 3


def test_a_node_that_does_not_answer_is_named_and_fails(channels, operator, dispatcher, short_request_timeout):
    """The count does not have its messages, and the job has an outcome for it."""
    first, second = channels.brokers
    with store.connect() as redis:  # as the collector does
        redis.set(store.ADDRESSES(), json.dumps({node_of(broker): node_of(broker) for broker in channels.brokers}))
    bury(first, b"a")
    bury(second, b"b")
    second.signal(signal.SIGSTOP)
    try:
        parts = count(operator, ORDERS).json()["parts"]
        assert [(part["dead"], part["matching"]) for part in sorted(parts, key=lambda part: part["error"])] == [
            (1, 1),
            (None, 0),
        ]
        answer = start(operator, "requeue", ORDERS)
        second.kill()
        dispatcher()
        job = operator.ended(answer.json()["id"])
    finally:
        second.launch()
    assert (job["done_count"], job["failed_count"]) == (1, 1)
    assert "refused" in outcomes(operator, job)["orders", node_of(second)]
    assert states(second) == (0, 0, 1)


def test_nothing_is_started_if_no_message_matches(channels, operator):
    """Status 404."""
    bury(channels.brokers[0], b"a")
    answer = start(operator, "remove", ORDERS, reason="expired")
    assert (answer.status_code, answer.json()["message"]) == (404, "no dead message matches any more")
    assert operator.get("jobs")["jobs"] == []


@pytest.mark.parametrize(
    ("action", "more", "field"),
    [
        ("remove", {"rate": 5}, "rate"),
        ("requeue", {"rate": 1_000_001}, "rate"),
        ("requeue", {"reason": "boredom"}, "reason"),
        ("requeue", {"since": 10**14}, "since"),
        ("burn", {}, "action"),
        ("requeue", {"channels": []}, "channels"),
        ("requeue", {"channels": [{"topic": "not a name", "name": "x"}]}, "channels.0.topic"),
    ],
)
def test_a_wrong_request_is_refused_by_field(go_cluster, operator, action, more, field):
    answer = start(operator, action, ORDERS, **more)
    assert answer.status_code == 422, answer.content
    assert [each["field"] for each in answer.json()["field_errors"]] == [field]


@pytest.mark.parametrize("parameters", [{}, {"messages": 1, "exact": True, "reason": "x", "since": None, "rate": 0}])
def test_the_request_of_other_jobs_starts_none_with_wrong_parameters(go_cluster, operator, parameters):
    """It says where they are requested."""
    subjects = [of(ORDERS, node="127.0.0.1:1")]
    body = {"kind": "remove dead messages", "parameters": parameters, "subjects": subjects}
    answer = operator.browser.request("POST", "jobs", body)
    assert answer.status_code == 422
    assert "POST /api/v1/jobs/dead" in answer.json()["message"]


def test_an_operator_of_some_topics_does_not_act_on_others(channels, sign_in, dispatcher):
    """Channels of others fail at once, and a job on these only is refused."""
    broker = channels.brokers[0]
    bury(broker, b"a")
    bury(broker, b"b", channel=EMAILS)
    someone = sign_in("operator", "orders*")
    assert start(someone, "remove", EMAILS).status_code == 403
    dispatcher()
    job = run(someone, "remove", ORDERS, EMAILS)
    assert (job["done_count"], job["failed_count"]) == (1, 1)
    assert "not on emails" in someone.failures(job["id"])["emails/sender"]
    assert (states(broker), states(broker, EMAILS)) == ((0, 0, 0), (0, 0, 1))


def test_a_viewer_neither_counts_nor_starts(channels, sign_in):
    viewer = sign_in("viewer")
    assert count(viewer, ORDERS).status_code == 403
    assert start(viewer, "requeue", ORDERS).status_code == 403


async def test_gos_nsqd_is_not_emptied(go_cluster):
    """It would ignore the state: it is asked for dead messages first, and refuses that."""
    node = go_cluster.nodes[0]
    node.channel("orders", "billing", depth=5)
    async with Client() as http:
        with pytest.raises(Refused):
            await remove_dead(http, node.address, "orders", "billing", ChosenDead(), timeout_s=5.0)
    assert (node.channel("orders", "billing")["depth"], node.posts) == (5, [])


# ---- the worker's end


def test_a_cancelled_job_changes_nothing_more(channels, operator):
    """Before a dispatcher takes it."""
    bury(channels.brokers[0], b"a")
    job_id = start(operator, "remove", ORDERS).json()["id"]
    assert operator.cancel(job_id).json()["state"] == "cancelled"
    assert states(channels.brokers[0]) == (0, 0, 1)


@pytest.mark.parametrize(("action", "is_repeated"), [("requeue", True), ("remove", False)])
def test_the_job_of_a_killed_worker_goes_on(channels, operator, dispatcher, action, is_repeated):
    """A requeue is repeated on the node that was being asked. A removal is not, because messages that died since would
    be lost; the outcome says that it may be done. The other node is acted on."""
    first, second = channels.brokers
    bury(first, b"a")
    bury(second, b"b")
    worker = dispatcher()
    job_id = held(operator, action, second)
    worker.signal(signal.SIGKILL)
    worker.wait_for_exit()
    second.signal(signal.SIGCONT)
    dispatcher()
    job = operator.ended(job_id)
    assert (job["state"], job["total"]) == ("finished", 2)
    assert (job["done_count"], job["failed_count"]) == ((2, 0) if is_repeated else (1, 1))
    said = outcomes(operator, job)["orders", node_of(second)]
    if is_repeated:
        assert "requeued" in said
        assert [states(broker) for broker in channels.brokers] == [(1, 0, 0), (1, 0, 0)]
    else:
        assert "may be done, and is not repeated" in said
        assert states(first) == (0, 0, 0)


def held(operator: Any, action: str, silent: Any) -> int:
    """The id of a job whose request to one node has been sent and is not answered."""
    answer = start(operator, action, ORDERS)
    assert answer.status_code == 202, answer.content
    silent.signal(signal.SIGSTOP)
    job_id = int(answer.json()["id"])
    wait_until(lambda: started(operator, job_id) == [node_of(silent)], "only the request to that node is left")
    return job_id


def started(operator: Any, job_id: int) -> list[str]:
    return [each["node"] for each in operator.get(f"jobs/{job_id}/subjects?state=started")["subjects"]]
