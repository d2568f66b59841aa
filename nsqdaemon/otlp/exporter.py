"""Sends one process's metrics to an OTLP endpoint."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import Final

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics.export import MetricExportResult
from opentelemetry.sdk.resources import OTELResourceDetector, Resource

from nsqdaemon.otlp.conversion import metrics_of

_POINTS_IN_A_REQUEST: Final = 10_000


class Exporter:
    """Sends metrics in Prometheus' text format with OpenTelemetry's exporter, which retries for up to 10 s.

    ``OTEL_EXPORTER_OTLP_HEADERS``, ``_CERTIFICATE``, ``_COMPRESSION`` and ``_TIMEOUT`` apply. ``OTEL_SERVICE_NAME`` and
    ``OTEL_RESOURCE_ATTRIBUTES`` set attributes of the resource.
    """

    def __init__(self, endpoint: str, resource: Mapping[str, str]) -> None:
        """``endpoint`` is the base URL; ``resource`` are attributes of the process."""
        self._exporter = OTLPMetricExporter(
            f"{endpoint.rstrip('/')}/v1/metrics", max_export_batch_size=_POINTS_IN_A_REQUEST
        )
        self._resource = Resource.create({**resource, **OTELResourceDetector().detect().attributes})
        self._start_ns = time.time_ns()
        self._reasons = _Reasons()
        logger = logging.getLogger("opentelemetry")
        logger.addHandler(self._reasons)
        logger.propagate = False

    def export(self, text: str) -> str:
        """Send the metrics. Returns the reason of a failure, or an empty string."""
        self._reasons.last = ""
        metrics = metrics_of(text, self._resource, self._start_ns, time.time_ns())
        if self._exporter.export(metrics) is MetricExportResult.SUCCESS:
            return ""
        return " ".join(self._reasons.last.split()) or "the endpoint did not accept the metrics"


class _Reasons(logging.Handler):
    """Keeps the last message that the library logged, which is the reason of a failure."""

    last = ""

    def emit(self, record: logging.LogRecord) -> None:
        self.last = record.getMessage()
