"""Jobs: one action on many topics or channels, carried out by a real dispatcher."""

from __future__ import annotations

import json
import re
import signal
import threading
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from bench.measure import ask_all
from tests.harness.daemon import Broker, Daemon, host_port
from tests.harness.waiting import wait_until
from tests.platform.live_messages import messages_sent
from tests.platform.operators import Operator
from tests.platform.our_nsq import OurCluster

pytestmark = pytest.mark.django_db(transaction=True)

MANY = 200
"""More topics than a job acts on at once."""
MANY_DELETED = 1000
"""More topics than our servers delete within the time from the first outcome to a kill."""
KILLS = 5
"""Attempts at a kill in the middle of a job."""


@pytest.fixture
def operator(sign_in) -> Operator:
    return sign_in()


@pytest.fixture
def messages(redis) -> Iterator[list[dict[str, Any]]]:
    """The jobs in the messages that every open browser receives."""
    with messages_sent(redis, "job") as jobs:
        yield jobs


def hold(node: Any) -> threading.Event:
    """Keep a node from answering until the event is set."""
    node.hold = threading.Event()
    return node.hold


def create_topics(cluster: OurCluster, broker: Broker, topics: list[str]) -> None:
    """Create topics on a broker, and wait until the registry lists the last one, which is registered last."""
    ask_all(host_port(broker.http_address), "POST", [f"/topic/create?topic={topic}" for topic in topics])
    port = host_port(broker.http_address)[1]

    def is_listed() -> bool:
        answer = cluster.registry.request("GET", f"/lookup?topic={topics[-1]}")
        return answer.status == 200 and port in [each["http_port"] for each in json.loads(answer.text)["producers"]]

    wait_until(is_listed, "the topics are registered")


def deletions(daemon: Daemon) -> list[str]:
    """The lines of a server's log about requests to delete topics."""
    return [line for line in daemon.log if re.search(r" POST /topics?/delete", line)]


# ---- from the request to the outcome


def test_each_subject_has_its_outcome_and_failures_have_the_nodes_error(go_cluster, operator, dispatcher):
    """A failed or missing channel does not stop the others."""
    alpha, beta = go_cluster.nodes
    alpha.channel("orders", "billing", depth=5)
    beta.channel("orders", "billing", depth=7)
    alpha.channel("orders", "archive", depth=3)
    beta.status["/channel/empty"] = (500, "INTERNAL_ERROR")
    dispatcher()
    job = operator.ended(operator.start("empty", ["orders/archive", "orders/billing", "orderz/nowhere"]))
    assert (job["state"], job["noun"], job["total"], job["message"]) == ("finished", "channel", 3, "")
    assert (job["done_count"], job["partial_count"], job["failed_count"]) == (0, 2, 1)
    failures = operator.failures(job["id"])
    assert failures["orders/billing"] == f"{beta.address}: 500 INTERNAL_ERROR"
    assert "orderz" in failures["orderz/nowhere"]
    assert (alpha.channel("orders", "billing")["depth"], alpha.channel("orders", "archive")["depth"]) == (0, 0)


def test_a_channel_is_not_emptied_if_redis_cannot_note_it(go_cluster, operator, dispatcher, redis):
    """Its messages would count as finished. The failure has the error of Redis."""
    from nsqplatform.cluster import store

    alpha, _ = go_cluster.nodes
    alpha.channel("orders", "billing", depth=5)
    redis.set(store.EMPTIED(), "no sorted set")
    dispatcher()
    job = operator.ended(operator.start("empty", ["orders/billing"]))
    assert operator.failures(job["id"])["orders/billing"].startswith("Redis refuses a command: ")
    assert alpha.channel("orders", "billing")["depth"] == 5


@pytest.mark.database
def test_a_job_answers_at_once_and_waits_for_a_dispatcher(go_cluster, operator, dispatcher):
    """A job that was requested while no dispatcher ran is done when one starts."""
    go_cluster.nodes[0].topic("orders")
    answer = operator.post("pause", ["orders", "orders"])
    assert answer.status_code == 202
    assert (answer.json()["state"], answer.json()["total"]) == ("queued", 1)
    dispatcher()
    assert operator.ended(answer.json()["id"])["done_count"] == 1
    assert go_cluster.nodes[0].topics["orders"]["paused"]


