"""Marks: what people and their CI say happened, on the charts of its time and topics."""

from __future__ import annotations

import getpass
import os
import subprocess
import sys
import time
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from nsqplatform.accounts.models import AuditEntry
from nsqplatform.cluster.models import NodeEvent
from nsqplatform.marks.models import Mark
from tests.database import url_of
from tests.harness.command import nsq
from tests.harness.process import ROOT
from tests.platform.conftest import LIBRARIES, platform_environment

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.database]
HOUR_MS = 3_600_000


@pytest.fixture
def signed_in(sign_in: Any) -> Any:
    """Signs a user in by role, topic patterns and name; returns the user's browser."""
    return lambda *words, **names: sign_in(*words, **names).browser


def on_charts(person: Any, question: str) -> list[tuple[str, str]]:
    """The marks among the events of a scope: text and who posted it."""
    answer = person.request("GET", f"events?{question}")
    assert answer.status_code == 200, answer.content
    return [(event["detail"], event["by"]) for event in answer.json()["events"] if event["kind"] == "marked"]


def test_a_mark_is_an_event_of_its_topics_their_channels_and_the_cluster(signed_in):
    """One of all topics is an event of nodes too. The newest is listed first."""
    ana = signed_in("operator", name="ana")
    for body in ({"text": " deploy 1.2 "}, {"text": "new consumers", "topic_pattern": "orders.*"}):
        answer = ana.request("POST", "marks", body)
        assert (answer.status_code, answer.json()["created_by"]) == (201, "ana"), answer.content
    everywhere, orders = ("deploy 1.2", "ana"), ("new consumers (orders.*)", "ana")
    assert on_charts(ana, "scope=cluster") == [everywhere, orders]
    assert on_charts(ana, "scope=topic&topic=orders.eu") == [everywhere, orders]
    assert on_charts(ana, "scope=channel&topic=orders.eu&channel=billing") == [everywhere, orders]
    assert on_charts(ana, "scope=topic&topic=invoices") == [everywhere]
    assert on_charts(ana, "scope=node&node=10.0.0.1:4151") == [everywhere]
    listed = ana.request("GET", "marks").json()["marks"]
    assert [(mark["text"], mark["topic_pattern"]) for mark in listed] == [
        ("new consumers", "orders.*"),
        ("deploy 1.2", "*"),
    ]
    assert [mark["text"] for mark in ana.request("GET", "marks?topic=invoices").json()["marks"]] == ["deploy 1.2"]
    assert ana.request("GET", "marks?limit=1").json()["marks"] == listed[:1]
    assert list(AuditEntry.objects.filter(action="post mark").values_list("subject", "user")) == [
        ("new consumers", "ana"),
        ("deploy 1.2", "ana"),
    ]


def test_a_mark_has_the_time_that_is_given_and_is_deleted(signed_in):
    ana = signed_in("operator", name="ana")
    at = int(time.time() * 1000) - 5 * HOUR_MS
    mark = ana.request("POST", "marks", {"text": "deploy 1.2", "at": at}).json()
    assert mark["at"] == at
    assert on_charts(ana, "scope=cluster") == []  # of the last hour
    assert on_charts(ana, f"scope=cluster&since={at}&until={at + 1}") == [("deploy 1.2", "ana")]
    assert on_charts(ana, f"scope=cluster&since={at - 1}&until={at}") == []
    assert ana.request("GET", f"marks?since={at + 1}").json() == {"marks": []}
    assert ana.request("DELETE", f"marks/{mark['id']}").status_code == 204
    assert on_charts(ana, f"scope=cluster&since={at}") == []
    gone = ana.request("DELETE", f"marks/{mark['id']}")
    assert (gone.status_code, gone.json()["message"]) == (404, f"there is no mark {mark['id']}")
    assert AuditEntry.objects.filter(action="delete mark", subject="deploy 1.2").count() == 1


