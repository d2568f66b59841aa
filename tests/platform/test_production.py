"""The production set-up as documented: `.env`, compose.yaml and the commands, on PostgreSQL and Redis."""

from __future__ import annotations

import os
import re
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from tests.harness import web
from tests.harness.process import ROOT, Process
from tests.harness.redis import running_redis
from tests.harness.waiting import DEADLINE_S, wait_until
from tests.postgres import start_postgres

pytestmark = pytest.mark.timeout(400)

STARTS_WITHIN_S = 180.0


def documented() -> list[str]:
    """The lines of the shell snippets below "Compose"."""
    page = (ROOT / "docs" / "containers.md").read_text()
    section = page.partition("\n## Compose\n")[2].partition("\n## ")[0]
    return [line for snippet in re.findall(r"```sh\n(.*?)```", section, re.DOTALL) for line in snippet.splitlines()]


def in_container(service: str) -> list[list[str]]:
    """The words of the documented commands that run in a container of ``service``, in order."""
    beginning = f"docker compose exec {service} "
    return [line.removeprefix(beginning).split() for line in documented() if line.startswith(beginning)]


def write_env_file(folder: Path) -> dict[str, str]:
    """Run the documented lines that write ``.env``, and return its variables."""
    if shutil.which("openssl") is None:  # the only program that they need
        (folder / "openssl").write_text(f"#!/bin/sh\necho {secrets.token_hex(32)}\n")
        (folder / "openssl").chmod(0o755)
    lines = [line for line in documented() if ".env" in line]
    assert lines, "the page has no line that writes .env"
    for line in lines:
        path = f"{os.environ['PATH']}{os.pathsep}{folder}"
        subprocess.run(["sh", "-euc", line], cwd=folder, env={"PATH": path}, check=True, timeout=DEADLINE_S)
    file = folder / ".env"
    assert f"{file.stat().st_mode & 0o777:o}" == "600"
    return dict(line.split("=", 1) for line in file.read_text().splitlines())


def interpolated(text: str, env_file: dict[str, str]) -> str:
    """A value of compose.yaml, whose ``${NAME:-default}`` and ``${NAME:?error}`` are replaced as compose does."""

    def value(match: re.Match[str]) -> str:
        name, kind, rest = match.groups()
        found = env_file.get(name, "")
        assert found or kind == "-", f"{name}: {rest}"
        return found or rest

    return re.sub(r"\$\{(\w+):([-?])([^}]*)\}", value, str(text))


class Proxy(httpx.HTTPTransport):
    """The proxy with TLS in front of the platform: it passes ``Host`` on and sets ``X-Forwarded-Proto``."""

    def __init__(self, port: int) -> None:
        super().__init__()
        self.port = port

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        assert request.url.scheme == "https"
        passed_on = httpx.Request(
            request.method,
            request.url.copy_with(scheme="http", host="127.0.0.1", port=self.port),
            headers=[*request.headers.raw, (b"X-Forwarded-Proto", b"https")],
            stream=request.stream,
            extensions=request.extensions,
        )
        return super().handle_request(passed_on)


