"""Policies of brokerd: what the channels that match two patterns do with messages whose deliveries failed.

The functions raise RequestFailed; Refused, with ``is_unknown_request`` by Go's nsqd, which has no policies.
"""

from __future__ import annotations

import json

from nsqcluster.client import Client


async def set_max_attempts(http: Client, address: str, topic: str, channel: str, max_attempts: int) -> None:
    """Let messages die after this number of failed deliveries. An earlier policy of the same patterns is replaced."""
    body = json.dumps({"max_attempts": max_attempts}).encode()
    await http.post(address, "/policy", {"pattern": topic, "channel": channel}, body)


async def delete_policy(http: Client, address: str, topic: str, channel: str) -> None:
    """Delete the policy of these patterns."""
    await http.post(address, "/policy/delete", {"pattern": topic, "channel": channel})
