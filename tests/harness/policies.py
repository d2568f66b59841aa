"""The policy of a channel, for tests that ask a broker's policies without a channel."""

from __future__ import annotations

from brokerd.policies import Policies
from brokerd.policy import Policy


def policy_for(policies: Policies, topic: str, channel: str) -> Policy:
    """Return what applies to a channel, as a new channel finds it."""
    return policies.policy_of(policies.rule_for(topic, channel))
