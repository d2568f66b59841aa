"""Alerts over HTTP: rules, notifiers, silences, and actions on alerts."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from nsqplatform.accounts.models import AuditEntry
from nsqplatform.alerts.models import Alert, Notifier, Rule, Silence
from nsqplatform.alerts.suggested import SUGGESTED
from tests.harness.waiting import wait_until

pytestmark = [pytest.mark.django_db, pytest.mark.database]

BACKLOG = {"name": "Backlog", "scope": "channel", "metric": "depth", "threshold": 100.0, "topic_pattern": "orders.*"}


@pytest.fixture
def signed_in(browser, account) -> Callable[..., Any]:
    """A signed-in browser of a user with this role; an operator may be limited to topics."""

    def sign_in(role: str, topic_patterns: list[str] | None = None) -> Any:
        user = account(role, f"{role}-limited" if topic_patterns else role)
        user.topic_patterns = topic_patterns or []
        user.save()
        client = browser()
        assert client.sign_in(user.username).status_code == 200
        return client

    return sign_in


@pytest.fixture
def admin(signed_in) -> Any:
    return signed_in("admin")


def firing(rule: Rule, **subject: str) -> Alert:
    """An alert of the rule, as the collector writes it."""
    now = timezone.now()
    copied = ("severity", "scope", "metric", "comparison", "threshold", "hold_s")
    return Alert.objects.create(
        rule=rule,
        rule_name=rule.name,
        value=500.0,
        began_at=now - timedelta(seconds=rule.hold_s),
        fired_at=now,
        **{name: getattr(rule, name) for name in copied},
        **subject,
    )


def new_rule(**values: Any) -> Rule:
    return Rule.objects.create(**BACKLOG | {"created_by": "admin"} | values)


# ---- rules


def test_a_rule_is_made_changed_and_deleted(admin):
    """Each entry of the audit trail has the user and the new rule."""
    made = admin.request("POST", "alerts/rules", BACKLOG)
    assert made.status_code == 201, made.content
    rule = made.json()
    assert (rule["threshold"], rule["hold_s"], rule["severity"], rule["firing"]) == (100.0, 60, "warning", 0)
    changed = admin.request("PATCH", f"alerts/rules/{rule['id']}", {"threshold": 200, "severity": "critical"})
    assert (changed.json()["threshold"], changed.json()["topic_pattern"]) == (200.0, "orders.*")
    assert [each["name"] for each in admin.request("GET", "alerts/rules").json()["rules"]] == ["Backlog"]
    assert admin.request("DELETE", f"alerts/rules/{rule['id']}").status_code == 204
    assert admin.request("GET", f"alerts/rules/{rule['id']}").status_code == 404
    trail = AuditEntry.objects.filter(subject="Backlog").order_by("id").values_list("action", "detail")
    assert list(trail) == [
        ("create alert rule", "warning: channel orders.*/* depth above 100 for 60 s"),
        (
            "change alert rule",
            "warning: channel orders.*/* depth above 100 for 60 s → "
            "critical: channel orders.*/* depth above 200 for 60 s",
        ),
        ("delete alert rule", "critical: channel orders.*/* depth above 200 for 60 s"),
    ]


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        ({"metric": "weight"}, "metric: a channel has no metric 'weight'; it has depth, in_flight_count, "),
        ({"scope": "topic", "metric": "timeout_rate"}, "metric: a topic has no metric 'timeout_rate'"),
        ({"topic_pattern": "orders eu"}, "topic_pattern: 'orders eu' is not a glob of names"),
        ({"threshold": "lots"}, "threshold: Input should be a valid number"),
        ({"hold_s": -1}, "hold_s: Input should be greater than or equal to 0"),
        ({"repeat_s": 5}, "repeat_s: Input should be greater than or equal to 60"),
        ({"notifiers": ["nobody"]}, "notifiers: there is no notifier 'nobody'"),
        ({"name": "   "}, "name: a rule needs a name"),
        ({"thresold": 5}, "thresold: Extra inputs are not permitted"),
    ],
)
def test_a_rule_that_cannot_work_is_refused(admin, values, complaint):
    """The error names the field and the fault; nothing is saved."""
    answer = admin.request("POST", "alerts/rules", BACKLOG | values)
    assert answer.status_code == 422
    assert complaint in answer.json()["message"]
    assert not Rule.objects.exists()


def test_two_rules_have_two_names(admin):
    """Their names distinguish them."""
    assert admin.request("POST", "alerts/rules", BACKLOG).status_code == 201
    again = admin.request("POST", "alerts/rules", BACKLOG)
    assert (again.status_code, again.json()["message"]) == (422, "name: there is a rule 'Backlog' already")


def test_a_node_that_is_missing_needs_no_threshold(admin):
    """Patterns that do not belong to the scope are dropped, so that no page shows them."""
    body = {
        "name": "Missing",
        "scope": "node",
        "metric": "down",
        "comparison": "below",
        "threshold": 7,
        "topic_pattern": "orders",
    }
    rule = admin.request("POST", "alerts/rules", body).json()
    assert (rule["comparison"], rule["threshold"], rule["topic_pattern"]) == ("above", 0.0, "*")


def test_a_rule_of_the_archive_has_no_patterns(admin):
    """The audit trail has none either."""
    body = {
        "name": "Damaged",
        "scope": "archive",
        "metric": "damaged_file_count",
        "node_pattern": "rack-*",
        "hold_s": 0,
    }
    made = admin.request("POST", "alerts/rules", BACKLOG | body | {"threshold": 0})
    assert made.status_code == 201, made.content
    rule = made.json()
    assert (rule["topic_pattern"], rule["channel_pattern"], rule["node_pattern"]) == ("*", "*", "*")
    [entry] = AuditEntry.objects.filter(subject="Damaged")
    assert entry.detail == "warning: archive damaged_file_count above 0 for 0 s"
    refused = admin.request("POST", "alerts/rules", BACKLOG | body | {"metric": "depth"})
    assert refused.status_code == 422
    assert "metric: the archive has no metric 'depth'; it has damaged_file_count" in refused.json()["message"]


def test_suggested_rules_can_be_created_unchanged(admin):
    """Each suggestion is the body of a rule; no rule exists before somebody creates it."""
    offered = admin.request("GET", "alerts/rules/suggested").json()["rules"]
    assert len(offered) == len(SUGGESTED)
    assert admin.request("GET", "alerts/rules").json()["rules"] == []
    for each in offered:
        assert admin.request("POST", "alerts/rules", each).status_code == 201
    metrics = {(each["scope"], each["name"]) for each in admin.request("GET", "alerts/metrics").json()["metrics"]}
    assert {(each["scope"], each["metric"]) for each in offered} <= metrics


def test_deleting_a_rule_ends_its_alerts_and_keeps_them(admin):
    """The alerts stay in the history."""
    rule = new_rule()
    firing(rule, topic="orders.eu", channel="billing")
    admin.request("DELETE", f"alerts/rules/{rule.pk}")
    assert admin.request("GET", "alerts").json()["alerts"] == []
    [over] = admin.request("GET", "alerts?state=resolved").json()["alerts"]
    assert (over["rule_id"], over["rule"], over["resolution"], over["resolved_by"]) == (
        None,
        "Backlog",
        "rule",
        "admin",
    )


def test_a_preview_shows_whether_a_rule_would_fire_now(admin, go_cluster, collect, snapshot):
    """It uses the newest snapshot and does not save the rule; subjects on a silent node are unknown."""
    alpha, beta = go_cluster.nodes
    alpha.channel("orders.eu", "billing", depth=500)
    alpha.channel("orders.eu", "mail", depth=5)
    beta.channel("orders.us", "billing", depth=90)
    alpha.channel("orders.us", "billing", depth=50)
    alpha.channel("returns", "billing", depth=500)
    assert admin.request("POST", "alerts/rules/preview", BACKLOG).status_code == 503
    collect()
    wait_until(lambda: len((snapshot() or {}).get("channels", [])) == 4, "all channels")
    answer = admin.request("POST", "alerts/rules/preview", BACKLOG).json()
    assert (answer["matched"], answer["beyond"], answer["unknown"]) == (3, 2, 0)
    values = {(row["topic"], row["channel"]): (row["value"], row["beyond"]) for row in answer["rows"]}
    assert values == {
        ("orders.eu", "billing"): (500, True),
        ("orders.us", "billing"): (140, True),
        ("orders.eu", "mail"): (5, False),
    }
    assert answer["rows"][2]["channel"] == "mail"
    beta.stop()
    wait_until(lambda: any(row["state"] == "down" for row in snapshot()["nodes"]), "beta down")
    answer = admin.request("POST", "alerts/rules/preview", BACKLOG).json()
    assert (answer["matched"], answer["beyond"], answer["unknown"]) == (3, 1, 1)
    below = BACKLOG | {"metric": "client_count", "comparison": "below", "threshold": 1}
    answer = admin.request("POST", "alerts/rules/preview", below).json()
    assert (answer["matched"], answer["beyond"], answer["unknown"]) == (3, 2, 1)
    assert not Rule.objects.exists()


def test_every_metric_of_rules_is_in_the_snapshot(admin, cluster, collect):
    """Each metric of the catalogue has a value from brokers that answer. Of a figure that is compared with past weeks,
    there are none to compare it with."""
    cluster.make_channel("orders", "billing")
    cluster.publish("orders", 3)
    objective = {"name": "Success", "kind": "success", "target_percent": 99.0}
    assert admin.request("POST", "objectives", objective).status_code == 201
    collect()
    metrics = admin.request("GET", "alerts/metrics").json()["metrics"]
    unknown = {(each["scope"], each["name"]): each["is_anomaly"] for each in metrics}

    def all_known() -> bool:
        for (scope, name), is_anomaly in list(unknown.items()):
            threshold = 4.0 if is_anomaly else -1.0
            body = {"name": "x", "scope": scope, "metric": name, "comparison": "above", "threshold": threshold}
            preview = admin.request("POST", "alerts/rules/preview", body).json()
            if not preview.get("matched"):
                continue
            if is_anomaly and all(row["value"] is not None for row in preview["rows"]):
                assert preview["unknown"] == preview["matched"]
                del unknown[scope, name]
            elif not preview["unknown"]:
                assert all(row["value"] is not None for row in preview["rows"])
                del unknown[scope, name]
        return not unknown

    wait_until(all_known, "all known")


# ---- notifiers


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        ({"kind": "webhook", "url": "ftp://example.org"}, "url: an http or https address is needed"),
        ({"kind": "webhook"}, "url: an http or https address is needed"),
        ({"kind": "email"}, "recipients: at least one address is needed"),
        ({"kind": "email", "recipients": ["nobody"]}, "recipients: 'nobody' is not an e-mail address"),
        ({"kind": "pigeon"}, "kind: Input should be 'webhook' or 'email'"),
    ],
)
def test_a_notifier_that_reaches_nobody_is_refused(admin, values, complaint):
    """The error names the field and the fault."""
    answer = admin.request("POST", "alerts/notifiers", {"name": "ops"} | values)
    assert (answer.status_code, answer.json()["message"]) == (422, complaint)


def test_a_webhooks_address_is_hidden_from_users_who_may_not_change_it(admin, signed_in):
    """The address often contains a key: others see only its host."""
    url = "https://hooks.example.org/services/T0/B0/secret"
    made = admin.request("POST", "alerts/notifiers", {"name": "ops", "kind": "webhook", "url": url})
    assert made.json()["url"] == url
    [seen] = signed_in("operator").request("GET", "alerts/notifiers").json()["notifiers"]
    assert seen["url"] == "hooks.example.org/…"


def test_a_rule_names_its_notifiers_and_follows_their_names(admin):
    """A renamed notifier stays in its rules; a deleted one is removed from them."""
    made = admin.request("POST", "alerts/notifiers", {"name": "ops", "kind": "email", "recipients": ["a@example.org"]})
    rule = admin.request("POST", "alerts/rules", BACKLOG | {"notifiers": ["ops"]}).json()
    assert rule["notifiers"] == ["ops"]
    path = f"alerts/notifiers/{made.json()['id']}"
    assert admin.request("PATCH", path, {"name": "night shift"}).json()["rules"] == 1
    assert admin.request("GET", f"alerts/rules/{rule['id']}").json()["notifiers"] == ["night shift"]
    assert admin.request("DELETE", path).status_code == 204
    assert admin.request("GET", f"alerts/rules/{rule['id']}").json()["notifiers"] == []


def test_a_failed_test_of_a_notifier_says_why(admin, settings):
    """In the answer, and beside the notifier until a message is delivered."""
    settings.EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
    settings.EMAIL_HOST, settings.EMAIL_PORT = "127.0.0.1", 1
    made = admin.request("POST", "alerts/notifiers", {"name": "ops", "kind": "email", "recipients": ["a@example.org"]})
    answer = admin.request("POST", f"alerts/notifiers/{made.json()['id']}/test", {}).json()
    assert answer["delivered"] is False
    assert "refused" in answer["error"]
    [seen] = admin.request("GET", "alerts/notifiers").json()["notifiers"]
    assert seen["last_error"] == answer["error"]
    assert seen["last_error_at"]
    entry = AuditEntry.objects.get(action="test notifier")
    assert (entry.subject, entry.outcome, entry.detail) == ("ops", "failed", answer["error"])


def test_a_test_by_e_mail_arrives(admin, mailoutbox):
    """It says that it is a test, and who sent it."""
    body = {"name": "ops", "kind": "email", "recipients": ["a@example.org", "b@example.org"]}
    made = admin.request("POST", "alerts/notifiers", body)
    assert admin.request("POST", f"alerts/notifiers/{made.json()['id']}/test", {}).json()["delivered"] is True
    [mail] = mailoutbox
    assert (mail.to, mail.subject) == (["a@example.org", "b@example.org"], "[test] NSQ alerts are delivered here")
    assert "Sent by admin" in mail.body
    assert Notifier.objects.get().last_sent_at


# ---- alerts


def test_an_alert_is_acknowledged_and_closed(signed_in):
    """Everybody sees by whom and why; a resolved alert can be neither acknowledged nor closed."""
    alert = firing(new_rule(), topic="orders.eu", channel="billing")
    operator = signed_in("operator")
    assert operator.request("GET", "alerts/counts").json()["counts"]["warning"] == 1
    answer = operator.request("POST", f"alerts/{alert.pk}/acknowledge", {"note": "restarting billing"}).json()
    assert (answer["acknowledged_by"], answer["note"]) == ("operator", "restarting billing")
    counts = operator.request("GET", "alerts").json()["counts"]
    assert counts == {"critical": 0, "warning": 0, "acknowledged": 1, "silenced": 0}
    answer = operator.request("DELETE", f"alerts/{alert.pk}/acknowledge").json()
    assert (answer["acknowledged_by"], answer["acknowledged_at"]) == ("", None)
    answer = operator.request("POST", f"alerts/{alert.pk}/close", {"note": "known"}).json()
    assert (answer["state"], answer["resolution"], answer["resolved_by"]) == ("resolved", "closed", "operator")
    again = operator.request("POST", f"alerts/{alert.pk}/acknowledge", {})
    assert (again.status_code, again.json()["message"]) == (409, f"alert {alert.pk} is already resolved")
    trail = AuditEntry.objects.filter(topic="orders.eu").order_by("id")
    assert list(trail.values_list("action", "channel", "subject", "detail")) == [
        ("acknowledge alert", "billing", "Backlog: orders.eu/billing", "restarting billing"),
        ("withdraw acknowledgement", "billing", "Backlog: orders.eu/billing", ""),
        ("close alert", "billing", "Backlog: orders.eu/billing", "known"),
    ]


def test_alerts_are_found_by_their_subjects(signed_in):
    """By severity, rule and parts of the names; in pages."""
    rule, worse = new_rule(), new_rule(name="Worse", severity="critical")
    for name in ("orders.eu", "orders.us", "returns"):
        firing(rule, topic=name, channel="billing")
    firing(worse, topic="orders.eu", channel="billing")
    viewer = signed_in("viewer")

    def found(query: str) -> list[tuple[str, str]]:
        alerts = viewer.request("GET", f"alerts?{query}").json()["alerts"]
        return [(alert["rule"], alert["topic"]) for alert in alerts]

    assert found("severity=critical") == [("Worse", "orders.eu")]
    assert found(f"rule={rule.pk}&subject=ORDERS") == [("Backlog", "orders.us"), ("Backlog", "orders.eu")]
    assert found("subject=eu billing&limit=1") == [("Worse", "orders.eu")]
    newest = viewer.request("GET", "alerts?limit=1").json()["alerts"][0]
    assert len(found(f"before={newest['id']}")) == 3


def test_an_operator_of_some_topics_handles_no_other_alerts(signed_in):
    """One by one or many at once; alerts of nodes belong to no topic."""
    rule = new_rule()
    mine, other = (firing(rule, topic=topic, channel="billing") for topic in ("orders.eu", "returns"))
    node = firing(new_rule(name="Missing", scope="node", metric="down"), node="10.0.0.7:4151")
    archive = firing(new_rule(name="Damaged", scope="archive", metric="damaged_file_count"))
    limited = signed_in("operator", ["orders.*"])
    for alert, message in (
        (archive, "you may act on topics orders.*, not on the archive"),
        (other, "you may act on topics orders.*, not on returns"),
        (node, "you may act on topics orders.*, not on nodes"),
    ):
        for what in ("acknowledge", "close"):
            refused = limited.request("POST", f"alerts/{alert.pk}/{what}", {})
            assert (refused.status_code, refused.json()["message"]) == (403, message)
    many = limited.request("POST", "alerts/acknowledge", {"alerts": [mine.pk, other.pk, 999_999], "note": "mine"})
    assert [alert["id"] for alert in many.json()["alerts"]] == [mine.pk]
    assert many.json()["refused"] == {
        str(other.pk): "you may act on topics orders.*, not on returns",
        "999999": "there is no alert 999999",
    }
    other.refresh_from_db()
    assert (other.state, other.acknowledged_by) == ("firing", "")


# ---- silences


def in_ms(**ahead: float) -> int:
    return int((timezone.now() + timedelta(**ahead)).timestamp() * 1000)


def test_a_silence_covers_its_subjects_until_it_ends(signed_in):
    """Its alerts have its end; after an early end, they count again."""
    rule = new_rule()
    eu, us = (firing(rule, topic=topic, channel="billing") for topic in ("orders.eu", "orders.us"))
    operator = signed_in("operator")
    body = {"topic_pattern": "*.eu", "reason": "moving house", "ends_at": in_ms(hours=1)}
    made = operator.request("POST", "alerts/silences", body)
    assert made.status_code == 201, made.content
    assert (made.json()["alerts"], made.json()["active"], made.json()["within"]) == (1, True, [])
    listed = operator.request("GET", "alerts").json()
    silenced = {alert["id"]: alert["silenced_until"] for alert in listed["alerts"]}
    assert silenced == {eu.pk: body["ends_at"], us.pk: None}
    assert (listed["counts"]["warning"], listed["counts"]["silenced"]) == (1, 1)
    ended = operator.request("DELETE", f"alerts/silences/{made.json()['id']}").json()
    assert (ended["active"], ended["ended_by"]) == (False, "operator")
    assert operator.request("GET", "alerts/counts").json()["counts"]["warning"] == 2
    assert operator.request("GET", "alerts/silences").json()["silences"] == []
    [past] = operator.request("GET", "alerts/silences?ended=true").json()["silences"]
    assert past["reason"] == "moving house"
    trail = AuditEntry.objects.filter(action__endswith="silence").values_list("subject", flat=True)
    assert list(trail) == ["topic *.eu"]


def test_a_silence_of_a_rule_covers_its_alerts_alone(signed_in):
    """On all topics and nodes."""
    rule, other = new_rule(), new_rule(name="Other")
    covered = firing(rule, topic="orders.eu", channel="billing")
    firing(other, topic="orders.eu", channel="billing")
    body = {"rule_id": rule.pk, "reason": "too low", "ends_at": in_ms(hours=1)}
    operator = signed_in("operator")
    assert operator.request("POST", "alerts/silences", body).json()["rule"] == "Backlog"
    alerts = operator.request("GET", "alerts").json()["alerts"]
    assert [alert["id"] for alert in alerts if alert["silenced_until"]] == [covered.pk]


def test_an_operator_of_some_topics_silences_no_others(signed_in):
    """A broader pattern is limited to their topics; other names are refused."""
    rule = new_rule()
    mine, other = (firing(rule, topic=topic, channel="billing") for topic in ("orders.eu", "returns"))
    limited = signed_in("operator", ["orders.*"])
    until = {"reason": "quiet", "ends_at": in_ms(hours=1)}
    assert limited.request("POST", "alerts/silences", {"topic_pattern": "returns"} | until).status_code == 403
    assert limited.request("POST", "alerts/silences", {"node_pattern": "*"} | until).status_code == 403
    made = limited.request("POST", "alerts/silences", {"topic_pattern": "*"} | until).json()
    assert (made["within"], made["alerts"]) == (["orders.*"], 1)
    silenced = {each["id"]: bool(each["silenced_until"]) for each in limited.request("GET", "alerts").json()["alerts"]}
    assert silenced == {mine.pk: True, other.pk: False}
    of_all = signed_in("operator").request("POST", "alerts/silences", {"topic_pattern": "*"} | until).json()
    refused = limited.request("DELETE", f"alerts/silences/{of_all['id']}")
    assert refused.status_code == 403
    assert limited.request("DELETE", f"alerts/silences/{made['id']}").status_code == 200


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        ({}, "a silence needs a rule or a pattern"),
        ({"topic_pattern": "a b"}, "topic_pattern: 'a b' is not a glob"),
        ({"topic_pattern": "a", "ends_at": 1}, "ends_at: this time is past"),
        ({"topic_pattern": "a", "reason": ""}, "reason: String should have at least 1 character"),
    ],
)
def test_a_silence_that_says_too_little_is_refused(signed_in, values, complaint):
    """It would match nothing, or its reason would be unknown."""
    body = {"reason": "quiet", "ends_at": in_ms(hours=1)} | values
    answer = signed_in("operator").request("POST", "alerts/silences", body)
    assert answer.status_code == 422
    assert complaint in answer.json()["message"]
    assert not Silence.objects.exists()


def test_a_silence_of_a_rule_that_is_not_there_is_refused(signed_in):
    """With 404, and nothing is saved."""
    body = {"rule_id": 4711, "reason": "quiet", "ends_at": in_ms(hours=1)}
    assert signed_in("operator").request("POST", "alerts/silences", body).status_code == 404
    assert not Silence.objects.exists()
