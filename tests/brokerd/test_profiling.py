"""/debug/pprof: profiling a running broker."""

from __future__ import annotations

import re
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.harness.waiting import wait_until


def test_the_index_lists_all_profiles_and_each_answers(broker):
    """Go's paths, for people; without its slash, the index redirects, as in nsqd."""
    index = broker.request("GET", "/debug/pprof/")
    assert (index.status, index.headers["content-type"]) == (200, "text/html; charset=utf-8")
    pages = re.findall(r'href="(/debug/pprof/\w+)"', index.text)
    assert {page.rpartition("/")[2] for page in pages} == {
        "goroutine",
        "profile",
        "heap",
        "threadcreate",
        "block",
        "cmdline",
        "symbol",
    }
    for page in pages:
        answer = broker.request("GET", page + ("?seconds=0.1" if page.endswith("profile") else ""))
        assert (answer.status, answer.headers["content-type"]) == (200, "text/plain; charset=utf-8"), page
        assert answer.text
    redirect = broker.request("GET", "/debug/pprof")
    assert (redirect.status, redirect.headers["location"]) == (301, "/debug/pprof/")
    assert broker.request("POST", "/debug/pprof/symbol").status == 200
    assert broker.request("GET", "/debug/pprof/nothing").status == 404
    assert not [line for line in broker.log if "GET /debug/pprof/heap" in line], "as in nsqd, these are not logged"


def test_the_command_line_is_answered(broker):
    """Words are separated by zero bytes, as in Go's answer."""
    words = broker.request("GET", "/debug/pprof/cmdline").text.split("\0")
    assert f"--data-path={broker.data_path}" in words


def test_tasks_and_threads_are_shown_where_they_wait(start_broker):
    """The page shows the current line of a background task of the broker, and of the loop's thread."""
    broker = start_broker("--statsd-address=127.0.0.1:9")
    text = broker.request("GET", "/debug/pprof/goroutine").text
    assert re.search(r"1 x task\n    Statsd\.run \(\S+/statsd\.py:\d+\)", text)
    assert re.search(r"threads: \d+\n\nthread MainThread\n    \S+ \(.+:\d+\)\n", text)


def test_a_profile_shows_where_the_time_went_while_the_service_runs(broker):
    """Publishes are answered during the profile, and their handler is in the table."""

    def publish_during(profile):
        published = 0
        while not profile.done():
            assert broker.request("POST", "/mpub?topic=t", b"x\n" * 1000).status == 200
            published += 1
        return published

    with ThreadPoolExecutor(2) as pool:
        profile = pool.submit(broker.request, "GET", "/debug/pprof/profile?seconds=2")
        published = pool.submit(publish_during, profile)
        assert published.result() > 1
        answer = profile.result()
    assert answer.status == 200
    first, _, rest = answer.text.partition("\n")
    busy, elapsed, samples = map(float, re.findall(r"[\d.]+", first))
    assert busy > 0
    assert elapsed >= 1.9  # the two clocks do not tick together
    assert samples > 0
    assert re.search(r"data_received \(\S+/nsqdaemon/http/server\.py:\d+\)", rest)


def test_a_profile_can_be_had_for_a_flame_graph(broker):
    """One line per stack, outermost function first, with its number of samples."""
    with ThreadPoolExecutor(1) as pool:
        profile = pool.submit(broker.request, "GET", "/debug/pprof/profile?seconds=1&format=folded")
        while not profile.done():
            broker.request("POST", "/mpub?topic=t", b"x\n" * 4000)  # takes longer than to connect
        text = profile.result().text
    assert "server.py:data_received" in text
    assert all(re.fullmatch(r"\S.*;\S.* \d+", line) for line in text.splitlines())


def test_allocations_are_traced_for_as_long_as_asked(broker):
    """seconds= lists the lines that allocate; without it, nothing is traced and only types are counted."""
    plain = broker.request("GET", "/debug/pprof/heap").text
    assert re.search(r"^ +\d+  builtins\.dict$", plain, re.MULTILINE)
    assert "memory allocated" not in plain
    with ThreadPoolExecutor(1) as pool:
        traced = pool.submit(broker.request, "GET", "/debug/pprof/heap?seconds=1")
        while not traced.done():
            broker.request("POST", f"/topic/create?topic=t{time.monotonic_ns()}")
    assert traced.result().text.startswith("memory allocated within 1 s and not freed")
    assert re.search(r"^ +\d+ bytes in +\d+ blocks  \S+/brokerd/\S+\.py:\d+$", traced.result().text, re.MULTILINE)


@pytest.mark.parametrize("seconds", ["x", "0", "-1", "301", "nan", ""])
@pytest.mark.parametrize("page", ["profile", "heap"])
def test_an_invalid_length_is_refused(broker, page, seconds):
    """So is one of more than five minutes."""
    answer = broker.request("GET", f"/debug/pprof/{page}?seconds={seconds}")
    assert (answer.status, answer.text) == (400, '{"message":"INVALID_ARG_SECONDS"}')


def test_one_measurement_runs_at_a_time_and_the_end_waits_for_none(broker):
    """A second one is refused; SIGTERM ends the broker during a measurement."""
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(broker.request, "GET", "/debug/pprof/profile?seconds=200")
        wait_until(lambda: "_Profiling.profile" in broker.request("GET", "/debug/pprof/goroutine").text)
        refused = broker.request("GET", "/debug/pprof/profile")
        assert refused.text == '{"message":"PROFILE_RUNNING"}'
        assert broker.request("GET", "/debug/pprof/heap").status == 200
        assert broker.terminate() == 0  # long before the 200 s are over
        assert running.exception() is not None
