"""Several clusters in one platform: what belongs to one is seen and changed in that one only."""

from __future__ import annotations

import itertools
import json
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.apps import apps
from django.db import IntegrityError, connection, transaction
from django.test import Client
from django.utils import timezone
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from nsqplatform.accounts.models import AuditEntry, User
from nsqplatform.accounts.people import invite
from nsqplatform.accounts.roles import Role
from nsqplatform.alerts import message
from nsqplatform.alerts.models import Alert, Notifier, Rule, Silence
from nsqplatform.cluster.models import Mask, MessageType
from nsqplatform.clusters import current
from nsqplatform.clusters.declaration import DEFAULT, DEFAULT_ONLY, BadDeclaration, Declaration, clusters_of
from nsqplatform.clusters.rows import ClusterRow
from nsqplatform.console.api import api
from nsqplatform.jobs.models import Job
from nsqplatform.jobs.tasks import KEPT, remove_old_jobs
from nsqplatform.marks.models import Mark
from nsqplatform.objectives.models import Objective
from nsqplatform.reports.models import Report, ReportRun
from nsqplatform.reports.schedule import schedule_maintenance
from nsqplatform.reports.tasks import run_scheduled
from nsqplatform.saved_views.models import SavedView
from tests.database import url_of
from tests.harness import web as http
from tests.harness.process import Process
from tests.harness.waiting import DEADLINE_S, wait_until
from tests.platform.conftest import LIBRARIES, platform_environment
from tests.platform.our_nsq import OurCluster

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.database]

OF_NO_CLUSTER = {
    "accounts.User": "accounts belong to the platform; their roles name clusters",
    "accounts.ExternalIdentity": "of an account",
    "accounts.OneTimeLink": "of an account",
    "accounts.ApiToken": "of an account; its cluster limits it",
    "accounts.Session": "of an account",
    "accounts.ChangedNode": "found through its audit entry",
    "alerts.Notice": "found through its alert",
    "objectives.Count": "found through its objective",
    "objectives.Last": "found through its objective",
    "jobs.JobSubject": "found through its job",
}
"""Models without a cluster of their own, and why."""


@pytest.fixture
def berlin(settings: Any) -> str:
    """The name of a second cluster, which nobody answers for."""
    settings.CLUSTERS = (
        *DEFAULT_ONLY,
        Declaration(name="berlin", title="Berlin", lookupd_http_addresses=("127.0.0.1:9",)),
    )
    return "berlin"


# ---- the declaration


def test_a_file_declares_clusters(tmp_path):
    """The default cluster comes first, with its title; what is left out is empty."""
    file = tmp_path / "clusters.toml"
    file.write_text(
        '[default]\ntitle = "Vienna"\n[clusters.berlin]\nlookupd_http_addresses = ["10.0.0.1:4161", "[::1]:4161"]\n'
    )
    vienna, berlin = clusters_of(file)
    assert (vienna.name, vienna.title) == (DEFAULT, "Vienna")
    assert (berlin.name, berlin.lookupd_http_addresses) == ("berlin", ("10.0.0.1:4161", "[::1]:4161"))


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("clusters = 3", "clusters is not a table"),
        ("[cluster.berlin]", "there is no key 'cluster'"),
        ("[clusters.Berlin]", "'Berlin' is not a cluster's name"),
        ("[clusters.default]", "'default' is not a cluster's name"),
        ("[clusters.berlin]", "lookupd_http_addresses or nsqd_http_addresses is required"),
        ('[clusters.berlin]\nnsqd_http_addresses = ["nohost"]', "'nohost' is not host:port"),
        ('[clusters.berlin]\nnsqd_http_addresses = "a:1"', "is not a list of host:port"),
        ('[clusters.berlin]\nnsqd_http_addresses = ["a:1"]\ntls_cert = "x"', "tls_cert and tls_key"),
        ('[clusters.berlin]\nnsqd_http_addresses = ["a:1"]\nwebhook = "x"', "there is no key 'webhook'"),
        ('[clusters.berlin]\nnsqd_http_addresses = ["a:1"]\ntitle = 3', "title is not a text"),
        ('[default]\narchive = "x"', "the default cluster has only a title"),
        ("[", "is not TOML"),
    ],
)
def test_a_wrong_declaration_is_refused_by_name(tmp_path, text, complaint):
    """The message names the file, the key and what is wrong."""
    file = tmp_path / "clusters.toml"
    file.write_text(text)
    with pytest.raises(BadDeclaration, match=r"clusters\.toml") as refused:
        clusters_of(file)
    assert complaint in str(refused.value)


