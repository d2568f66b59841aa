"""Alerts from end to end: a collector, a cluster, and the notified services."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import httpx
import pytest
from django.test import Client
from django.utils import timezone
from prometheus_client.parser import text_string_to_metric_families
from websockets.sync.client import ClientConnection, connect

from nsqplatform.accounts.tokens import create_token
from nsqplatform.alerts import evaluation
from nsqplatform.alerts.models import Alert, Notifier, Rule
from nsqplatform.cluster.collector import damaged_files
from tests.harness.waiting import DEADLINE_S, wait_until
from tests.platform.receivers import MailServer, Receiver
from tests.platform.socket_messages import checked

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.database]

QUICK = {"hold_s": 0, "resolve_after_s": 0}
BACKLOG = {"name": "Backlog", "scope": "channel", "metric": "depth", "threshold": 100} | QUICK


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A collector that waits for no more nodes than the test has."""
    monkeypatch.setattr(evaluation, "SETTLING_S", 1.0)
    monkeypatch.setattr(evaluation, "LOOK_EVERY_S", 0.5)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    hook = Receiver()
    yield hook
    if hook.hold is not None:
        hook.hold.set()
    hook.stop()


@pytest.fixture
def admin(browser, account) -> Any:
    client = browser()
    account("admin")
    client.sign_in("admin")
    return client


@pytest.fixture
def make_rule(admin, receiver) -> Any:
    """Makes rules, which notify the webhook unless given otherwise; returns their ids."""
    hook = {"name": "hook", "kind": "webhook", "url": receiver.url}
    assert admin.request("POST", "alerts/notifiers", hook).status_code == 201

    def make(**values: Any) -> int:
        made = admin.request("POST", "alerts/rules", BACKLOG | {"notifiers": ["hook"]} | values)
        assert made.status_code == 201, made.content
        return int(made.json()["id"])

    return make


@pytest.fixture
def firing(admin) -> Callable[..., list[dict[str, Any]]]:
    """Lists the alerts."""

    def read(state: str = "firing") -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = admin.request("GET", f"alerts?state={state}").json()["alerts"]
        return found

    return read


def test_an_alert_is_notified_once_when_it_fires_and_once_when_it_resolves(
    go_cluster, collect, make_rule, firing, receiver
):
    """Slack shows the text; programs find the same in fields."""
    alpha = go_cluster.nodes[0]
    alpha.channel("orders", "billing", depth=500)
    make_rule(description="add consumers", severity="critical")
    collect()
    body = wait_until(lambda: receiver.bodies, "the webhook is notified")[0]
    assert body["text"].splitlines() == [
        "[critical] firing: Backlog: orders/billing",
        "orders/billing: depth 500 messages, above 100",
        "add consumers",
        "/alerts",
    ]
    assert (body["event"], body["total"]) == ("firing", 1)
    [alert] = body["alerts"]
    assert (alert["rule"], alert["topic"], alert["channel"], alert["value"]) == ("Backlog", "orders", "billing", 500)
    wait_until(lambda: firing()[0]["notices"], "the alert names its notifier")
    assert [notice["notifier"] for notice in firing()[0]["notices"]] == ["hook"]
    alpha.channel("orders", "billing", depth=5)
    over = wait_until(lambda: receiver.bodies[1:], "the webhook is notified of the end")[0]
    assert over["event"] == "resolved"
    assert over["text"].startswith("[critical] resolved: Backlog: orders/billing\norders/billing: resolved after")
    [past] = firing("resolved")
    assert (past["resolution"], past["value"]) == ("cleared", 500)
    assert firing() == []


