"""Definitions: export, review and import of what people configure, as one file."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import hypothesis
import pytest
from django.db.models.signals import post_save
from django.utils import timezone
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from nsqplatform.accounts.models import AuditEntry, User
from nsqplatform.alerts.models import Notifier, Rule, Silence
from nsqplatform.cluster.models import Mask
from nsqplatform.definitions import topics
from nsqplatform.objectives.models import Count, Objective
from nsqplatform.reports.models import Report
from nsqplatform.saved_views.models import SavedView
from tests.platform.our_nsq import OurCluster

pytestmark = [pytest.mark.django_db, pytest.mark.database]

RULE = """
[[rules]]
name = "Backlog"
scope = "channel"
metric = "depth"
threshold = 1000.0
"""
FILE = f"""
version = 1

[[notifiers]]
name = "pager"
kind = "webhook"
url = "https://hooks.example.com/key/4711"

[[objectives]]
name = "Orders in time"
kind = "latency"
threshold_ms = 250.0
target_percent = 99.9
topic_pattern = "orders.*"
{RULE}notifiers = ["pager"]

[[silences]]
rule = "Backlog"
reason = "stocktaking"
ends_at = 2099-01-01T08:00:00Z

[[schedules]]
name = "Nightly"
job = "throughput"
cron = "0 3 * * *"

[schedules.parameters]
topic = "orders.eu"

[[masks]]
topic_pattern = "payments.*"
paths = ["$.card.number", "$..iban"]

[[views]]
name = "Deep"
address = "/topics?q=orders&sort=-depth"

[[people]]
username = "ada"
role = "admin"

[[people]]
username = "olga"
role = "operator"
topic_patterns = ["orders.*"]
"""


class Caller:
    """A signed-in browser's requests for definitions."""

    def __init__(self, browser: Any) -> None:
        self._browser = browser

    def export(self, query: str = "only=notifiers,objectives,rules,silences,schedules,masks,views,people") -> Any:
        return self._browser.request("GET", f"definitions?{query}")

    def post(self, text: str, query: str = "") -> Any:
        return self._browser.client.generic(
            "POST",
            f"/api/v1/definitions?{query}",
            data=text.encode(),
            content_type="application/toml",
            headers={"X-CSRFToken": self._browser.csrf},
        )

    def check(self, text: str, query: str = "") -> Any:
        return self.post(text, f"dry_run=true&{query}")


@pytest.fixture
def signed_in(browser: Any, account: Any) -> Callable[..., Caller]:
    def sign_in(role: str, username: str, topic_patterns: list[str] | None = None) -> Caller:
        user = account(role, username)
        user.topic_patterns = topic_patterns or []
        user.save()
        client = browser()
        assert client.sign_in(username).status_code == 200
        return Caller(client)

    return sign_in


@pytest.fixture
def ada(signed_in: Any) -> Caller:
    """The administrator of a platform without definitions, not even the schedules of a new one."""
    emptied()
    return signed_in("admin", "ada")


def verbs(answer: Any) -> list[tuple[str, str, str]]:
    assert answer.status_code == 200, answer.content
    return [(each["verb"], each["section"], each["name"]) for each in answer.json()["changes"]]


def test_a_file_is_reviewed_then_applied_and_then_changes_nothing(ada: Caller) -> None:
    """The review changes nothing; after the import, the export is the file, and the audit trail has one entry."""
    expected = [
        ("create", "notifiers", "pager"),
        ("create", "objectives", "Orders in time"),
        ("create", "rules", "Backlog"),
        ("create", "silences", "rule Backlog until 2099-01-01T08:00:00+00:00: stocktaking"),
        ("create", "schedules", "Nightly"),
        ("create", "masks", "payments.*, visible to admin"),
        ("create", "views", "Deep"),
        ("create", "people", "olga"),
    ]
    reviewed = ada.check(FILE)
    assert verbs(reviewed) == expected
    assert {each["outcome"] for each in reviewed.json()["changes"]} == {"planned"}
    assert (Rule.objects.count(), Notifier.objects.count(), Report.objects.count()) == (0, 0, 0)
    assert not AuditEntry.objects.filter(action="import definitions").exists()

    applied = ada.post(FILE)
    assert verbs(applied) == expected
    assert {each["outcome"] for each in applied.json()["changes"]} == {"done"}
    again = ada.check(FILE)
    assert (verbs(again), again.json()["unchanged"]) == ([], 9)
    exported = ada.export(
        "only=notifiers,objectives,rules,silences,schedules,masks,views,people&secrets=true"
    ).content.decode()
    assert tomllib.loads(exported) == tomllib.loads(FILE)
    entry = AuditEntry.objects.get(action="import definitions")
    assert (entry.user, entry.outcome, entry.detail) == ("ada", "done", "8 created")
    assert {"node": "Backlog", "target": "rules", "outcome": "created"}.items() <= entry.results[2].items()
    assert AuditEntry.objects.exclude(action="sign-in").count() == 1
    assert not User.objects.get(username="olga").has_usable_password()


