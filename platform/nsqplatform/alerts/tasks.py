"""The Celery tasks of alerts, in the queue of the dispatcher. CELERY_BEAT_SCHEDULE says when they run."""

from __future__ import annotations

import time

from celery import shared_task

from nsqplatform.alerts import bands, rule_bands
from nsqplatform.alerts.catalogue import METRICS
from nsqplatform.alerts.models import Rule
from nsqplatform.clusters import current

ANOMALIES = [name for (_, name), metric in METRICS.items() if metric.is_anomaly]


@shared_task(name="alerts.find_bands")
def find_bands(cluster: str | None = None) -> None:
    """Find what is usual in the present hours for the rules that compare figures with past weeks, and store it.

    ``cluster``: a name; None for all clusters.
    """
    for name in current.names() if cluster is None else [cluster]:
        with current.entered(name):
            _find_bands()


def _find_bands() -> None:
    now = time.time()
    rules = list(Rule.objects.filter(enabled=True, metric__in=ANOMALIES))
    if rules:
        bands.put(rule_bands.found_bands(rules, now))
