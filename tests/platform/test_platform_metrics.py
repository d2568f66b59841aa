"""``/metrics`` of the platform: its own figures, for Prometheus, with permission checks."""

from __future__ import annotations

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.harness.waiting import DEADLINE_S, wait_until

pytestmark = pytest.mark.django_db(transaction=True)


def test_prometheus_reads_both_processes(go_cluster, collect, web, account, metrics_problems):
    """One answer has web process and collector, and passes the checks of promtool."""
    from nsqplatform.accounts.tokens import create_token

    token = create_token(user=account("viewer"), name="prometheus")
    headers = {"Authorization": f"Bearer {token}"}
    go_cluster.nodes[0].channel("orders", "billing")
    go_cluster.nodes[1].stop()
    collect()

    def scraped() -> dict[tuple[str, ...], float] | None:
        answer = httpx.get(f"{web.base}/metrics", headers=headers, trust_env=False, timeout=DEADLINE_S)
        assert answer.status_code == 200
        assert metrics_problems(answer.text) == []
        found = {
            (sample.name, *sample.labels.values()): sample.value
            for family in text_string_to_metric_families(answer.text)
            for sample in family.samples
        }
        return found if found.get(("nsq_collector_nodes", "down")) and found.get(("nsq_collector_channels",)) else None

    found = wait_until(scraped, "the collector's figures")
    assert found["nsq_collector_nodes", "up"] == found["nsq_collector_nodes", "down"] == 1
    assert (found["nsq_collector_topics",], found["nsq_collector_channels",]) == (1, 1)
    assert found["nsq_collector_poll_seconds_count",] >= 1
    assert found["nsq_collector_node_requests_total", "answered"] >= 1
    assert found["nsq_web_requests_total", "GET", "200"] >= 1
    assert found["nsq_web_process_cpu_seconds_total",] > 0


@pytest.mark.parametrize(("headers", "status"), [({}, 401), ({"Authorization": "Bearer forged"}, 401)])
def test_anonymous_users_are_shown_no_figures(web, headers, status):
    """Topics, addresses and load are not public."""
    answer = httpx.get(f"{web.base}/metrics", headers=headers, trust_env=False, timeout=DEADLINE_S)
    assert (answer.status_code, "nsq_" in answer.text) == (status, False)
    assert httpx.post(f"{web.base}/metrics", trust_env=False, timeout=DEADLINE_S).status_code == 405
