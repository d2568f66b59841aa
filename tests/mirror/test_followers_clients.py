"""Clients of a member that does not follow at the moment: they reach the primary as long as one leads."""

from __future__ import annotations

import errno
import json
import signal
import socket
import ssl
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import trustme

from tests.harness.daemon import Broker
from tests.harness.etcd import EtcdServer
from tests.harness.pair import HTTP, LONG_LEASE, MAY_NOT_LEAD, TCP, Member, Pair
from tests.harness.v2 import V2Client
from tests.harness.waiting import wait_until

if TYPE_CHECKING:
    from tests.mirror.conftest import StartPair

HTTPS = 21152
ATTEMPTS = 3
"""Attempts to join during which the clients are passed on."""


@pytest.fixture
def authority() -> trustme.CA:
    return trustme.CA()


def full_follower(pair: Pair) -> Member:
    """The follower, whose disk is full from now on: it cannot join again."""
    primary = pair.wait_for_primary()
    follower = pair.other(primary)
    follower.fail(write=errno.ENOSPC)
    primary.post("/pub", b"x", topic="t")
    follower.wait_for_log("MIRROR: cannot follow: .*/mirror.json cannot be written")
    return follower


def test_clients_of_a_follower_with_a_full_disk_are_passed_on(start_pair: StartPair) -> None:
    """Also between its attempts to join, and while there is no room for ``mirror.json`` to name the primary's term."""
    pair = start_pair(lease=LONG_LEASE, disks_fail=True)
    follower = full_follower(pair)
    links = pair.links(members=True)
    before = sum(link.accepted for link in links)
    passed_on = 0

    def has_tried_again() -> bool:
        nonlocal passed_on
        with V2Client(follower.tcp) as client:
            client.mpub("t", [b"more"])
        assert follower.post("/pub", b"more", topic="t") == "OK"
        passed_on += 2
        return sum(link.accepted for link in links) - before - passed_on >= ATTEMPTS

    wait_until(has_tried_again, "it tries to join again")
    follower.fail()
    pair.wait_until_in_sync()


def test_clients_are_not_passed_on_to_a_member_that_leads_no_more(start_pair: StartPair, tmp_path: Path) -> None:
    """Another broker may listen at its address, such as a node without a mirror: its messages are its own."""
    pair = start_pair(disks_fail=True)
    follower = full_follower(pair)
    primary = pair.other(follower)
    primary.end(signal.SIGKILL)
    follower.wait_for_log(MAY_NOT_LEAD)
    with Broker(tmp_path, f"--tcp-address={primary.host}:{TCP}", f"--http-address={primary.host}:{HTTP}") as alone:
        alone.wait_until_ready()
        answer = follower.request("GET", "/ping")
        assert (answer.status, json.loads(answer.text)) == (503, {"message": "NO_PRIMARY"})


def test_clients_of_https_get_an_alert(tmp_path: Path, etcd_server: EtcdServer, authority: trustme.CA) -> None:
    """A follower does not know the primary's port of HTTPS. Its clients learn that it refuses them, not the network."""
    pair = Pair(tmp_path, etcd_server, lease=LONG_LEASE)
    for member in pair.members:
        certificate = authority.issue_cert(member.host)
        certificate.private_key_and_cert_chain_pem.write_to_path(tmp_path / f"{member.name}.pem")
        files = (f"--tls-{kind}={tmp_path / member.name}.pem" for kind in ("cert", "key"))
        member.command += [f"--https-address={member.host}:{HTTPS}", *files]
    try:
        pair.start()
        primary = pair.wait_for_primary()
        context = ssl.create_default_context()
        authority.configure_trust(context)
        with pytest.raises(ssl.SSLError) as error:
            tls_to(pair.other(primary), context)
        assert error.value.reason == "TLSV1_ALERT_INTERNAL_ERROR"
        tls_to(primary, context)
    finally:
        pair.close()


def tls_to(member: Member, context: ssl.SSLContext) -> None:
    """Connect to a member's port of HTTPS."""
    with socket.create_connection((member.host, HTTPS)) as connected:
        context.wrap_socket(connected, server_hostname=member.host).close()


def test_clients_do_not_wait_for_a_primary_that_is_silent(start_pair: StartPair) -> None:
    """It may lead still, by the arbiter, and be out of reach for this member alone."""
    pair = start_pair(disks_fail=True)
    follower = full_follower(pair)
    links = pair.links(members=True)
    for link in links:
        link.cut()
    follower.wait_for_log("MIRROR: nothing was received from the primary")
    assert follower.request("GET", "/ping").status == 503
    for link in links:
        link.heal()
    follower.fail()
    pair.wait_until_in_sync()
