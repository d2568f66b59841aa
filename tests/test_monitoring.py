"""Dashboards of Grafana and alert rules of Prometheus: they load, parse, and ask for metrics and labels that exist."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

from tests.harness import web
from tests.harness.daemon import BROKER, REGISTRY, Daemon
from tests.harness.process import ROOT
from tests.harness.v2 import V2Client
from tests.harness.waiting import wait_until

FOLDER = ROOT / "monitoring"
DASHBOARDS = sorted((FOLDER / "dashboards").glob("*.json"))
RULES = [rule for group in yaml.safe_load((FOLDER / "alerts.yaml").read_text())["groups"] for rule in group["rules"]]
OF_PROMETHEUS = {"up": set()}
"""The metrics that Prometheus makes itself."""
OF_MIRRORED_NODES = {"nsq_mirror_under_replicated": set()}
"""The metrics that only mirrored nodes have; tests/mirror/test_pair.py reads them."""
OF_SCRAPES = {"instance", "job"}
"""The labels that Prometheus adds."""
SUFFIXES = {"counter": ["_total"], "histogram": ["_bucket", "_count", "_sum"]}


def loaded(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text())


def labels_by_name(families: Iterator[Metric]) -> dict[str, set[str] | None]:
    """The labels of each time series by its name; None if the family has no samples now."""
    found: dict[str, set[str] | None] = {}
    for family in families:
        labels = {label for sample in family.samples for label in sample.labels}
        for suffix in SUFFIXES.get(family.type, [""]):
            found[family.name + suffix] = labels if family.samples else None
    return found


@pytest.fixture(scope="module")
def series(tmp_path_factory) -> dict[str, set[str] | None]:
    """The time series of a broker with a finished message, of a registry, and of the platform's two processes."""
    from nsqplatform.alerts import metrics as _  # noqa: F401  # adds its own to the collector's
    from nsqplatform.cluster import metrics

    import_module("nsqplatform.alerts.metrics")  # adds its own to the collector's
    texts = [metrics.web_text().decode(), metrics.collector_text().decode()]
    data_path = tmp_path_factory.mktemp("broker")
    with Daemon(BROKER, f"--data-path={data_path}") as broker, Daemon(REGISTRY) as registry:
        broker.wait_until_ready()
        registry.wait_until_ready()
        web.post(f"http://{registry.http_address}/topic/create?topic=t")
        web.post(f"http://{broker.http_address}/topic/create?topic=t")
        web.post(f"http://{broker.http_address}/channel/create?topic=t&channel=c")
        web.post(f"http://{broker.http_address}/pub?topic=t", content=b"x")
        host, port = broker.tcp_address.split(":")
        with V2Client((host, int(port))) as client:
            client.sub("t", "c", 1)
            client.finish(client.message()[0])

        def text_with_latencies() -> str:
            text = web.get(f"http://{broker.http_address}/metrics").text
            return text if "nsq_channel_latency_seconds_count{" in text else ""

        texts.append(wait_until(text_with_latencies, "the latency of the finished message"))
        texts.append(web.get(f"http://{registry.http_address}/metrics").text)
    return labels_by_name(family for text in texts for family in text_string_to_metric_families(text))


def selectors(expression: Any) -> Iterator[promql_parser.VectorSelector]:
    """The selectors in an expression."""
    if isinstance(expression, promql_parser.VectorSelector):
        yield expression
        return
    for attribute in ("lhs", "rhs", "expr", "param", "vector_selector"):
        inside = getattr(expression, attribute, None)
        if inside is not None:
            yield from selectors(inside)
    for argument in getattr(expression, "args", None) or ():
        yield from selectors(argument)


def grouped(expression: str) -> set[str]:
    """The labels by which an expression groups and joins."""
    lists = re.findall(r"\b(?:by|on|without|ignoring) ?\(([^)]*)\)", expression)
    return {label.strip() for each in lists for label in each.split(",") if label.strip()} - {"le"}


