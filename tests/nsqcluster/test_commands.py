"""``nsq topics``, ``nsq channels``, ``nsq nodes`` and ``nsq stat`` on a cluster whose node requires TLS and a client
certificate."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.harness.command import nsq
from tests.harness.waiting import wait_until
from tests.nsqcluster.conftest import StrictCluster

pytestmark = pytest.mark.parametrize("given", [False, True], ids=["registry", "given node"])


def address(strict: StrictCluster, given: bool) -> str:
    return f"--nsqd-http-address={strict.nsqd}" if given else f"--lookupd-http-address={strict.lookupd}"


def client_certificate(strict: StrictCluster) -> list[str]:
    certificates = strict.certificates
    return [
        f"--http-client-tls-cert={certificates.client_cert}",
        f"--http-client-tls-key={certificates.client_key}",
    ]


def authority(strict: StrictCluster) -> str:
    return f"--http-client-tls-root-ca-file={strict.certificates.authority}"


def test_lists_and_actions(strict: StrictCluster, given: bool) -> None:
    """Every command reads the node and acts on it over HTTPS."""
    topic, flags = f"commands-{given}", [address(strict, given), authority(strict), *client_certificate(strict)]
    strict.publish(topic, b"first")
    wait_until(lambda: topic in nsq("topics", "--json", *flags).stdout, "the topic is listed")
    assert nsq("channels", "create", topic, "archive", *flags).returncode == 0
    paused = nsq("channels", "pause", topic, "archive", *flags)
    assert (paused.returncode, paused.stdout, paused.stderr) == (
        0,
        f"channel archive of topic {topic}: paused on {strict.nsqd}\n",
        "",
    )
    listed = nsq("channels", "list", topic, "--json", *flags)
    assert [(row["name"], row["paused"]) for row in json.loads(listed.stdout)["channels"]] == [("archive", True)]
    nodes = nsq("nodes", "--json", *flags)
    assert [(row["id"], row["state"]) for row in json.loads(nodes.stdout)["nodes"]] == [(strict.nsqd, "up")]
    assert (nodes.returncode, nodes.stderr) == (0, "")


def test_stat(strict: StrictCluster, given: bool) -> None:
    """The line has the node's figures."""
    topic, flags = f"stat-{given}", [address(strict, given), authority(strict), *client_certificate(strict)]
    strict.publish(topic, b"first", b"second")
    wait_until(lambda: topic in nsq("topics", "--json", *flags).stdout, "the topic is listed")
    assert nsq("channels", "create", topic, "archive", *flags).returncode == 0
    line = nsq("stat", f"--topic={topic}", "--channel=archive", "--interval=50ms", "--count=1", *flags)
    assert (line.returncode, line.stderr) == (0, "")
    assert line.stdout.splitlines()[-1].split()[-2:] == ["2", "0"]


def test_certificates_that_are_not_verified(strict: StrictCluster, given: bool) -> None:
    """Without the authority, the node is reported as failed; ``--http-client-tls-insecure-skip-verify`` accepts it,
    and takes no value."""
    flags = [address(strict, given), *client_certificate(strict)]
    refused = nsq("nodes", "list", strict.nsqd, *flags)
    assert refused.returncode == 1
    assert f"nsq nodes: nsqd {strict.nsqd}: TLS: " in refused.stderr
    accepted = nsq("nodes", "--http-client-tls-insecure-skip-verify", "list", strict.nsqd, "--json", *flags)
    assert (accepted.returncode, accepted.stderr) == (0, "")
    assert [row["state"] for row in json.loads(accepted.stdout)["nodes"]] == ["up"]


def test_files_that_cannot_be_used(strict: StrictCluster, given: bool, tmp_path: Path) -> None:
    """An error names the flag, before any request."""
    cert, key = client_certificate(strict)
    missing, garbage = tmp_path / "missing.pem", tmp_path / "garbage.pem"
    garbage.write_text("no certificate")
    expected = {
        (cert,): "--http-client-tls-key must be specified with --http-client-tls-cert",
        (key,): "--http-client-tls-cert must be specified with --http-client-tls-key",
        (f"--http-client-tls-root-ca-file={missing}",): f"--http-client-tls-root-ca-file ({missing}) cannot be read",
        (f"--http-client-tls-root-ca-file={garbage}",): "--http-client-tls-root-ca-file: "
        f"{garbage} is not a PEM file of certificates: ",
        (cert, f"--http-client-tls-key={strict.certificates.locked_key}"): "--http-client-tls-key: "
        f"the key in {strict.certificates.locked_key} is encrypted: a key file must not require a "
        "passphrase",
    }
    for flags, message in expected.items():
        topics = nsq("topics", address(strict, given), *flags)
        stat = nsq("stat", "--topic=t", "--channel=c", address(strict, given), *flags)
        for done in (topics, stat):
            assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)
        assert topics.stderr.startswith(f"nsq topics: {message}")
        assert stat.stderr.startswith(f"nsq stat: {message}")