def test_damaged_archive_files_are_an_alert(
    go_cluster, collect, admin, make_rule, firing, receiver, tmp_path, monkeypatch
):
    """From the file that maintenance sets aside to the webhook; it resolves when an operator removes the files."""
    monkeypatch.setattr(damaged_files, "EVERY_S", 0.1)
    rule = {"name": "Damaged", "scope": "archive", "metric": "damaged_file_count", "threshold": 0}
    make_rule(**rule)
    collect()

    def preview() -> dict[str, Any]:
        answer = admin.request("POST", "alerts/rules/preview", BACKLOG | rule)
        return dict(answer.json()) if answer.status_code == 200 else {}

    none = [{"topic": "", "channel": "", "node": "", "objective": "", "value": 0, "beyond": False, "detail": ""}]
    wait_until(lambda: preview().get("rows") == none, "the collector has counted")
    aside = tmp_path / "archive/samples/_damaged/date=2026-03-14/hour=01"
    aside.mkdir(parents=True)
    for name in ("5958-0123456789abcdef.parquet", "5959-0123456789abcdef.parquet"):
        (aside / name).touch()
    body = wait_until(lambda: receiver.bodies, "the webhook is notified")[0]
    first = "samples/_damaged/date=2026-03-14/hour=01/5958-0123456789abcdef.parquet"
    assert body["text"].splitlines() == [
        "[warning] firing: Damaged: archive",
        f"archive: damaged files {body['alerts'][0]['value']:.0f}, above 0 ({body['alerts'][0]['detail']})",
        "/alerts",
    ]
    assert body["alerts"][0]["detail"].startswith(first)
    wait_until(lambda: preview()["rows"][0]["value"] == 2, "both are counted")
    assert [each["rule"] for each in admin.request("GET", "alerts?state=firing&subject=arch").json()["alerts"]] == [
        "Damaged"
    ]
    for file in aside.iterdir():
        file.unlink()
    wait_until(lambda: receiver.bodies[1:], "the webhook is notified of the end")
    [past] = firing("resolved")
    assert (past["scope"], past["resolution"]) == ("archive", "cleared")


def test_alerts_that_fire_in_one_poll_are_one_message(go_cluster, collect, make_rule, firing, receiver):
    """However many channels there are; it names twenty and counts the others."""
    alpha = go_cluster.nodes[0]
    for number in range(30):
        alpha.channel("orders", f"channel-{number:02}", depth=500)
    collect()
    make_rule()
    [body] = wait_until(lambda: receiver.bodies, "the webhook is notified")
    assert (body["total"], len(body["alerts"])) == (30, 20)
    assert body["text"].splitlines()[0] == "[warning] firing: Backlog: orders/channel-00 and 29 more"
    assert body["text"].splitlines()[-2] == "… and 10 more"
    wait_until(lambda: all(alert["notices"] for alert in firing()), "all are notified")
    assert len(receiver.bodies) == 1


def test_rules_are_followed_as_they_are_changed(go_cluster, collect, snapshot, admin, make_rule, firing, receiver):
    """Rules are made, changed, disabled and deleted while the collector runs."""
    go_cluster.nodes[0].channel("orders", "billing", depth=500)
    collect()
    wait_until(lambda: (snapshot() or {}).get("version", 0) > 2, "the collector is at work")
    rule = make_rule(threshold=1000)
    other = make_rule(name="Other", threshold=400)
    wait_until(lambda: [alert["rule"] for alert in firing()] == ["Other"], "the lower one fires")
    admin.request("PATCH", f"alerts/rules/{rule}", {"threshold": 300})
    wait_until(
        lambda: {alert["rule"] for alert in firing() if alert["notices"]} == {"Other", "Backlog"}, "both are notified"
    )
    admin.request("PATCH", f"alerts/rules/{rule}", {"enabled": False})
    wait_until(lambda: [alert["rule"] for alert in firing()] == ["Other"], "a disabled one does not")
    admin.request("DELETE", f"alerts/rules/{other}")
    assert firing() == []

    def notified() -> list[tuple[str, str]]:
        return sorted((body["event"], alert["rule"]) for body in receiver.bodies for alert in body["alerts"])

    wait_until(lambda: len(notified()) == 4, "their notifier is notified of the end")
    assert notified() == [("firing", "Backlog"), ("firing", "Other"), ("resolved", "Backlog"), ("resolved", "Other")]
    assert {alert["resolution"] for alert in firing("resolved")} == {"rule"}


