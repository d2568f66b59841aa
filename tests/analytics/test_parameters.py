"""Parameters of jobs: permitted values, and errors for others."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import pytest

from nsqanalytics.job_list import JOBS, find_job
from nsqanalytics.notebook import load
from nsqanalytics.parameters import BadParameter, declared, duration, spelt_out, written

LATENCY = JOBS["latency"]


@pytest.mark.parametrize("node", ["10.0.0.1 :4151", "10.0.0.1:4151 10.0.0.2:4151", "a:1,b:2", "10.0.0.1"])
def test_a_node_is_a_host_and_a_port(node):
    """No node of an archive has another name, so the report would be empty. Spaces around it do not count."""
    for name in ("latency", "compare", "lives"):
        with pytest.raises(BadParameter, match=rf"^node: '{node}' is not a node, such as 10\.0\.0\.1:4151$"):
            JOBS[name].checked({"node": node})
    assert LATENCY.checked({"node": " [::1]:4151 "}).node == "[::1]:4151"


def test_missing_null_and_empty_leave_a_parameter_to_the_job():
    """A form sends null, a command line nothing, a script perhaps an empty text."""
    assert LATENCY.checked({}) == LATENCY.checked({"window": None, "topic": "", "until": " "})
    assert LATENCY.checked({}).period == timedelta(hours=24)


def test_values_are_read_as_people_write_them():
    """Days, Go's durations, times in any zone."""
    read = LATENCY.checked({"window": "5m", "period": "7d", "until": "2026-03-14T15:00:00+01:00", "minimum_count": 10})

    assert (read.window, read.period, read.minimum_count) == ("5m", timedelta(days=7), 10)
    assert read.until == datetime(2026, 3, 14, 14, tzinfo=UTC)


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"window": "7m"}, "window: '7m' is not one of 5m, 1h, 1d"),
        (
            {"windows": "5m"},
            "there is no parameter 'windows'; there are period, until, topic, channel, node, compared_with",
        ),
        ({"period": "soon"}, "period: 'soon' is not a duration"),
        ({"period": "6"}, "period: the duration '6' needs a unit, for example 6h or 6d"),
        ({"period": "0s"}, "period: the duration '0s' is not positive"),
        ({"period": "-3h"}, "period: the duration '-3h' is not positive"),
        ({"period": "99999999999d"}, "period: the duration '99999999999d' is too long"),
        ({"until": "yesterday"}, "until: 'yesterday' is not a time"),
        ({"until": "2026-03-14T15:00"}, "until: the time '2026-03-14T15:00' has no zone"),
        ({"until": "0001-01-01T00:00+14:00"}, "until: the time '0001-01-01T00:00.14:00' is not from 1970 to 2200"),
        ({"until": "9999-12-31T23:59Z"}, "until: the time '9999-12-31T23:59Z' is not from 1970 to 2200"),
        ({"until": "2026-03-14"}, "until: the time '2026-03-14' has no zone; for UTC, write 2026-03-14T00:00Z"),
        ({"topic": "or\0ders"}, r"topic: it contains the character U\+0000, which is not text"),
        ({"channel": "\udcff"}, r"channel: it contains the character U\+DCFF, which is not text"),
        ({"minimum_count": "0"}, "minimum_count: 0 is less than 1"),
        ({"minimum_count": "1.5"}, "minimum_count: '1.5' is not a whole number"),
        ({"minimum_count": str(2**63)}, "minimum_count: 9223372036854775808 is too large"),
    ],
)
def test_a_parameter_that_does_not_fit_is_named_with_the_reason(given: dict[str, str], complaint: str):
    with pytest.raises(BadParameter, match=complaint):
        LATENCY.checked(given)


@pytest.mark.parametrize("job", sorted(JOBS))
def test_no_period_ends_in_the_future(job: str):
    """Of reports, and of maintenance, which would treat hours that are not over as old."""
    now = datetime(2026, 3, 14, 15, tzinfo=UTC)
    for name, parameter in declared(JOBS[job].parameters).items():
        if parameter.kind == "time":
            with pytest.raises(
                BadParameter, match=rf"{name}: 2026-03-14T15:02Z is in the future; it is now 2026-03-14T15"
            ):
                JOBS[job].checked({name: "2026-03-14T16:02+01:00"}, now)
            assert getattr(JOBS[job].checked({name: "2026-03-12T15:00Z"}, now), name) is not None
            with pytest.raises(BadParameter, match=f"{name}: 2199-12-31T00:00Z is in the future"):
                JOBS[job].checked({name: "2199-12-31T00:00Z"})


def test_a_notebook_has_no_empty_or_reversed_period():
    for period, shown in ((timedelta(0), "0s"), (timedelta(hours=-1), "-1h")):
        with pytest.raises(ValueError, match=re.escape(f"the period {shown} is not positive")):
            load("nowhere", period=period)


def test_a_number_that_nobody_can_read_is_refused():
    """Every number has bounds."""
    refused = []
    for job in JOBS.values():
        for name, parameter in declared(job.parameters).items():
            if parameter.kind == "number":
                with pytest.raises(BadParameter, match=rf"{name}: 1e\+300 is more than"):
                    job.checked({name: "1e300"})
                refused.append(name)
    assert "free_gb" in refused


def test_a_number_above_its_maximum_is_refused():
    """Whole or not."""
    with pytest.raises(BadParameter, match="weeks: 27 is more than 26"):
        JOBS["anomalies"].checked({"weeks": "27"})
    with pytest.raises(BadParameter, match="threshold: 101 is more than 100"):
        JOBS["anomalies"].checked({"threshold": "101"})


def test_an_unknown_job_is_answered_with_those_there_are():
    with pytest.raises(BadParameter, match="there is no job 'latencies'; there are latency"):
        find_job("latencies")


def test_a_form_can_be_drawn_from_a_jobs_parameters():
    """Every parameter has a title, a description, and a default that the job accepts."""
    form = LATENCY.form()

    assert form["window"]["choices"] == ["5m", "1h", "1d"]
    assert all(field["title"] and field["description"] for field in form.values())
    assert LATENCY.checked({name: field["default"] for name, field in form.items()}) == LATENCY.checked({})


@pytest.mark.parametrize("text", ["7d", "90m", "1h30m", "90s", "1h0m5s", "250ms", "10m", "36h"])
def test_a_duration_is_written_as_it_is_read(text: str):
    assert duration(written(duration(text))) == duration(text)
    assert not written(duration(text)).endswith(("h0m0s", "m0s", "h0m"))


def test_a_duration_is_spelt_out_with_the_part_that_is_done():
    """In the duration's own unit, rounded down; nothing is said of less than one."""
    lengths = [timedelta(days=1), timedelta(days=30), timedelta(hours=6), timedelta(minutes=90), timedelta(hours=49)]
    assert [spelt_out(each) for each in lengths] == ["1 day", "30 days", "6 hours", "90 minutes", "2 days"]
    done = [spelt_out(timedelta(days=30), share) for share in (0.0, 0.03, 0.49, 1.0)]
    assert done == ["30 days", "30 days", "14 of 30 days", "30 of 30 days"]