def test_a_review_shows_old_and_new_values(ada: Caller) -> None:
    ada.post(FILE)
    [change] = ada.check(FILE.replace("threshold = 1000.0", "threshold = 2000.0")).json()["changes"]
    assert (change["verb"], change["name"], change["path"]) == ("change", "Backlog", "rules.0")
    assert change["fields"] == [{"field": "threshold", "before": "1000.0", "after": "2000.0"}]


def test_what_the_file_does_not_have_is_removed_only_with_prune(ada: Caller) -> None:
    """A section that the file does not have at all is not touched; accounts are closed, not deleted."""
    ada.post(FILE)
    smaller = f'version = 1\nnotifiers = []\nsilences = []\n{RULE}\n[[people]]\nusername = "ada"\nrole = "admin"\n'
    kept = ada.post(smaller)
    assert ("keep", "notifiers", "pager") in verbs(kept)
    assert ("keep", "people", "olga") in verbs(kept)
    assert Notifier.objects.count() == 1

    removed = ada.post(smaller, "prune=true")
    assert [each for each in verbs(removed) if each[0] == "remove"] == [
        ("remove", "notifiers", "pager"),
        ("remove", "silences", "rule Backlog until 2099-01-01T08:00:00+00:00: stocktaking"),
        ("remove", "people", "olga"),
    ]
    assert not Notifier.objects.exists()
    assert not Silence.objects.filter(ends_at__gt=timezone.now()).exists()
    assert not User.objects.get(username="olga").is_active
    assert Report.objects.get().name == "Nightly"


def test_refused_entries_are_named_by_their_path_and_nothing_is_changed(ada: Caller) -> None:
    wrong = f"""
version = 1
{RULE}
[[rules]]
name = "Other"
scope = "channel"
metric = "no such"
notifiers = ["nobody"]

[[rules]]
name = "Backlog"
scope = "topic"
metric = "depth"

[[silences]]
rule = "Gone"
reason = "x"
ends_at = 2099-01-01T08:00:00Z
"""
    answer = ada.post(wrong)
    assert answer.status_code == 422
    assert {each["field"] for each in answer.json()["field_errors"]} == {"rules.1.metric", "rules.2", "silences.0.rule"}
    assert not Rule.objects.exists()


@pytest.mark.parametrize(
    ("text", "field", "message"),
    [
        ("version = 2", "version", "this platform reads definitions of version 1"),
        ("version = 1\n[[rules]]\nname='x'\nmetric='depth'", "rules.0.scope", "Field required"),
        ("version = 1\n[[topics]]\nname = 'a#ephemeral'", "topics.0.name", "an ephemeral topic or channel ends with"),
        ("version = 1\nnodes = []", "nodes", "Extra inputs are not permitted"),
        ("rules:\n- name: x", "", "this is not TOML: "),
        (f"version = {'9' * 5000}", "", "this is not TOML: "),
        (
            "version = 1\n[[silences]]\ntopic_pattern='*'\nreason='x'\nends_at=9999-12-31T23:59:59-12:00",
            "silences.0.ends_at",
            "this time is before the year 1 or after 9999 in UTC",
        ),
        (
            'version = 1\n[[schedules]]\nname="a\\u0000"\njob="throughput"\nevery_seconds=60',
            "schedules.0.name",
            "control characters are not allowed",
        ),
        ("version = 1\n[[people]]\nusername='ada'\nrole='viewer'", "people.0", "ada: this is the last admin"),
        (
            "version = 1\n[[masks]]\ntopic_pattern='orders.*'\npaths=['$.a', 'card']",
            "masks.0.paths.1",
            "orders.*, visible to admin: 'card' does not start with $",
        ),
        (
            "version = 1\n[[masks]]\ntopic_pattern='no topic'\npaths=['$.a']",
            "masks.0.topic_pattern",
            "'no topic' is not a glob of topic names",
        ),
        ("version = 1\n[[masks]]\ntopic_pattern='a'\npaths=['$.a']\nnone=1", "masks.0.none", "Extra inputs are not"),
        (
            "version = 1\n[[policies]]\ntopic_pattern='a'\npolicy={max_attempts=2026-11-26}",
            "policies.0.policy.max_attempts",
            "input was not a valid JSON value",
        ),
        (
            "version = 1\n[[notifiers]]\nname='n'\nkind='webhook'\nurl='https://hooks.example.com/…'",
            "notifiers.0.url",
            "n: the file has only the host",
        ),
    ],
)
def test_an_invalid_file_is_refused_with_the_reason(ada: Caller, text: str, field: str, message: str) -> None:
    answer = ada.check(text)
    assert answer.status_code == 422
    assert message in answer.json()["message"]
    assert [each["field"] for each in answer.json()["field_errors"]] == ([field] if field else [])


