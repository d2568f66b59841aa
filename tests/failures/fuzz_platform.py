"""The fuzzer of the platform's API: every operation of its OpenAPI document, in rounds, while a bystander is served."""

from __future__ import annotations

import time
from collections.abc import Callable
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from schemathesis import APIOperation
from schemathesis.core.failures import FailureGroup
from schemathesis.specs.openapi.checks import content_type_conformance, response_schema_conformance

from tests.failures.bystander import Bystander, Fuzzed
from tests.failures.platform_requests import Drawn, Rows, requests_of
from tests.failures.running_platform import RunningPlatform, Script
from tests.harness.waiting import DEADLINE_S

BYSTANDER = "bystander"
EXAMPLES = 3
"""Requests of an operation in a round."""
PAUSE_S = 0.3
"""Between turns of the bystander, which would otherwise take half of the processor time."""
DAY_MS = 86_400_000


def fuzz_platform(seconds: float, seed_: int) -> Fuzzed:
    """Fuzz the API of a new platform for ``seconds``, at least one round of all operations."""
    with RunningPlatform() as platform:
        bystander = Bystander(beside_platform(platform.admin))
        fuzzer = PlatformFuzzer(platform)
        bystander.start()
        until, number = time.monotonic() + seconds, 0
        while not fuzzer.failures and (number == 0 or time.monotonic() < until):
            fuzzer.round(number, seed_)
            number += 1
        bystander.end()
        failures = fuzzer.failures + platform.problems()
        if bystander.is_alive() or bystander.failure is not None:
            failures.append(f"the bystander was not served: {bystander.failure or 'no answer'!r}")
        return Fuzzed(
            "platform_http", seed_, fuzzer.sent, bystander.asked, bystander.answered, bystander.unexpected, failures
        )


def beside_platform(admin: Script) -> Callable[[], bool]:
    """A turn beside the platform: read the snapshot, publish a message and see it. False if it is not there."""
    done(admin.call("POST", "actions", {"action": "create", "topic": BYSTANDER, "channel": "c"}))

    def turn() -> bool:
        time.sleep(PAUSE_S)
        done(admin.call("GET", "snapshot"))
        done(admin.call("POST", "messages", {"topic": BYSTANDER, "bodies": ["x"]}))
        seen = done(admin.call("GET", f"messages?topic={BYSTANDER}&channel=c&limit=1"))
        done(admin.call("POST", "actions", {"action": "empty", "topic": BYSTANDER, "channel": "c"}))
        return bool(seen["total"] == 1)

    return turn


def done(answer: requests.Response) -> Any:
    """The JSON of an answer that must be a success."""
    assert answer.ok, f"{answer.request.method} {answer.request.url}: {answer.status_code} {answer.text[:500]}"
    return answer.json() if answer.content else None


class Own(NamedTuple):
    """Ids that no request may change: those of the fuzzer and of the bystander."""

    people: set[int]
    tokens: set[int]


