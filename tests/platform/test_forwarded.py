"""Behind a proxy: the client address in the audit trail, in the log and for the networks of the settings."""

from __future__ import annotations

import logging
from ipaddress import IPv4Address, IPv6Address

import pytest
from hypothesis import given
from hypothesis import strategies as st
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from nsqplatform.accounts.forwarded import client_of
from nsqplatform.accounts.models import AuditEntry, Session, User
from nsqplatform.accounts.networks import networks, within

PROXIES = networks("trusted-proxy-cidr", ["10.0.0.0/8", "::1/128"])
PROXY, ELSEWHERE, CLIENT = "10.0.0.1", "203.0.113.9", "198.51.100.7"
ENDPOINTS = [("POST", "/api/v1/actions"), ("DELETE", "/api/topics/orders")]
"""Django's, and that in front of it."""

addresses = st.one_of(st.integers(0, 2**32 - 1).map(IPv4Address), st.integers(0, 2**128 - 1).map(IPv6Address)).map(str)
hop = st.one_of(
    addresses,
    st.sampled_from(["10.0.0.2", "::1", "[::1]:80", "10.0.0.3:8080", "unknown", "", "_hidden"]),
    st.text(max_size=20),
)


strangers = addresses.filter(lambda address: not within(address, PROXIES))


@given(st.lists(st.lists(hop, max_size=4).map(", ".join), max_size=3), strangers)
def test_only_addresses_added_by_trusted_proxies_count(forwarded, stranger):
    """Values that a client puts into the header itself are ignored, whether it connects directly or through one proxy
    or two."""
    assert client_of(stranger, forwarded, PROXIES) == stranger
    assert client_of(PROXY, [*forwarded, stranger], PROXIES) == stranger
    assert client_of(PROXY, [*forwarded, f"{stranger}, 10.0.0.2"], PROXIES) == stranger


@pytest.mark.parametrize(
    ("forwarded", "client"),
    [
        ([CLIENT], CLIENT),
        (["127.0.0.1, 192.0.2.1", f"{CLIENT}, 10.0.0.2"], CLIENT),
        ([f"{CLIENT}:51234"], CLIENT),
        (["[2001:db8::7]:443, 10.0.0.2"], "2001:db8::7"),
        (["10.0.0.3, 10.0.0.2"], "10.0.0.3"),
        ([f"{CLIENT}, unknown"], PROXY),
        ([""], PROXY),
        ([], PROXY),
    ],
)
def test_the_client_is_the_rightmost_that_is_no_proxy(forwarded, client):
    """Addresses that the client itself wrote are to the left of it."""
    assert client_of(PROXY, forwarded, PROXIES) == client


@pytest.fixture
def behind_proxy(nsqadmin_settings) -> None:
    nsqadmin_settings(trusted_proxy_cidr=("10.0.0.0/8",), admin_user=("alice",))


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(("method", "path"), ENDPOINTS)
def test_the_trail_and_the_log_name_the_client(go_cluster, locked_api, behind_proxy, caplog, method, path):
    """Not the proxy's address."""
    caplog.set_level(logging.INFO)
    locked_api.request(method, path, {}, peer=PROXY, X_Forwarded_For=f"127.0.0.1, {CLIENT}, 10.0.0.2")
    assert AuditEntry.objects.get(outcome="refused").remote_address == CLIENT
    assert [record.peer for record in caplog.records if record.message == "refused"] == [CLIENT]


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(("method", "path"), ENDPOINTS)
def test_from_anywhere_else_the_header_is_not_trusted(go_cluster, locked_api, behind_proxy, caplog, method, path):
    """Otherwise anyone who can connect could forge the address in the audit trail."""
    caplog.set_level(logging.INFO)
    locked_api.request(method, path, {}, peer=ELSEWHERE, X_Forwarded_For=CLIENT)
    assert AuditEntry.objects.get(outcome="refused").remote_address == ELSEWHERE
    assert [record.peer for record in caplog.records if record.message == "refused"] == [ELSEWHERE]


@pytest.mark.django_db(transaction=True)
def test_an_action_through_a_proxy_is_audited_with_its_client(go_cluster, locked_api, behind_proxy):
    """The user is the one that the proxy names, because the proxy opened the connection."""
    go_cluster.nodes[0].topic("orders")
    named = {"X_Forwarded_User": "alice", "X_Forwarded_For": CLIENT}
    assert locked_api.post("/api/topics/orders", {"action": "pause"}, peer=PROXY, **named).status_code == 200
    entry = AuditEntry.objects.get(action="pause")
    assert (entry.user, entry.via, entry.remote_address) == ("alice", "header", CLIENT)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("path", ["/api/topics", "/api/v1/me"])
def test_a_user_named_past_the_proxy_is_not_trusted(go_cluster, locked_api, behind_proxy, path):
    """Not even if the caller claims to forward for one of the proxies."""
    spoofed = {"X_Forwarded_User": "alice", "X_Forwarded_For": PROXY}
    assert locked_api.get(path, peer=ELSEWHERE, **spoofed).status_code == 401
    assert not User.objects.filter(username="alice").exists()
    entry = AuditEntry.objects.get(action="sign-in", outcome="refused")
    assert (entry.subject, entry.remote_address) == ("header naming alice", ELSEWHERE)


@pytest.mark.django_db(transaction=True)
def test_scripts_are_accepted_by_their_own_address(go_cluster, locked_api, nsqadmin_settings):
    """A proxy on this machine does not make its clients local scripts, whatever they put into the header."""
    nsqadmin_settings(script_role="admin")
    assert locked_api.get("/api/topics", peer="127.0.0.1").status_code == 200
    for forwarded in (CLIENT, f"127.0.0.1, {CLIENT}"):
        assert locked_api.get("/api/topics", peer="127.0.0.1", X_Forwarded_For=forwarded).status_code == 401
        assert locked_api.get("/config/log_level", peer="127.0.0.1", X_Forwarded_For=forwarded).status_code == 403
    assert locked_api.get("/api/topics", peer=ELSEWHERE, X_Forwarded_For="127.0.0.1").status_code == 401


@pytest.mark.django_db(transaction=True)
def test_a_session_is_listed_with_its_clients_address(locked_api, account, behind_proxy):
    """So its owner can recognise foreign sessions."""
    account("viewer")
    body = {"username": "viewer", "password": "correct horse battery staple"}
    assert locked_api.post("/api/v1/session", body, peer=PROXY, X_Forwarded_For=CLIENT).status_code == 200
    assert Session.objects.get().address == CLIENT


@pytest.mark.django_db(transaction=True)
def test_a_websocket_through_a_proxy_is_its_clients(web):
    """Through real sockets; by default, connections from this machine are trusted."""
    with (
        pytest.raises(InvalidStatus),
        connect(
            f"ws://127.0.0.1:{web.port}/ws/cluster",
            origin="http://evil.example",  # type: ignore[arg-type]
            additional_headers={"X-Forwarded-For": CLIENT},
            proxy=None,
        ),
    ):
        pass
    assert AuditEntry.objects.get(outcome="refused").remote_address == CLIENT
