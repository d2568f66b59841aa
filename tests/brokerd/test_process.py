"""The broker as a process: flags, log lines, exit statuses, signals and sockets."""

from __future__ import annotations

import json
import os
import re
import resource
import signal
import socket
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from brokerd.settings import BrokerSettings
from nsqdaemon.settings import declarations
from tests.harness import web
from tests.harness.waiting import DEADLINE_S, wait_until


def run(*flags: str, **options) -> subprocess.CompletedProcess[str]:
    """Run a broker that ends by itself."""
    command = [sys.executable, "-m", "brokerd", *flags]
    return subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False, **options)


def test_version_and_help_end_at_once():
    """--version goes to stdout, for tools that parse it; usage goes to stderr."""
    version = run("--version")
    assert (version.returncode, version.stdout[:19]) == (0, "nsqd v1.3.0 (built ")
    usage = run("-h")
    assert (usage.returncode, usage.stdout) == (0, "")
    for name, declaration in declarations(BrokerSettings).items():
        assert declaration.hidden or f"--{declaration.flag_name}" in usage.stderr, name


NSQD_FLAGS = frozenset(
    """
    config version verbose worker-id log-level log-prefix node-id tcp-address http-address https-address
    broadcast-address broadcast-tcp-port broadcast-http-port lookupd-tcp-address auth-http-address
    auth-http-request-method http-client-connect-timeout http-client-request-timeout topology-region topology-zone
    data-path mem-queue-size max-bytes-per-file sync-every sync-timeout queue-scan-worker-pool-max
    queue-scan-selection-count msg-timeout max-msg-timeout max-msg-size max-body-size max-req-timeout
    max-heartbeat-interval max-rdy-count max-output-buffer-size max-output-buffer-timeout min-output-buffer-timeout
    output-buffer-timeout max-channel-consumers statsd-address statsd-prefix statsd-interval statsd-mem-stats
    statsd-udp-packet-size statsd-exclude-ephemeral e2e-processing-latency-percentile
    e2e-processing-latency-window-time tls-cert tls-key tls-client-auth-policy tls-root-ca-file tls-required
    tls-min-version deflate snappy max-deflate-level enable-experiment
    """.split()  # noqa: SIM905 (sixty lines of one word each would hide them)
)
OUR_FLAGS = {
    "arbiter",
    "arbiter-ca-file",
    "arbiter-service-account",
    "arbiter-user-file",
    "disk-reserve",
    "disk-timeout",
    "drain-publishes",
    "dedup-window",
    "drain-timeout",
    "log-format",
    "max-attempts",
    "max-unfinished-size",
    "min-in-sync",
    "mirror-address",
    "mirror-lease",
    "mirror-peer",
    "mirror-tls",
    "msg-ttl",
    "otlp-endpoint",
    "otlp-interval",
    "permanent-error-status",
    "retention",
    "retention-bytes",
    "retry-delay",
}