def test_a_tombstone_is_for_one_node(go_cluster, operator, dispatcher):
    """The topic stays on the others; nodes that nobody knows get no request."""
    alpha, beta = go_cluster.nodes
    for node in (alpha, beta):
        node.topic("orders")
    dispatcher()
    subjects = [{"topic": "orders", "node": alpha.address}, {"topic": "orders", "node": "10.0.0.9:4151"}]
    go_cluster_known = {alpha.address: alpha.address, beta.address: beta.address}
    from nsqplatform.cluster import store

    with store.connect() as redis:
        redis.set(store.ADDRESSES(), json.dumps(go_cluster_known))
    answer = operator.browser.request("POST", "jobs", {"kind": "tombstone", "subjects": subjects})
    job = operator.ended(answer.json()["id"])
    assert (job["done_count"], job["failed_count"]) == (1, 1)
    assert operator.failures(job["id"]) == {"orders": "there is no node 10.0.0.9:4151"}
    assert ("orders" in alpha.topics, "orders" in beta.topics) == (False, True)
    assert go_cluster.registry.tombstones == {("orders", alpha.address)}


@pytest.mark.database
def test_our_servers_get_few_requests_for_many_topics(cluster, operator, dispatcher):
    """Each topic has its own outcome, its own audit entry, and in it the results of registry and nodes."""
    topics = [f"orders.{number}" for number in range(MANY)]
    create_topics(cluster, cluster.brokers[0], topics)
    create_topics(cluster, cluster.brokers[1], topics[::2])
    dispatcher()
    job = operator.ended(operator.start("delete", [*topics, "none"]))
    assert (job["state"], job["done_count"], job["failed_count"]) == ("finished", MANY, 1)
    assert operator.failures(job["id"]) == {"none": "no node of the cluster has topic none, and no registry knows it"}
    assert [broker.topics() for broker in cluster.brokers] == [{}, {}]
    entries = {entry["topic"]: entry for entry in operator.audit(job=job["id"])}
    assert entries.keys() == {*topics, "none"}
    registry, (first, second) = cluster.registry.http_address, [each.http_address for each in cluster.brokers]
    assert {each["node"] for each in entries[topics[0]]["results"]} == {registry, first, second}
    assert {each["node"] for each in entries[topics[1]]["results"]} == {registry, first}
    for daemon in (cluster.registry, *cluster.brokers):
        wait_until(lambda daemon=daemon: deletions(daemon), "the log has arrived")
        assert len(deletions(daemon)) <= MANY / 10, deletions(daemon)[:5]


def test_every_open_browser_sees_the_progress(go_cluster, operator, dispatcher, messages):
    """From queued to finished, with numbers that only grow, while the job runs too."""
    from nsqplatform.jobs.runner import SHOW_EVERY_S

    for number in range(MANY):
        go_cluster.nodes[0].topic(f"orders.{number}")
    go_cluster.nodes[0].delay_s = SHOW_EVERY_S / 2
    dispatcher()
    job = operator.ended(operator.start("delete", [f"orders.{number}" for number in range(MANY)]))
    wait_until(lambda: any(each["state"] == "finished" for each in messages), "the last message")
    assert {each["id"] for each in messages} == {job["id"]}
    assert messages[0]["state"] == "queued"
    counts = [each["done_count"] for each in messages]
    assert counts == sorted(counts)
    assert len(set(counts)) > 3, counts
    assert counts[-1] == MANY == job["done_count"]
    assert any(each["rate"] for each in messages)
    seconds = (job["finished_at"] - job["created_at"]) / 1000
    assert len(messages) <= seconds / SHOW_EVERY_S + 4, "more often than the interval, and at each change of state"


# ---- the worker's end