def test_entries_are_compared_as_they_are_stored(ada: Caller) -> None:
    """A pattern that is given twice is stored once, and a user name in its normal form; neither is then pruned."""
    text = """
version = 1
[[silences]]
topic_pattern = "*"
within = ["orders.*", "orders.*"]
reason = "x"
ends_at = 2099-01-01T08:00:00Z
[[people]]
username = "ada"
role = "admin"
[[people]]
username = "ﬁona"
role = "viewer"
"""
    assert [each[:2] for each in verbs(ada.post(text, "prune=true"))] == [("create", "silences"), ("create", "people")]
    assert Silence.objects.get(ends_at__gt=timezone.now()).within == ["orders.*"]
    assert User.objects.get(username="fiona").is_active
    assert verbs(ada.check(text, "prune=true")) == []


def test_a_silence_that_reads_like_another_is_refused(ada: Caller) -> None:
    """Its node pattern looks like the limit of the other."""
    text = 'version = 1\n[[silences]]\nreason = "x"\nends_at = 2099-01-01T08:00:00Z\n'
    ada.post(f'{text}node_pattern = "n"\nwithin = ["a"]')
    refused = ada.post(f'{text}node_pattern = "n, within a"')
    assert refused.status_code == 422
    assert "another silence has the same description" in refused.json()["message"]


def test_an_entry_that_is_removed_during_an_import_is_named(ada: Caller) -> None:
    """Nothing is changed, and another attempt succeeds."""
    text = 'version = 1\n[[views]]\nname = "A"\naddress = "/"\n[[views]]\nname = "B"\naddress = "/"'
    ada.post(text)

    def other_request(sender: Any, **arguments: Any) -> None:
        SavedView.objects.filter(name="B").delete()

    post_save.connect(other_request, sender=SavedView)
    try:
        refused = ada.post(text.replace('"/"', '"/topics"'))
    finally:
        post_save.disconnect(other_request, sender=SavedView)
    assert refused.status_code == 422
    assert refused.json()["message"] == "views.1: B was created or removed meanwhile; try again"
    assert set(SavedView.objects.values_list("name", "address")) == {("A", "/"), ("B", "/")}


def test_webhooks_keep_their_urls_though_the_file_has_only_the_hosts(ada: Caller, signed_in: Any) -> None:
    """Neither the file nor the review nor the audit trail has the key in a URL."""
    ada.post(FILE)
    exported = ada.export().content.decode()
    assert 'url = "https://hooks.example.com/…"' in exported
    assert "4711" not in exported
    assert verbs(ada.check(exported)) == []
    ada.post(FILE.replace("https://hooks.example.com/", "https://someone:word@[::1]:8443/"))
    assert 'url = "https://[::1]:8443/…"' in ada.export().content.decode()
    ada.post(FILE)
    [change] = ada.check(exported.replace("example.com/…", "example.com/key/4712")).json()["changes"]
    assert change["fields"] == [{"field": "url", "before": "another URL", "after": "https://hooks.example.com/…"}]
    assert "4711" not in str(list(AuditEntry.objects.values()))
    vera = signed_in("viewer", "vera")
    assert vera.export("only=notifiers&secrets=true").status_code == 403
    assert "people" not in tomllib.loads(vera.export("only=rules,notifiers").content.decode())
    assert vera.export("only=people").status_code == 403
    for only, fault in (("rules,nodes", "there is no section 'nodes'; "), (",", "',' names no section; ")):
        answer = vera.export(f"only={only}")
        assert (answer.status_code, answer.json()["message"].startswith(f"only: {fault}there are topics, ")) == (
            422,
            True,
        )