def test_every_flag_of_nsqd_is_known():
    """A command line for nsqd starts this broker."""
    assert {declaration.flag_name for declaration in declarations(BrokerSettings).values()} == NSQD_FLAGS | OUR_FLAGS


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--no-such-flag"], "flag provided but not defined: -no-such-flag"),
        (["--max-msg-size"], "flag needs an argument: -max-msg-size"),
        (["--max-msg-size=big"], "'big' is not a whole number"),
        (["--max-msg-size=0"], "0 is less than 1"),
        (["--msg-timeout=60"], "the duration '60' needs a unit"),
        (["--msg-timeout=-5s"], "-5s is less than 1ms"),
        (["--log-level=loud"], "'loud' is not a log level"),
        (["--tls-required=maybe"], "'maybe' is not one of"),
        (["--deflate=perhaps"], "'perhaps' is neither true nor false"),
        (["--mem-queue-size=-1"], "-1 is less than 0"),
        (["--broadcast-tcp-port=70000"], "70000 is more than 65535"),
    ],
)
def test_a_bad_flag_is_named_with_exit_status_2(flags, message):
    """The first line says what is wrong; usage follows."""
    ended = run(*flags)
    assert ended.returncode == 2
    assert message in ended.stderr.splitlines()[0]
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--max-deflate-level=0"], "--max-deflate-level must be [1,9]"),
        (["--max-deflate-level=10"], "--max-deflate-level must be [1,9]"),
        (["--node-id=1024"], "--node-id must be [0,1024)"),
        (["--disk-reserve=some"], "--disk-reserve: 'some' is not a part of the disk such as 5%, or a size such as 2GB"),
        (["--disk-reserve=100%"], "--disk-reserve: '100%' is not below 100%"),
        (["--node-id=-1"], "--node-id must be [0,1024)"),
        (["--auth-http-request-method=put"], "--auth-http-request-method must be post or get"),
        (["--e2e-processing-latency-percentile=1.5"], "invalid E2E processing latency percentile: 1.5"),
        (["--e2e-processing-latency-percentile=0.5,0"], "invalid E2E processing latency percentile: 0"),
        (["--data-path=/no/such/dir"], "failed to lock data-path: open /no/such/dir: no such file or directory"),
        (["--tcp-address=256.0.0.1:0"], "listen (256.0.0.1:0) failed - "),
        (["--http-address=127.0.0.1:99999"], "listen (127.0.0.1:99999) failed - "),
        (
            ["--tls-cert=/no/cert.pem", "--tls-key=/no/key.pem"],
            "failed to build TLS config - open /no/cert.pem: no such file or directory",
        ),
        (["--tls-key=/no/key.pem"], "failed to build TLS config - open : no such file or directory"),
        (["--tls-cert=/dev/null", "--tls-key=/dev/null"], "failed to build TLS config - /dev/null: "),
        (["--tls-required"], "cannot require TLS client connections without TLS key and cert"),
        (["--tls-required=tcp-https"], "cannot require TLS client connections without TLS key and cert"),
        (["--tls-client-auth-policy=require"], "cannot require TLS client connections without TLS key and cert"),
        (
            ["--tls-root-ca-file=/no/ca.pem"],
            "failed to build client TLS config - open /no/ca.pem: no such file or directory",
        ),
        (["--tls-root-ca-file=/dev/null"], "failed to build client TLS config - /dev/null: "),
        (["--statsd-address=127.0.0.1"], "--statsd-address: address '127.0.0.1': missing port in address"),
    ],
)
def test_settings_that_cannot_work_are_named_with_exit_status_1(tmp_path, flags, message):
    """One FATAL line in the log; no port is opened, and no file is left behind."""
    defaults = [f"--data-path={tmp_path}", "--tcp-address=127.0.0.1:0", "--http-address=127.0.0.1:0"]
    ended = run(*[flag for flag in defaults if flag.split("=")[0] != flags[0].split("=")[0]], *flags)
    assert ended.returncode == 1
    (fatal,) = [line for line in ended.stderr.splitlines() if "FATAL" in line]
    assert f"FATAL: failed to instantiate nsqd - {message}" in fatal
    assert "Traceback" not in ended.stderr
    assert "listening" not in ended.stderr


def test_a_percentile_that_is_no_number_is_named_as_nsqd_names_it():
    """Exit status 1 and, unlike for other flags, a line without level or prefix."""
    ended = run("--e2e-processing-latency-percentile=0.5,half")
    assert ended.returncode == 1
    assert re.fullmatch(r"\d{4}/\d\d/\d\d \d\d:\d\d:\d\d Could not parse: half\n", ended.stderr)


def test_settings_come_from_the_file_unless_a_flag_says_otherwise(start_broker, tmp_path):
    """A flag overrides the environment, which overrides the file, which overrides the default; keys are nsqd's."""
    file = tmp_path / "nsqd.cfg"
    file.write_text('max_msg_size = 200\nmsg_timeout = "2s"\nmax_rdy_count = 7\nid = 9\n[table]\nx = 1\n')
    broker = start_broker(f"--config={file}", "--max-msg-size=300")
    values = {key: broker.request("GET", f"/config/{key}").text for key in ("max_msg_size", "msg_timeout", "id")}
    assert values == {"max_msg_size": "300", "msg_timeout": "2000000000", "id": "9"}
    broker.wait_for_log("ID: 9$")