class Deployment:
    """The services of compose.yaml, on this machine's PostgreSQL and Redis."""

    def __init__(self, folder: Path, postgres: Any, redis_url: str) -> None:
        self.env_file = write_env_file(folder)
        self.services = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]
        declared = self.services["web"]["environment"]
        environment = {name: interpolated(text, self.env_file) for name, text in declared.items()}
        # As the image of PostgreSQL does with its variables.
        user, password = "nsq", self.env_file["POSTGRES_PASSWORD"]
        postgres.psql(f"CREATE ROLE {user} LOGIN PASSWORD '{password}'")
        postgres.psql(f"CREATE DATABASE {user} OWNER {user}")
        assert environment["DATABASE_URL"] == f"postgres://{user}:{password}@postgres:5432/{user}"
        # Only the servers' addresses and the folders are others than in the containers.
        environment["DATABASE_URL"] = f"postgres://{user}:{password}@/{user}?{postgres.get_uri().partition('?')[2]}"
        environment["REDIS_URL"] = redis_url
        for name in ("ARCHIVE", "REPORTS", "HISTORY"):
            environment[f"NSQ_{name}"] = str(folder / name.lower())
        self.environment = {"PATH": os.environ["PATH"], "NSQ_HOME": str(folder / "home"), **environment}
        self.processes: list[Process] = []

    @staticmethod
    def program(words: list[str]) -> list[str]:
        """The command of the image, as this environment has it."""
        program, *rest = words
        if program == "nsq":
            return [sys.executable, "-m", "nsqcommand", *rest]
        raise AssertionError(f"{program} {rest}: not a command of nsq")

    def run(self, words: list[str]) -> subprocess.CompletedProcess[str]:
        """Run a command to its end, as ``docker compose exec`` or a service that ends."""
        return subprocess.run(
            self.program(words),
            cwd=ROOT,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=STARTS_WITHIN_S,
            check=False,
        )

    def start_web(self) -> httpx.Client:
        """Start the service ``web``, and return a browser that reaches it through the proxy."""
        *words, address = self.services["web"]["command"]
        assert address == "--http-address=0.0.0.0:4171"
        listener = socket.create_server(("127.0.0.1", 0))  # bound here, so that no other process takes the port
        port = listener.getsockname()[1]
        command = self.program([*words, f"--http-fd={listener.fileno()}"])
        process = Process(command, env=self.environment, cwd=ROOT, merged=True, pass_fds=(listener.fileno(),)).start()
        self.processes.append(process)
        listener.close()
        url = f"http://127.0.0.1:{port}/ping"

        def answers() -> bool:
            assert process.is_running, process.output
            try:
                return web.get(url).status_code == 200
            except httpx.TransportError:
                return False

        wait_until(answers, "the web process answers", within_s=STARTS_WITHIN_S)
        return web.client(transport=Proxy(port))

    def stop(self) -> None:
        for process in self.processes:
            process.stop()


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """Everything of compose.yaml that the platform needs, before its first start."""
    postgres, end_postgres = start_postgres()
    folder = tmp_path_factory.mktemp("production")
    with tempfile.TemporaryDirectory() as short:  # the path of a socket is limited
        redis_url = f"unix://{short}/redis.sock"
        with running_redis(redis_url, folder):
            ours = Deployment(folder, postgres, redis_url)
            yield ours
            ours.stop()
    end_postgres()


def sign_in(browser: httpx.Client, link: str) -> httpx.Response:
    """Open a sign-in link and confirm it, as a browser does."""
    page = browser.get(link)
    assert page.status_code == 200, page.text
    token = re.search(r'name="csrfmiddlewaretoken" value="(\w+)"', page.text)
    assert token is not None
    origin = {"Origin": link.partition("/signin")[0], "Referer": link}
    return browser.post(link, data={"csrfmiddlewaretoken": token[1]}, headers=origin)


def test_the_documented_commands_lead_to_an_administrator_who_is_signed_in(deployment: Deployment) -> None:
    """Prepare, start, print the link, sign in; then another account and its link."""
    prepared = deployment.run(deployment.services["prepare"]["command"])
    assert prepared.returncode == 0, prepared.stderr
    browser = deployment.start_web()
    first, *further = in_container("web")
    printed = deployment.run(first)
    assert printed.returncode == 0, printed.stderr
    assert printed.stderr == ""
    link = printed.stdout.strip()
    assert re.fullmatch(r"https://nsq\.example\.org/signin/[\w-]+", link)
    answer = sign_in(browser, link)
    assert (answer.status_code, answer.headers["location"]) == (302, "/")
    me = browser.get("https://nsq.example.org/api/v1/me").json()
    assert (me["username"], me["role"]) == ("admin", "admin")
    assert browser.get("https://nsq.example.org/").status_code == 200

    create, link_of_it = further
    created = deployment.run(create)
    assert (created.returncode, created.stdout) == (0, "created ana, operator\n"), created.stderr
    printed = deployment.run(link_of_it)
    assert (printed.returncode, printed.stderr) == (0, "")
    with web.client(transport=browser._transport) as hers:
        assert sign_in(hers, printed.stdout.strip()).status_code == 302
        me = hers.get("https://nsq.example.org/api/v1/me").json()
        assert (me["username"], me["role"]) == ("ana", "operator")


def test_before_the_migration_the_link_says_what_is_missing(deployment: Deployment, tmp_path: Path) -> None:
    """One line, with the command that creates the tables."""
    environment = {**deployment.environment, "DATABASE_URL": f"sqlite:///{tmp_path / 'empty.sqlite3'}"}
    answer = subprocess.run(
        deployment.program(["nsq", "signin-link"]),
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=STARTS_WITHIN_S,
        check=False,
    )
    assert answer.returncode == 1
    (line,) = answer.stderr.splitlines()
    assert line.endswith("`nsq up` or `manage.py migrate` creates the tables")


def test_the_commands_of_the_services_exist_with_their_options(deployment: Deployment) -> None:
    """The help of each subcommand has the options that compose.yaml gives it."""
    names = ("web", "collector", "worker", "dispatcher", "beat")
    for name in names:
        program, subcommand, *options = deployment.services[name]["command"]
        helped = deployment.run([program, subcommand, "--help"])
        assert helped.returncode == 0, helped.stderr
        assert [each for each in options if each.partition("=")[0] not in helped.stdout] == []