def test_a_node_that_crashes_is_missing_until_it_is_back(go_cluster, collect, snapshot, make_rule, receiver):
    """Its last figures neither fire nor resolve an alert meanwhile: no consumers are missing on a dead node."""
    beta = go_cluster.nodes[1]
    beta.channel("orders", "billing", client_count=0, depth=5)
    beta.channel("orders", "mail", client_count=1, depth=500)
    make_rule(name="Missing", scope="node", metric="down", threshold=0)
    make_rule(name="Idle", metric="client_count", comparison="below", threshold=1, hold_s=3600)
    make_rule()
    collect()
    wait_until(lambda: receiver.events() == [("firing", ["orders/mail"])], "the backlog is notified")
    beta.stop()
    wait_until(lambda: ("firing", [beta.address]) in receiver.events(), "beta is missing")
    assert "connection refused" in receiver.bodies[1]["text"]
    version = snapshot()["version"]
    wait_until(lambda: snapshot()["version"] > version + 3, "some more polls")
    assert len(receiver.bodies) == 2
    beta.start()
    wait_until(lambda: ("resolved", [beta.address]) in receiver.events(), "beta is back")
    assert len(receiver.bodies) == 3


def test_another_collector_continues_with_the_alerts_of_the_last(
    go_cluster, collect, snapshot, admin, make_rule, firing, receiver
):
    """Firing alerts are not notified again, alerts over by then are, and hold times continue."""
    alpha = go_cluster.nodes[0]
    alpha.channel("orders", "billing", depth=500)
    alpha.channel("orders", "mail", depth=500)
    make_rule()
    collecting = collect()
    wait_until(lambda: receiver.bodies, "the webhook is notified")
    wait_until(lambda: all(alert["notices"] for alert in firing()), "and it is written down")
    before = {alert["id"]: alert["began_at"] for alert in firing()}
    collecting.stop()
    alpha.channel("orders", "mail", depth=5)
    collect()
    wait_until(lambda: receiver.events()[1:], "the next one notifies of the end")
    assert receiver.events()[1:] == [("resolved", ["orders/mail"])]
    [left] = firing()
    assert (left["channel"], left["began_at"]) == ("billing", before[left["id"]])


def test_a_failing_webhook_gets_its_message_when_it_works_again(
    go_cluster, collect, snapshot, admin, make_rule, firing, receiver
):
    """Meanwhile the notifier shows the error, polls go on, and other notifiers send."""
    receiver.status["/hook"] = (503, "no room")
    go_cluster.nodes[0].channel("orders", "billing", depth=500)
    other = Receiver()
    admin.request("POST", "alerts/notifiers", {"name": "other", "kind": "webhook", "url": other.url})
    make_rule(notifiers=["hook", "other"])
    collect()

    def notifiers() -> dict[str, dict[str, Any]]:
        return {each["name"]: each for each in admin.request("GET", "alerts/notifiers").json()["notifiers"]}

    wait_until(lambda: notifiers()["hook"]["last_error"], "the failure is shown")
    assert notifiers()["hook"]["last_error"] == "answers 503 Service Unavailable"
    wait_until(lambda: other.events() == [("firing", ["orders/billing"])], "the other is notified")
    version = snapshot()["version"]
    wait_until(lambda: snapshot()["version"] > version, "polls go on")
    del receiver.status["/hook"]
    wait_until(lambda: receiver.events() == [("firing", ["orders/billing"])], "it is notified at last")
    wait_until(lambda: notifiers()["hook"]["last_error"] == "", "the failure is forgotten")
    assert notifiers()["hook"]["last_sent_at"]
    assert len(other.bodies) == 1
    other.stop()


