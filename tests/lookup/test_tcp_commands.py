"""Protocol V1: each command and each error, at once and byte by byte."""

import json
import logging
import struct
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

IDENTITY = b'{"broadcast_address":"b","hostname":"h","http_port":4161,"tcp_port":4160,"version":"1.3.0"}'


def identify(body: bytes) -> bytes:
    return b"IDENTIFY\n" + struct.pack(">i", len(body)) + body


GOOD_BODY = b'{"broadcast_address":"a","tcp_port":1,"http_port":2,"version":"v"}'
GOOD = identify(GOOD_BODY)


@pytest.fixture
def talk(world: Any) -> Callable[[bytes], tuple[list[bytes], bool]]:
    """Returns the replies and whether the connection closed, which must not depend on how the bytes arrive."""

    def run(data: bytes) -> tuple[list[bytes], bool]:
        outcomes = []
        for chunk in (None, 1):
            connection = world.connect()
            outcomes.append((connection.send(data, chunk=chunk), connection.closed))
            connection.disconnect()
        assert outcomes[0] == outcomes[1]
        return outcomes[0]

    return run


Talk = Callable[[bytes], tuple[list[bytes], bool]]


def test_a_whole_conversation(talk: Talk) -> None:
    """Magic without reply, PING at any time, IDENTIFY once, then REGISTER and UNREGISTER, known names or not."""
    data = b"  V1PING\n" + GOOD + b"PING\nREGISTER t c\nREGISTER t c\nREGISTER t\nUNREGISTER t c\nUNREGISTER x\n"
    assert talk(data) == ([b"OK", IDENTITY] + [b"OK"] * 6, False)


@pytest.mark.parametrize("line", [b"PING\r\n", b"  PING \n", b"\tPING x y\n", b"PING  \r\n"])
def test_white_space_around_a_command_and_words_after_it_are_ignored(talk: Talk, line: bytes) -> None:
    """Terminals and old clients send them."""
    assert talk(b"  V1" + line) == ([b"OK"], False)


ERRORS = [
    (b"  V2", b"E_BAD_PROTOCOL"),
    (b"GET / HTTP/1.1\r\n\r\n", b"E_BAD_PROTOCOL"),
    (b"  V1NOPE\n", b"E_INVALID invalid command NOPE"),
    (b"  V1ping\n", b"E_INVALID invalid command ping"),
    (b"  V1\n", b"E_INVALID invalid command "),
    (b"  V1\xff\xfe\n", b"E_INVALID invalid command \xff\xfe"),
    (b"  V1" + b"x" * 70_000, b"E_INVALID command line is longer than 65536 bytes"),
    (b"  V1REGISTER t\n", b"E_INVALID client must IDENTIFY"),
    (b"  V1REGISTER\n", b"E_INVALID client must IDENTIFY"),
    (b"  V1UNREGISTER t\n", b"E_INVALID client must IDENTIFY"),
    (b"  V1IDENTIFY\n" + struct.pack(">i", -1), b"E_BAD_BODY IDENTIFY invalid body size -1, the largest is 1048576"),
    (b"  V1IDENTIFY\n\x7f\xff\xff\xff", b"E_BAD_BODY IDENTIFY invalid body size 2147483647, the largest is 1048576"),
    *[
        (b"  V1" + identify(body), b"E_BAD_BODY IDENTIFY failed to decode JSON body")
        for body in (
            b"",
            b"{",
            b"[]",
            b'"x"',
            b"7",
            b"NaN",
            GOOD_BODY + b"x",
            GOOD_BODY.replace(b"1", b'"1"', 1),
            GOOD_BODY.replace(b"1", b"1.0", 1),
            GOOD_BODY.replace(b"1", b"true", 1),
            GOOD_BODY.replace(b"1", b"99999999999999999999", 1),
            GOOD_BODY.replace(b'"a"', b"1"),
            b'{"remote_address":5}',
            b"[" * 100_000,
            b'{"x":' * 50_000,
        )
    ],
    *[
        (b"  V1" + identify(body), b"E_BAD_BODY IDENTIFY missing fields")
        for body in (
            b"{}",
            b"null",
            GOOD_BODY.replace(b'"a"', b'""'),
            GOOD_BODY.replace(b'"a"', b"null"),
            GOOD_BODY.replace(b"1", b"0"),
            GOOD_BODY.replace(b"2", b"0"),
            GOOD_BODY.replace(b'"v"', b'""'),
        )
    ],
]

IDENTIFIED_ERRORS = [
    (GOOD, b"E_INVALID cannot IDENTIFY again"),
    (b"REGISTER\n", b"E_INVALID REGISTER insufficient number of params"),
    (b"UNREGISTER \n", b"E_INVALID UNREGISTER insufficient number of params"),
    (b"REGISTER a$b\n", b"E_BAD_TOPIC REGISTER topic name 'a$b' is not valid"),
    (b"REGISTER  t\n", b"E_BAD_TOPIC REGISTER topic name '' is not valid"),
    (b"REGISTER * c\n", b"E_BAD_TOPIC REGISTER topic name '*' is not valid"),
    (b"REGISTER " + b"x" * 65 + b"\n", b"E_BAD_TOPIC REGISTER topic name '" + b"x" * 65 + b"' is not valid"),
    (b"UNREGISTER \xff\n", b"E_BAD_TOPIC UNREGISTER topic name '\xff' is not valid"),
    (b"REGISTER t c$\n", b"E_BAD_CHANNEL REGISTER channel name 'c$' is not valid"),
    (b"UNREGISTER t *\n", b"E_BAD_CHANNEL UNREGISTER channel name '*' is not valid"),
]


