"""/config: reading the settings in force, and changing two of them."""

from __future__ import annotations

import json
import zlib
from hashlib import md5
from socket import gethostname

import pytest

from brokerd.settings import BrokerSettings
from nsqdaemon.settings import file_keys


@pytest.fixture(scope="module")
def shared(start_shared_broker):
    """A broker whose settings every test of this module restores."""
    return start_shared_broker("--broadcast-address=10.1.2.3", "--max-msg-size=100")


def test_every_setting_of_the_file_can_be_read_and_nothing_else(broker):
    """The names are the configuration file's keys; flags that are no settings are unknown."""
    for option in file_keys(BrokerSettings):
        assert broker.request("GET", f"/config/{option}").status == 200, option
    for option in ("config", "version", "verbose", "worker_id", "node_id", "TCP_ADDRESS", "lookupd_tcp_address", "x"):
        answer = broker.request("GET", f"/config/{option}")
        assert (answer.status, answer.text) == (400, '{"message":"INVALID_OPTION"}'), option


@pytest.mark.parametrize(
    ("option", "text"),
    [
        ("tcp_address", "127.0.0.1:0"),
        ("max_body_size", "5242880"),
        ("msg_timeout", "60000000000"),
        ("max_req_timeout", "3600000000000"),
        ("output_buffer_timeout", "250000000"),
        ("deflate", "true"),
        ("nsqlookupd_tcp_addresses", "[]"),
        ("log_level", "2"),
        ("tls_required", "0"),
        ("tls_min_version", "771"),
        ("broadcast_address", "10.1.2.3"),
        ("id", str(zlib.crc32(md5(gethostname().encode()).digest()) % 1024)),
    ],
)
def test_values_read_as_nsqd_writes_them(shared, option, text):
    """Strings are plain, durations are nanoseconds, levels and versions are numbers."""
    answer = shared.request("GET", f"/config/{option}")
    assert answer.text == text
    is_text = option in ("tcp_address", "broadcast_address")
    assert answer.headers["content-type"].startswith("text/plain" if is_text else "application/json")
    assert shared.request("GET", "/config/statsd_prefix").text == f"nsq.10_1_2_3_{shared.http[1]}."


def test_the_log_level_changes_at_once(broker):
    """From level error on, requests are not logged; the level may be in upper or lower case."""
    before = len(broker.log)
    answer = broker.request("PUT", "/config/log_level", b"ERROR")
    assert (answer.status, answer.text) == (200, "4")
    broker.request("GET", "/info")
    assert broker.request("PUT", "/config/log_level", b"info").text == "2"
    broker.request("GET", "/ping?then")
    broker.wait_for_log(r"200 GET /ping\?then")
    assert not [line for line in broker.log[before:] if "GET /info" in line]


def test_lookup_addresses_can_be_replaced(broker):
    """The new list takes effect and is answered; null empties it."""
    addresses = ["127.0.0.1:1", "127.0.0.1:2"]
    answer = broker.request("PUT", "/config/nsqlookupd_tcp_addresses", json.dumps(addresses).encode())
    assert (answer.status, json.loads(answer.text)) == (200, addresses)
    assert json.loads(broker.request("GET", "/config/nsqlookupd_tcp_addresses").text) == addresses
    broker.wait_for_log(r"LOOKUPD\(127\.0\.0\.1:2\)")
    assert json.loads(broker.request("PUT", "/config/nsqlookupd_tcp_addresses", b"null").text) == []


@pytest.mark.parametrize(
    ("option", "body", "status", "code"),
    [
        ("log_level", b"", 413, "INVALID_VALUE"),
        ("none", b"", 413, "INVALID_VALUE"),
        ("log_level", b"x" * 101, 413, "INVALID_VALUE"),
        ("none", b"1", 400, "INVALID_OPTION"),
        ("max_msg_size", b"1", 400, "INVALID_OPTION"),
        ("log_level", b"loud", 400, "INVALID_VALUE"),
        ("log_level", b'"info"', 400, "INVALID_VALUE"),
        ("log_level", b"info\n", 400, "INVALID_VALUE"),
        ("log_level", b"\xff", 400, "INVALID_VALUE"),
        ("nsqlookupd_tcp_addresses", b"127.0.0.1:1", 400, "INVALID_VALUE"),
        ("nsqlookupd_tcp_addresses", b'"127.0.0.1:1"', 400, "INVALID_VALUE"),
        ("nsqlookupd_tcp_addresses", b"[1]", 400, "INVALID_VALUE"),
    ],
)
def test_invalid_changes_of_settings_are_refused(shared, option, body, status, code):
    """The size of the body is checked first, then the name, then the value; nothing changes."""
    answer = shared.request("PUT", f"/config/{option}", body)
    assert (answer.status, answer.text) == (status, f'{{"message":"{code}"}}')
    assert shared.request("GET", "/config/log_level").text == "2"
    assert shared.request("GET", "/config/nsqlookupd_tcp_addresses").text == "[]"