def test_a_webhook_that_hangs_delays_no_other(go_cluster, collect, snapshot, admin, make_rule, receiver):
    """Other notifiers send, and alerts fire and resolve as ever."""
    receiver.hold = threading.Event()
    alpha = go_cluster.nodes[0]
    alpha.channel("orders", "billing", depth=500)
    other = Receiver()
    admin.request("POST", "alerts/notifiers", {"name": "other", "kind": "webhook", "url": other.url})
    make_rule(notifiers=["hook", "other"])
    collect()
    wait_until(lambda: other.events() == [("firing", ["orders/billing"])], "the other is notified")
    alpha.channel("orders", "billing", depth=5)
    wait_until(lambda: other.events()[1:] == [("resolved", ["orders/billing"])], "and notified of the end")
    receiver.hold.set()
    other.stop()


def test_an_alert_is_pending_during_its_hold_time(go_cluster, collect, admin, make_rule, firing):
    """It is listed with the time at which it would fire, until it fires or ends."""

    def pending() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = admin.request("GET", "alerts/pending").json()["pending"]
        return found

    alpha = go_cluster.nodes[0]
    alpha.channel("orders", "billing", depth=500)
    alpha.channel("orders", "mail", depth=5)
    slow = make_rule(name="Slow", hold_s=3600)
    make_rule(name="Held", scope="topic", hold_s=7200)
    make_rule(name="At once", threshold=400)
    collect()
    found = wait_until(pending, "something is pending")
    assert [(each["rule"], each["topic"], each["channel"], each["node"]) for each in found] == [
        ("Slow", "orders", "billing", ""),
        ("Held", "orders", "", ""),
    ]
    assert [each["fires_at"] - each["began_at"] for each in found] == [3_600_000, 7_200_000]
    admin.request("PATCH", f"alerts/rules/{slow}", {"hold_s": 0})
    wait_until(lambda: {each["rule"] for each in firing()} == {"Slow", "At once"}, "it fires")
    wait_until(lambda: [each["rule"] for each in pending()] == ["Held"], "and is no longer pending")
    alpha.channel("orders", "billing", depth=5)
    wait_until(lambda: pending() == [], "all is well again")


def test_notifications_by_e_mail(go_cluster, collect, admin, make_rule, settings):
    """From the configured address, through the configured server."""
    server = MailServer()
    settings.EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
    settings.EMAIL_HOST, settings.EMAIL_PORT = "127.0.0.1", server.port
    settings.DEFAULT_FROM_EMAIL = "nsq@example.org"
    settings.NSQ_SITE = "https://nsq.example.org"
    people = {"name": "people", "kind": "email", "recipients": ["ann@example.org", "bob@example.org"]}
    admin.request("POST", "alerts/notifiers", people)
    go_cluster.nodes[0].channel("orders", "billing", depth=500)
    make_rule(notifiers=["people"])
    collect()
    [(to, mail)] = wait_until(lambda: server.mails, "a mail")
    assert (to, mail["From"]) == (["ann@example.org", "bob@example.org"], "nsq@example.org")
    assert mail["Subject"] == "[warning] firing: Backlog: orders/billing"
    assert "https://nsq.example.org/alerts" in mail.get_content()
    server.stop()