@pytest.mark.parametrize(("data", "reply"), ERRORS)
def test_an_error_is_answered_and_ends_the_connection(talk: Talk, data: bytes, reply: bytes) -> None:
    """One reply with the code and the reason; later input is not read."""
    assert talk(data + b"PING\n") == ([reply], True)


@pytest.mark.parametrize(("data", "reply"), IDENTIFIED_ERRORS)
def test_an_error_after_identify_is_answered_too(talk: Talk, data: bytes, reply: bytes) -> None:
    """The replies before it are sent."""
    assert talk(b"  V1" + GOOD + data + b"PING\n") == ([IDENTITY, reply], True)


@pytest.mark.parametrize(
    ("sent", "reply"),
    [
        (b"  V1IDENTIFY\n\x00\x00", b"E_BAD_BODY IDENTIFY failed to read body size"),
        (b"  V1IDENTIFY\n\x00\x00\x00\x05ab", b"E_BAD_BODY IDENTIFY failed to read body"),
    ],
)
def test_a_client_that_stops_within_identify_receives_an_error(world: Any, sent: bytes, reply: bytes) -> None:
    """An incomplete body is answered with an error."""
    connection = world.connect()
    assert connection.send(sent) == []
    connection.conversation.session.end()
    assert connection.conversation.session.take_output()[4:] == reply


def test_identify_is_read_as_go_reads_it(world: Any) -> None:
    """Keys in any case, unknown keys and null are ignored; an announced remote address is ignored."""
    connection = world.connect()
    body = (
        b'{"Broadcast_Address":"a\\u003cb","TCP_PORT":-1,"http_port":2,"version":"v","extra":[1],"hostname":null,'
        b'"topology_zone":"z","topology_region":"r","remote_address":"9.9.9.9:9"}'
    )
    connection.send(b"  V1" + identify(body))
    assert world.request("GET", "/nodes").body == (
        b'{"producers":[{"remote_address":"127.0.0.1:50001","hostname":"","broadcast_address":"a\\u003cb",'
        b'"tcp_port":-1,"http_port":2,"version":"v","topology_zone":"z","topology_region":"r",'
        b'"tombstones":[],"topics":[]}]}'
    )


def test_the_log_has_a_line_for_each_action_of_a_client(world: Any, caplog: pytest.LogCaptureFixture) -> None:
    """Connection, IDENTIFY, pings and every change of the database, in nsqlookupd's format, each once."""
    caplog.set_level(logging.INFO, logger="nsqlookup")
    nsqd = world.nsqd("t c", "t c")
    world.clock.pass_by(1.5)
    nsqd.ok("PING")
    nsqd.ok("UNREGISTER t")
    nsqd.disconnect()
    who = "(127.0.0.1:50001)"
    removed = "category:channel key:t subkey:c"
    assert [f"{record.levelname} {record.getMessage()}" for record in caplog.records] == [
        f"INFO CLIENT{who}: desired protocol magic '  V1'",
        f"INFO CLIENT{who}: IDENTIFY Address:addrA TCP:4150 HTTP:4151 Version:1.3.0",
        f"INFO DB: client{who} REGISTER category:client key: subkey:",
        f"INFO DB: client{who} REGISTER category:channel key:t subkey:c",
        f"INFO DB: client{who} REGISTER category:topic key:t subkey:",
        f"INFO CLIENT{who}: pinged (last ping 1.5s)",
        f"WARNING client{who} unexpected UNREGISTER {removed}",
        f"INFO DB: client{who} UNREGISTER {removed}",
        f"INFO DB: client{who} UNREGISTER category:topic key:t subkey:",
        f"INFO DB: client{who} UNREGISTER category:client key: subkey:",
    ]


@given(st.binary(max_size=200), st.integers(1, 20))
def test_no_bytes_break_a_conversation(world_factory: Any, data: bytes, chunk: int) -> None:
    """Any input is answered or waits for more, and another client's registration is kept."""
    world = world_factory()
    world.nsqd("steady", broadcast_address="steady")
    for opening in (b"", b"  V1", b"  V1IDENTIFY\n", b"  V1" + GOOD):
        connection = world.connect()
        connection.send(opening + data, chunk=chunk)
        connection.disconnect()
    assert world.found("steady") == ["steady"]


WORDS = [b"PING", b"IDENTIFY", b"REGISTER", b"UNREGISTER", b" t", b" c#ephemeral", b"\n", b" ", b"\xff", GOOD, b"  V1"]


@given(st.lists(st.sampled_from(WORDS), max_size=20).map(b"".join), st.integers(1, 30))
def test_the_result_does_not_depend_on_how_the_bytes_arrive(world_factory: Any, data: bytes, chunk: int) -> None:
    """Commands with small mistakes get the same replies at once and in pieces."""
    outcomes = []
    for step in (None, chunk):
        connection = world_factory().connect()
        outcomes.append((connection.send(b"  V1" + data, chunk=step), connection.closed))
    assert outcomes[0] == outcomes[1]


def test_the_identify_answer_has_the_fields_that_nsqd_expects(world: Any) -> None:
    """The registry's address and ports, keys in alphabetical order."""
    (reply,) = world.connect().send(b"  V1" + GOOD)
    assert reply == IDENTITY
    assert list(json.loads(reply)) == sorted(json.loads(reply))
