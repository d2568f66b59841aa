"""Suggested rules. None is created automatically, because thresholds depend on the cluster."""

from __future__ import annotations

from typing import Literal, NotRequired, TypedDict

from nsqplatform.alerts.catalogue import Scope


class SuggestedRule(TypedDict):
    """The values of a RuleIn that differ from its defaults."""

    name: str
    description: str
    severity: NotRequired[Literal["critical"]]
    scope: Scope
    metric: str
    comparison: NotRequired[Literal["below", "outside"]]
    threshold: NotRequired[float]
    hold_s: int
    resolve_after_s: NotRequired[int]


SUGGESTED: tuple[SuggestedRule, ...] = (
    {
        "name": "Node missing",
        "description": "The broker does not answer. Its messages are on its disk; restart it there.",
        "severity": "critical",
        "scope": "node",
        "metric": "down",
        "hold_s": 30,
    },
    {
        "name": "Disk",
        "description": "The broker cannot write to its disk and refuses publishes: free disk space.",
        "severity": "critical",
        "scope": "node",
        "metric": "unhealthy",
        "hold_s": 10,
    },
    {
        "name": "Under-replicated",
        "description": "Only one member of the mirrored pair has all messages. Start the other one, and look at its "
        "log and at the network between them.",
        "scope": "node",
        "metric": "under_replicated",
        "hold_s": 60,
    },
    {
        "name": "Lost messages",
        "description": "The broker found undelivered messages damaged or missing. Its log names the files: look at the "
        "disk. The alert resolves when the broker is restarted.",
        "severity": "critical",
        "scope": "node",
        "metric": "lost_message_count",
        "threshold": 0.0,
        "hold_s": 0,
    },
    {
        "name": "Damaged archive files",
        "description": "Files of the archive could not be read and were moved to samples/_damaged; reports omit them. "
        "Check the disk. The alert resolves when the files are repaired and moved back, or removed.",
        "scope": "archive",
        "metric": "damaged_file_count",
        "threshold": 0.0,
        "hold_s": 0,
    },
    {
        "name": "Old messages",
        "description": "The oldest message is five minutes old: check the channel's consumers, their messages in "
        "flight, and whether messages time out.",
        "severity": "critical",
        "scope": "channel",
        "metric": "oldest_age_s",
        "threshold": 300.0,
        "hold_s": 60,
    },
    {
        "name": "Backlog",
        "description": "There are too few consumers, or they are too slow for the publish rate.",
        "scope": "channel",
        "metric": "depth",
        "threshold": 100_000.0,
        "hold_s": 300,
    },
    {
        "name": "Unusual backlog",
        "description": "More messages wait than in this hour of past weeks: see whether more are published than usual, "
        "or fewer finished. Silent for channels with less than four weeks of rollups.",
        "scope": "channel",
        "metric": "unusual_depth",
        "threshold": 4.0,
        "hold_s": 600,
    },
    {
        "name": "Unusual publish rate",
        "description": "Far more or fewer messages are published than in this hour of past weeks: look at the "
        "publishers. Silent for topics with less than four weeks of rollups.",
        "scope": "topic",
        "metric": "unusual_publish_rate",
        "comparison": "outside",
        "threshold": 4.0,
        "hold_s": 600,
    },
    {
        "name": "No consumers",
        "description": "The channel has no consumers, and its backlog grows: start consumers, or delete the channel.",
        "scope": "channel",
        "metric": "client_count",
        "comparison": "below",
        "threshold": 1.0,
        "hold_s": 120,
    },
    {
        "name": "Timeouts",
        "description": "Consumers take longer than the message timeout, so messages are redelivered repeatedly.",
        "scope": "channel",
        "metric": "timeout_rate",
        "threshold": 1.0,
        "hold_s": 60,
    },
    {
        "name": "Error budget: fast burn",
        "description": "At this rate, 2 % of a 30-day error budget is used up in an hour: find out what fails now.",
        "severity": "critical",
        "scope": "objective",
        "metric": "burn_1h",
        "threshold": 14.4,
        "hold_s": 0,
        "resolve_after_s": 0,
    },
    {
        "name": "Error budget: burn",
        "description": "At this rate, 5 % of a 30-day error budget is used up in six hours: find out what fails now.",
        "severity": "critical",
        "scope": "objective",
        "metric": "burn_6h",
        "threshold": 6.0,
        "hold_s": 0,
        "resolve_after_s": 0,
    },
    {
        "name": "Error budget: slow burn",
        "description": "At this rate, the error budget does not last for the objective's window: look at it today.",
        "scope": "objective",
        "metric": "burn_3d",
        "threshold": 1.0,
        "hold_s": 0,
        "resolve_after_s": 0,
    },
    {
        "name": "Topic without a channel",
        "description": "Published messages wait for the first channel and fill the disk.",
        "scope": "topic",
        "metric": "channel_count",
        "comparison": "below",
        "threshold": 1.0,
        "hold_s": 600,
    },
)