def test_an_operator_imports_only_what_the_role_allows(ada: Caller, signed_in: Any) -> None:
    """What a file does not change needs no permission."""
    ada.post(FILE)
    olga = signed_in("operator", "otto", ["orders.*"])
    refused = olga.post(f"version = 1\n{RULE.replace('1000', '2000')}")
    assert (refused.status_code, Rule.objects.get().threshold) == (403, 1000.0)
    assert (
        refused.json()["message"]
        == "rules.0: Backlog: your role, operator, may not define alert rules, notifiers and objectives"
    )
    assert olga.check("version = 1\npeople = []").status_code == 403
    own = """
[[silences]]
topic_pattern = "orders.eu"
within = ["orders.*"]
reason = "deployment"
ends_at = 2099-01-01T08:00:00Z
"""
    rule = tomllib.loads(ada.export("only=rules").content.decode())["rules"][0]
    assert rule["notifiers"] == ["pager"]
    accepted = olga.post(f'version = 1\n{RULE}notifiers = ["pager"]\n{own}')
    assert [each[:2] for each in verbs(accepted) if each[0] != "keep"] == [("create", "silences")]
    assert Silence.objects.get(topic_pattern="orders.eu").within == ["orders.*"]
    other = olga.post(f"version = 1\n{own.replace('orders.eu', 'invoices')}")
    assert other.status_code == 403
    assert signed_in("viewer", "vera").post("version = 1").status_code == 403


# ---- topics


def topics_of(caller: Caller) -> dict[str, Any]:
    answer = caller.export("only=topics")
    assert answer.status_code == 200, answer.content
    return tomllib.loads(answer.content.decode())


@pytest.mark.django_db(transaction=True)
def test_topics_and_channels_are_made_paused_and_removed_on_every_node(cluster: OurCluster, ada: Caller) -> None:
    """Each change has the results of all servers; a removal says how many messages it deletes."""
    cluster.make_channel("orders", "billing")
    cluster.publish("orders", 5)
    cluster.brokers[0].post("/channel/pause", topic="orders", channel="billing")
    text = """
version = 1
[[topics]]
name = "orders"
paused = true
[[topics.channels]]
name = "billing"
[[topics.channels]]
name = "shipping"
paused = true
[[topics]]
name = "new"
"""
    reviewed = ada.check(text)
    assert verbs(reviewed) == [
        ("change", "topics", "orders"),
        ("change", "channels", "orders/billing"),
        ("create", "channels", "orders/shipping"),
        ("create", "topics", "new"),
    ]
    assert reviewed.json()["changes"][1]["fields"] == [
        {"field": "paused", "before": "on 1 of 2 nodes", "after": "false"}
    ]
    assert topics_of(ada)["topics"] == [{"name": "orders", "channels": [{"name": "billing", "paused": True}]}]

    applied = ada.post(text).json()["changes"]
    assert {each["outcome"] for each in applied} == {"done"}
    assert sum(each["target"] == "nsqd" for each in applied[0]["results"]) == 2
    assert topics_of(ada)["topics"] == [
        {"name": "new"},
        {"name": "orders", "paused": True, "channels": [{"name": "billing"}, {"name": "shipping", "paused": True}]},
    ]
    assert verbs(ada.check(text)) == []

    less = """
version = 1
[[topics]]
name = "orders"
paused = true
channels = [{name = "shipping", paused = true}]
"""
    removals = ada.check(less, "prune=true").json()["changes"]
    assert [(each["verb"], each["name"], each["messages"]) for each in removals] == [
        ("remove", "new", 0),
        ("remove", "orders/billing", 10),
    ]
    assert {each["outcome"] for each in ada.post(less, "prune=true").json()["changes"]} == {"done"}
    assert verbs(ada.check(less, "prune=true")) == []


