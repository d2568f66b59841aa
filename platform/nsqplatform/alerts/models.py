"""Alerts, and their rules, notifiers, notifications and silences."""

from __future__ import annotations

from datetime import datetime
from fnmatch import fnmatchcase
from typing import ClassVar

from django.db import models
from django.db.models import Q

from nsqplatform.alerts.catalogue import ARCHIVE, METRICS, Metric
from nsqplatform.clusters.rows import ClusterRow


class Notifier(ClusterRow):
    """A destination of notifications: the URL of a webhook, or e-mail addresses."""

    class Kind(models.TextChoices):
        WEBHOOK = "webhook"
        EMAIL = "email"

    name = models.CharField(max_length=100)
    kind = models.CharField(max_length=8, choices=Kind.choices)
    url = models.CharField(max_length=500, blank=True, default="")
    recipients = models.JSONField(default=list)
    enabled = models.BooleanField(default=True)
    created_by = models.CharField(max_length=150)
    created_at = models.DateTimeField(auto_now_add=True)
    # The outcome of the last delivery; an error stays until a later delivery succeeds.
    last_sent_at = models.DateTimeField(null=True)
    last_error = models.CharField(max_length=500, blank=True, default="")
    last_error_at = models.DateTimeField(null=True)

    class Meta:
        ordering: ClassVar[list[str]] = ["name"]
        constraints: ClassVar = [models.UniqueConstraint(name="one_notifier_of_a_name", fields=["cluster", "name"])]


class Severity(models.TextChoices):
    WARNING = "warning"
    CRITICAL = "critical"


class Rule(ClusterRow):
    """An alert rule: a metric of some channels, topics, nodes or objectives or of the archive, and a threshold. An
    alert fires when the metric has been beyond the threshold for ``hold_s``.

    The threshold of a metric that is compared with past weeks is a score: half the width of the band that is usual."""

    class Scope(models.TextChoices):
        CHANNEL = "channel"
        TOPIC = "topic"
        NODE = "node"
        ARCHIVE = "archive"
        OBJECTIVE = "objective"

    class Comparison(models.TextChoices):
        ABOVE = "above"
        BELOW = "below"
        OUTSIDE = "outside"
        """Of a band, above or below it. For metrics that are compared with past weeks only."""

    name = models.CharField(max_length=100)
    description = models.CharField(max_length=500, blank=True, default="")
    """What to do about the alert; part of each notification."""
    enabled = models.BooleanField(default=True)
    severity = models.CharField(max_length=8, choices=Severity.choices, default=Severity.WARNING)
    scope = models.CharField(max_length=9, choices=Scope.choices)
    metric = models.CharField(max_length=32)
    comparison = models.CharField(max_length=8, choices=Comparison.choices, default=Comparison.ABOVE)
    threshold = models.FloatField(default=0.0)
    # Shell globs; patterns that do not apply to the scope are "*".
    topic_pattern = models.CharField(max_length=64, default="*")
    channel_pattern = models.CharField(max_length=64, default="*")
    node_pattern = models.CharField(max_length=300, default="*")
    """Matched with the node's id and with its hostname."""
    objective_pattern = models.CharField(max_length=100, default="*")
    hold_s = models.PositiveIntegerField(default=60)
    """Time beyond the threshold after which the alert fires."""
    resolve_after_s = models.PositiveIntegerField(default=30)
    """Time within the threshold after which the alert is resolved."""
    repeat_s = models.PositiveIntegerField(null=True)
    """Interval of repeated notifications while the alert fires and is not acknowledged; null: none."""
    notifiers = models.ManyToManyField(Notifier, related_name="rules")
    created_by = models.CharField(max_length=150)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering: ClassVar[list[str]] = ["name"]
        constraints: ClassVar = [models.UniqueConstraint(name="one_rule_of_a_name", fields=["cluster", "name"])]

    @property
    def watched(self) -> Metric:
        return METRICS[self.scope, self.metric]