def test_thousands_of_marks_leave_room_for_other_events(signed_in):
    ana = signed_in("viewer", name="ana")
    now = timezone.now()
    NodeEvent.objects.create(at=now - timedelta(minutes=50), node="10.0.0.1:4151", kind="down")
    Mark.objects.bulk_create(
        Mark(text=f"deploy {n}", at=now - timedelta(minutes=1), created_by="ci") for n in range(600)
    )
    kinds = Counter(event["kind"] for event in ana.request("GET", "events?scope=cluster").json()["events"])
    assert kinds == {"node_down": 1, "marked": 100}


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({}, "text: Field required"),
        ({"text": "  "}, "text: a mark needs a text"),
        ({"text": "x" * 201}, "text: String should have at most 200 characters"),
        ({"text": "a\nb"}, "text: control characters are not allowed"),
        ({"text": "x", "topic_pattern": "a b"}, "topic_pattern: 'a b' is not a glob of topic names, such as orders*"),
        ({"text": "x", "at": 4_000_000_000_000}, "at: this time is in the future; a mark says what has happened"),
        ({"text": "x", "topic": "orders"}, "topic: Extra inputs are not permitted"),
    ],
)
def test_an_invalid_mark_is_refused_by_its_field(signed_in, body, message):
    answer = signed_in("operator").request("POST", "marks", body)
    assert (answer.status_code, answer.json()["message"]) == (422, message)
    assert not Mark.objects.exists()


@pytest.mark.parametrize("words", [("mark", "--list"), ("definitions", "export")], ids=" ".join)
def test_a_command_for_a_platform_that_is_not_there_creates_no_folder(tmp_path, words):
    """Neither for a mistyped --home, nor for the default one."""
    home = tmp_path / "typo"
    for more, environment in ((["--home", str(home)], {}), ([], {"NSQ_HOME": str(home)})):
        command = [sys.executable, ROOT / "manage.py", "nsq", words[0], *more, *words[1:]]
        without = {name: value for name, value in os.environ.items() if name not in ("NSQ_HOME", "DATABASE_URL")}
        refused = subprocess.run(
            command, env=without | environment, capture_output=True, text=True, timeout=120, check=False
        )
        assert (refused.returncode, refused.stdout) == (2, "")
        assert refused.stderr.startswith(f"nsq {words[0]}: there is no platform at {home}: nsq up creates one")
        assert not home.exists()


def test_an_operator_marks_the_topics_of_the_role_and_a_viewer_none(signed_in):
    limited, viewer = signed_in("operator", "orders.*", name="lena"), signed_in("viewer", name="vera")
    assert limited.request("POST", "marks", {"text": "deploy", "topic_pattern": "orders.eu"}).status_code == 201
    refused = limited.request("POST", "marks", {"text": "deploy"})
    assert (refused.status_code, refused.json()["message"]) == (403, "you may act on topics orders.*, not on all of *")
    refused = viewer.request("POST", "marks", {"text": "deploy"})
    assert refused.json()["message"] == "your role, viewer, may not post or delete marks"
    everywhere = signed_in("admin", name="ada").request("POST", "marks", {"text": "deploy"}).json()
    assert limited.request("DELETE", f"marks/{everywhere['id']}").status_code == 403
    assert len(viewer.request("GET", "marks").json()["marks"]) == 2


def test_the_command_posts_lists_and_deletes_marks(redis):
    """As the user of the operating system; what is wrong is named, with the status of wrong usage."""
    environment = platform_environment(DATABASE_URL=url_of(connection.settings_dict))

    def mark_command(*words: str) -> subprocess.CompletedProcess[str]:
        return nsq("mark", *words, env=environment, imports=LIBRARIES)

    posted = mark_command("deploy 1.2", "--topic", "orders.*", "--at", "2026-03-14T16:00+01:00")
    mark = Mark.objects.get()
    line = f"{mark.pk}  2026-03-14T15:00:00Z  orders.*  deploy 1.2  {getpass.getuser()}\n"
    assert (posted.returncode, posted.stdout, posted.stderr) == (0, line, "")
    assert mark_command("--list").stdout == line
    assert AuditEntry.objects.get(action="post mark").via == "command line"
    for words, error in (
        (["x", "--topic", "a b"], "nsq mark: 'a b' is not a glob of topic names, such as orders*\n"),
        (["x" * 201], "nsq mark: text: String should have at most 200 characters\n"),
        (["x", "--at", "0001-01-01T00:00Z"], "nsq mark: this time is before 1970\n"),
        (
            ["x", "--cluster", "nowhere"],
            "nsq mark: --cluster: there is no cluster 'nowhere'; NSQ_CLUSTERS declares default\n",
        ),
    ):
        refused = mark_command(*words)
        assert (refused.returncode, refused.stderr) == (2, error)
    assert mark_command("--delete", str(mark.pk)).returncode == 0
    gone = mark_command("--delete", str(mark.pk))
    assert (gone.returncode, gone.stderr) == (1, f"nsq mark: there is no mark {mark.pk}\n")
    assert not Mark.objects.exists()