def test_folders_of_a_cluster_are_beside_those_of_the_default_one(berlin, settings):
    """Readings of two clusters are never in one archive."""
    settings.NSQ_ARCHIVE = "s3a://readings/archive"
    assert current.archive() == "s3a://readings/archive"
    with current.entered(berlin):
        assert current.archive() == "s3a://readings/archive-berlin"
        assert current.history() == settings.NSQ_HISTORY.with_name("history-berlin")


# ---- rows


def our_models() -> Iterator[Any]:
    return (model for model in apps.get_models() if model.__module__.startswith("nsqplatform."))


def test_every_model_belongs_to_a_cluster_or_says_why_not():
    """Queries of a model with a cluster select the current one's rows, so none can forget it."""
    free = {model._meta.label for model in our_models() if not issubclass(model, ClusterRow)}
    assert free - {"alerts.Rule_notifiers"} == set(OF_NO_CLUSTER)
    for model in our_models():
        if issubclass(model, ClusterRow):
            where = str(model._default_manager.all().query)
            assert '"cluster" = default' in where, (model, where)


def rows_of_each() -> list[Any]:
    now = timezone.now()
    rule = Rule.objects.create(name="Backlog", scope="channel", metric="depth", created_by="ana")
    alert = Alert.objects.create(
        rule=rule,
        rule_name="Backlog",
        severity="warning",
        scope="channel",
        metric="depth",
        comparison="above",
        threshold=1,
        hold_s=0,
        topic="orders",
        channel="billing",
        began_at=now,
        fired_at=now,
    )
    notifier = Notifier.objects.create(name="pager", kind="email", recipients=["ops@example.com"], created_by="ana")
    silence = Silence.objects.create(
        topic_pattern="orders", reason="stocktaking", ends_at=now + timedelta(hours=1), created_by="ana"
    )
    mask = Mask.objects.create(topic_pattern="orders", paths=["$.card"], created_by="ana")
    kind = MessageType.objects.create(topic_pattern="orders", name="Order", descriptors=b"x", created_by="ana")
    report = Report.objects.create(name="Nightly", job="activity", every_seconds=3600, created_by="ana")
    run = ReportRun.objects.create(report=report, job="activity", requested_by="ana", state="failed")
    job = Job.objects.create(kind="pause", noun="topic", requested_by="ana", state="finished", finished_at=now)
    view = SavedView.objects.create(name="Mine", address="/topics", is_shared=True)
    objective = Objective.objects.create(name="In time", kind="success", target_percent=99, created_by="ana")
    mark = Mark.objects.create(at=now, text="deploy 1.2", created_by="ana")
    return [rule, alert, notifier, silence, mask, kind, report, run, job, view, objective, mark]


def test_rows_of_another_cluster_do_not_exist(berlin):
    """In each cluster, the same names may be used; neither lists, nor finds by id, the rows of the other."""
    for cluster in (DEFAULT, berlin):
        with current.entered(cluster):
            made = rows_of_each()
        for row in made:
            other = DEFAULT if cluster == berlin else berlin
            with current.entered(other):
                assert not type(row).objects.filter(pk=row.pk).exists()
            assert type(row).everywhere.get(pk=row.pk).cluster == cluster
    with pytest.raises(IntegrityError), transaction.atomic():
        Rule.objects.create(name="Backlog", scope="channel", metric="depth", created_by="ana")


MODELS_BY_ID = {
    "alert_id": Alert,
    "rule_id": Rule,
    "notifier_id": Notifier,
    "silence_id": Silence,
    "mask_id": Mask,
    "type_id": MessageType,
    "schedule_id": Report,
    "run_id": ReportRun,
    "job_id": Job,
    "view_id": SavedView,
    "objective_id": Objective,
    "mark_id": Mark,
}
OF_ACCOUNTS = {"person_id", "token_id", "session_id"}
"""Ids of what belongs to no cluster."""
BODIES = {("alerts/{alert_id}/acknowledge", "POST"): {"note": ""}}
QUERIES = {
    "reports/runs/{run_id}/result/series": "?figures=depth",
    "reports/runs/{run_id}/result/calendar": "?objective=latency",
}
"""What requests must have so that their id is looked at."""