@pytest.mark.django_db(transaction=True)
def test_a_node_that_is_down_is_named_and_nothing_is_removed(cluster: OurCluster, ada: Caller, settings: Any) -> None:
    """Its topics are unknown: the rest is applied, an export is refused, and so is a removal."""
    cluster.make_channel("orders", "billing")
    settings.NSQD_HTTP_ADDRESSES = tuple(broker.http_address for broker in cluster.brokers)
    cluster.brokers[1].kill()
    text = 'version = 1\n[[topics]]\nname = "orders"\npaused = true'
    applied = ada.post(text).json()
    [change] = [each for each in applied["changes"] if each["verb"] == "change"]
    assert (change["outcome"], len(applied["unanswered"])) == ("partial", 1)
    entry = AuditEntry.objects.get(action="import definitions")
    assert (entry.outcome, entry.detail) == ("partial", "1 not completed")
    for answer in (ada.export("only=topics"), ada.check(text, "prune=true")):
        assert (answer.status_code, "the topics are not all known: nsqd " in answer.json()["message"]) == (502, True)


@pytest.mark.django_db(transaction=True)
def test_an_import_that_a_defect_ends_is_not_recorded_as_done(
    cluster: OurCluster, ada: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The entry says what was done before: the view, and no topic."""

    async def defect(*arguments: Any) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(topics, "perform", defect)
    text = 'version = 1\n[[topics]]\nname = "orders"\n[[views]]\nname = "A"\naddress = "/"'
    assert ada.post(text).status_code == 500
    entry = AuditEntry.objects.get(action="import definitions")
    assert (entry.outcome, entry.detail) == ("partial", "1 created, 1 not completed")


POLICIES = """
version = 1
[[policies]]
topic_pattern = "orders.*"
policy = {max_attempts = 5, retry_delay = "1s..5m"}
[[policies]]
topic_pattern = "mail"
channel_pattern = "audit"
policy = {max_attempts = 1}
"""


def policies_of(caller: Caller) -> Any:
    answer = caller.export("only=policies")
    assert answer.status_code == 200, answer.content
    return tomllib.loads(answer.content.decode())


@pytest.fixture
def given_cluster(cluster: OurCluster, settings: Any) -> OurCluster:
    """With the brokers given by address, so that one that is down is still a node."""
    settings.NSQD_HTTP_ADDRESSES = tuple(broker.http_address for broker in cluster.brokers)
    return cluster


@pytest.mark.django_db(transaction=True)
def test_policies_are_set_and_removed_on_every_node(given_cluster: OurCluster, ada: Caller) -> None:
    """A review shows the keys that differ, and where nodes do; an applied file is exported as it is."""
    for broker, attempts in zip(given_cluster.brokers, (5, 3), strict=True):
        broker.post("/policy", b'{"max_attempts":%d}' % attempts, pattern="orders.*")
        broker.post("/policy", b'{"max_attempts":9}', pattern="old")
    reviewed = ada.check(POLICIES)
    assert verbs(reviewed) == [
        ("change", "policies", "orders.* / *"),
        ("create", "policies", "mail / audit"),
        ("keep", "policies", "old / *"),
    ]
    assert reviewed.json()["changes"][0]["fields"] == [
        {"field": "max_attempts", "before": "differs between nodes", "after": "5"},
        {"field": "retry_delay", "before": "differs between nodes", "after": "1s..5m"},
    ]
    assert reviewed.json()["changes"][1]["fields"] == [{"field": "max_attempts", "before": "", "after": "1"}]

    applied = ada.post(POLICIES, "prune=true").json()["changes"]
    assert {each["outcome"] for each in applied} == {"done"}
    assert all(sum(each["target"] == "nsqd" for each in change["results"]) == 2 for change in applied)
    exported = policies_of(ada)["policies"]
    assert sorted(exported, key=str) == sorted(tomllib.loads(POLICIES)["policies"], key=str)
    again = ada.check(POLICIES, "prune=true").json()
    assert (again["changes"], again["unchanged"]) == ([], 2)
    changed = ada.check(POLICIES.replace(', retry_delay = "1s..5m"', "")).json()["changes"]
    assert changed[0]["fields"] == [{"field": "retry_delay", "before": "1s..5m", "after": ""}]
    entries = AuditEntry.objects.filter(action__endswith="policy").order_by("id")
    assert [(each.action, each.subject, each.detail) for each in entries] == [
        ("set policy", "orders.* / *", "import of definitions; max_attempts=5 retry_delay=1s..5m"),
        ("set policy", "mail / audit", "import of definitions; max_attempts=1"),
        ("delete policy", "old / *", "import of definitions"),
    ]


@pytest.mark.django_db(transaction=True)
def test_a_policy_that_the_nodes_refuse_is_a_failed_change(given_cluster: OurCluster, ada: Caller) -> None:
    """The nodes check it when it is applied; the reason names the key. The others are set."""
    text = POLICIES.replace("max_attempts = 1", "max_atempts = 1")
    refused, done = sorted(ada.post(text).json()["changes"], key=lambda each: str(each["outcome"]), reverse=True)
    assert (done["outcome"], refused["outcome"], refused["results"]) == ("done", "failed", [])
    assert refused["detail"].startswith("max_atempts: unknown key")
    assert [each["topic_pattern"] for each in policies_of(ada)["policies"]] == ["orders.*"]
    entry = AuditEntry.objects.get(action="set policy", outcome="failed")
    assert entry.detail.startswith("max_atempts: unknown key")


@pytest.mark.django_db(transaction=True)
def test_a_policy_that_is_defined_twice_is_refused(given_cluster: OurCluster, ada: Caller) -> None:
    """It is named, and nothing is changed."""
    refused = ada.post(POLICIES.replace('channel_pattern = "audit"', "").replace('"mail"', '"orders.*"'))
    assert refused.status_code == 422
    assert refused.json()["message"] == "policies.1: orders.* / * is defined twice"
    assert policies_of(ada)["policies"] == []


@pytest.mark.django_db(transaction=True)
def test_policies_of_a_node_that_is_down_are_unknown(given_cluster: OurCluster, ada: Caller) -> None:
    """The rest is applied, an export is refused, and so is a removal."""
    given_cluster.brokers[1].kill()
    applied = ada.post(POLICIES).json()
    assert {each["outcome"] for each in applied["changes"]} == {"partial"}
    assert len(applied["unanswered"]) == 1
    for answer in (ada.export("only=policies"), ada.check(POLICIES, "prune=true")):
        assert (answer.status_code, "the policies are not all known: nsqd " in answer.json()["message"]) == (502, True)


@pytest.mark.django_db(transaction=True)
def test_a_limited_operator_changes_only_the_policies_of_these_topics(
    given_cluster: OurCluster, signed_in: Any
) -> None:
    """The refusal names the policy, and nothing is changed."""
    olga = signed_in("operator", "olga", ["orders.*"])
    refused = olga.post(POLICIES)
    assert refused.status_code == 403
    assert refused.json()["message"] == "policies.1: mail / audit: you may act on topics orders.*, not on all of mail"
    assert policies_of(olga)["policies"] == []


@pytest.mark.django_db(transaction=True)
def test_a_cluster_of_go_has_no_section_of_policies(go_cluster: Any, ada: Caller) -> None:
    """Of an export; an import of one fails with the reason."""
    assert "policies" not in policies_of(ada)
    (first, _) = ada.post(POLICIES).json()["changes"]
    assert (first["outcome"], first["detail"]) == ("failed", "no node of the cluster has policies: Go's nsqd has none")


@pytest.mark.django_db(transaction=True)
def test_a_limited_operator_changes_only_these_topics(cluster: OurCluster, signed_in: Any) -> None:
    olga = signed_in("operator", "olga", ["orders.*"])
    both = 'version = 1\n[[topics]]\nname = "orders.eu"\n[[topics]]\nname = "invoices"'
    refused = olga.post(both)
    assert refused.status_code == 403
    assert refused.json()["message"] == "topics.1: invoices: you may act on topics orders.*, not on invoices"
    assert topics_of(olga)["topics"] == []
    assert verbs(olga.post(both.partition('[[topics]]\nname = "inv')[0])) == [("create", "topics", "orders.eu")]


# ---- round trip

NAMES = st.text(alphabet="abcXYZ 019_-äß\"'\\#.=", min_size=1, max_size=20).map(str.strip).filter(bool)
PATTERNS = st.sampled_from(["*", "orders.*", "billing", "[ab]*", "a?c"])
RULES = st.fixed_dictionaries(
    {
        "name": NAMES,
        "scope": st.just("channel"),
        "metric": st.sampled_from(["depth", "in_flight_count"]),
        "threshold": st.floats(0, 1e9, allow_nan=False),
    },
    optional={
        "description": NAMES,
        "enabled": st.booleans(),
        "severity": st.sampled_from(["warning", "critical"]),
        "topic_pattern": PATTERNS,
        "hold_s": st.integers(0, 600),
        "repeat_s": st.integers(60, 600),
        "notifiers": st.sampled_from([[], ["mail"]]),
    },
)
OBJECTIVES = st.fixed_dictionaries(
    {
        "name": NAMES,
        "kind": st.just("latency"),
        "threshold_ms": st.floats(0.001, 1e6),
        "target_percent": st.floats(1, 99.999),
    },
    optional={"window_days": st.integers(1, 90), "topic_pattern": PATTERNS, "channel_pattern": PATTERNS},
)
MOMENTS = st.datetimes(datetime(2090, 1, 1), datetime(2099, 1, 1), timezones=st.just(UTC)).map(
    lambda at: at.replace(microsecond=at.microsecond // 1000 * 1000)
)
SILENCES = st.fixed_dictionaries(
    {"topic_pattern": PATTERNS, "reason": NAMES, "ends_at": MOMENTS}, optional={"within": st.just(["orders.*"])}
)
SCHEDULES = st.fixed_dictionaries(
    {"name": NAMES, "job": st.just("throughput"), "every_seconds": st.integers(60, 86_400)},
    optional={
        "enabled": st.booleans(),
        "overlap": st.sampled_from(["skip", "queue", "cancel"]),
        "parameters": st.just({"topic": "orders.eu"}),
        "keep_days": st.integers(1, 365),
    },
)
PEOPLE = st.fixed_dictionaries(
    {
        "username": st.text(alphabet="abcXYZ019_.@+-", min_size=1, max_size=20),
        "role": st.sampled_from(["viewer", "operator"]),
    },
    optional={"topic_patterns": st.just(["orders.*", "a?"]), "is_active": st.booleans()},
)

MASKS = st.fixed_dictionaries(
    {
        "topic_pattern": st.sampled_from(["*", "orders.*", "a?"]),
        "paths": st.lists(st.sampled_from(["$.a", "$..b", "$['ä'][*]"]), min_size=1, unique=True),
    },
    optional={"visible_to": st.sampled_from(["operator", "admin"])},
)

VIEWS = st.fixed_dictionaries(
    {"name": NAMES, "address": st.sampled_from(["/", "/topics?q=a%20b&sort=-depth", "/topics/orders.eu"])}
)


def unique(entries: st.SearchStrategy[Any], field: str) -> st.SearchStrategy[list[Any]]:
    return st.lists(entries, max_size=4, unique_by=lambda entry: entry[field].lower())


DOCUMENTS = st.fixed_dictionaries(
    {
        "version": st.just(1),
        "notifiers": st.just([{"name": "mail", "kind": "email", "recipients": ["ops@example.com"]}]),
        "objectives": unique(OBJECTIVES, "name"),
        "rules": unique(RULES, "name"),
        "silences": unique(SILENCES, "reason"),
        "schedules": unique(SCHEDULES, "name"),
        "masks": unique(MASKS, "topic_pattern"),
        "views": unique(VIEWS, "name"),
        "people": unique(PEOPLE, "username"),
    }
)


def emptied() -> None:
    """Remove all definitions but the administrator who imports."""
    for model in (Silence, Rule, Objective, Notifier, Report, Mask, SavedView):
        model.objects.all().delete()
    User.objects.exclude(username="ada").delete()


@hypothesis.settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(values=DOCUMENTS)
def test_an_export_that_is_imported_into_an_empty_platform_is_exported_again(ada: Caller, values: Any) -> None:
    """The two files are identical, and importing one a second time changes nothing."""
    import tomli_w

    emptied()
    made = ada.post(tomli_w.dumps(values))
    assert made.status_code == 200, (made.content, values)
    first = ada.export().content.decode()
    emptied()
    assert ada.post(first).status_code == 200
    assert ada.export().content.decode() == first
    assert verbs(ada.check(first, "prune=true")) == []
    assert len(tomllib.loads(first)["rules"]) == len(values["rules"])


def test_an_objective_keeps_its_counts_unless_the_file_changes_what_is_counted(ada: Caller) -> None:
    """Another target is a change like any other; another threshold starts a new window, and prune deletes."""
    ada.post(FILE)
    objective = Objective.objects.get()
    Count.objects.create(objective=objective, at=0, step_s=60, good=5, bad=1)
    ada.post(FILE.replace("target_percent = 99.9", "target_percent = 95.0"))
    assert (Objective.objects.get().target_percent, Count.objects.count()) == (95.0, 1)
    ada.post(FILE.replace("threshold_ms = 250.0", "threshold_ms = 500.0"))
    assert (Objective.objects.get().pk, Objective.objects.get().revision, Count.objects.count()) == (objective.pk, 2, 0)
    fault = ada.check(FILE.replace("threshold_ms = 250.0\n", "")).json()["field_errors"]
    assert [each["field"] for each in fault] == ["objectives.0.threshold_ms"]
    assert verbs(ada.post("version = 1\nobjectives = []", "prune=true")) == [("remove", "objectives", "Orders in time")]
    assert not Objective.objects.exists()


def test_a_silence_that_has_ended_is_left_alone(ada: Caller) -> None:
    past = (timezone.now() - timedelta(days=1)).isoformat()
    answer = ada.post(f'version = 1\n[[silences]]\ntopic_pattern = "*"\nreason = "x"\nends_at = {past}')
    assert (verbs(answer), answer.json()["unchanged"]) == ([], 1)


def test_masks_are_imported_by_those_who_may_define_them(ada: Caller, signed_in: Any) -> None:
    """An operator sees them in an export, and may neither add, change nor remove one."""
    ada.post(FILE)
    otto = signed_in("operator", "otto")
    exported = otto.export("only=masks").content.decode()
    assert tomllib.loads(exported)["masks"] == tomllib.loads(FILE)["masks"]
    assert verbs(otto.check(exported)) == []
    refusals = [
        otto.post(exported.replace("$..iban", "$.name")),
        otto.check(f'{exported}[[masks]]\ntopic_pattern = "*"\npaths = ["$.a"]'),
        otto.post("version = 1\nmasks = []", "prune=true"),
    ]
    assert [each.status_code for each in refusals] == [403] * 3
    assert all("your role, operator, may not define masks" in each.json()["message"] for each in refusals)
    assert Mask.objects.get().paths == ["$.card.number", "$..iban"]

    changed = ada.post(exported.replace("$..iban", "$.name"))
    assert changed.json()["changes"][0]["fields"] == [
        {"field": "paths", "before": "$.card.number, $..iban", "after": "$.card.number, $.name"}
    ]
    assert Mask.objects.get().paths == ["$.card.number", "$.name"]
    assert verbs(ada.post("version = 1\nmasks = []", "prune=true")) == [
        ("remove", "masks", "payments.*, visible to admin")
    ]
    assert not Mask.objects.exists()


def test_masks_of_one_pattern_and_role_are_one_entry(ada: Caller) -> None:
    """It has the paths of all; a change of it leaves one mask, which hides exactly what the file says."""
    for paths in (["$.a", "$.b"], ["$.b", "$.c"]):
        Mask.objects.create(topic_pattern="orders.*", paths=paths, created_by="ada")
    Mask.objects.create(topic_pattern="orders.*", paths=["$.d"], visible_to="operator", created_by="ada")
    exported = ada.export("only=masks").content.decode()
    assert [each["paths"] for each in tomllib.loads(exported)["masks"]] == [["$.a", "$.b", "$.c"], ["$.d"]]
    assert verbs(ada.check(exported)) == []
    assert [each[0] for each in verbs(ada.post(exported.replace("$.c", "$.e")))] == ["change"]
    assert list(Mask.objects.filter(visible_to="admin").values_list("paths", flat=True)) == [["$.a", "$.b", "$.e"]]
    assert Mask.objects.get(visible_to="operator").paths == ["$.d"]


def test_a_defined_mask_shows_the_headers_that_all_its_masks_show(ada: Caller) -> None:
    """An import of what was exported changes nothing; a change sets the headers of the one mask that is left."""
    for names in (["tenant", "traceparent"], ["tenant", "kind"]):
        Mask.objects.create(topic_pattern="orders.*", paths=["$.a"], visible_headers=names, created_by="ada")
    exported = ada.export("only=masks").content.decode()
    assert [each["visible_headers"] for each in tomllib.loads(exported)["masks"]] == [["tenant"]]
    assert verbs(ada.check(exported)) == []
    assert [each[0] for each in verbs(ada.post(exported.replace('"tenant"', '"Kind"')))] == ["change"]
    assert list(Mask.objects.values_list("visible_headers", flat=True)) == [["kind"]]
