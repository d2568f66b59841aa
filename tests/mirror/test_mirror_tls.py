"""TLS between the members, and TLS and a user at etcd. All of it is real."""

from __future__ import annotations

import asyncio
import signal
import ssl
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import Mock

import pytest
import trustme

from brokerd.net.arbiter import ArbiterFailed
from brokerd.net.arbiter_access import ArbiterAccess
from brokerd.net.arbiters import arbiter_at
from brokerd.net.etcd import Etcd
from brokerd.net.following import ERRORS_BEFORE_LOG
from brokerd.net.mirror_tls import MirrorTLS
from brokerd.promotion import main
from tests.harness.daemon import Broker
from tests.harness.etcd import EtcdServer
from tests.harness.pair import LONG_LEASE, Pair, mirror_tls
from tests.harness.waiting import DEADLINE_S, wait_until

PASSWORD = "s3cret:word"
ATTEMPTS = 2 * (ERRORS_BEFORE_LOG + 2)
"""Attempts of both members to connect, more than enough for either to log why it fails."""
SHORT_LEASE = "3s"
"""A member suspects the other one's settings only once the primary has outlived its lease."""


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, authority: trustme.CA) -> Path:
    """Has ``ca``, and ``user`` with the name and password."""
    folder = tmp_path_factory.mktemp("tls")
    authority.cert_pem.write_to_path(folder / "ca")
    (folder / "user").write_text(f"root:{PASSWORD}\n")
    return folder


@pytest.fixture(scope="module")
def server(folder: Path, authority: trustme.CA) -> Iterator[EtcdServer]:
    """An etcd with TLS and a user."""
    server = EtcdServer(folder, authority)
    server.require_user(PASSWORD)
    yield server
    server.stop()


def access(folder: Path, *, user: str = "user") -> ArbiterAccess:
    return ArbiterAccess.of_files(str(folder / "ca"), str(folder / user) if user else "", "")


def failure(server: EtcdServer, given: ArbiterAccess | None) -> str:
    etcd = arbiter_at(f"etcds://{server.address}/x", timeout_s=DEADLINE_S, access=given)
    with pytest.raises(ArbiterFailed) as error:
        asyncio.run(etcd.read())
    return str(error.value)


def test_etcd_is_asked_with_tls_as_a_user(server: EtcdServer, folder: Path) -> None:
    etcd = arbiter_at(f"etcds://{server.address}/asked", timeout_s=DEADLINE_S, access=access(folder))
    assert asyncio.run(etcd.read()) == (None, 0, None)
    assert isinstance(etcd, Etcd)
    etcd._token = "forgotten.1"  # as after a restart of etcd
    assert asyncio.run(etcd.read()) == (None, 0, None)


def test_etcd_refuses_who_has_no_password_or_a_wrong_one(server: EtcdServer, folder: Path) -> None:
    (folder / "wrong").write_text("root:guessed")
    assert "user name is empty" in failure(server, access(folder, user=""))
    assert "authentication failed" in failure(server, access(folder, user="wrong"))


def test_an_etcd_of_an_unknown_authority_is_not_asked(server: EtcdServer) -> None:
    assert "certificate verify failed" in failure(server, None).lower()


def test_members_stream_with_tls_and_reach_etcd_with_it(
    tmp_path: Path, server: EtcdServer, folder: Path, authority: trustme.CA
) -> None:
    """The members connect to etcd itself: its certificate names its own host, not those of the pair's links to it."""
    pair = Pair(
        tmp_path, server, f"--arbiter-ca-file={folder / 'ca'}", f"--arbiter-user-file={folder / 'user'}",
        lease=LONG_LEASE, authority=authority,
    )  # fmt: skip
    for member in pair.members:
        member.command = [direct(word, server) for word in member.command]
    try:
        pair.start()
        primary = pair.wait_for_primary()
        primary.post("/pub", bytes(300_000), topic="t")
        assert primary.end(signal.SIGTERM) == 0
        new = pair.wait_for_primary()
        assert new is not primary
        assert new.topics()["t"]["depth"] == 1
        primary.start()
        pair.wait_until_in_sync()
    finally:
        pair.close()


def direct(word: str, server: EtcdServer) -> str:
    """The flag with etcd's own address, which its certificate names."""
    return f"--arbiter=etcds://{server.address}/{word.rpartition('/')[2]}" if word.startswith("--arbiter=") else word


