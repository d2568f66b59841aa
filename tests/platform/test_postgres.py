"""The platform on PostgreSQL: migrations, and requests to its web process."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from tests.harness.waiting import DEADLINE_S, wait_until
from tests.platform.receivers import Receiver
from tests.postgres import start_postgres


@pytest.fixture(scope="module")
def postgres() -> Iterator[Any]:
    server, end = start_postgres()
    yield server
    end()


@pytest.fixture
def on_postgres(postgres: Any, django_command: Callable[..., subprocess.CompletedProcess[str]]) -> Callable[..., str]:
    """Runs a Django command on it and returns its output."""

    def run(*words: str) -> str:
        ended = django_command(*words, DATABASE_URL=postgres.get_uri())
        assert ended.returncode == 0, ended.stdout + ended.stderr
        return ended.stdout

    return run


def test_the_same_platform_runs_on_postgres(postgres, on_postgres):
    """The tables and the first account are created, and no migration is missing."""
    on_postgres("migrate", "--no-input")
    on_postgres("makemigrations", "--check", "--dry-run")
    assert "/signin/" in on_postgres("shell", "-c", "from nsqplatform.accounts.services import *; print(first_start())")
    assert "admin" in postgres.psql("select username, role from accounts_user")


class Person:
    """Calls the web process as the web app does."""

    def __init__(self, base: str) -> None:
        self.client = httpx.Client(base_url=f"{base}/api/v1/", trust_env=False, timeout=DEADLINE_S)
        self.csrf: dict[str, str] = {}

    def ask(self, method: str, path: str, expected: int, **body: Any) -> Any:
        """The answer's JSON, or None. Fails unless the status is ``expected``."""
        answer = self.client.request(method, path, json=body or None, headers=self.csrf)
        assert answer.status_code == expected, answer.text
        return answer.json() if answer.content else None


def test_everything_that_is_kept_is_kept_in_postgres(postgres, on_postgres, start_web, redis, password, go_cluster):
    """Sign-in, people, tokens, actions, schedules and the audit trail, through the web process."""
    for node in go_cluster.nodes:
        node.topic("orders")
    on_postgres("migrate", "--no-input")
    on_postgres("create_account", "ada", "--role", "admin", "--password", password)
    nodes = ",".join(node.address for node in go_cluster.nodes)
    web = start_web(DATABASE_URL=postgres.get_uri(), NSQD_HTTP_ADDRESSES=nodes)
    ada = Person(web.base)
    ada.ask("POST", "session", 401, username="ada", password="not hers")
    ada.csrf["X-CSRFToken"] = ada.ask("POST", "session", 200, username="ada", password=password)["csrf_token"]
    assert ada.ask("GET", "me", 200)["role"] == "admin"

    invited = ada.ask("POST", "people", 201, username="olga", role="operator", topic_patterns=["orders*"])["person"]
    ada.ask("PATCH", f"people/{invited['id']}", 200, topic_patterns=["returns*"])
    reach = {person["username"]: person["topic_patterns"] for person in ada.ask("GET", "people", 200)["people"]}
    assert reach["olga"] == ["returns*"]

    made = ada.ask("POST", "account/tokens", 201, name="deploys", role="operator", expires_at=None)
    script = Person(web.base)
    script.client.headers["Authorization"] = f"Bearer {made['secret']}"
    done = script.ask("POST", "actions", 200, action="pause", topic="orders")
    assert {result["node"]: result["outcome"] for result in done["results"]} == {
        node.address: "done" for node in go_cluster.nodes
    }
    assert all(node.topics["orders"]["paused"] for node in go_cluster.nodes)

    job = ada.ask("GET", "reports/jobs", 200)["jobs"][0]["name"]
    schedule = ada.ask(
        "POST", "reports/schedules", 201, name="Daily", job=job, cron="0 6 * * *", time_zone="Asia/Tokyo"
    )
    ada.ask("PATCH", f"reports/schedules/{schedule['id']}", 200, enabled=False)
    schedules = {each["name"]: each for each in ada.ask("GET", "reports/schedules", 200)["schedules"]}
    assert schedules["Daily"]["enabled"] is False
    ada.ask("DELETE", f"reports/schedules/{schedule['id']}", 204)

    entries = ada.ask("GET", "audit", 200)["entries"]
    paused = next(entry for entry in entries if entry["action"] == "pause")
    assert (paused["user"], paused["topic"], paused["outcome"], len(paused["results"])) == ("ada", "orders", "done", 2)
    assert ada.ask("GET", "audit?object=orders&action=pause&outcome=done", 200)["entries"] == [paused]
    exported = ada.client.get("audit/export.csv")
    assert exported.status_code == 200
    assert "orders" in exported.text
    ada.ask("DELETE", "session", 204)
    ada.ask("GET", "me", 401)


def test_alerts_are_stored_and_notified_with_postgres(
    postgres, on_postgres, start_web, start_collector, password, go_cluster
):
    """By the collector as it runs in production: fired, acknowledged, resolved and notified."""
    channel = go_cluster.nodes[0].channel("orders", "billing", depth=500)
    receiver = Receiver()
    on_postgres("migrate", "--no-input")
    on_postgres("create_account", "grace", "--role", "admin", "--password", password)
    place = {
        "DATABASE_URL": postgres.get_uri(),
        "NSQD_HTTP_ADDRESSES": ",".join(node.address for node in go_cluster.nodes),
    }
    grace = Person(start_web(**place).base)
    grace.csrf["X-CSRFToken"] = grace.ask("POST", "session", 200, username="grace", password=password)["csrf_token"]
    start_collector(**place)
    grace.ask("POST", "alerts/notifiers", 201, name="hook", kind="webhook", url=receiver.url)
    backlog = {"scope": "channel", "metric": "depth", "threshold": 100, "hold_s": 1, "resolve_after_s": 1}
    grace.ask("POST", "alerts/rules", 201, name="Backlog", notifiers=["hook"], **backlog)
    wait_until(lambda: receiver.events() == [("firing", ["orders/billing"])], "the webhook is notified")
    [alert] = wait_until(
        lambda: [each for each in grace.ask("GET", "alerts", 200)["alerts"] if each["notices"]], "it is written down"
    )
    grace.ask("POST", f"alerts/{alert['id']}/acknowledge", 200, note="mine")
    assert grace.ask("GET", "alerts/counts", 200)["counts"]["acknowledged"] == 1
    channel["depth"] = 5
    wait_until(
        lambda: receiver.events()[1:] == [("resolved", ["orders/billing"])], "the webhook is notified of the end"
    )
    [over] = grace.ask("GET", "alerts?state=resolved", 200)["alerts"]
    assert (over["id"], over["acknowledged_by"], over["resolution"]) == (alert["id"], "grace", "cleared")
    receiver.stop()
