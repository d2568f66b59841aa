"""Fixtures: a broker and a registry for third-party clients, each of which runs in its own process.

The tests of go-nsq need NSQ_GOPATH. CI does not collect them without it.
"""

from __future__ import annotations

import http.server
import json
import os
import shutil
import subprocess
import sys
import threading
from base64 import b64decode
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import trustme

from tests.harness import web
from tests.harness.ci import IN_CI
from tests.harness.daemon import Broker, Registry
from tests.harness.process import ROOT, Process
from tests.harness.waiting import wait_until

HERE = Path(__file__).parent
GOPATH = os.environ.get("NSQ_GOPATH", "")
collect_ignore = ["test_go_nsq.py"] if IN_CI and not GOPATH else []


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Callable[..., tuple[Broker, Registry]]]:
    """``cluster(*flags)``: a brokerd with these flags, registered with a registry."""
    with ExitStack() as stack:

        def start(*flags: str) -> tuple[Broker, Registry]:
            registry = Registry().launch()
            stack.callback(registry.close)
            lookupd = f"--lookupd-tcp-address={registry.tcp_address}"
            broker = Broker(tmp_path, lookupd, "--broadcast-address=127.0.0.1", *flags).launch()
            stack.callback(broker.close)
            return broker, registry

        yield start


SECRET = "open sesame"
POISON_ATTEMPTS = 3


class _Auth(http.server.BaseHTTPRequestHandler):
    """Grants everything to clients with the secret, for one second at a time."""

    def do_GET(self) -> None:
        known = parse_qs(urlsplit(self.path).query)["secret"] == [SECRET]
        everything = {"topic": ".*", "channels": [".*"], "permissions": ["subscribe", "publish"]}
        content = json.dumps(
            {"ttl": 1, "identity": "witness", "authorizations": [everything] if known else []}
        ).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def auth_server() -> Iterator[str]:
    """The address of an auth server that knows SECRET."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Auth)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    yield f"127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@dataclass(frozen=True)
class Layer:
    """The layer between client and broker. ``flags`` make the broker require it, if possible."""

    flags: tuple[str, ...] = ()
    tls_v1: bool = False
    deflate: bool = False
    snappy: bool = False
    auth_secret: str = ""
    authority: str = ""
    """PEM file of the authority of the broker's certificate."""
    poison: str = ""
    """The body of a message that the client requeues, at once, each time."""

    def asked(self) -> str:
        """The layer as an argument of an ``exchange_`` script."""
        names = ("tls_v1", "deflate", "snappy", "auth_secret", "authority", "poison")
        return json.dumps({name: getattr(self, name) for name in names})

    def seen(self) -> dict[str, Any]:
        """The layer as ``/stats`` shows a client with it."""
        reply: dict[str, Any] = {"tls": self.tls_v1, "deflate": self.deflate, "snappy": self.snappy}
        return {**reply, "authed": True, "auth_identity": "witness"} if self.auth_secret else reply


@pytest.fixture
def layer(request: pytest.FixtureRequest, tmp_path: Path) -> Layer:
    """One of plain, deflate, snappy, tls, tls+deflate, tls+snappy, auth, poison; plain unless a test chooses others."""
    name = getattr(request, "param", "plain")
    flags: tuple[str, ...] = ()
    authority = secret = ""
    if "tls" in name:
        signer = trustme.CA()
        signer.cert_pem.write_to_path(tmp_path / "authority.pem")
        certificate = signer.issue_cert("127.0.0.1", "localhost").private_key_and_cert_chain_pem
        certificate.write_to_path(tmp_path / "broker.pem")
        flags += (f"--tls-cert={tmp_path}/broker.pem", f"--tls-key={tmp_path}/broker.pem", "--https-address=")
        flags += ("--tls-required=tcp-https",)
        authority = str(tmp_path / "authority.pem")
    if "auth" in name:
        flags += (f"--auth-http-address={request.getfixturevalue('auth_server')}",)
        secret = SECRET
    if name == "poison":
        flags += (f"--max-attempts={POISON_ATTEMPTS}",)
    return Layer(
        flags,
        poison="message 7" if name == "poison" else "",
        tls_v1="tls" in name,
        deflate="deflate" in name,
        snappy="snappy" in name,
        auth_secret=secret,
        authority=authority,
    )


