"""Clusters that require TLS: a registry and a node, ours, and Go's if NSQ_REFERENCE names the directory of its
programs."""

from __future__ import annotations

import os
import ssl
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import trustme
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from bench.ports import free_ports
from nsqcluster import Cluster, tls_context
from tests.harness import web
from tests.harness.ci import IN_CI
from tests.harness.daemon import IMPORTS
from tests.harness.process import Process
from tests.harness.waiting import DEADLINE_S, wait_until

REFERENCE = os.environ.get("NSQ_REFERENCE", "")
MISSING = "NSQ_REFERENCE must name a directory with Go's nsqd and nsqlookupd (docs/contributing.md)"


def implementations() -> list[Any]:
    """Ours, and Go's: skipped without its programs, but in CI, which has none and skips nothing, not collected."""
    if REFERENCE:
        return ["ours", "go"]
    return ["ours"] if IN_CI else ["ours", pytest.param("go", marks=pytest.mark.skip(reason=MISSING))]


@dataclass(frozen=True, kw_only=True)
class Certificates:
    """Paths of PEM files: the authority, the server's chain and key, the client's, and its key under a passphrase."""

    authority: str
    cert: str
    key: str
    client_cert: str
    client_key: str
    locked_key: str

    def context(self) -> ssl.SSLContext:
        return tls_context(root_ca_file=self.authority, cert=self.client_cert, key=self.client_key)


@dataclass(frozen=True, kw_only=True)
class StrictCluster:
    """One registry and one node; the node requires TLS and a client certificate."""

    implementation: str
    lookupd: str
    nsqd: str
    https: str
    certificates: Certificates

    def cluster(self, *, given: bool = False, tls: ssl.SSLContext | None = None) -> Cluster:
        """With the registry, or with the node given by its address."""
        context = tls or self.certificates.context()
        return Cluster(nsqd=(self.nsqd,), tls=context) if given else Cluster(lookupd=(self.lookupd,), tls=context)

    def publish(self, topic: str, *bodies: bytes) -> None:
        with httpx.Client(verify=self.certificates.context(), trust_env=False, timeout=DEADLINE_S) as client:
            for body in bodies:
                answer = client.post(f"https://{self.https}/pub", params={"topic": topic}, content=body)
                assert answer.status_code == 200, answer.text


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    directory: Path = tmp_path_factory.mktemp("certificates")
    authority = trustme.CA()
    server, client = authority.issue_cert("127.0.0.1"), authority.issue_cert("operator@example.org")
    paths = {name: str(directory / f"{name}.pem") for name in Certificates.__dataclass_fields__}
    authority.cert_pem.write_to_path(paths["authority"])
    server.cert_chain_pems[0].write_to_path(paths["cert"])
    server.private_key_pem.write_to_path(paths["key"])
    client.cert_chain_pems[0].write_to_path(paths["client_cert"])
    client.private_key_pem.write_to_path(paths["client_key"])
    key = load_pem_private_key(client.private_key_pem.bytes(), None)
    locked = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"passphrase"))
    Path(paths["locked_key"]).write_bytes(locked)
    return Certificates(**paths)


@pytest.fixture(scope="module", params=implementations())
def strict(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, certificates: Certificates
) -> Iterator[StrictCluster]:
    """Started once for a module; each test uses topics of its own."""
    tcp, http, https, lookup_tcp, lookup_http = (f"127.0.0.1:{port}" for port in free_ports(5))
    programs = {
        "ours": ([sys.executable, "-m", "nsqlookup"], [sys.executable, "-m", "brokerd"]),
        "go": ([f"{REFERENCE}/nsqlookupd"], [f"{REFERENCE}/nsqd"]),
    }
    lookupd, nsqd = programs[request.param]
    lookupd += [f"--tcp-address={lookup_tcp}", f"--http-address={lookup_http}"]
    nsqd += [
        *(f"--tcp-address={tcp}", f"--http-address={http}", f"--https-address={https}"),
        *(f"--lookupd-tcp-address={lookup_tcp}", "--broadcast-address=127.0.0.1"),
        f"--data-path={tmp_path_factory.mktemp(request.param)}",
        *("--tls-required=true", "--tls-client-auth-policy=require-verify"),
        *(f"--tls-cert={certificates.cert}", f"--tls-key={certificates.key}"),
        f"--tls-root-ca-file={certificates.authority}",
    ]
    with ExitStack() as stack:
        registry, node = (stack.enter_context(Process(command, imports=IMPORTS)) for command in (lookupd, nsqd))

        def status(url: str) -> int | None:
            assert registry.is_running, registry.output
            assert node.is_running, node.output
            try:
                return web.get(url).status_code
            except httpx.TransportError:
                return None

        def is_registered() -> bool:
            return bool(web.get(f"http://{lookup_http}/nodes").json()["producers"])

        wait_until(lambda: status(f"http://{lookup_http}/ping") == 200, "nsqlookupd answers")
        wait_until(lambda: status(f"http://{http}/ping") == 403, "nsqd requires TLS")
        wait_until(is_registered, "nsqd is registered")
        yield StrictCluster(
            implementation=request.param, lookupd=lookup_http, nsqd=http, https=https, certificates=certificates
        )
