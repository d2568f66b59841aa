"""Alerts: the rules they come from, whom they are told to, what silences them, and every one there was."""

from __future__ import annotations

from datetime import datetime
from fnmatch import fnmatchcase
from typing import ClassVar

from django.db import models
from django.db.models import Q

from nsqplatform.alerts.catalogue import METRICS, Metric


class Notifier(models.Model):
    """Where alerts are told: a webhook's address, or people's e-mail."""

    class Kind(models.TextChoices):
        WEBHOOK = "webhook"
        EMAIL = "email"

    name = models.CharField(max_length=100, unique=True)
    kind = models.CharField(max_length=8, choices=Kind.choices)
    url = models.CharField(max_length=500, blank=True, default="")
    recipients = models.JSONField(default=list)
    enabled = models.BooleanField(default=True)
    created_by = models.CharField(max_length=150)
    created_at = models.DateTimeField(auto_now_add=True)
    # How it went last; an error stays until something was delivered after it.
    last_sent_at = models.DateTimeField(null=True)
    last_error = models.CharField(max_length=500, blank=True, default="")
    last_error_at = models.DateTimeField(null=True)

    class Meta:
        ordering: ClassVar[list[str]] = ["name"]


class Severity(models.TextChoices):
    WARNING = "warning"
    CRITICAL = "critical"


class Rule(models.Model):
    """A metric of some channels, topics or nodes, and the threshold that it is not to be beyond for long."""

    class Scope(models.TextChoices):
        CHANNEL = "channel"
        TOPIC = "topic"
        NODE = "node"

    class Comparison(models.TextChoices):
        ABOVE = "above"
        BELOW = "below"

    name = models.CharField(max_length=100, unique=True)
    description = models.CharField(max_length=500, blank=True, default="")
    """What to do about it; told with each alert."""
    enabled = models.BooleanField(default=True)
    severity = models.CharField(max_length=8, choices=Severity.choices, default=Severity.WARNING)
    scope = models.CharField(max_length=8, choices=Scope.choices)
    metric = models.CharField(max_length=32)
    comparison = models.CharField(max_length=8, choices=Comparison.choices, default=Comparison.ABOVE)
    threshold = models.FloatField(default=0.0)
    # Globs as a shell has them; those that do not belong to the scope are "*".
    topic_pattern = models.CharField(max_length=64, default="*")
    channel_pattern = models.CharField(max_length=64, default="*")
    node_pattern = models.CharField(max_length=300, default="*")
    """Of a node's id, or of its hostname."""
    hold_s = models.PositiveIntegerField(default=60)
    """How long it has to be beyond the threshold before the alert fires."""
    resolve_after_s = models.PositiveIntegerField(default=30)
    """How long it has to be back before the alert is over."""
    repeat_s = models.PositiveIntegerField(null=True)
    """How often it is told again while it fires and nobody has acknowledged it; null: never."""
    notifiers = models.ManyToManyField(Notifier, related_name="rules")
    created_by = models.CharField(max_length=150)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering: ClassVar[list[str]] = ["name"]

    @property
    def watched(self) -> Metric:
        return METRICS[self.scope, self.metric]


