"""Nodes that accept HTTPS only: nsqd answers 403 on its HTTP port, with the port of HTTPS."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme

from bench.ports import free_ports
from tests.harness import web
from tests.harness.daemon import Broker, Registry
from tests.harness.waiting import wait_until

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(params=["registries", "nodes"])
def strict_node(request: Any, tmp_path: Path, settings: Any, nsqadmin_settings: Callable[..., None]) -> Iterator[str]:
    """Its HTTP address; the platform trusts its authority, and finds it in a registry or in the settings."""
    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1")
    ca, cert, key = (str(tmp_path / name) for name in ("ca.pem", "cert.pem", "key.pem"))
    authority.cert_pem.write_to_path(ca)
    certificate.cert_chain_pems[0].write_to_path(cert)
    certificate.private_key_pem.write_to_path(key)
    nsqadmin_settings(http_client_tls_root_ca_file=ca)
    [https] = free_ports(1)
    registry = Registry().launch()
    node = Broker(
        tmp_path,
        *(f"--https-address=127.0.0.1:{https}", "--tls-required", f"--tls-cert={cert}", f"--tls-key={key}"),
        *("--broadcast-address=127.0.0.1", f"--lookupd-tcp-address={registry.tcp_address}"),
    ).launch()
    with web.client(verify=ssl.create_default_context(cafile=ca), trust_env=False) as client:
        for target in ("/topic/create?topic=orders", "/channel/create?topic=orders&channel=billing"):
            assert client.post(f"https://127.0.0.1:{https}{target}").status_code == 200
    if request.param == "registries":
        settings.NSQLOOKUPD_HTTP_ADDRESSES, settings.NSQD_HTTP_ADDRESSES = (registry.http_address,), ()
        wait_until(lambda: registry.get("/topics")["topics"] == ["orders"], "the topic listed")
    else:
        settings.NSQLOOKUPD_HTTP_ADDRESSES, settings.NSQD_HTTP_ADDRESSES = (), (node.http_address,)
    yield node.http_address
    for server in (node, registry):
        server.stop()


def test_a_node_that_requires_https_is_read_and_acted_on(strict_node, api):
    """Like nsqadmin, the platform repeats the request over HTTPS, with the configured authorities."""
    assert api.get("/api/topics/orders").json()["paused"] is False
    for path in ("/api/topics/orders", "/api/topics/orders/billing"):
        answer = api.post(path, {"action": "pause"})
        assert (answer.status_code, answer.json()["message"]) == (200, "")
        assert api.get(path).json()["paused"] is True
    assert api.delete(f"/api/nodes/{strict_node}", {"topic": "orders"}).json()["message"] == ""
