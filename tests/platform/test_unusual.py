"""Rules that compare a figure with past weeks: when they fire and end, on scripted snapshots and on a real archive."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from nsqplatform.accounts.models import AuditEntry
from nsqplatform.alerts import evaluation, tasks, unusual
from nsqplatform.alerts.bands import Bands, Hour
from nsqplatform.alerts.engine import Engine, Fired
from nsqplatform.alerts.models import Rule
from nsqplatform.cluster.snapshots.snapshot import Snapshot
from tests.analytics.hourly_archive import write_past_weeks
from tests.harness.waiting import wait_until
from tests.platform.receivers import Receiver
from tests.platform.snapshots import snapshot_of

NODES = ("10.0.0.1:4151", "10.0.0.2:4151")
NODE = {"hostname": "", "state": "up", "error": None, "health": "OK", "start_time": 5, "publish_rate": 0.0}
NOON = int(datetime(2026, 3, 2, 12, tzinfo=UTC).timestamp())
HOUR_S = 3600
UNUSUAL = {"name": "Unlike", "scope": "channel", "metric": "unusual_depth", "comparison": "outside", "threshold": 4.0}
QUICK = {"hold_s": 0, "resolve_after_s": 0}


def depths(*, down: str = "", **figures: float) -> Snapshot:
    """A snapshot of the topic orders: the depth of each channel, on the first node; ``down`` is a node that is."""
    channels = [
        {
            "topic": "orders",
            "name": name,
            "depth": depth,
            "publish_rate": 1.0,
            "nodes": [{"node": NODES[0], "depth": depth}],
        }
        for name, depth in figures.items()
    ]
    nodes = [{"id": name} | NODE | ({"state": "down"} if name == down else {}) for name in NODES]
    return snapshot_of({"version": 1, "taken_at": 0, "nodes": nodes, "topics": [], "channels": channels})


class Weeks:
    """An engine with one rule and the bands of orders/billing, polled with a clock of its own. Without ``hours``, the
    archive has no rollups yet."""

    def __init__(self, hours: list[Hour] | None, **rule: Any) -> None:
        values = UNUSUAL | QUICK | rule
        self.engine = Engine(settling_s=0.0)
        self.engine.set_rules([Rule(pk=1, **values)], now=0.0)
        bands = {} if hours is None else {"channel:unusual_depth": {"orders/billing": hours}}
        self.bands = Bands({"at": NOON, "first": NOON // HOUR_S - 1, "bands": bands, "rules": [], "error": ""})

    def poll(self, at: float, snapshot: Snapshot, *, known: bool = True) -> list[tuple[str, float | None, str]]:
        """The events of a poll ``at`` seconds after noon: what happened, the value, and the detail."""
        bands = self.bands if known else None
        events = [each for some in self.engine.evaluate(snapshot, None, None, bands, now=NOON + at) for each in some]
        return [
            ("fired", event.value, event.detail) if isinstance(event, Fired) else (event.resolution, None, "")
            for event in events
        ]


def test_a_rule_that_cannot_be_evaluated_does_not_stop_the_others(caplog):
    """Its failure is logged once. Evaluated again, it goes on."""
    weeks = Weeks([(100.0, 10.0)] * 4)  # bands without their number of weeks, of another version
    deep = Rule(pk=2, name="Deep", scope="channel", metric="depth", threshold=5.0, **QUICK)
    weeks.engine.set_rules([Rule(pk=1, **UNUSUAL | QUICK), deep], now=0.0)
    assert [fired[:2] for fired in weeks.poll(1200, depths(billing=520))] == [("fired", 520)]
    assert weeks.poll(1210, depths(billing=520)) == []
    assert [rule.name for rule in weeks.engine.failing()] == ["Unlike"]
    assert [record.rule for record in caplog.records if record.message == "a rule cannot be evaluated"] == ["Unlike"]
    weeks.bands = Weeks([AROUND_100] * 4).bands
    assert [fired[1] for fired in weeks.poll(1820, depths(billing=520))] == [520]
    assert weeks.engine.failing() == []


AROUND_100: Hour = (100.0, 10.0, 4)


@pytest.mark.parametrize(
    ("comparison", "threshold", "fires"),
    [
        ("outside", 4.0, [50, 60, 140]),
        ("above", 4.0, [140]),
        ("below", 4.0, [50, 60]),
        ("outside", 1.96, [50, 60, 80, 120, 140]),
        ("outside", 1.28, [50, 60, 80, 87, 113, 120, 140]),
    ],
)
def test_an_alert_fires_where_the_report_calls_an_hour_high_or_low(comparison, threshold, fires):
    """From the score on, as there: 140 is four times the usual deviation of 10 away from 100."""
    fired = []
    for depth in (50, 60, 80, 87, 100, 113, 120, 140):
        weeks = Weeks([AROUND_100] * 4, comparison=comparison, threshold=threshold)
        if weeks.poll(1200, depths(billing=depth)):
            fired.append(depth)
    assert fired == fires


def test_an_alert_says_what_is_usual_and_ends_when_the_figure_is_back():
    """With the figure, the band, and the weeks that are known of this hour."""
    weeks = Weeks([AROUND_100] * 4)
    assert weeks.poll(1200, depths(billing=100)) == []
    assert weeks.poll(1801, depths(billing=520)) == [
        ("fired", 520, "usual 60 to 140, expected 100, from 4 past weeks"),
    ]
    assert weeks.poll(1811, depths(billing=520)) == []
    assert weeks.poll(2412, depths(billing=130)) == [("cleared", None, "")]


def test_a_peak_of_seconds_is_not_unusual_since_past_weeks_have_means_of_hours():
    """The mean of ten minutes is compared: it has values of every ten seconds."""
    weeks = Weeks([AROUND_100] * 4)
    for at in range(1200, 1800, 10):
        assert weeks.poll(at, depths(billing=1000 if at == 1500 else 100)) == []
    assert weeks.poll(1800, depths(billing=1000)) == []
    peaks = [weeks.poll(at, depths(billing=1000)) for at in range(1810, 1900, 10)]
    assert sum(map(len, peaks)) == 1


def test_a_short_history_fires_nothing_and_neither_do_bands_that_are_unknown():
    """Whatever the figure is. A firing alert stays until its figure is known to be back."""
    weeks = Weeks([None] * 4)
    assert weeks.poll(1200, depths(billing=10**9, mail=10**9)) == []
    assert Weeks(None).poll(1200, depths(billing=10**9)) == []
    weeks = Weeks([AROUND_100] * 4)
    assert weeks.poll(1200, depths(billing=520), known=False) == []
    assert len(weeks.poll(1210, depths(billing=520))) == 1
    assert weeks.poll(1220, depths(billing=100), known=False) == []
    assert weeks.poll(6 * HOUR_S, depths(billing=100)) == []  # the bands end two hours after the present one


def test_around_the_turn_of_an_hour_the_bands_of_both_are_weighted():
    """An hour whose figure is always ten times that of the one before is not unusual in its first minutes."""
    weeks = Weeks([AROUND_100, (1000.0, 10.0, 3), AROUND_100, AROUND_100])
    assert weeks.poll(-600, depths(billing=100)) == []
    for at in range(-590, 0, 10):
        assert weeks.poll(at, depths(billing=100)) == []
    for at in range(0, 700, 10):
        assert weeks.poll(at, depths(billing=1000)) == [], at


def test_a_channel_with_a_node_that_does_not_answer_is_unknown():
    """Past weeks have all nodes, so a part of them cannot be compared."""
    weeks = Weeks([AROUND_100] * 4)
    assert weeks.poll(1200, depths(billing=520, down=NODES[0])) == []
    assert weeks.poll(1210, depths(billing=520, down=NODES[1])) != []


# ---- on a real archive

THREE_WEEKS_AND_MORE = 6 * 168


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A collector whose means are those of two seconds, so that one is over before the test."""
    monkeypatch.setattr(unusual, "SPAN_S", 2.0)
    monkeypatch.setattr(unusual, "STEP_S", 0.2)
    monkeypatch.setattr(evaluation, "SETTLING_S", 1.0)
    monkeypatch.setattr(evaluation, "LOOK_EVERY_S", 0.5)


