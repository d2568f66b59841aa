"""Pushes a process's metrics from a thread, for processes with few metrics."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping

from nsqwire.units import Seconds

log = logging.getLogger(__name__)


def push_in_thread(
    endpoint: str, interval_s: Seconds, read: Callable[[], bytes], resource: Mapping[str, str]
) -> threading.Event:
    """Push the metrics that ``read`` returns, in Prometheus' text format, until the returned event is set.

    The thread ends with the process.
    """
    stop = threading.Event()
    arguments = (endpoint, interval_s, read, resource, stop)
    threading.Thread(target=_push, args=arguments, name="otlp", daemon=True).start()
    return stop


def _push(
    endpoint: str, interval_s: Seconds, read: Callable[[], bytes], resource: Mapping[str, str], stop: threading.Event
) -> None:
    from nsqdaemon.otlp.exporter import Exporter  # here, because it takes half a second

    exporter = Exporter(endpoint, resource)
    before = ""
    while True:
        try:
            failure = exporter.export(read().decode())
        except Exception as error:  # a defect must not end the thread
            failure = str(error) or type(error).__name__
        if failure and failure != before:
            log.error("cannot push metrics to %s: %s", endpoint, failure)
        elif before and not failure:
            log.info("metrics are pushed to %s again", endpoint)
        before = failure
        if stop.wait(interval_s):
            return