class PlatformFuzzer:
    """Sends requests and judges the answers. ``failures`` has a line for each answer that should not be."""

    def __init__(self, platform: RunningPlatform) -> None:
        self.platform = platform
        self.failures: list[str] = []
        self.sent = 0
        document = schemathesis.openapi.from_dict(done(platform.admin.call("GET", "openapi.json")))
        self.operations: list[APIOperation] = [each.ok() for each in document.get_all_operations()]
        # What deletes comes last, so that the others find the rows of the round.
        self.operations.sort(key=lambda each: each.method == "delete")
        people = {each["id"] for each in done(platform.admin.call("GET", "people"))["people"]}
        tokens = {
            token["id"]
            for person in people
            for token in done(platform.admin.call("GET", f"people/{person}/tokens"))["tokens"]
        }
        self.own = Own(people, tokens)

    def round(self, number: int, seed_: int) -> None:
        """EXAMPLES requests of each operation, on new rows; then every list must still be readable."""
        self.platform.sign_in()
        rows = new_rows(self.platform, number)
        for at, operation in enumerate(self.operations):
            self._fuzz(operation, rows, seed_ + 1000 * number + at)
        self.failures += unreadable(self.platform.admin, self.operations)

    def _fuzz(self, operation: APIOperation, rows: Rows, seed_: int) -> None:
        @given(drawn=requests_of(operation, rows))
        @settings(
            max_examples=EXAMPLES,
            deadline=None,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        def one(drawn: Drawn) -> None:
            if not self._may_send(drawn):
                return
            if failure := self._try(drawn):
                self.failures.append(f"{failure}\n    after {drawn.described()}")

        seed(seed_)(one)()

    def _may_send(self, drawn: Drawn) -> bool:
        """Whether it leaves the fuzzer and the bystander what they need."""
        ids = {name: int(value) for name, value in drawn.path.items() if value.isdecimal()}
        if ids.get("person_id") in self.own.people or ids.get("token_id") in self.own.tokens:
            return False
        fields = drawn.body if isinstance(drawn.body, dict) else {}
        if drawn.case.operation.path.endswith("/drains"):
            return fields.get("node") != self.platform.broker.http_address
        pattern = fields.get("topic_pattern")
        is_policy = drawn.case.operation.path.endswith("/policies")
        return not (is_policy and isinstance(pattern, str) and fnmatchcase(BYSTANDER, pattern))

    def _try(self, drawn: Drawn) -> str:
        """Send a request. Returns what is wrong with the answer, empty if nothing."""
        # Tokens may not be used for an account's own settings.
        is_own = drawn.case.operation.path.startswith("/api/v1/account/")
        session = self.platform.signed_in if is_own else self.platform.fuzzer
        prepared = session.prepare_request(requests.Request(drawn.case.operation.method, session.base))
        prepared.url = session.base + drawn.target
        prepared.prepare_body(drawn.content, None)
        if drawn.content is not None:
            prepared.headers["Content-Type"] = drawn.case.media_type or "application/json"
        for name, value in drawn.headers.items():
            prepared.headers[name] = value.encode("latin-1")  # type: ignore[assignment]
        self.sent += 1
        try:
            answer = session.send(prepared, timeout=DEADLINE_S, allow_redirects=False)
        except requests.RequestException as error:
            return repr(error)
        return wrong_with(answer, drawn)


def wrong_with(answer: requests.Response, drawn: Drawn) -> str:
    """What an answer may not be: a server's error, unlike its schema, or an error without a message."""
    shown = f"{answer.status_code} {answer.headers.get('Content-Type')} {answer.text[:500]!r}"
    if answer.status_code >= 500:
        return shown
    if answer.status_code >= 400 and not has_message(answer):
        return f"an error without a message: {shown}"
    try:
        drawn.case.validate_response(answer, checks=[response_schema_conformance, content_type_conformance])
    except FailureGroup as group:
        return "; ".join(f"{each.title}: {each.message}" for each in group.exceptions) + f": {shown}"
    return ""


def has_message(answer: requests.Response) -> bool:
    try:
        body = answer.json()
    except requests.JSONDecodeError:
        return False
    return isinstance(body, dict) and isinstance(body.get("message"), str) and body["message"] != ""


def unreadable(admin: Script, operations: list[APIOperation]) -> list[str]:
    """What cannot be read after a round, of all that needs no parameters."""
    found = []
    for operation in operations:
        required = [each.name for each in (*operation.path_parameters, *operation.query) if each.is_required]
        path = operation.path.removeprefix("/api/v1/")
        if operation.method == "get" and not required and not path.startswith("account/"):
            answer = admin.call("GET", path)
            if not answer.ok and answer.status_code != 422:  # 422: one of several parameters is required
                found.append(f"after the round, GET {path}: {answer.status_code} {answer.text[:500]}")
    return found


def new_rows(platform: RunningPlatform, number: int) -> Rows:
    """Create rows of every kind that requests create, and a topic with messages."""
    bodies: dict[str, list[Any]] = {}
    admin, name, topic = platform.admin, f"round-{number}", f"t{number}"
    soon = int(time.time() * 1000) + DAY_MS

    def post(path: str, **body: Any) -> Any:
        bodies.setdefault(f"/api/v1/{path}", []).append(body)
        return done(admin.call("POST", path, body))

    post("actions", action="create", topic=topic, channel="c")
    post("messages", topic=topic, bodies=["x", '{"a": {"b": 1}}', "é" * 100])
    message = done(admin.call("GET", f"messages?topic={topic}&channel=c"))["messages"][0]
    post("messages/actions", action="finish", topic=topic, channel="c", node=message["node"], ids=[message["id"]])
    message = done(admin.call("GET", f"messages?topic={topic}&channel=c"))["messages"][0]
    post("masks/preview", paths=["$.a"], body='{"a": 1}')
    post("policies", topic_pattern=topic, policy={"max_attempts": 1000})
    past = {"topic": topic, "channel": "c", "as_of": int(time.time() * 1000), "criteria": {"text": "é"}}
    post("jobs/messages", action="finish", **past)
    dead = {"channels": [{"topic": topic, "name": "c"}]}
    post("jobs/dead/count", **dead)
    post("rewinds", topic=topic, channel="c", since="2026-01-01T00:00:00Z")
    bodies["/api/v1/definitions"] = [admin.call("GET", "definitions").text]
    bodies["/api/v1/jobs/dead"] = [dead | {"action": "requeue"}]  # 404, because nothing is dead
    post("alerts/rules/preview", name=name, scope="channel", metric="depth", threshold=1)
    rule = post("alerts/rules", name=name, scope="channel", metric="depth", threshold=1e9)
    objective = {"kind": "latency", "threshold_ms": 100, "target_percent": 99}
    schedule = post("reports/schedules", name=name, job="throughput", every_seconds=86_400, enabled=False)
    person = post("people", username=name, role="viewer")["person"]
    token = done(platform.signed_in.call("POST", "account/tokens", {"name": name, "role": "viewer"}))
    run = post("reports/runs", job="throughput")
    job = post("jobs", kind="pause", parameters={}, subjects=[{"topic": topic, "channel": "c"}])
    notifier = post("alerts/notifiers", name=name, kind="webhook", url="https://example.com/hook")
    rows = {
        "rule_id": rule,
        "objective_id": post("objectives", name=name, **objective),
        "mask_id": post("masks", topic_pattern=f"{name}.*", paths=["$.a.b"]),
        "silence_id": post("alerts/silences", topic_pattern=name, reason="x", ends_at=soon),
        "view_id": post("views", name=name, address="/topics?q=x", is_shared=True),
        "mark_id": post("marks", text=name),
        "schedule_id": schedule,
        "person_id": person,
        "notifier_id": notifier,
        "job_id": job,
    }
    known = {each: [row["id"]] for each, row in rows.items()} | {
        "token_id": [token["id"]],
        "alert_id": [platform.alert_id],
        "alerts": [[platform.alert_id]],
        "figures": ["p99_ms"],
        "cron": ["0 3 * * *"],
        "run_id": [platform.run_id, run["id"]],
        "id": [message["id"]],
        "ids": [[message["id"]]],
        "topic": [topic],
        "channel": ["c"],
        "node": [message["node"]],
        "job": ["latency", "throughput"],
        "kind": ["pause", "webhook", "latency"],
        "notifiers": [[name]],
        "subjects": [[{"topic": topic, "channel": "c"}]],
        "channels": [[{"topic": topic, "name": "c"}]],
    }
    return Rows(known, bodies)