def problems(expression: str, series: dict[str, set[str] | None]) -> list[str]:
    """What is wrong with a query; empty if nothing is."""
    known = series | OF_PROMETHEUS | OF_MIRRORED_NODES
    ready = expression.replace("$__rate_interval", "5m")
    try:
        found = list(selectors(promql_parser.parse(re.sub(r"\$\w+", ".*", ready))))
    except ValueError as error:
        return [f"{expression}: {error}"]
    wrong = [] if found else [f"{expression}: no metric"]
    every: set[str] = set(OF_SCRAPES)
    for selector in found:
        if selector.name not in known:
            wrong.append(f"{expression}: there is no {selector.name}")
            continue
        labels = known[selector.name]
        if labels is None:
            return wrong  # without samples, labels are not known
        every |= labels
        wrong += [
            f"{selector.name} has no label {matcher.name}"
            for matcher in selector.matchers.matchers
            if matcher.name not in labels | OF_SCRAPES
        ]
    return wrong + [f"{expression}: no label {label}" for label in sorted(grouped(expression) - every)]


def queries_of(dashboard: dict[str, Any]) -> list[str]:
    """Of the panels, and those in ``label_values`` of the variables."""
    found = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())]
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            selector, label = re.fullmatch(r"label_values\((.*), (\w+)\)", variable["definition"]).groups()
            found.append(f"sum by ({label}) ({selector})")
    return found


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_every_query_of_a_dashboard_has_its_metrics(path, series):
    """It parses, and names and labels are those of ``/metrics``."""
    queries = queries_of(loaded(path))
    assert len(queries) > 10
    assert [problem for query in queries for problem in problems(query, series)] == []


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_every_alert_rule_has_its_metrics(rule, series):
    """The same, and it has a severity, and texts whose labels the result has."""
    assert problems(rule["expr"], series) == []
    assert rule["labels"]["severity"] in ("critical", "warning")
    assert rule.keys() <= {"alert", "expr", "for", "labels", "annotations"}
    assert re.fullmatch(r"[0-9]+m", rule.get("for", "1m"))
    assert rule["annotations"].keys() == {"summary", "description"}
    used = set(re.findall(r"\$labels\.(\w+)", " ".join(rule["annotations"].values())))
    aggregated = "sum by" in rule["expr"] or "max by" in rule["expr"]
    assert used <= (grouped(rule["expr"]) if aggregated else OF_SCRAPES)


def test_a_dashboard_is_complete():
    """Panels have their own ids, do not overlap and use declared variables; dashboards have their own titles."""
    dashboards = [loaded(path) for path in DASHBOARDS]
    assert (
        len({each["uid"] for each in dashboards}) == len({each["title"] for each in dashboards}) == len(dashboards) == 2
    )
    for dashboard in dashboards:
        panels = dashboard["panels"]
        assert len({panel["id"] for panel in panels}) == len(panels)
        cells = [
            (x, y)
            for panel in panels
            for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
            for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
        ]
        assert len(cells) == len(set(cells))
        assert max(x for x, _ in cells) == 23
        declared = {variable["name"] for variable in dashboard["templating"]["list"]}
        used = set(re.findall(r"\$\{?(\w+)", json.dumps(panels))) - {"__rate_interval"}
        assert used <= declared
        assert all(panel["title"] for panel in panels)


def test_the_example_of_a_configuration_has_the_jobs_of_the_rules():
    """``prometheus.yaml`` names the rules' file, and each job that a rule expects."""
    configuration = yaml.safe_load((FOLDER / "prometheus.yaml").read_text())
    assert configuration["rule_files"] == ["alerts.yaml"]
    jobs = {job["job_name"] for job in configuration["scrape_configs"]}
    assert jobs == set(re.findall(r'job="(\w+)"', json.dumps([rule["expr"] for rule in RULES]).replace("\\", "")))


@pytest.mark.parametrize(
    ("query", "problem"),
    [
        ("sum(nsq_topic_depht)", "there is no nsq_topic_depht"),
        ("sum(nsq_topic_messages)", "there is no nsq_topic_messages"),
        ('nsq_topic_depth{chanel="a"}', "nsq_topic_depth has no label chanel"),
        ("sum by (chanel) (nsq_channel_depth)", "no label chanel"),
        ("sum(nsq_topic_depth", "nsq_topic_depth"),
        ("1 + 1", "no metric"),
    ],
)
def test_the_check_finds_mistakes(query, problem, series):
    """A wrong name, a counter without ``_total``, wrong labels, and what is no PromQL."""
    (found,) = problems(query, series)
    assert problem in found