@pytest.mark.database
def test_a_killed_worker_leaves_nothing_out(cluster, operator, dispatcher):
    """kill -9 in the middle of a deletion on real brokers: the next dispatcher goes on, and every topic has one outcome
    and one audit entry."""
    from nsqplatform.accounts.models import AuditEntry

    for attempt in range(KILLS):
        topics = [f"orders.{attempt}.{number}" for number in range(MANY_DELETED)]
        for broker in cluster.brokers:
            create_topics(cluster, broker, topics)
        first = dispatcher()
        job_id = operator.start("delete", topics)
        wait_until(lambda job_id=job_id: operator.job(job_id)["done_count"] > 0, "the first are deleted")
        first.signal(signal.SIGKILL)
        first.wait_for_exit()
        left = operator.job(job_id)
        if left["state"] == "running" and left["done_count"] < MANY_DELETED:
            break
    assert 0 < left["done_count"] < MANY_DELETED, "no kill came in the middle"
    dispatcher()
    job = operator.ended(job_id)
    assert (job["state"], job["done_count"], job["failed_count"]) == ("finished", MANY_DELETED, 0)
    assert [broker.topics() for broker in cluster.brokers] == [{}, {}]
    entries = list(AuditEntry.objects.filter(job=job_id, subject_count=None))
    assert sorted(entry.topic for entry in entries) == sorted(topics)
    assert {entry.outcome for entry in entries} == {"done"}


@pytest.mark.database
def test_an_action_that_must_not_be_repeated_is_not(go_cluster, operator, dispatcher):
    """A worker is killed while a node empties a topic: the next one does not empty it again, and says so."""
    alpha, _ = go_cluster.nodes
    alpha.topic("orders", depth=3)
    answering = hold(alpha)
    first = dispatcher()
    job_id = operator.start("empty", ["orders"])
    wait_until(lambda: operator.get(f"jobs/{job_id}/subjects?state=started")["subjects"], "it has started")
    first.signal(signal.SIGKILL)
    first.wait_for_exit()
    answering.set()
    alpha.hold = None
    dispatcher()
    job = operator.ended(job_id)
    assert (job["state"], job["failed_count"]) == ("finished", 1)
    assert "may be done" in operator.failures(job_id)["orders"]
    assert alpha.posts.count(("/topic/empty", {"topic": "orders"})) <= 1


def test_a_dispatcher_that_stops_leaves_its_jobs_to_the_next(go_cluster, operator, dispatcher):
    """SIGTERM, as at an update: what it had begun gets its outcome, and the rest is done afterwards."""
    alpha, _ = go_cluster.nodes
    topics = [f"orders.{number}" for number in range(MANY)]
    for topic in topics:
        alpha.topic(topic)
    first = dispatcher()
    job_id = operator.start("empty", topics)
    wait_until(lambda: operator.job(job_id)["done_count"] > 0, "the first are emptied")
    assert first.terminate() == 0
    left = operator.job(job_id)
    assert left["state"] == "queued"
    assert 0 < left["done_count"] < MANY
    dispatcher()
    job = operator.ended(job_id)
    assert (job["state"], job["done_count"]) == ("finished", MANY)
    emptied = [query["topic"] for path, query in alpha.posts if path == "/topic/empty"]
    assert sorted(emptied) == sorted(topics)


@pytest.mark.database
def test_the_job_of_a_killed_worker_is_queued_again(go_cluster, operator, dispatcher):
    """By any dispatcher, on the request of beat; a deletion that the killed one had begun is done."""
    from nsqplatform.jobs.tasks import resume_abandoned

    alpha, _ = go_cluster.nodes
    alpha.topic("orders")
    answering = hold(alpha)
    first = dispatcher()
    job_id = operator.start("delete", ["orders"])
    wait_until(lambda: operator.get(f"jobs/{job_id}/subjects?state=started")["subjects"], "it has started")
    resume_abandoned()
    assert operator.job(job_id)["state"] == "running"
    first.signal(signal.SIGKILL)
    first.wait_for_exit()
    answering.set()
    alpha.hold = None
    resume_abandoned()
    assert operator.job(job_id)["state"] == "queued"
    dispatcher()
    assert operator.ended(job_id)["done_count"] == 1
    assert "orders" not in alpha.topics