@pytest.fixture
def admin(browser: Any, account: Any) -> Any:
    client = browser()
    account("admin")
    client.sign_in("admin")
    return client


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    hook = Receiver()
    yield hook
    if hook.hold is not None:
        hook.hold.set()
    hook.stop()


@pytest.mark.django_db(transaction=True)
@pytest.mark.database
def test_a_backlog_unlike_past_weeks_is_notified_and_a_new_channel_is_not(
    go_cluster, collect, admin, receiver, tmp_path, impatient
):
    """By the suggested rule, from the archive's rollups to the webhook. The rule's row counts the channels with too
    little history."""
    offered = admin.request("GET", "alerts/rules/suggested").json()["rules"]
    [suggested] = [each for each in offered if each["metric"] == "unusual_depth"]
    weeks = {("orders", "billing"): (THREE_WEEKS_AND_MORE, 100.0), ("orders", "mail"): (THREE_WEEKS_AND_MORE, 100.0)}
    weeks["orders", "new"] = (2 * 168, 100.0)
    write_past_weeks(Path(tmp_path, "archive"), datetime.now(UTC), weeks)
    [alpha, *_] = go_cluster.nodes
    for name, depth in {"billing": 5000, "mail": 105, "new": 5000, "today": 5000}.items():
        alpha.channel("orders", name, depth=depth)
    hook = {"name": "hook", "kind": "webhook", "url": receiver.url}
    assert admin.request("POST", "alerts/notifiers", hook).status_code == 201
    made = admin.request("POST", "alerts/rules", suggested | QUICK | {"notifiers": ["hook"], "topic_pattern": "orders"})
    assert made.status_code == 201, made.content
    collect()

    def history() -> dict[str, Any]:
        [rule] = admin.request("GET", "alerts/rules").json()["rules"]
        return dict(rule["past_weeks"] or {})

    wait_until(lambda: history().get("matched") == 4, "the collector has polled")
    assert (history()["short"], history()["found_at"]) == (0, None)
    tasks.find_bands()
    assert (history()["short"], history()["least_weeks"], history()["error"]) == (2, 3, "")
    assert history()["found_at"] is not None
    body = wait_until(lambda: receiver.bodies, "the webhook is notified")[0]
    [alert] = body["alerts"]
    assert (alert["channel"], alert["value"], alert["unit"], alert["threshold"]) == ("billing", 5000, "messages", 4)
    assert alert["detail"].endswith(", from 4 past weeks")
    assert body["text"].splitlines()[1] == f"orders/billing: unusual depth 5,000 messages ({alert['detail']})"
    preview = admin.request("POST", "alerts/rules/preview", UNUSUAL).json()
    assert (preview["matched"], preview["beyond"], preview["unknown"]) == (4, 1, 2)
    assert (preview["rows"][0]["value"], preview["rows"][0]["detail"]) == (5000, alert["detail"])
    alpha.channel("orders", "billing", depth=105)
    past = wait_until(lambda: admin.request("GET", "alerts?state=resolved").json()["alerts"], "the alert is resolved")
    assert [(each["channel"], each["resolution"]) for each in past] == [("billing", "cleared")]