class Alert(models.Model):
    """One time that a rule fired for one subject; what the rule said is kept as it was then."""

    class State(models.TextChoices):
        FIRING = "firing"
        RESOLVED = "resolved"

    class Resolution(models.TextChoices):
        """Why it is over."""

        CLEARED = "cleared"
        GONE = "gone"
        CLOSED = "closed"
        RULE = "rule"

    rule = models.ForeignKey(Rule, on_delete=models.SET_NULL, null=True, related_name="alerts")
    rule_name = models.CharField(max_length=100)
    description = models.CharField(max_length=500, blank=True, default="")
    severity = models.CharField(max_length=8, choices=Severity.choices)
    scope = models.CharField(max_length=8, choices=Rule.Scope.choices)
    metric = models.CharField(max_length=32)
    comparison = models.CharField(max_length=8, choices=Rule.Comparison.choices)
    threshold = models.FloatField()
    hold_s = models.PositiveIntegerField()
    # Empty where the scope has none.
    topic = models.CharField(max_length=200, blank=True, default="")
    channel = models.CharField(max_length=200, blank=True, default="")
    node = models.CharField(max_length=300, blank=True, default="")

    state = models.CharField(max_length=8, choices=State.choices, default=State.FIRING)
    value = models.FloatField(null=True)
    """When it fired; null where nothing is counted."""
    detail = models.CharField(max_length=500, blank=True, default="")
    """What a node that is down or unhealthy says, or failed with."""
    holders = models.JSONField(default=list)
    """The nodes that held the subject when it fired: while one of them is silent, the subject is not gone."""
    began_at = models.DateTimeField()
    """When it went beyond the threshold."""
    fired_at = models.DateTimeField()
    resolved_at = models.DateTimeField(null=True)
    resolution = models.CharField(max_length=8, choices=Resolution.choices, blank=True, default="")
    resolved_by = models.CharField(max_length=150, blank=True, default="")
    acknowledged_by = models.CharField(max_length=150, blank=True, default="")
    acknowledged_at = models.DateTimeField(null=True)
    note = models.CharField(max_length=500, blank=True, default="")
    """Of whoever acknowledged or closed it."""

    class Meta:
        ordering: ClassVar[list[str]] = ["-id"]
        indexes: ClassVar = [models.Index(fields=["state", "resolved_at"])]
        constraints: ClassVar = [
            models.UniqueConstraint(
                name="one_firing_alert_of_a_subject",
                fields=["rule", "topic", "channel", "node"],
                condition=Q(state="firing"),
            )
        ]

    @property
    def subject(self) -> str:
        """``topic``, ``topic/channel`` or a node's id, as the snapshot's keys are."""
        return self.node or (f"{self.topic}/{self.channel}" if self.channel else self.topic)

    @property
    def watched(self) -> Metric:
        return METRICS[self.scope, self.metric]


class Notice(models.Model):
    """What one notifier was last told of one alert."""

    alert = models.ForeignKey(Alert, on_delete=models.CASCADE, related_name="notices")
    notifier = models.ForeignKey(Notifier, on_delete=models.CASCADE, related_name="notices")
    state = models.CharField(max_length=8, choices=Alert.State.choices)
    sent_at = models.DateTimeField()

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(name="one_notice_of_an_alert_per_notifier", fields=["alert", "notifier"])
        ]


class Silence(models.Model):
    """For how long, and why, nobody is told of some alerts. They are evaluated and shown as ever."""

    rule = models.ForeignKey(Rule, on_delete=models.CASCADE, null=True, related_name="silences")
    # Globs; an empty one asks for nothing. Alerts of nodes have no topic, all others no node.
    topic_pattern = models.CharField(max_length=64, blank=True, default="")
    channel_pattern = models.CharField(max_length=64, blank=True, default="")
    node_pattern = models.CharField(max_length=300, blank=True, default="")
    within = models.JSONField(default=list)
    """The topic patterns of the operator who made it: whatever it says, it reaches no further. Empty: everywhere."""
    reason = models.CharField(max_length=500)
    created_by = models.CharField(max_length=150)
    created_at = models.DateTimeField(auto_now_add=True)
    ends_at = models.DateTimeField()
    ended_by = models.CharField(max_length=150, blank=True, default="")
    """Who ended it before its time."""

    class Meta:
        ordering: ClassVar[list[str]] = ["-id"]

    def covers(self, alert: Alert, *, at: datetime) -> bool:
        """Tell whether it holds at this time, for this alert."""
        return (
            at < self.ends_at
            and (self.rule_id is None or self.rule_id == alert.rule_id)
            and _matches(self.topic_pattern, alert.topic)
            and _matches(self.channel_pattern, alert.channel)
            and _matches(self.node_pattern, alert.node)
            and (not self.within or any(_matches(pattern, alert.topic) for pattern in self.within))
        )


def _matches(pattern: str, name: str) -> bool:
    """Whether what is asked for is there, and so called."""
    return not pattern or (bool(name) and fnmatchcase(name, pattern))
