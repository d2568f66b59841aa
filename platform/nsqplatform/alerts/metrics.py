"""The collector's Prometheus metrics of alerts."""

from __future__ import annotations

from prometheus_client import Counter, Gauge, Histogram

from nsqplatform.cluster.metrics import collector

firing = Gauge("nsq_alerts_firing", "Firing alerts.", ["rule", "severity"], registry=collector)
failing = Gauge("nsq_alerts_failing_rules", "Rules whose last evaluation failed.", registry=collector)
notifications = Counter(
    "nsq_alerts_notifications",
    "Notifications, by notifier and outcome.",
    ["notifier", "outcome"],
    registry=collector,
)
evaluation_seconds = Histogram(
    "nsq_alerts_evaluation_seconds",
    "Time to evaluate all rules against a snapshot.",
    buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0),
    registry=collector,
)
