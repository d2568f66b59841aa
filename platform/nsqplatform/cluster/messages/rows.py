"""A message of a channel, as in the API."""

from __future__ import annotations

from base64 import b64encode

from typing_extensions import TypedDict

from nsqcluster.messages import Death as BrokerDeath
from nsqcluster.messages import PeekedClient, State
from nsqcluster.messages import PeekedMessage as BrokerMessage
from nsqplatform.cluster.messages.hidden_paths import Visibility, Visible
from nsqwire.units import Milliseconds


class Holder(TypedDict):
    """The consumer that has a message in flight."""

    client_id: str
    hostname: str
    remote_address: str
    user_agent: str


class Death(TypedDict):
    """Why a dead message died, and when: Unix milliseconds. ``client_id`` is that of the last consumer, or empty."""

    reason: str
    failures: int
    first_failure: Milliseconds
    died: Milliseconds
    client_id: str


class PeekedMessage(TypedDict):
    """Times are Unix milliseconds. ``body`` is base64 of the beginning of the visible body, ``size`` the size of the
    whole body in bytes. ``visibility`` says whether a mask has replaced values in the body or withholds it; a mask also
    replaces the values of ``headers``, by name in lower case. ``sampled``: what happens to it is recorded."""

    node: str
    id: str
    timestamp: Milliseconds
    attempts: int
    state: State
    size: int
    body: str
    truncated: bool
    visibility: Visibility
    headers: dict[str, str]
    due: Milliseconds | None
    deadline: Milliseconds | None
    client: Holder | None
    death: Death | None
    sampled: bool


def row(
    node: str, message: BrokerMessage, visible: Visible, headers: dict[str, str], max_body_bytes: int
) -> PeekedMessage:
    """The row of a message, with its visible headers and at most ``max_body_bytes`` of the visible body."""
    return PeekedMessage(
        node=node,
        id=message.id,
        timestamp=message.timestamp // 1_000_000,
        attempts=message.attempts,
        state=message.state,
        size=message.size,
        body=b64encode(visible.body[:max_body_bytes]).decode(),
        truncated=len(visible.body) > max_body_bytes,
        visibility=visible.visibility,
        headers=headers,
        due=None if message.due is None else message.due // 1_000_000,
        deadline=None if message.deadline is None else message.deadline // 1_000_000,
        client=_holder(message.client) if message.client else None,
        death=_death(message.death) if message.death else None,
        sampled=message.sampled,
    )


def _death(death: BrokerDeath) -> Death:
    return Death(
        reason=death.reason,
        failures=death.failures,
        first_failure=death.first_failure // 1_000_000,
        died=death.died // 1_000_000,
        client_id=death.client_id,
    )


def _holder(client: PeekedClient) -> Holder:
    return Holder(
        client_id=client.client_id,
        hostname=client.hostname,
        remote_address=client.remote_address,
        user_agent=client.user_agent,
    )