def endpoints_by_id() -> list[tuple[str, str]]:
    """Path and method of every endpoint that has the id of a row."""
    found = []
    for path, methods in api.get_openapi_schema()["paths"].items():
        names = set(re.findall(r"\{(\w+_id)\}", path)) - OF_ACCOUNTS
        assert names <= MODELS_BY_ID.keys(), f"{path}: whose id is it?"
        if names:
            found += [(path.removeprefix("/api/v1/"), method.upper()) for method in methods]
    return found


@pytest.mark.parametrize("name", MODELS_BY_ID)
def test_an_id_of_another_cluster_is_not_found(name, berlin, callers, locked_api):
    """At each endpoint and method, also by an administrator of both, who has to ask the other cluster."""
    with current.entered(berlin):
        rows_of_each()
    (row,) = MODELS_BY_ID[name].everywhere.all()
    before = type(row).everywhere.filter(pk=row.pk).values().get()
    admin = callers("admin").headers
    asked = [each for each in endpoints_by_id() if f"{{{name}}}" in each[0]]
    assert asked

    def request(below: str, path: str, method: str) -> Any:
        body = BODIES.get((path, method), {} if method != "GET" else None)
        concrete = path.replace(f"{{{name}}}", str(row.pk)) + QUERIES.get(path, "")
        return locked_api.request(method, f"{below}/api/v1/{concrete}", body, **admin)

    for path, method in asked:
        answer = request("", path, method)
        assert answer.status_code == 404, (method, path, answer.text)
    assert type(row).everywhere.filter(pk=row.pk).values().get() == before
    for path, method in sorted(asked, key=lambda each: each[1] == "DELETE" and each[0].endswith("}")):
        there = request(f"/c/{berlin}", path, method)
        assert there.status_code != 404 or "result" in path, (method, path, there.text)


def test_tasks_work_for_the_cluster_of_their_row(berlin):
    """Old jobs are removed in every cluster; a due schedule creates its run in its own."""
    with current.entered(berlin):
        *_, report, run, job, _, _, _ = rows_of_each()
    Job.everywhere.filter(pk=job.pk).update(finished_at=timezone.now() - KEPT - timedelta(hours=1))
    remove_old_jobs()
    assert not Job.everywhere.exists()
    with transaction.atomic():  # the run is queued when this commits, which it does not
        run_scheduled(report.pk)
        (scheduled,) = ReportRun.everywhere.exclude(pk=run.pk)
        assert (scheduled.cluster, scheduled.requested_by) == (berlin, "schedule Nightly")
        transaction.set_rollback(True)


# ---- doors


def signed_in(user: User) -> dict[str, str]:
    client = Client()
    client.force_login(user)
    secret = "a" * 32
    cookie = f"sessionid={client.cookies['sessionid'].value}; csrftoken={secret}"
    return {"Cookie": cookie, "X_CSRFToken": secret}


def in_one(user: User, cluster: str, role: Role, patterns: Sequence[str] = ()) -> User:
    """Give the account a role in one cluster only."""
    user.everywhere, user.cluster_roles = False, {cluster: {"role": role.value, "topic_patterns": list(patterns)}}
    user.save()
    return user


def test_topic_patterns_are_those_of_the_cluster(berlin, account, locked_api, go_cluster):
    """An operator of orders.* in Berlin and of everything in the default cluster."""
    user = account("operator")
    user.cluster_roles = {berlin: {"role": "operator", "topic_patterns": ["orders.*"]}}
    user.save()
    who = signed_in(user)
    body = {"action": "create", "topic": "invoices"}
    refused = locked_api.post(f"/c/{berlin}/api/v1/actions", body, **who)
    assert (refused.status_code, "orders.*" in refused.text) == (403, True)
    assert locked_api.post("/api/v1/actions", body, **who).status_code == 200
    with current.entered(berlin):
        assert AuditEntry.objects.get(outcome="refused").topic == "invoices"
    assert not AuditEntry.objects.filter(outcome="refused").exists()