@pytest.mark.django_db(transaction=True)
@pytest.mark.database
def test_without_rollups_nothing_is_unusual_and_other_rules_fire(go_cluster, collect, admin, impatient):
    """As on the first day, or with patterns that no topic of the archive matches: there is no band at all."""
    [alpha, *_] = go_cluster.nodes
    alpha.channel("orders", "billing", depth=5000)
    for rule in (UNUSUAL, UNUSUAL | {"name": "Backlog", "metric": "depth", "comparison": "above"}):
        assert admin.request("POST", "alerts/rules", rule | QUICK).status_code == 201
    tasks.find_bands()
    collect()

    def firing() -> list[str]:
        return [each["rule"] for each in admin.request("GET", "alerts").json()["alerts"]]

    assert wait_until(firing, "a rule fires") == ["Backlog"]
    listed = admin.request("GET", "alerts/rules")
    assert listed.status_code == 200, listed.content
    history = {rule["name"]: rule["past_weeks"] for rule in listed.json()["rules"]}["Unlike"]
    assert (history["matched"], history["short"], history["error"]) == (1, 1, "")
    preview = admin.request("POST", "alerts/rules/preview", UNUSUAL).json()
    assert (preview["matched"], preview["beyond"], preview["unknown"]) == (1, 0, 1)