@pytest.mark.parametrize("foreign", ["host", "authority"])
def test_a_member_with_a_foreign_certificate_is_refused(
    tmp_path: Path, etcd_server: EtcdServer, authority: trustme.CA, foreign: str
) -> None:
    pair = Pair(tmp_path, etcd_server, lease=SHORT_LEASE, authority=authority)
    first, second = pair.members
    try:
        (first.data_path / "topics").mkdir()
        first.start()
        first.wait_for_log("MIRROR: leads term 1")
        issuer, host = (authority, "other.example") if foreign == "host" else (trustme.CA(), "127.0.0.1")
        second.command += mirror_tls(issuer, tmp_path / "foreign", host)
        second.start()
        if foreign == "host":
            first.wait_for_log("MIRROR: the certificate of .* is not that of")
            second.wait_for_log("the primary closes the connection: its log says why")
        else:
            second.wait_for_log("MIRROR: cannot connect to .*certificate verify failed")
        assert not any("joins the primary" in line for line in second.log)
    finally:
        pair.close()


@pytest.mark.parametrize(
    ("peer", "is_named"),
    [("::1", True), ("0:0::1", True), ("::2", False), ("127.0.0.1", True), ("Node-B.example", True), ("b", False)],
)
def test_a_host_is_compared_with_a_certificate_however_it_is_written(peer: str, is_named: bool) -> None:
    """Python writes out the addresses of a certificate; upper and lower case mean the same host."""
    names = (("IP Address", "0:0:0:0:0:0:0:1"), ("IP Address", "127.0.0.1"), ("DNS", "node-b.example"))
    transport = Mock(get_extra_info=lambda _: Mock(getpeercert=lambda: {"subjectAltName": names}))
    context = ssl.create_default_context()
    assert MirrorTLS(context, context, peer).is_peer(transport) is is_named


@pytest.mark.parametrize("of_primary", [True, False])
def test_tls_on_one_member_only_is_named_once(
    tmp_path: Path, etcd_server: EtcdServer, authority: trustme.CA, of_primary: bool
) -> None:
    """By the member that does not expect it, or whose greeting is not understood."""
    pair = Pair(tmp_path, etcd_server, lease=SHORT_LEASE)
    first, second = pair.members
    (first if of_primary else second).command += mirror_tls(authority, tmp_path / "one", "127.0.0.1")
    try:
        (first.data_path / "topics").mkdir()
        first.start()
        first.wait_for_log("MIRROR: leads term 1")
        second.start()
        if of_primary:
            second.wait_for_log("the primary closes the connection: is --mirror-tls set on both members?")
        else:
            first.wait_for_log("it begins with TLS: --mirror-tls is set on one member only")
            second.wait_for_log("MIRROR: cannot connect")
            assert len([line for line in first.log if "it begins with TLS" in line]) == 1
    finally:
        pair.close()


@pytest.mark.parametrize("is_restarted", [False, True])
def test_tls_is_not_suspected_after_a_kill(tmp_path: Path, etcd_server: EtcdServer, is_restarted: bool) -> None:
    """Until the lease of the killed primary ends, a proxy at its address, or its new process, closes connections."""
    pair = Pair(tmp_path, etcd_server, lease=LONG_LEASE)
    try:
        pair.start()
        killed = pair.wait_for_primary()
        follower = pair.other(killed)
        killed.end(signal.SIGKILL)
        if is_restarted:
            killed.start()
            killed.wait_for_log("MIRROR: member")
        links = pair.links(members=True)
        before = sum(link.accepted for link in links)
        wait_until(lambda: sum(link.accepted for link in links) - before >= ATTEMPTS, "it connects again and again")
        assert not any("--mirror-tls" in line for line in follower.log)
    finally:
        pair.close()


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--mirror-tls"], "--mirror-tls, --arbiter-ca-file and --arbiter-user-file need --mirror-address"),
        (["--mirror-address=127.0.0.1:0", "--mirror-tls"], "--mirror-tls needs --tls-cert, --tls-key and"),
        (["--mirror-address=127.0.0.1:0", "--arbiter-ca-file=away.pem"], "--arbiter-ca-file: open away.pem: no such"),
        (["--mirror-address=127.0.0.1:0", "--arbiter-user-file={bad}"], "bad is not one line NAME:PASSWORD"),
    ],
)
def test_wrong_flags_are_named(tmp_path: Path, flags: list[str], message: str) -> None:
    data_path, bad = tmp_path / "data", tmp_path / "bad"
    data_path.mkdir()
    bad.write_text("nobody")
    given = [flag.format(bad=bad) for flag in flags]
    if given[0] != "--mirror-tls":
        given += ["--mirror-peer=127.0.0.1:1", "--arbiter=etcds://127.0.0.1:1/x"]
    broker = Broker(data_path, *given).start()
    assert broker.wait_for_exit() == 1
    assert message in broker.output
    broker.close()


def test_the_command_names_a_file_that_cannot_be_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [f"--data-path={tmp_path}", "--arbiter=etcds://127.0.0.1:1/x", "--arbiter-user-file=away"]
    with pytest.raises(SystemExit) as end:
        main(arguments)
    assert end.value.code == 2
    assert "--arbiter-user-file: open away: no such file or directory" in capsys.readouterr().err