@pytest.mark.database
def test_a_job_starts_although_redis_has_lost_its_queue(go_cluster, operator, redis):
    """As after a restart of a Redis that stores nothing: beat has the job's id sent again."""
    from nsqplatform.jobs.tasks import resume_abandoned

    operator.start("pause", ["orders"])
    assert redis.llen("dispatch") == 1
    redis.delete("dispatch")
    resume_abandoned()
    assert redis.llen("dispatch") == 1


@pytest.mark.database
def test_what_a_killed_worker_had_begun_has_an_outcome_in_a_cancelled_job(go_cluster, operator, dispatcher):
    """It may be done, and the audit trail must not say that it is not."""
    from nsqplatform.jobs.tasks import resume_abandoned

    alpha, _ = go_cluster.nodes
    alpha.topic("orders")
    answering = hold(alpha)
    first = dispatcher()
    job_id = operator.start("delete", ["orders"])
    wait_until(lambda: operator.get(f"jobs/{job_id}/subjects?state=started")["subjects"], "it has started")
    first.signal(signal.SIGKILL)
    first.wait_for_exit()
    answering.set()
    alpha.hold = None
    resume_abandoned()
    job = operator.cancel(job_id).json()
    assert (job["state"], job["failed_count"]) == ("cancelled", 1)
    assert "may be done" in operator.failures(job_id)["orders"]
    [entry] = operator.audit(job=job_id)
    assert (entry["topic"], entry["outcome"]) == ("orders", "failed")
    assert "may be done" in entry["detail"]


@pytest.mark.database
def test_a_waiting_job_starts_when_another_ends(go_cluster, operator, dispatcher):
    """A dispatcher executes four at once, so that some of its threads are free for other tasks."""
    alpha, _ = go_cluster.nodes
    for number in range(5):
        alpha.topic(f"orders.{number}")
    answering = hold(alpha)
    dispatcher()
    jobs = [operator.start("delete", [f"orders.{number}"]) for number in range(5)]
    wait_until(lambda: len(operator.get("jobs?state=running")["jobs"]) == 4, "four run")
    assert len(operator.get("jobs?state=queued")["jobs"]) == 1
    answering.set()
    assert [operator.ended(job)["done_count"] for job in jobs] == [1] * 5


# ---- its end before every subject has an outcome


@pytest.mark.database
def test_cancelling_leaves_the_rest_unchanged(go_cluster, operator, dispatcher):
    """Those that are being acted on get their outcome; cancelling again is refused."""
    alpha, _ = go_cluster.nodes
    topics = [f"orders.{number}" for number in range(MANY)]
    for topic in topics:
        alpha.topic(topic)
    answering = hold(alpha)
    dispatcher()
    job_id = operator.start("delete", topics)
    wait_until(lambda: operator.get(f"jobs/{job_id}/subjects?state=started")["subjects"], "it has started")
    assert operator.cancel(job_id).json()["cancel_requested"]
    answering.set()
    job = operator.ended(job_id)
    assert (job["state"], job["message"]) == ("cancelled", "cancelled by operator")
    assert job["done_count"] == MANY - len(alpha.topics) < MANY
    assert operator.cancel(job_id).status_code == 409
    [entry] = operator.audit(action="delete")
    assert entry["outcome"] == "partial"
    failed = job["failed_count"]  # on a slow machine, some answers come after the deadline
    not_done = f"{failed} failed, {len(alpha.topics) - failed}" if failed else f"{len(alpha.topics)}"
    assert entry["detail"] == f"{job['done_count']} of {MANY} done, {not_done} not done: cancelled by operator"
    assert [each["subject"] for each in operator.audit(action="cancel%20job")] == [f"delete, job {job_id}"]