@pytest.mark.parametrize("text", ["max_msg_size = ", "max_msg_size = 1.5", 'log_level = "loud"', None])
def test_a_bad_file_is_named_with_exit_status_1(tmp_path, text):
    """The line names the file or the key."""
    file = tmp_path / "nsqd.cfg"
    if text is not None:
        file.write_text(text)
    ended = run(f"--config={file}", f"--data-path={tmp_path}")
    assert ended.returncode == 1
    (fatal,) = ended.stderr.splitlines()
    assert f"failed to load config file {file} - " in fatal or f"failed parsing {text.split()[0]} " in fatal


def test_the_log_begins_with_product_id_and_addresses_and_ends_with_bye(broker):
    """Scripts pass port 0 and read the addresses from these lines."""
    assert broker.terminate() == 0
    texts = [line.split(" INFO: ")[1] for line in broker.log if " INFO: " in line]
    assert texts[0].startswith("nsqd v1.3.0 (built w/")
    assert texts[1].startswith("ID: ")
    assert f"TCP: listening on 127.0.0.1:{broker.tcp[1]}" in texts
    assert f"HTTP: listening on 127.0.0.1:{broker.http[1]}" in texts
    assert texts[-1] == "NSQ: bye"
    assert broker.log[0].startswith("[nsqd] ")
    assert 0 not in (broker.tcp[1], broker.http[1])


def test_the_log_can_be_json(start_broker):
    """With --log-format=json every line is an object with time, level, logger and message."""
    broker = start_broker("--log-format=json", ready=False)
    broker.wait_for_log("HTTP: listening on ")
    assert broker.terminate() == 0
    records = [json.loads(line) for line in broker.log]
    assert all(list(record) == ["time", "level", "logger", "message"] for record in records)
    assert [records[1]["message"].startswith("ID: "), records[-1]["message"]] == [True, "NSQ: bye"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_cleanly_whoever_is_connected(broker, connect, number):
    """Silent connections, consumers, publishers and incomplete requests do not delay the end."""
    silent, consumer, half = connect(broker, magic=b""), connect(broker), socket.create_connection(broker.http)
    consumer.ok(b"SUB t c\n")
    half.sendall(b"POST /pub?topic=t HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nhalf")
    broker.process.send_signal(number)
    broker.process.send_signal(number)
    assert broker.wait_for_exit() == 0
    assert broker.log[-1].endswith("NSQ: bye")
    assert silent.is_closed()
    assert consumer.is_closed()
    half.close()


def test_a_consumer_that_does_not_read_neither_delays_the_end_nor_costs_messages(start_broker, connect):
    """Messages that were sent into its full connection are delivered to another consumer after the restart."""
    broker = start_broker()
    deaf = connect(broker)
    deaf.ok(b"SUB t c\n")
    deaf.send(b"RDY 100\n")
    for _ in range(100):
        assert broker.request("POST", "/pub?topic=t", b"x" * 200_000).text == "OK"
    wait_until(lambda: broker.stats()["topics"][0]["channels"][0]["in_flight_count"] > 0)
    assert broker.terminate() == 0
    again = start_broker(data_path=broker.data_path)
    (channel,) = again.stats()["topics"][0]["channels"]
    assert (channel["depth"], channel["in_flight_count"], channel["client_count"]) == (100, 0, 0)
    consumer = connect(again)
    consumer.ok(b"SUB t c\n")
    consumer.send(b"RDY 100\n")
    assert {len(consumer.message()[2]) for _ in range(100)} == {200_000}


def test_a_data_path_belongs_to_one_broker(start_broker):
    """A second broker on the same directory reports this and exits; the first goes on."""
    first = start_broker()
    second = start_broker(data_path=first.data_path, ready=False)
    assert second.wait_for_exit() == 1
    (fatal,) = [line for line in second.log if "FATAL" in line]
    assert fatal.endswith(
        f"failed to instantiate nsqd - failed to lock data-path: cannot flock directory {first.data_path} - "
        "resource temporarily unavailable (possibly in use by another instance of nsqd)"
    )
    assert first.request("GET", "/ping").text == "OK"


def test_errors_that_a_restart_may_end_have_status_1(start_broker):
    """A supervisor that asked for a status of permanent errors starts the broker again after these."""
    first = start_broker()
    asked = "--permanent-error-status=78"
    locked = start_broker(asked, data_path=first.data_path, ready=False)
    taken = start_broker(asked, f"--http-address={first.http_address}", ready=False)
    assert (locked.wait_for_exit(), taken.wait_for_exit()) == (1, 1)


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("checkpoint", "{}", "failed to load metadata - {path}/checkpoint is damaged"),
        ("nsqd.dat", "{]", "failed to load metadata - failed to parse metadata in {path}/nsqd.dat - "),
        ("..", "", "failed to lock data-path: open {path}: not a directory"),
    ],
)
def test_a_data_path_that_needs_somebody_has_the_status_of_a_permanent_error(tmp_path, name, text, said):
    """A damaged file, a foreign one under one of the broker's names, and a file in place of the directory."""
    data_path = tmp_path / "data"
    if name == "..":
        data_path.write_text(text)
    else:
        data_path.mkdir()
        (data_path / name).write_text(text)
    flags = [f"--data-path={data_path}", "--tcp-address=127.0.0.1:0", "--http-address="]
    for more, status in (([], 1), (["--permanent-error-status=78"], 78)):
        ended = run(*flags, *more)
        assert ended.returncode == status, ended.stderr
        (fatal,) = [line for line in ended.stderr.splitlines() if "FATAL" in line]
        assert said.format(path=data_path) in fatal