class Alert(ClusterRow):
    """One firing of a rule for one subject, with a copy of the rule's values."""

    class State(models.TextChoices):
        FIRING = "firing"
        RESOLVED = "resolved"

    class Resolution(models.TextChoices):
        """Why the alert was resolved."""

        CLEARED = "cleared"
        GONE = "gone"
        CLOSED = "closed"
        RULE = "rule"

    rule = models.ForeignKey(Rule, on_delete=models.SET_NULL, null=True, related_name="alerts")
    rule_name = models.CharField(max_length=100)
    description = models.CharField(max_length=500, blank=True, default="")
    severity = models.CharField(max_length=8, choices=Severity.choices)
    scope = models.CharField(max_length=9, choices=Rule.Scope.choices)
    metric = models.CharField(max_length=32)
    comparison = models.CharField(max_length=8, choices=Rule.Comparison.choices)
    threshold = models.FloatField()
    hold_s = models.PositiveIntegerField()
    # Empty if not part of the scope.
    topic = models.CharField(max_length=200, blank=True, default="")
    channel = models.CharField(max_length=200, blank=True, default="")
    node = models.CharField(max_length=300, blank=True, default="")
    objective = models.CharField(max_length=100, blank=True, default="")
    """The objective's name."""

    state = models.CharField(max_length=8, choices=State.choices, default=State.FIRING)
    value = models.FloatField(null=True)
    """The metric's value when it fired; null for a metric without values."""
    detail = models.CharField(max_length=500, blank=True, default="")
    """The message or error of a node that is down or unhealthy; for the archive, the first damaged file; for an
    objective, both burn rates; for an unusual figure, what is usual."""
    holders = models.JSONField(default=list)
    """The subject's nodes when it fired. While one of them does not answer, the subject does not count as gone."""
    began_at = models.DateTimeField()
    """When the metric went beyond the threshold."""
    fired_at = models.DateTimeField(db_index=True)
    resolved_at = models.DateTimeField(null=True)
    resolution = models.CharField(max_length=8, choices=Resolution.choices, blank=True, default="")
    resolved_by = models.CharField(max_length=150, blank=True, default="")
    acknowledged_by = models.CharField(max_length=150, blank=True, default="")
    acknowledged_at = models.DateTimeField(null=True)
    note = models.CharField(max_length=500, blank=True, default="")
    """Note of the person who acknowledged or closed it."""

    class Meta:
        ordering: ClassVar[list[str]] = ["-id"]
        indexes: ClassVar = [models.Index(fields=["state", "resolved_at"])]
        constraints: ClassVar = [
            models.UniqueConstraint(
                name="one_firing_alert_of_a_subject",
                fields=["rule", "topic", "channel", "node", "objective"],
                condition=Q(state="firing"),
            )
        ]

    @property
    def subject(self) -> str:
        """``topic``, ``topic/channel`` or a node's id, as in the snapshot's keys, an objective's name, or
        ``archive``."""
        if self.scope == Rule.Scope.ARCHIVE:
            return ARCHIVE
        if self.scope == Rule.Scope.OBJECTIVE:
            return self.objective
        return self.node or (f"{self.topic}/{self.channel}" if self.channel else self.topic)

    @property
    def watched(self) -> Metric:
        return METRICS[self.scope, self.metric]


class Notice(models.Model):
    """The last notification of one notifier about one alert."""

    alert = models.ForeignKey(Alert, on_delete=models.CASCADE, related_name="notices")
    notifier = models.ForeignKey(Notifier, on_delete=models.CASCADE, related_name="notices")
    state = models.CharField(max_length=8, choices=Alert.State.choices)
    sent_at = models.DateTimeField()

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(name="one_notice_of_an_alert_per_notifier", fields=["alert", "notifier"])
        ]


class Silence(ClusterRow):
    """A period without notifications of some alerts. They are still evaluated and shown.

    The archive's alert has no name that a pattern could match: only a silence of its rule covers it."""

    rule = models.ForeignKey(Rule, on_delete=models.CASCADE, null=True, related_name="silences")
    # Globs; an empty one matches everything. An alert has a topic, a node or an objective, or is of the archive.
    topic_pattern = models.CharField(max_length=64, blank=True, default="")
    channel_pattern = models.CharField(max_length=64, blank=True, default="")
    node_pattern = models.CharField(max_length=300, blank=True, default="")
    objective_pattern = models.CharField(max_length=100, blank=True, default="")
    within = models.JSONField(default=list)
    """The topic patterns of the operator who created it, which limit it further. Empty: no limit."""
    reason = models.CharField(max_length=500)
    created_by = models.CharField(max_length=150)
    created_at = models.DateTimeField(auto_now_add=True)
    ends_at = models.DateTimeField()
    ended_by = models.CharField(max_length=150, blank=True, default="")
    """The user who ended it early."""

    class Meta:
        ordering: ClassVar[list[str]] = ["-id"]

    def covers(self, alert: Alert, *, at: datetime) -> bool:
        """Return whether the silence is active at this time and covers this alert."""
        return (
            at < self.ends_at
            and (self.rule_id is None or self.rule_id == alert.rule_id)
            and _matches(self.topic_pattern, alert.topic)
            and _matches(self.channel_pattern, alert.channel)
            and _matches(self.node_pattern, alert.node)
            and _matches(self.objective_pattern, alert.objective)
            and (not self.within or any(_matches(pattern, alert.topic) for pattern in self.within))
        )


def _matches(pattern: str, name: str) -> bool:
    """Whether ``name`` is not empty and matches ``pattern``; an empty pattern matches every name."""
    return not pattern or (bool(name) and fnmatchcase(name, pattern))