@pytest.mark.database
def test_a_job_that_waits_is_cancelled_at_once(go_cluster, operator):
    """Without a dispatcher."""
    go_cluster.nodes[0].topic("orders")
    job_id = operator.start("delete", ["orders"])
    assert operator.cancel(job_id).json()["state"] == "cancelled"
    assert operator.audit(action="delete")[0]["outcome"] == "failed"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"role": "viewer"}, "operator lost the permission: your role, viewer, may not act on topics and channels"),
        ({"is_active": False}, "operator lost the permission: the account operator is closed"),
        ({"topic_patterns": ["a*"]}, "operator lost the permission: you may act on topics a*, not on orders."),
    ],
)
def test_who_loses_the_permission_loses_the_job(change, reason, go_cluster, operator, sign_in, dispatcher):
    """In the middle of it, with the reason; the rest is not changed."""
    from nsqplatform.accounts.models import User

    admin = sign_in("admin")
    alpha, _ = go_cluster.nodes
    topics = [f"orders.{number}" for number in range(MANY)]
    for topic in topics:
        alpha.topic(topic)
    answering = hold(alpha)
    dispatcher()
    job_id = operator.start("delete", topics)
    wait_until(lambda: admin.get(f"jobs/{job_id}/subjects?state=started")["subjects"], "it has started")
    User.objects.filter(username="operator").update(**change)
    answering.set()
    job = admin.ended(job_id)
    assert job["state"] == "stopped"
    assert job["message"].startswith(reason)
    assert len(alpha.topics) == MANY - job["done_count"] > 0


@pytest.mark.database
def test_a_revoked_token_ends_its_job(go_cluster, operator, browser, dispatcher):
    """A script's job ends with the script's permission."""
    from nsqplatform.accounts.models import ApiToken, User
    from nsqplatform.accounts.tokens import create_token

    alpha, _ = go_cluster.nodes
    topics = [f"orders.{number}" for number in range(MANY)]
    for topic in topics:
        alpha.topic(topic)
    secret = create_token(user=User.objects.get(username="operator"), name="nightly")
    answering = hold(alpha)
    dispatcher()
    body = {"kind": "delete", "subjects": [{"topic": topic} for topic in topics]}
    answer = browser().request("POST", "jobs", body, Authorization=f"Bearer {secret}")
    job_id = answer.json()["id"]
    wait_until(lambda: operator.get(f"jobs/{job_id}/subjects?state=started")["subjects"], "it has started")
    ApiToken.objects.all().delete()
    answering.set()
    job = operator.ended(job_id)
    assert (job["state"], job["message"]) == (
        "stopped",
        "operator lost the permission: unknown token: it was revoked or never existed",
    )


# ---- who may


@pytest.mark.database
def test_an_operator_of_some_topics_acts_on_no_others(go_cluster, sign_in, dispatcher):
    """Other topics fail at once, with the reason; a job with no others is refused."""
    alpha, _ = go_cluster.nodes
    for topic in ("orders.eu", "invoices"):
        alpha.topic(topic)
    limited = sign_in("operator", "orders.*")
    dispatcher()
    job = limited.ended(limited.start("pause", ["orders.eu", "invoices"]))
    assert (job["done_count"], job["failed_count"]) == (1, 1)
    assert limited.failures(job["id"]) == {"invoices": "you may act on topics orders.*, not on invoices"}
    assert (alpha.topics["orders.eu"]["paused"], alpha.topics["invoices"]["paused"]) == (True, False)
    assert [(each["topic"], each["outcome"]) for each in limited.audit(object="invoices")] == [("invoices", "refused")]
    assert limited.post("pause", ["invoices"]).status_code == 403


@pytest.mark.database
def test_an_operator_cancels_only_jobs_on_their_topics(go_cluster, sign_in):
    """Somebody else's job on these topics too."""
    admin, limited = sign_in("admin"), sign_in("operator", "orders.*")
    theirs, others = admin.start("pause", ["orders.eu"]), admin.start("pause", ["orders.eu", "invoices"])
    refused = limited.cancel(others)
    assert (refused.status_code, refused.json()["message"]) == (
        403,
        "you may act on topics orders.*, not on invoices",
    )
    assert limited.job(others)["state"] == "queued"
    assert limited.cancel(theirs).json()["state"] == "cancelled"