def test_a_cluster_that_is_not_declared_is_not_found(berlin, callers, locked_api):
    """For everybody, whatever the path; the default cluster has no second address."""
    admin = callers("admin").headers
    for cluster, path in itertools.product(("munich", DEFAULT), ("", "/", "/topics", "/api/v1/me", "/api/topics")):
        assert locked_api.get(f"/c/{cluster}{path}", **admin).status_code == 404


def test_scripts_without_an_account_have_no_other_cluster(berlin, api):
    """``--script-role`` is of the default cluster."""
    assert api.get("/api/v1/me").status_code == 401  # the platform's own API has no scripts
    assert api.get(f"/c/{berlin}/api/topics").status_code == 401


def test_a_page_leads_to_the_cluster_that_the_account_may_view(berlin, account, locked_api):
    """From the root; another cluster's page says that the account has no role in it, and which ones it has."""
    user = in_one(account("viewer"), berlin, Role.VIEWER)
    page = {"Accept": "text/html"}
    moved = locked_api.get("/", **signed_in(user), **page)
    assert (moved.status_code, moved.headers["Location"]) == (302, f"/c/{berlin}/")
    refused = locked_api.get("/topics", **signed_in(user), **page)
    assert refused.status_code == 403
    assert "No access to default" in refused.text
    assert f'href="/c/{berlin}/"' in refused.text
    stranger = locked_api.get(f"/c/{berlin}/topics?q=x", **page)
    assert stranger.headers["Location"] == f"/c/{berlin}/signin?next=/c/{berlin}/topics%3Fq%3Dx"


def test_an_invitation_names_roles_in_clusters(berlin, account):
    """In the audit trail too; a cluster that is not declared is refused."""
    admin = account("admin")
    user, _ = invite(
        by=admin,
        username="bo",
        role=Role.VIEWER,
        topic_patterns=[],
        everywhere=False,
        cluster_roles={berlin: {"role": "operator", "topic_patterns": ["orders.*"]}},
        remote_address="",
    )
    assert user.rights_in(DEFAULT).role == ""
    assert user.rights_in(berlin) == ("operator", ("orders.*",))
    assert AuditEntry.objects.get(action="invite").detail == "operator on orders.* in berlin"
    with pytest.raises(Exception, match="no cluster 'munich'"):
        invite(
            by=admin,
            username="mo",
            role=Role.VIEWER,
            topic_patterns=[],
            cluster_roles={"munich": {"role": "viewer", "topic_patterns": []}},
            remote_address="",
        )


def test_definitions_know_their_cluster(berlin, callers, locked_api):
    """A file that was exported in Berlin is not applied to another cluster."""
    admin = callers("admin").headers
    with current.entered(berlin):
        rows_of_each()
    exported = locked_api.get(f"/c/{berlin}/api/v1/definitions?only=rules", **admin)
    assert 'cluster = "berlin"' in exported.text
    assert 'name = "Backlog"' in exported.text
    assert "Backlog" not in locked_api.get("/api/v1/definitions?only=rules", **admin).text
    refused = locked_api.post("/api/v1/definitions?dry_run=true", exported.text, **admin)
    assert refused.status_code == 422
    assert refused.json()["field_errors"][0]["field"] == "cluster"


# ---- two clusters of their own brokers


@pytest.fixture
def two(tmp_path: Path) -> Iterator[tuple[OurCluster, OurCluster]]:
    found = []
    for name in ("vienna", "berlin"):
        (tmp_path / name).mkdir()
        found.append(OurCluster(tmp_path / name))
    yield found[0], found[1]
    for each in found:
        each.stop()


@pytest.fixture
def declared(two: tuple[OurCluster, OurCluster], tmp_path: Path, settings: Any) -> dict[str, str]:
    """The environment of processes for both clusters."""
    file = tmp_path / "clusters.toml"
    address = json.dumps([two[1].registry.http_address])
    file.write_text(
        f'[default]\ntitle = "Vienna"\n[clusters.berlin]\ntitle = "Berlin"\nlookupd_http_addresses = {address}'
    )
    settings.CLUSTERS = clusters_of(file)
    return {"NSQ_CLUSTERS": str(file), "NSQLOOKUPD_HTTP_ADDRESSES": two[0].registry.http_address}