def test_silenced_or_acknowledged_alerts_send_no_notification(
    go_cluster, collect, snapshot, admin, make_rule, firing, receiver
):
    """A silenced alert is notified when the silence ends and it still fires; an acknowledged one is not notified
    again."""
    alpha = go_cluster.nodes[0]
    until = int((timezone.now() + timedelta(hours=1)).timestamp() * 1000)
    silence = {"topic_pattern": "quiet", "reason": "known", "ends_at": until}
    made = admin.request("POST", "alerts/silences", silence).json()
    alpha.channel("quiet", "billing", depth=500)
    alpha.channel("orders", "billing", depth=500)
    rule = make_rule(repeat_s=60)
    collect()
    wait_until(lambda: receiver.events() == [("firing", ["orders/billing"])], "the other topic is notified")
    assert {alert["topic"]: bool(alert["silenced_until"]) for alert in firing()} == {"orders": False, "quiet": True}
    admin.request("DELETE", f"alerts/silences/{made['id']}")
    wait_until(lambda: ("firing", ["quiet/billing"]) in receiver.events(), "the silence is over")
    wait_until(lambda: all(alert["notices"] for alert in firing()), "both are written down")
    quiet = next(alert for alert in firing() if alert["topic"] == "quiet")
    admin.request("POST", f"alerts/{quiet['id']}/acknowledge", {"note": "mine"})
    Rule.objects.filter(pk=rule).update(repeat_s=1)  # the API requires more
    wait_until(lambda: receiver.events().count(("still firing", ["orders/billing"])) >= 2, "it is notified repeatedly")
    assert [
        subjects for event, subjects in receiver.events() if event == "still firing" and "quiet" in subjects[0]
    ] == []


def test_a_closed_alert_fires_again_if_its_condition_persists(go_cluster, collect, admin, make_rule, firing, receiver):
    """It fires as a new alert."""
    go_cluster.nodes[0].channel("orders", "billing", depth=500)
    make_rule()
    collect()
    [first] = wait_until(lambda: [alert for alert in firing() if alert["notices"]], "it fires")
    admin.request("POST", f"alerts/{first['id']}/close", {})
    [second] = wait_until(lambda: [alert for alert in firing() if alert["notices"]], "it fires again")
    assert second["id"] != first["id"]
    wait_until(lambda: len(receiver.events()) == 3, "all are notified")
    assert [event for event, _ in receiver.events()].count("firing") == 2
    assert "Closed by admin." in next(body["text"] for body in receiver.bodies if body["event"] == "resolved")


def test_alerts_resolved_long_ago_are_dropped(go_cluster, collect, make_rule, nsqadmin_settings):
    """Like old entries of the audit trail; firing alerts stay, however old."""
    nsqadmin_settings(audit_retention=timedelta(days=30))
    rule = Rule.objects.get(pk=make_rule(scope="node", metric="down"))
    long_ago, lately = (timezone.now() - timedelta(days=days) for days in (31, 29))
    for name, over_at in (("old", long_ago), ("young", lately), ("firing", None)):
        Alert.objects.create(
            rule=rule,
            rule_name=rule.name,
            severity=rule.severity,
            scope="node",
            metric="down",
            comparison="above",
            threshold=0,
            hold_s=0,
            node=name,
            began_at=long_ago,
            fired_at=long_ago,
            resolved_at=over_at,
            state="resolved" if over_at else "firing",
        )
    collect()
    wait_until(lambda: not Alert.objects.filter(node="old").exists(), "the old one is dropped")
    assert set(Alert.objects.values_list("node", flat=True)) == {"young", "firing"}


# ---- browsers and Prometheus


@pytest.fixture
def socket(web, account) -> Iterator[ClientConnection]:
    """A viewer's websocket."""
    client = Client()
    client.force_login(account("viewer"))
    cookie = f"sessionid={client.cookies['sessionid'].value}"
    url = f"ws://127.0.0.1:{web.port}/ws/cluster"
    with connect(url, origin=web.base, additional_headers={"Cookie": cookie}, proxy=None) as opened:  # type: ignore[arg-type]
        yield opened


def next_alerts(socket: ClientConnection, holds: Callable[[dict[str, Any]], bool], what: str) -> dict[str, Any]:
    """The next ``alerts`` message for which ``holds`` returns true."""
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        message = checked("ClusterMessage", socket.recv(timeout=DEADLINE_S))
        if message["type"] == "alerts" and holds(message):
            return message
    pytest.fail(f"no message: {what}")


