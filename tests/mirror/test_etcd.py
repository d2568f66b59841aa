"""What is particular to etcd as an arbiter: several servers, and one that does not answer. It is a real one."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any, TypeVar

import pytest

from brokerd.arbiter_address import EtcdAddress, InvalidArbiter, parse_arbiter
from brokerd.mirror.pair import InvalidRecord, PairRecord
from brokerd.net.arbiter import ArbiterFailed
from brokerd.net.arbiter_access import ArbiterAccess
from brokerd.net.arbiters import arbiter_at
from brokerd.net.etcd import Etcd
from tests.harness.etcd import EtcdServer
from tests.harness.waiting import DEADLINE_S, wait_until

T = TypeVar("T")
RECORD = PairRecord(pair="p1", node_id=7, epoch=1, leader="a", in_sync={"a": "boot"})


@pytest.fixture
def server(etcd_server: EtcdServer) -> EtcdServer:
    return etcd_server


def run(call: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(call)


def etcd_at(address: str, *, timeout_s: float = DEADLINE_S) -> Etcd:
    parsed = parse_arbiter(address)
    assert isinstance(parsed, EtcdAddress)
    return Etcd(parsed, timeout_s=timeout_s)


def test_an_address_that_nobody_answers_at_is_skipped(server: EtcdServer) -> None:
    etcd = etcd_at(f"etcd://{server.host}:1,{server.address}/skipped")
    assert run(etcd.read()) == (None, 0, None)


def test_a_server_whose_machine_is_lost_is_not_asked_first_again(server: EtcdServer) -> None:
    """It takes the whole time-out of one request, not of all."""
    with socket.create_server((server.host, 0)) as silent:
        etcd = etcd_at(f"etcd://{server.host}:{silent.getsockname()[1]},{server.address}/lost", timeout_s=2)
        with pytest.raises(ArbiterFailed, match="no answer within 2 s"):
            run(etcd.read())

        def found() -> bool:
            try:
                return run(etcd.read()) == (None, 0, None)
            except ArbiterFailed:
                return False  # the machine is busy

        wait_until(found, "the other server is asked")


def test_no_answer_is_an_error_that_names_the_address(server: EtcdServer) -> None:
    etcd = etcd_at(f"etcd://{server.host}:1/away")
    with pytest.raises(ArbiterFailed, match=f"{server.host}:1"):
        run(etcd.read())


def test_tls_to_an_etcd_without_it_is_an_error_with_a_reason(server: EtcdServer) -> None:
    etcd = arbiter_at(f"etcds://{server.address}/p", timeout_s=DEADLINE_S)
    with pytest.raises(ArbiterFailed, match=f"{server.address}: .+"):
        run(etcd.read())


def test_a_paused_etcd_is_an_error_in_time(server: EtcdServer) -> None:
    def failure() -> str:
        try:
            run(etcd_at(f"etcd://{server.address}/paused", timeout_s=0.5).read())
        except ArbiterFailed as error:
            return str(error)
        return ""  # not paused yet

    server.pause()
    try:
        assert wait_until(failure, "it does not answer") == "no answer within 0.5 s"
    finally:
        server.resume()


@contextmanager
def server_of(answer: bytes) -> Iterator[str]:
    """The address of an HTTP server that gives this answer to every request."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *args: object) -> None:
            return

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize("call", ["read", "campaign", "renew"])
@pytest.mark.parametrize("user", ["", "u"])
@pytest.mark.parametrize("answer", [b"[]", b"null", b"{}", b'{"result": 7}', b"not JSON"])
def test_an_answer_of_a_server_that_is_not_etcd_is_an_error(answer: bytes, user: str, call: str) -> None:
    """After another exception than ArbiterFailed, a candidate would neither follow nor ask for the lead again."""
    with server_of(answer) as address:
        etcd = arbiter_at(f"etcd://{address}/p", timeout_s=DEADLINE_S, access=ArbiterAccess(user=user, password="p"))
        calls = {
            "read": etcd.read,
            "campaign": lambda: etcd.campaign("a", RECORD, 0, 600),
            "renew": lambda: etcd.renew("1"),
        }
        with pytest.raises(ArbiterFailed):
            run(calls[call]())


def test_an_answer_that_is_no_record_is_an_error(server: EtcdServer) -> None:
    etcd = etcd_at(f"etcd://{server.address}/damaged")
    lead = run(etcd.campaign("a", RECORD, 0, 600))
    assert lead is not None
    run(etcd._transact([], [{"requestPut": {"key": etcd._record, "value": "bm8="}}]))
    with pytest.raises(InvalidRecord, match="record of the pair cannot be read"):
        run(etcd.read())
    run(etcd.resign(lead.lease))


@pytest.mark.parametrize("text", ["", "etcd://", "etcd://h:1", "http://h:1/x", "etcd://h/x", "etcd://h:1/a/b"])
def test_a_wrong_address_is_named(text: str) -> None:
    with pytest.raises(InvalidArbiter) as error:
        parse_arbiter(text)
    assert repr(text) in str(error.value)


def test_an_address_may_have_several_servers() -> None:
    assert parse_arbiter("etcd://a:1,[::1]:2/orders") == ([("a", 1), ("::1", 2)], "orders", False)
    assert parse_arbiter("etcds://a:1/orders") == ([("a", 1)], "orders", True)