def test_each_cluster_shows_its_own_messages(
    two, declared, tmp_path, redis, account, start_web: Callable[..., Any], start_cluster_collector: Callable[..., None]
):
    """By the API, nsqadmin's API and the websocket: topics of one are not in the other. A user of Berlin gets nothing
    of Vienna, and its websocket is closed."""
    vienna, berlin = two
    vienna.publish("waltz", 3)
    berlin.publish("techno", 5)
    environment = declared | {"DATABASE_URL": url_of(connection.settings_dict)}
    for cluster in (DEFAULT, "berlin"):
        start_cluster_collector(cluster, **environment)
    web = start_web(**environment)
    headers = {"Cookie": signed_in(account("viewer"))["Cookie"]}
    limited = {"Cookie": signed_in(in_one(account("operator"), "berlin", Role.OPERATOR))["Cookie"]}

    def first_snapshot(path: str, who: dict[str, str]) -> Any:
        with connect(
            f"ws://127.0.0.1:{web.port}{path}/ws/cluster",
            origin=web.base,  # type: ignore[arg-type]
            additional_headers=who,
            proxy=None,
            max_size=None,
        ) as socket:
            return json.loads(socket.recv(timeout=DEADLINE_S))

    def topics(path: str, who: dict[str, str]) -> set[str]:
        first = first_snapshot(path, who)
        return set(first["topics"]["name"]) if first["type"] == "snapshot" and first["topics"] else set()

    wait_until(lambda: topics("", headers) == {"waltz"}, "Vienna's browser has its topic")
    wait_until(lambda: topics("/c/berlin", headers) == {"techno"}, "Berlin's browser has its topic")
    wait_until(lambda: topics("/c/berlin", limited) == {"techno"}, "so has Berlin's operator")
    with pytest.raises(ConnectionClosed) as closed:
        first_snapshot("", limited)
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 4403
    for path, names in (("", ["waltz"]), ("/c/berlin", ["techno"])):
        assert http.get(f"{web.base}{path}/api/topics", headers=headers).json()["topics"] == names
    wait_until((tmp_path / "archive").is_dir, "readings are archived")
    wait_until((tmp_path / "archive-berlin").is_dir, "Berlin's readings are archived beside")


@pytest.fixture
def start_cluster_collector(redis: Any, tmp_path: Path) -> Iterator[Callable[..., None]]:
    """Starts the collector of a cluster as a process."""
    started: list[Process] = []

    def start(cluster: str, **environment: str) -> None:
        words = [sys.executable, "-m", "nsqplatform.console.nsq", "collector", "--cluster", cluster]
        changed = platform_environment(NSQ_ARCHIVE=str(tmp_path / "archive"), **environment)
        started.append(Process(words, env=changed, merged=True, imports=LIBRARIES).start())

    yield start
    for process in started:
        assert process.terminate() == 0, process.output
        process.close()


# ---- what leaves the platform


def test_redirects_and_links_stay_in_the_cluster(berlin, callers, locked_api, settings):
    """A path with a superfluous slash, the link of a notification, and its title."""
    admin = callers("admin").headers
    moved = locked_api.get(f"/c/{berlin}/api/topics/", **admin)
    assert (moved.status_code, moved.headers["Location"]) == (301, f"/c/{berlin}/api/topics")
    settings.NSQ_SITE = "https://nsq.example.org"
    with current.entered(berlin):
        alert = rows_of_each()[1]
        sent = message.message_of("firing", [alert])
        assert sent.title == "Berlin: [warning] firing: Backlog: orders/billing"
        assert sent.text.endswith(f"https://nsq.example.org/c/{berlin}/alerts")
        assert sent.fields.cluster == berlin
        assert message.test_message("ana").title.startswith("Berlin: ")


def test_the_archive_of_a_new_cluster_is_maintained(berlin):
    """Beat schedules it at its start, once; deleted schedules do not come back while others or runs are left."""
    with current.entered(berlin):
        for _ in range(2):
            schedule_maintenance()
        assert sorted(report.job for report in Report.objects.all()) == ["compact", "retain", "rollup"]
        Report.objects.exclude(job="compact").delete()
        schedule_maintenance()
        assert Report.objects.get().periodic_task.kwargs == json.dumps({"report_id": Report.objects.get().pk})
