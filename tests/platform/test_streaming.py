"""Streamed responses of the web process: slow readers, and failures in the middle."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from django.test import Client

from tests.harness.waiting import DEADLINE_S

pytestmark = pytest.mark.django_db(transaction=True)

BODY_BYTES = 1_000_000
MESSAGES = 60
"""More than the buffers of a connection hold."""


@pytest.fixture
def reader(web, account, redis, cluster) -> Iterator[httpx.Client]:
    """Requests of an operator to a web process that knows the cluster, whose first node has long messages."""
    redis.set("nsq:lookupd", json.dumps([cluster.registry.http_address]))
    signed_in = Client()
    signed_in.force_login(account("operator"))
    cluster.make_channel("orders", "billing")
    for _ in range(MESSAGES):
        cluster.brokers[0].post("/pub", b"x" * BODY_BYTES, topic="orders")
    cookie = f"sessionid={signed_in.cookies['sessionid'].value}"
    with httpx.Client(base_url=web.base, headers={"Cookie": cookie}, trust_env=False, timeout=DEADLINE_S) as client:
        yield client


def path_of(what: str, **more: str) -> str:
    return f"/api/v1/messages/{what}?{httpx.QueryParams({'topic': 'orders', 'channel': 'billing'} | more)}"


def read_to_its_end(response: httpx.Response) -> int:
    """The number of bytes until the connection is closed, which is before the end."""
    received = 0
    try:
        for piece in response.iter_raw():
            received += len(piece)
    except (httpx.RemoteProtocolError, httpx.ReadError):
        return received
    pytest.fail(f"the response seems complete, with {received:,} bytes")


def test_an_export_reads_no_further_than_its_reader(reader: httpx.Client, cluster: Any) -> None:
    """The web process does not store what a slow reader has not read: after the channel is deleted, the rest is
    missing, and the connection is closed before the end."""
    with reader.stream("GET", path_of("export")) as response:
        assert response.status_code == 200
        searched = reader.get(path_of("search", text="not in any body"))  # takes as long as reading for an export
        assert json.loads(searched.text.splitlines()[-1])["searched"] == MESSAGES
        for broker in cluster.brokers:
            broker.post("/channel/delete", topic="orders", channel="billing")
        assert read_to_its_end(response) < MESSAGES * BODY_BYTES // 2


def test_an_export_that_fails_closes_its_connection_each_time(reader: httpx.Client, cluster: Any) -> None:
    """So that an incomplete file is not taken for a complete one."""
    for _ in range(2):
        with reader.stream("GET", path_of("export")) as response:
            assert response.status_code == 200
            for broker in cluster.brokers:
                broker.post("/channel/delete", topic="orders", channel="billing")
            read_to_its_end(response)
        cluster.make_channel("orders", "billing")
        for _ in range(MESSAGES):
            cluster.brokers[0].post("/pub", b"x" * BODY_BYTES, topic="orders")