@pytest.mark.django_db
@pytest.mark.database
def test_rollups_that_cannot_be_read_are_named(admin, redis, settings, tmp_path):
    """The next task reads them again; until then, nothing fires."""
    settings.NSQ_ARCHIVE = str(tmp_path / "archive")
    write_past_weeks(tmp_path / "archive", datetime.now(UTC), {("orders", "billing"): (3, 100.0)})
    damaged = next((tmp_path / "archive").rglob("*.parquet"))
    damaged.write_bytes(b"PAR1" + bytes(60) + b"PAR1")
    Rule.objects.create(**UNUSUAL, created_by="admin")
    tasks.find_bands("default")
    stored = json.loads(redis.get("nsq:alerts:bands"))
    assert stored["bands"] == {}
    assert stored["error"].startswith("the rollups cannot be read: ")


@pytest.mark.django_db(transaction=True)
@pytest.mark.database
def test_without_rollups_the_rule_is_listed_as_one_with_too_little_history(go_cluster, collect, admin, impatient):
    """As on a new platform."""
    [alpha, *_] = go_cluster.nodes
    alpha.channel("orders", "billing", depth=5000)
    assert admin.request("POST", "alerts/rules", UNUSUAL).status_code == 201
    tasks.find_bands()
    collect()

    def history() -> dict[str, Any]:
        answer = admin.request("GET", "alerts/rules")
        assert answer.status_code == 200, answer.content
        [rule] = answer.json()["rules"]
        return dict(rule["past_weeks"] or {})

    wait_until(lambda: history().get("matched") == 1, "the collector has polled")
    assert (history()["short"], history()["error"]) == (1, "")


@pytest.mark.django_db
@pytest.mark.database
@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        ({"threshold": 0}, "threshold: a score from 0.5 to 100 is needed, such as 4; 1.96 is the 95 % band"),
        ({"threshold": 1000}, "threshold: a score from 0.5 to 100"),
        ({"metric": "depth"}, "comparison: depth has no band to be outside of: above or below"),
        ({"scope": "topic", "metric": "unusual_timeout_rate"}, "metric: a topic has no metric 'unusual_timeout_rate'"),
        ({"comparison": "beside"}, "comparison: Input should be 'above', 'below' or 'outside'"),
    ],
)
def test_a_rule_that_compares_nothing_with_past_weeks_is_refused(admin, values, complaint):
    """The error names the field and what it may be."""
    answer = admin.request("POST", "alerts/rules", UNUSUAL | values)
    assert answer.status_code == 422
    assert complaint in answer.json()["message"]
    assert not Rule.objects.exists()


@pytest.mark.django_db
@pytest.mark.database
def test_a_rule_keeps_its_band_when_it_is_exported_and_imported(admin):
    """Definitions have the score and the comparison; the audit trail says that it is a band."""
    assert admin.request("POST", "alerts/rules", UNUSUAL).status_code == 201
    entry = AuditEntry.objects.get(action="create alert rule")
    assert entry.detail == "warning: channel */* unusual_depth outside the band of score 4 for 60 s"
    exported = admin.request("GET", "definitions?only=rules").content.decode()
    [rule] = tomllib.loads(exported)["rules"]
    assert (rule["metric"], rule["comparison"], rule["threshold"]) == ("unusual_depth", "outside", 4.0)
    Rule.objects.all().delete()
    imported = admin.client.generic(
        "POST",
        "/api/v1/definitions",
        data=exported.encode(),
        content_type="application/toml",
        headers={"X-CSRFToken": admin.csrf},
    )
    assert imported.status_code == 200, imported.content
    made = Rule.objects.get()
    assert (made.metric, made.comparison, made.threshold) == ("unusual_depth", "outside", 4.0)


def test_the_metrics_are_the_figures_of_the_report(admin, db):
    """Those of channels and of topics, each with the unit of the report."""
    metrics = admin.request("GET", "alerts/metrics").json()["metrics"]
    found = {(each["scope"], each["name"]): each["unit"] for each in metrics if each["is_anomaly"]}
    rates = ("publish_rate", "finish_rate", "requeue_rate", "timeout_rate")
    assert found == {
        ("channel", "unusual_depth"): "messages",
        **{("channel", f"unusual_{rate}"): "messages/s" for rate in rates},
        ("channel", "unusual_client_count"): "consumers",
        ("topic", "unusual_depth"): "messages",
        ("topic", "unusual_publish_rate"): "messages/s",
    }