@pytest.mark.database
def test_a_viewer_watches_and_changes_nothing(go_cluster, sign_in, operator):
    """Jobs are visible to everybody who is signed in."""
    viewer = sign_in("viewer")
    job_id = operator.start("pause", ["orders"])
    assert viewer.get("jobs")["jobs"] == [viewer.job(job_id)]
    assert viewer.get(f"jobs/{job_id}/subjects")["subjects"][0]["topic"] == "orders"
    assert viewer.post("pause", ["orders"]).status_code == 403
    assert viewer.cancel(job_id).status_code == 403
    assert all(upstream.posts == [] for upstream in go_cluster.everything)


@pytest.mark.database
@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        ({"kind": "create", "subjects": [{"topic": "t"}]}, "kind: "),
        ({"kind": "pause", "subjects": []}, "subjects: "),
        ({"kind": "pause", "subjects": [{"topic": "t"}] * 20_001}, "subjects: "),
        ({"kind": "pause", "subjects": [{"topic": "*"}]}, "subjects.0.topic: "),
        ({"kind": "pause", "subjects": [{"topic": "t"}, {"topic": "t", "channel": "c"}]}, "subjects: "),
        ({"kind": "pause", "subjects": [{"topic": "t", "node": "n:1"}]}, "subjects: "),
        ({"kind": "tombstone", "subjects": [{"topic": "t"}]}, "subjects: "),
        ({"kind": "tombstone", "subjects": [{"topic": "t", "node": "n\0"}]}, "subjects.0.node: "),
        ({"kind": "pause", "parameters": {"since": 1}, "subjects": [{"topic": "t"}]}, "parameters: "),
    ],
)
def test_malformed_requests_name_the_field(go_cluster, operator, body, complaint):
    """There is no job then."""
    response = operator.browser.request("POST", "jobs", body)
    assert response.status_code == 422
    assert complaint in response.json()["message"]
    assert operator.get("jobs") == {"jobs": []}


# ---- what remains


@pytest.mark.database
def test_the_audit_trail_has_one_group_for_a_job(go_cluster, operator, dispatcher):
    """Who did what to how many, with what outcome; its subjects are listed on request, and found by name."""
    alpha, _ = go_cluster.nodes
    for topic in ("orders.eu", "orders.us"):
        alpha.topic(topic)
    running = operator.start("delete", ["orders.eu", "orders.us", "gone"])
    [group] = operator.audit(action="delete")
    assert (group["outcome"], group["subject"], group["subject_count"]) == ("running", f"3 topics, job {running}", 3)
    dispatcher()
    operator.ended(running)
    [group] = operator.audit(action="delete")
    assert (group["user"], group["outcome"], group["detail"]) == ("operator", "partial", "2 of 3 done, 1 failed")
    members = operator.audit(job=running)
    assert {each["topic"]: each["outcome"] for each in members} == {
        "orders.eu": "done",
        "orders.us": "done",
        "gone": "failed",
    }
    assert {each["node"] for each in members[0]["results"]} <= {each.address for each in go_cluster.everything}
    [found] = operator.audit(object="orders.eu")
    assert (found["topic"], found["job"]) == ("orders.eu", running)


@pytest.mark.database
def test_old_jobs_are_removed(go_cluster, operator):
    """Two weeks after their end; their audit entries stay."""
    from django.utils.timezone import now

    from nsqplatform.jobs.models import Job, JobSubject
    from nsqplatform.jobs.tasks import KEPT, remove_old_jobs

    old, recent = operator.start("delete", ["orders"]), operator.start("delete", ["invoices"])
    for job_id in (old, recent):
        operator.cancel(job_id)
    Job.objects.filter(pk=old).update(finished_at=now() - KEPT - timedelta(hours=1))
    remove_old_jobs()
    assert [job["id"] for job in operator.get("jobs")["jobs"]] == [recent]
    assert set(JobSubject.objects.values_list("job", flat=True)) == {recent}
    assert len(operator.audit(action="delete")) == 2
