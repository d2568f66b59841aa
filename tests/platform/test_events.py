"""Events for the markers of charts: from the audit trail, the alerts, the runs and the states of nodes."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, get_args

import pytest
from django.utils import timezone

from nsqplatform.accounts import audit
from nsqplatform.accounts.models import AuditEntry
from nsqplatform.alerts.models import Alert
from nsqplatform.cluster.models import NodeEvent
from nsqplatform.console.events import Kind
from nsqplatform.marks.models import Mark
from nsqplatform.reports.models import ReportRun
from tests.harness.waiting import wait_until

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.database]


@pytest.fixture
def happened(browser, account) -> Callable[..., list[dict[str, Any]]]:
    """Requests the events of a scope, as a viewer."""
    account("viewer")
    page = browser()
    page.sign_in("viewer")

    def ask(**question: Any) -> list[dict[str, Any]]:
        words = "&".join(f"{name}={value}" for name, value in question.items())
        answer = page.request("GET", f"events?{words}")
        assert answer.status_code == 200, answer.content
        return answer.json()["events"]

    return ask


@pytest.fixture
def act(browser, account) -> Callable[..., None]:
    account("operator", "ana")
    page = browser()
    page.sign_in("ana")

    def do(action: str, topic: str, channel: str | None = None) -> None:
        assert (
            page.request("POST", "actions", {"action": action, "topic": topic, "channel": channel}).status_code == 200
        )

    return do


def kinds(found: list[dict[str, Any]]) -> list[tuple[str, str, str]]:
    return [(event["kind"], event["detail"], event["by"]) for event in found]


def test_actions_are_events_of_their_channel_topic_and_cluster(cluster, act, happened):
    """An action on a channel is an event of its topic, but of no other channel; one on the topic, of both channels."""
    for channel in ("billing", "audit"):
        cluster.make_channel("orders", channel)
    cluster.make_channel("invoices", "print")
    act("pause", "orders", "billing")
    act("empty", "orders")
    act("delete", "invoices")
    paused, emptied = ("paused", "orders / billing", "ana"), ("emptied", "orders", "ana")
    assert kinds(happened(scope="channel", topic="orders", channel="billing")) == [paused, emptied]
    assert kinds(happened(scope="channel", topic="orders", channel="audit")) == [emptied]
    assert kinds(happened(scope="topic", topic="orders")) == [paused, emptied]
    assert kinds(happened()) == [paused, emptied, ("deleted", "invoices", "ana")]
    node = cluster.brokers[0].http_address
    assert kinds(happened(scope="node", node=node))[:2] == [paused, emptied]
    assert happened(scope="node", node="10.9.9.9:4151") == []


def test_what_an_import_of_definitions_does_is_marked_like_an_action(cluster, account, browser, happened):
    """For the channel, the topic, its nodes and the cluster; what a dry run would do is no event."""
    cluster.make_channel("orders", "billing")
    cluster.make_channel("invoices", "print")
    account("admin", "ada")
    page = browser()
    page.sign_in("ada")

    def post(text: str, query: str) -> None:
        answer = page.client.generic(
            "POST",
            f"/api/v1/definitions?{query}",
            data=text.encode(),
            content_type="application/toml",
            headers={"X-CSRFToken": page.csrf},
        )
        assert answer.status_code == 200, answer.content

    less = 'version = 1\n[[topics]]\nname = "orders"\n[[topics.channels]]\nname = "billing"\npaused = true'
    post(less, "prune=true&dry_run=true")
    assert happened() == []
    post(less, "prune=true")
    post(less.replace("paused = true", ""), "")
    paused, unpaused = ("paused", "orders / billing", "ada"), ("unpaused", "orders / billing", "ada")
    assert kinds(happened(scope="channel", topic="orders", channel="billing")) == [paused, unpaused]
    assert sorted(kinds(happened(scope="topic", topic="invoices"))) == [("deleted", "invoices", "ada")]
    assert {paused, unpaused, ("deleted", "invoices", "ada")} == set(kinds(happened()))
    assert paused in kinds(happened(scope="node", node=cluster.brokers[0].http_address))
    recorded = AuditEntry.objects.filter(outcome="done", action__in=["pause", "unpause", "delete"])
    assert {each.detail for each in recorded} == {"import of definitions"}


def test_a_nodes_action_is_found_among_thousands_on_others(happened):
    """However many actions there were since on other nodes; an action that failed on the node is none of its events."""
    ours, other = "10.0.0.1:4151", "10.0.0.2:4151"

    def results(node: str, outcome: str) -> list[dict[str, str]]:
        return [{"node": node, "target": "nsqd", "outcome": outcome, "detail": ""}]

    for topic, outcome in (("orders", "done"), ("invoices", "failed")):
        both = results(ours, outcome) + results(other, "done")
        audit.record(user=None, action="pause", outcome="partial", topic=topic, results=both)
    done = {"action": "pause", "outcome": "done", "results": results(other, "done")}
    AuditEntry.objects.bulk_create(AuditEntry(topic=f"t{number}", **done) for number in range(5_001))
    assert kinds(happened(scope="node", node=ours)) == [("paused", "orders on some nodes", "")]
    assert [event["topic"] for event in happened(scope="node", node=other)] == ["orders", "invoices"]


def test_refused_actions_are_no_events(go_cluster, account, browser, happened):
    """The topic was not changed."""
    go_cluster.nodes[0].topic("orders")
    account("viewer", "vera")
    page = browser()
    page.sign_in("vera")
    assert page.request("POST", "actions", {"action": "pause", "topic": "orders"}).status_code == 403
    assert happened(scope="topic", topic="orders") == []


def test_nodes_that_go_down_come_back_and_restart_are_events(go_cluster, collect, snapshot, happened):
    """With the error; for the node, its topics and the cluster. A new node is no event."""
    alpha = go_cluster.nodes[0]
    alpha.topic("orders")
    collect()
    wait_until(lambda: any(row["id"] == alpha.address for row in (snapshot() or {"nodes": []})["nodes"]), "the node")
    alpha.stop()
    down = wait_until(lambda: happened(scope="node", node=alpha.address), "an event")
    assert [(event["kind"], event["node"], event["by"]) for event in down] == [("node_down", alpha.address, "")]
    assert down[0]["detail"]
    alpha.start()
    wait_until(lambda: len(happened(scope="topic", topic="orders")) == 2, "the node is up")
    alpha.start_time += 60
    found = wait_until(lambda: (events := happened())[2:] and events, "the node restarted")
    assert [event["kind"] for event in found] == ["node_down", "node_up", "node_restarted"]
    assert happened(scope="topic", topic="elsewhere") == []


def test_a_collector_that_starts_records_no_change_twice(go_cluster, collect, snapshot, happened):
    """The second one compares with the last snapshot of the first."""
    alpha = go_cluster.nodes[0]
    collecting = collect()
    wait_until(lambda: any(row["id"] == alpha.address for row in (snapshot() or {"nodes": []})["nodes"]), "the node")
    alpha.stop()
    wait_until(lambda: happened(scope="node", node=alpha.address), "an event")
    collecting.stop()
    version = snapshot()["version"]
    collect()
    wait_until(lambda: snapshot()["version"] > version + 1, "two polls")
    assert [event["kind"] for event in happened(scope="node", node=alpha.address)] == ["node_down"]


def test_alerts_and_runs_are_events_of_their_subjects(happened):
    """With their ids; a run without a topic is one of the cluster."""
    now = timezone.now()
    rule = {"rule_name": "Backlog", "severity": "warning", "scope": "channel", "metric": "depth", "threshold": 1.0}
    alert = Alert.objects.create(
        **rule, hold_s=0, topic="orders", channel="billing", began_at=now, fired_at=now - timedelta(seconds=9)
    )
    run = ReportRun.objects.create(
        job="latency",
        parameters={"topic": "orders"},
        state="succeeded",
        requested_by="ana",
        started_at=now - timedelta(seconds=1),
    )
    ReportRun.objects.create(job="capacity", state="failed", requested_by="ana", started_at=now)
    of_channel = happened(scope="channel", topic="orders", channel="billing")
    assert [(event["kind"], event["detail"], event["id"]) for event in of_channel] == [
        ("alert_fired", "Backlog: orders/billing", alert.pk),
        ("report_run", "End-to-end latency succeeded", run.pk),
    ]
    assert [event["kind"] for event in happened(scope="channel", topic="orders", channel="audit")] == ["report_run"]
    assert kinds(happened())[1:] == [
        ("report_run", "End-to-end latency succeeded", "ana"),
        ("report_run", "Capacity failed", "ana"),
    ]
    assert happened(scope="node", node="n:4151") == []


def test_a_topics_run_is_found_among_thousands_of_others(happened):
    """However many runs there were since; runs for a topic are those of its channels, too."""
    now = timezone.now()
    first = {"requested_by": "ana", "state": "succeeded", "started_at": now - timedelta(minutes=30)}
    for parameters in ({"topic": "orders"}, {"topic": "orders", "channel": None}, {"topic": "orders", "channel": ""}):
        ReportRun.objects.create(job="latency", parameters=parameters, **first)
    ReportRun.objects.create(job="latency", parameters={"topic": "orders", "channel": "billing"}, **first)
    others = {"job": "depth", "requested_by": "ana", "state": "succeeded", "started_at": now - timedelta(minutes=1)}
    ReportRun.objects.bulk_create(
        (ReportRun(parameters={"topic": "invoices"}, **others) for _ in range(5_001)), batch_size=500
    )
    assert len(happened(scope="topic", topic="orders")) == 4
    assert len(happened(scope="channel", topic="orders", channel="billing")) == 4
    assert len(happened(scope="channel", topic="orders", channel="audit")) == 3


def test_every_kind_of_event_is_in_the_answer(happened):
    """Each kind that the API declares, from where it is stored."""
    now = timezone.now()
    for action in ("pause", "unpause", "empty", "rewind", "delete", "tombstone", "drain", "cancel drain", "hand over"):
        audit.record(user=None, action=action, topic="orders")
    for kind in NodeEvent.Kind:
        NodeEvent.objects.create(at=now, node="n:4151", kind=kind)
    rule = {"rule_name": "Backlog", "severity": "warning", "scope": "channel", "metric": "depth", "threshold": 1.0}
    Alert.objects.create(**rule, hold_s=0, topic="orders", channel="billing", began_at=now, fired_at=now)
    ReportRun.objects.create(job="latency", state="succeeded", requested_by="ana", started_at=now)
    Mark.objects.create(text="deploy 1.2", at=now, created_by="ana")
    found = [event["kind"] for event in happened()]
    assert sorted(found) == sorted(get_args(Kind))


def test_events_are_those_of_the_window(happened):
    """By default the last hour; the end is not part of it."""
    now = timezone.now().replace(microsecond=0)
    for minutes in (10, 70, 130):
        NodeEvent.objects.create(at=now - timedelta(minutes=minutes), node="n:4151", kind="down")
    at = [int((now - timedelta(minutes=minutes)).timestamp() * 1000) for minutes in (130, 70, 10)]
    assert [event["at"] for event in happened()] == at[2:]
    assert [event["at"] for event in happened(since=at[0])] == at
    assert [event["at"] for event in happened(since=at[0], until=at[2])] == at[:2]


def test_old_node_events_are_deleted(settings, nsqadmin_settings):
    """They are deleted when they are older than the audit trail."""
    from nsqplatform.cluster.collector.node_events import save

    nsqadmin_settings(audit_retention=timedelta(days=1))
    now = timezone.now()
    old, young = (NodeEvent(at=now - timedelta(hours=hours), node="n", kind="down") for hours in (25, 23))
    save([old, young])
    assert [event.at for event in NodeEvent.objects.all()] == [young.at]


@pytest.mark.parametrize(
    ("question", "complaint"),
    [
        ("scope=topic", "topic"),
        ("scope=channel&topic=t", "topic and channel"),
        ("scope=galaxy", "scope"),
        ("since=-1", "since"),
    ],
)
def test_an_incomplete_question_is_refused_by_name(browser, account, question, complaint):
    """With 422 and the parameter that is missing or wrong; a stranger gets 401."""
    assert browser().request("GET", f"events?{question}").status_code == 401
    account("viewer")
    page = browser()
    page.sign_in("viewer")
    answer = page.request("GET", f"events?{question}")
    assert answer.status_code == 422
    assert complaint in answer.json()["message"]