def test_a_taken_port_is_named_and_the_data_stays_free(start_broker):
    """The address and the reason are logged; afterwards the data path can be used."""
    first = start_broker()
    second = start_broker(f"--http-address={first.http_address}", ready=False)
    assert second.wait_for_exit() == 1
    (fatal,) = [line for line in second.log if "FATAL" in line]
    assert fatal.endswith(f"failed to instantiate nsqd - listen ({first.http_address}) failed - Address already in use")
    assert start_broker(data_path=second.data_path).request("GET", "/ping").text == "OK"


def test_it_starts_on_the_same_ports_and_data_right_after_a_kill(start_broker, connect):
    """Neither the lock nor a port in TIME_WAIT prevents it."""
    first = start_broker()
    client = connect(first)
    client.ok(b"PUB t\n\x00\x00\x00\x04kept")
    first.kill()
    again = start_broker(
        f"--tcp-address={first.tcp_address}", f"--http-address={first.http_address}", data_path=first.data_path
    )
    consumer = connect(again)
    consumer.ok(b"SUB t c\n")
    consumer.send(b"RDY 1\n")
    assert consumer.message()[2] == b"kept"


def limit_files(broker, size: int) -> None:
    """Limit the size of the broker's files to ``size`` bytes, as on a full disk; -1 removes the limit."""
    _, most = resource.prlimit(broker.process.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(broker.process.pid, resource.RLIMIT_FSIZE, (size, most))


def test_a_full_disk_is_reported_to_publishers_and_monitoring_until_there_is_room(start_broker, connect):
    """A publish that cannot be stored is refused; /ping and /stats say so; nothing is lost, and it recovers by
    itself."""
    broker = start_broker()
    limit_files(broker, 4096)
    answer = broker.request("POST", "/pub?topic=t", b"refused")
    assert (answer.status, answer.text) == (503, '{"message":"EXITING"}')
    answer = broker.request("POST", "/mpub?topic=t", b"refused\ntoo")
    assert (answer.status, answer.text) == (503, '{"message":"EXITING"}')
    producer = connect(broker)
    kind, text = producer.command(b"PUB t\n\x00\x00\x00\x01x")
    assert (kind, text[:24]) == (1, b"E_PUB_FAILED PUB failed ")
    ping = broker.request("GET", "/ping")
    assert (ping.status, ping.text[:6]) == (500, "NOK - ")
    assert "too large" in ping.text
    assert broker.stats()["health"] == ping.text
    limit_files(broker, -1)
    assert broker.request("POST", "/pub?topic=t", b"kept").text == "OK"
    assert broker.request("GET", "/ping").text == "OK"
    consumer = connect(broker)
    consumer.ok(b"SUB t c\n")
    consumer.send(b"RDY 10\n")
    assert consumer.message()[2] == b"kept"


def test_a_full_disk_keeps_those_of_several_publishes_that_fit(start_broker, connect):
    """Each is answered: OK as long as there is room, then the error that closes the connection."""
    broker = start_broker()
    producer = connect(broker)
    command = b"PUB t\n" + (1000).to_bytes(4) + bytes(1000)
    producer.ok(command)
    segment_bytes, record_bytes = 256 * 1024, 1034
    limit_files(broker, segment_bytes)
    fit = segment_bytes // record_bytes
    producer.send(command * fit)
    assert [producer.frame() for _ in range(fit - 1)] == [(0, b"OK")] * (fit - 1)
    kind, text = producer.frame()
    assert (kind, text[:24]) == (1, b"E_PUB_FAILED PUB failed ")
    with pytest.raises((EOFError, ConnectionResetError)):
        producer.frame()
    [topic] = broker.stats()["topics"]
    assert (topic["depth"], topic["message_count"]) == (fit, fit)


def test_a_full_disk_at_the_end_is_logged_and_loses_nothing(start_broker):
    """The last checkpoint cannot be written: exit status 1, and the next start finds everything."""
    broker = start_broker()
    assert broker.request("POST", "/pub?topic=t", b"kept").text == "OK"
    limit_files(broker, 0)
    assert broker.terminate() == 1
    assert "FATAL: failed to write the last checkpoint" in broker.log[-1]
    assert start_broker(data_path=broker.data_path).stats()["topics"][0]["depth"] == 1


def test_a_damaged_data_path_is_named_and_left_as_it_is(start_broker):
    """Exit status 1 with the file's name: the operator must see the file before anything overwrites it."""
    broker = start_broker()
    broker.request("POST", "/topic/create?topic=t")
    broker.terminate()
    checkpoints = sorted(broker.data_path.glob("checkpoint*"))
    assert [path.name for path in checkpoints] == ["checkpoint", "checkpoint.previous"]
    damaged = [path.read_bytes()[:-1] + b"?" for path in checkpoints]
    for path, data in zip(checkpoints, damaged, strict=True):
        path.write_bytes(data)
    again = start_broker(data_path=broker.data_path, ready=False)
    assert again.wait_for_exit() == 1
    assert f"FATAL: failed to load metadata - {checkpoints[0]} is damaged" in again.log[-1]
    assert "see `nsq repair`" in again.log[-1]
    assert [path.read_bytes() for path in checkpoints] == damaged


def test_one_damaged_checkpoint_loses_nothing(start_broker, connect):
    """The node starts from the previous checkpoint and the journals since, and says so."""
    broker = start_broker()
    assert broker.request("POST", "/channel/create?topic=t&channel=c").status == 404
    assert broker.request("POST", "/topic/create?topic=t").status == 200
    assert broker.request("POST", "/channel/create?topic=t&channel=c").status == 200
    assert broker.terminate() == 0
    checkpoint = broker.data_path / "checkpoint"
    checkpoint.write_bytes(checkpoint.read_bytes()[:-2] + b"?\n")
    for _ in range(2):
        broker = start_broker(data_path=broker.data_path)
        [topic] = broker.stats()["topics"]
        assert [channel["channel_name"] for channel in topic["channels"]] == ["c"]
        lines = [line for line in broker.log if "checkpoint is damaged" in line]
        assert broker.terminate() == 0
        if not lines:
            break
    assert len([line for line in broker.log if "damaged" in line]) == 0


def test_a_data_path_that_cannot_be_written_is_named(tmp_path):
    """Exit status 1 and one line, before any port is opened."""
    command = f"ulimit -f 1; exec {sys.executable} -m brokerd --tcp-address=127.0.0.1:0 --data-path={tmp_path}"
    ended = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert ended.returncode == 1
    assert "FATAL: failed to instantiate nsqd - cannot use data-path: " in ended.stderr.splitlines()[-1]
    assert "listening" not in ended.stderr


def test_unix_sockets_serve_both_interfaces(start_broker, connect, tmp_path):
    """An address without a port is a path; the files are removed at the end."""
    tcp, http = tmp_path / "t.sock", tmp_path / "h.sock"
    broker = start_broker(f"--tcp-address={tcp}", f"--http-address={http}")
    assert (broker.tcp_address, broker.http_address) == (str(tcp), str(http))
    with web.client(transport=httpx.HTTPTransport(uds=str(http))) as client:
        assert client.post("http://x/pub?topic=t", content=b"by path").text == "OK"
        info = client.get("http://x/info").json()
        assert (info["tcp_port"], info["http_port"]) == (-1, -1)
        consumer = connect(str(tcp))
        consumer.ok(b"SUB t c\n")
        consumer.send(b"RDY 1\n")
        assert consumer.message()[2] == b"by path"
        (row,) = client.get("http://x/stats?format=json").json()["topics"][0]["channels"][0]["clients"]
        assert (row["remote_address"], row["client_id"], row["hostname"]) == ("@", "", "")
    broker.wait_for_log(r"200 GET /info \(@\)")
    assert broker.terminate() == 0
    assert not tcp.exists()
    assert not http.exists()


def test_a_socket_file_that_is_taken_is_left_alone(start_broker, tmp_path):
    """It may belong to another broker."""
    taken = tmp_path / "t.sock"
    taken.write_text("")
    broker = start_broker(f"--tcp-address={taken}", ready=False)
    assert broker.wait_for_exit() == 1
    assert f"listen ({taken}) failed - Address already in use" in broker.log[-1]
    assert taken.exists()


def test_http_can_be_switched_off(start_broker, connect):
    """An empty address disables HTTP; TCP goes on."""
    broker = start_broker("--http-address=", ready=False)
    address = broker.wait_for_log(r"TCP: listening on (\S+):(\d+)")
    client = connect((address[1], int(address[2])))
    client.ok(b"PUB t\n\x00\x00\x00\x01x")
    assert broker.terminate() == 0
    assert not [line for line in broker.log if "HTTP" in line]


@pytest.mark.parametrize("closed", ["stdout", "stderr", "both"])
def test_closed_standard_streams_have_no_effect(tmp_path, closed):
    """Some supervisors start it with either stream closed."""
    redirection = {"stdout": ">&-", "stderr": "2>&-", "both": ">&- 2>&-"}[closed]
    sock = tmp_path / "h.sock"
    command = f"exec {sys.executable} -m brokerd --tcp-address=127.0.0.1:0 --http-address={sock} --data-path={tmp_path}"
    process = subprocess.Popen(["sh", "-c", f"{command} {redirection}"])
    try:
        wait_until(sock.exists)
        with web.client(transport=httpx.HTTPTransport(uds=str(sock))) as client:
            assert client.get("http://x/ping").text == "OK"
        process.terminate()
        assert process.wait(DEADLINE_S) == 0
    finally:
        process.kill()
        process.wait(DEADLINE_S)


def test_it_runs_without_django_and_under_uvloop():
    """The broker imports little, so that it starts in a fraction of a second."""
    code = "import sys, brokerd.process; print(*sorted(n for n in sys.modules if n.split('.')[0] in sys.argv[1:]))"
    heavy = ["django", "channels", "celery", "pyarrow", "pyspark", "httpx", "redis"]
    root = str(Path(__file__).parents[2])
    ended = subprocess.run(
        [sys.executable, "-c", code, *heavy], capture_output=True, text=True, check=True, cwd=root, env={**os.environ}
    )
    assert ended.stdout.strip() == ""


def test_the_console_script_is_the_process_itself(start_broker):
    """A supervisor's SIGKILL to the process that it started ends the broker."""
    script = Path(sys.executable).parent / "nsqd"
    assert "brokerd.__main__" in script.read_text()
    version = subprocess.run([script, "--version"], capture_output=True, text=True, check=True, timeout=DEADLINE_S)
    assert version.stdout.startswith("nsqd v1.3.0 ")


def test_a_client_over_ipv4_has_its_ipv4_address_on_a_socket_for_both_versions(start_broker, connect) -> None:
    """For such a socket the system reports ``::ffff:127.0.0.1``; nsqd shows ``127.0.0.1``."""
    broker = start_broker("--tcp-address=:0")
    port = int(broker.tcp_address.rpartition(":")[2])
    peer = connect(("127.0.0.1", port))
    peer.ok(b"SUB t c\n")
    [client] = broker.topics()["t"]["channels"][0]["clients"]
    host, _, client_port = client["remote_address"].rpartition(":")
    assert (host, int(client_port)) == ("127.0.0.1", peer.socket.getsockname()[1])