def test_browsers_get_alerts_at_once(go_cluster, collect, snapshot, web, make_rule, socket, admin):
    """With the changed alerts and the number of firing ones, after each start, action and end."""
    alpha = go_cluster.nodes[0]
    alpha.channel("orders", "billing", depth=500)
    make_rule()
    collect()
    fired = next_alerts(socket, lambda message: bool(message["alerts"]), "an alert")
    [alert] = fired["alerts"]
    assert (alert["state"], alert["topic"], fired["counts"]["warning"]) == ("firing", "orders", 1)
    message = next_alerts(
        socket, lambda message: bool(message["alerts"] and message["alerts"][0]["notices"]), "the notifier"
    )
    assert message["version"] > fired["version"]
    admin.request("POST", f"alerts/{alert['id']}/acknowledge", {"note": "mine"})
    message = next_alerts(socket, lambda message: message["counts"]["acknowledged"] == 1, "an acknowledgement")
    assert message["alerts"][0]["note"] == "mine"
    alpha.channel("orders", "billing", depth=5)
    message = next_alerts(
        socket, lambda message: bool(message["alerts"]) and message["counts"]["acknowledged"] == 0, "the end"
    )
    assert (message["alerts"][0]["id"], message["alerts"][0]["state"]) == (alert["id"], "resolved")
    assert admin.request("GET", "alerts").json()["version"] >= message["version"]


def test_a_browser_that_missed_a_message_gets_all_alerts(go_cluster, collect, make_rule, socket, monkeypatch):
    """The counts are repeated every few seconds with their version."""
    monkeypatch.setattr(evaluation, "REPEATED_EVERY_S", 0.5)
    go_cluster.nodes[0].channel("orders", "billing", depth=500)
    make_rule()
    collect()
    message = next_alerts(
        socket, lambda message: not message["alerts"] and message["counts"]["warning"] == 1, "a repetition"
    )
    again = next_alerts(socket, lambda message: not message["alerts"], "another one")
    assert again["version"] >= message["version"]


def test_prometheus_reads_firing_alerts_and_notifications(
    go_cluster, collect, web, account, make_rule, receiver, metrics_problems
):
    """On the platform's /metrics, beside the collector's other figures."""
    token = create_token(user=account("viewer"), name="prometheus")
    headers = {"Authorization": f"Bearer {token}"}
    for name in ("billing", "mail"):
        go_cluster.nodes[0].channel("orders", name, depth=500)
    make_rule(severity="critical")
    collect()
    delivered = ("nsq_alerts_notifications_total", "hook", "delivered")

    def scraped() -> dict[tuple[str, ...], float]:
        answer = httpx.get(f"{web.base}/metrics", headers=headers, trust_env=False, timeout=DEADLINE_S)
        assert metrics_problems(answer.text) == []
        return {
            (sample.name, *sample.labels.values()): sample.value
            for family in text_string_to_metric_families(answer.text)
            for sample in family.samples
        }

    wait_until(lambda: scraped().get(("nsq_alerts_firing", "Backlog", "critical")) == 2, "both fire")
    wait_until(lambda: receiver.bodies, "the webhook is notified")
    found = wait_until(lambda: (samples := scraped()).get(delivered) and samples, "delivered")
    assert found["nsq_alerts_evaluation_seconds_count",] >= 1


def test_a_collector_without_a_database_continues_to_collect(go_cluster, collect, snapshot, monkeypatch, caplog):
    """Snapshots continue; the log says that alerts are not evaluated, and they are again once the database is back."""
    original = evaluation.persistence.rules

    def away() -> Any:
        raise OSError("the database is away")

    monkeypatch.setattr(evaluation.persistence, "rules", away)
    Rule.objects.create(**BACKLOG, created_by="admin")
    go_cluster.nodes[0].channel("orders", "billing", depth=500)
    collect()
    wait_until(lambda: "a listener failed" in caplog.text, "the log says so")
    version = snapshot()["version"]
    wait_until(lambda: snapshot()["version"] > version, "polls go on")
    monkeypatch.setattr(evaluation.persistence, "rules", original)
    wait_until(lambda: Alert.objects.filter(state="firing").exists(), "the alert fires")
    assert Notifier.objects.count() == 0
