"""Rules to begin with. None of them is there by itself: whoever runs a cluster knows what is usual in it."""

from __future__ import annotations

from typing import Any

SUGGESTED: tuple[dict[str, Any], ...] = (
    {
        "name": "Node missing",
        "description": "The broker does not answer. What it holds is kept on its disk; start it again there.",
        "severity": "critical",
        "scope": "node",
        "metric": "down",
        "hold_s": 30,
    },
    {
        "name": "Disk",
        "description": "The broker cannot write to its disk and refuses publishes: make room.",
        "severity": "critical",
        "scope": "node",
        "metric": "unhealthy",
        "hold_s": 10,
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
        "name": "Nobody finishes",
        "description": "The oldest message is five minutes old: look at the channel's consumers, what each holds, and "
        "whether messages time out.",
        "severity": "critical",
        "scope": "channel",
        "metric": "oldest_age_s",
        "threshold": 300.0,
        "hold_s": 60,
    },
    {
        "name": "Backlog",
        "description": "Consumers are too few or too slow for what is published.",
        "scope": "channel",
        "metric": "depth",
        "threshold": 100_000.0,
        "hold_s": 300,
    },
    {
        "name": "No consumers",
        "description": "Nobody consumes this channel, and its messages add up: start its consumers, or delete it.",
        "scope": "channel",
        "metric": "client_count",
        "comparison": "below",
        "threshold": 1.0,
        "hold_s": 120,
    },
    {
        "name": "Timeouts",
        "description": "Consumers take longer than the message timeout, so that messages are handled again and again.",
        "scope": "channel",
        "metric": "timeout_rate",
        "threshold": 1.0,
        "hold_s": 60,
    },
    {
        "name": "Topic without a channel",
        "description": "What is published waits for a first channel, and fills the disk meanwhile.",
        "scope": "topic",
        "metric": "channel_count",
        "comparison": "below",
        "threshold": 1.0,
        "hold_s": 600,
    },
)
