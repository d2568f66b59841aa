"""Rules for every test: continuous integration skips none, and processes that share the suite run whole files."""

from __future__ import annotations

import gc
import re
import signal
from collections.abc import Callable, Generator
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import settings
from prometheus_client.parser import text_string_to_metric_families

from tests.harness.ci import IN_CI
from tests.harness.scheduling import FileScheduling, SecondsRecorder, longest_first
from tests.harness.watchdog import Watchdog

# No example has a time limit: on a busy machine any of them can be slow.
settings.register_profile("tests", deadline=None)
settings.load_profile("tests")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--record-seconds", action="store_true", help="write tests/harness/seconds.txt (make seconds)")
    parser.addoption(
        "--slow-browser",
        type=float,
        default=1,
        metavar="N",
        help="pages of the browser tests get a processor N times slower, and each answer N times 50 ms later",
    )


def pytest_configure(config: pytest.Config) -> None:
    # A shell starts a command in the background with SIGINT ignored, and so would all processes of the tests start.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    config.pluginmanager.register(Watchdog())
    if config.getoption("--record-seconds") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(SecondsRecorder())


def pytest_sessionstart() -> None:
    """Collect no garbage while the tests are collected: imports and tests are objects that stay."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Collections of garbage do not go through the objects of all tests from now on."""
    gc.freeze()
    gc.enable()


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> FileScheduling:
    return FileScheduling(config, log)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if hasattr(config, "workerinput"):
        longest_first(items)


def refuse_to_skip(report: pytest.TestReport | pytest.CollectReport) -> None:
    """Turn a skip into a failure that keeps its reason. An expected failure is reported as skipped too, and stays."""
    if IN_CI and report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[-1] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        report.outcome = "failed"
        report.longrepr = f"CI must not skip: {reason}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    refuse_to_skip(report)
    # A log record may contain invalid Unicode, which pytest-xdist cannot pass on.
    report.sections = [(name, text.encode("utf-8", "backslashreplace").decode()) for name, text in report.sections]
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    refuse_to_skip(report)
    return report


TYPES = {"counter", "gauge", "histogram", "summary", "untyped"}
ABBREVIATIONS = {"s", "ms", "us", "ns", "sec", "b", "kb", "mb", "gb", "m", "h", "d"}
NO_BASE_UNITS = {"milliseconds", "microseconds", "nanoseconds", "minutes", "hours", "days", "kilobytes", "megabytes"}


def metrics_problems(text: str) -> list[str]:
    """The problems that ``promtool check metrics`` would report for an answer of ``/metrics``, and those that a reader
    would have: repeated series and histograms that decrease."""
    problems = []
    declared = re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE)
    helped = dict(re.findall(r"^# HELP (\S+) (.*)$", text, re.MULTILINE))
    for name, kind in declared:
        words = name.split("_")
        if not helped.get(name):
            problems.append(f"{name}: no help text")
        if (kind == "counter") != name.endswith("_total"):
            problems.append(f"{name}: counters, and they alone, end in _total")
        if kind not in ("histogram", "summary") and words[-1] in ("bucket", "count", "sum"):
            problems.append(f"{name}: a {kind} named like a part of a histogram")
        if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
            problems.append(f"{name}: not in snake case")
        if TYPES & set(words) or (ABBREVIATIONS | NO_BASE_UNITS) & set(words):
            problems.append(f"{name}: type, abbreviation or derived unit in the name")
    if len(set(declared)) != len(declared):
        problems.append("a metric is declared twice")
    seen = set()
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            key = (sample.name, *sorted(sample.labels.items()))
            if key in seen:
                problems.append(f"{key}: twice")
            seen.add(key)
            if any(not re.fullmatch(r"[a-z][a-z0-9_]*", label) for label in sample.labels):
                problems.append(f"{key}: label not in snake case")
        if family.type == "histogram":
            buckets = [sample for sample in family.samples if sample.name.endswith("_bucket")]
            for low, high in pairwise(buckets):
                same = {**low.labels, "le": ""} == {**high.labels, "le": ""}
                if same and not (low.value <= high.value and float(low.labels["le"]) < float(high.labels["le"])):
                    problems.append(f"{family.name}: buckets fall")
    return problems


@pytest.fixture(name="metrics_problems", scope="session")
def _metrics_problems() -> Callable[[str], list[str]]:
    return metrics_problems
