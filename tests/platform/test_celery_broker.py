"""The platform's own Celery on a brokerd, with ``CELERY_BROKER_URL``. Redis remains for the live feed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.harness.daemon import Broker
from tests.harness.waiting import wait_until
from tests.platform.operators import Operator

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.database]


@pytest.fixture
def broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Broker]:
    """A brokerd that is Celery's broker, for this process and for those that it starts."""
    from nsqplatform.console.celery import app

    folder = tmp_path / "brokerd"
    folder.mkdir()
    with Broker(folder) as broker:
        broker.wait_until_ready()
        url = f"nsq://{broker.tcp_address}/platform"
        monkeypatch.setenv("CELERY_BROKER_URL", url)
        monkeypatch.setitem(app.conf, "broker_url", url)
        forget_connections(app)
        yield broker
        forget_connections(app)


def forget_connections(app: Any) -> None:
    """Let the application connect again, to what is configured now, as Celery does in a forked child."""
    app._after_fork()


def test_a_job_is_carried_out_by_a_dispatcher_on_nsq(go_cluster, sign_in, redis, dispatcher, broker: Broker) -> None:
    """From the request to the outcome: the task waits in the broker until a dispatcher runs."""
    alpha, _ = go_cluster.nodes
    alpha.channel("orders", "billing", depth=5)
    operator: Operator = sign_in()
    job = operator.start("empty", ["orders/billing"])
    assert operator.job(job)["state"] == "queued"
    assert broker.topics()["platform.dispatch"]["message_count"] == 1
    dispatcher()
    assert operator.ended(job)["done_count"] == 1
    assert alpha.channel("orders", "billing")["depth"] == 0
    wait_until(lambda: unfinished(broker) == 0, "the task is finished")
    assert not [key for key in redis.scan_iter() if key.startswith((b"_kombu", b"dispatch"))]


def unfinished(broker: Broker) -> int:
    [channel] = broker.topics()["platform.dispatch"]["channels"]
    return int(channel["depth"] + channel["in_flight_count"])