@pytest.fixture(scope="session")
def go_program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``exchange_go_nsq``, built with the sources in NSQ_GOPATH."""
    if not GOPATH:
        pytest.skip("NSQ_GOPATH must name a directory with go-nsq's sources (docs/contributing.md)")
    program: Path = tmp_path_factory.mktemp("go") / "exchange_go_nsq"
    settings = {"GOPATH": GOPATH, "GO111MODULE": "off", "CGO_ENABLED": "0"}
    command = ["go", "build", "-buildvcs=false", "-o", str(program), str(HERE / "exchange_go_nsq.go")]
    built = subprocess.run(command, env=os.environ | settings, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    return program


@pytest.fixture
def exchange(
    request: pytest.FixtureRequest, cluster: Callable[..., tuple[Broker, Registry]], layer: Layer, tmp_path: Path
) -> Callable[..., dict[str, Any]]:
    """Run ``exchange_<library>``, which publishes and reads ``count`` messages through the layer; returns its report.

    Fails if a client published or consumed without the layer, or if there was no client.
    """
    broker, registry = cluster(*layer.flags)

    def run(library: str, count: int) -> dict[str, Any]:
        program = (
            [str(request.getfixturevalue("go_program"))] if library == "go_nsq" else interpreter(library, "exchange")
        )
        command = [*program, broker.tcp_address, registry.http_address, str(count), layer.asked()]
        seen: set[str] = set()
        environment = os.environ | {"PYTHONPATH": str(ROOT)}
        printed = tmp_path / "printed"
        with (
            printed.open("wb") as stdout,
            Process(command, env=environment, stdin=subprocess.PIPE, stdout=stdout) as running,
        ):

            def ended() -> bool:
                seen.update(_clients(broker, set(layer.seen())))
                if seen:  # a fast client waits for this before it leaves
                    running.process.stdin.close()
                return not running.is_running

            wait_until(ended, f"{library} exchanges its messages")
            assert running.wait_for_exit() == 0, running.output[-4000:]
        assert seen == {json.dumps(layer.seen(), sort_keys=True)}
        report: dict[str, Any] = json.loads(printed.read_text().splitlines()[-1])
        if layer.poison:
            report["dead"] = _dead(broker, library)
        return report

    return run


def _dead(broker: Broker, channel: str) -> list[tuple[str, str, int]]:
    """Body, reason and failures of each dead message of the channel."""
    page = broker.get(f"/channel/peek?topic=exchange&channel={channel}&state=dead")
    return [
        (b64decode(each["body"]).decode(), each["death"]["reason"], each["death"]["failures"])
        for each in page["messages"]
    ]


def interpreter(library: str, script: str) -> list[str]:
    """The command that runs ``<script>_<library>``."""
    if library != "nsqjs":
        return [sys.executable, str(HERE / f"{script}_{library}.py")]
    node = shutil.which("node", path=f"{os.environ['PATH']}{os.pathsep}{Path(sys.executable).parent}")
    if node is None or not (HERE / "node_modules" / "nsqjs").is_dir():
        pytest.skip("nsqjs is not installed: make tests/witnesses/node_modules/.installed")
    return [node, str(HERE / f"{script}_nsqjs.js")]


def _clients(broker: Broker, keys: set[str]) -> set[str]:
    """The values of ``keys`` in the broker's statistics of each client that publishes or consumes."""
    stats = web.get(f"{broker.url}/stats?format=json&include_mem=false", trust_env=False).json()
    shown = stats["producers"] or []
    for topic in stats["topics"]:
        for channel in topic["channels"]:
            shown += channel["clients"]
    return {json.dumps({key: client[key] for key in keys if key in client}, sort_keys=True) for client in shown}
