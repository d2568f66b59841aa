"""A connected client."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from brokerd.kernel import Runs
from brokerd.topology import Locality
from nsqwire.identify import Terms
from nsqwire.session import State
from nsqwire.units import Seconds

if TYPE_CHECKING:
    from brokerd.auth import Grant


@dataclass(frozen=True, kw_only=True)
class TLSInfo:
    """The negotiated TLS parameters, as in ``/stats``; ``common_name`` is that of the client's certificate."""

    version: str
    cipher_suite: str
    common_name: str


class Client:
    """One TCP connection. ``send`` takes frames; ``hang_up`` closes the connection once they are flushed.

    ``connect_ts`` is in Unix seconds. Only :mod:`brokerd.in_flight` changes ``in_flight_count`` and ``runs``.
    """

    __slots__ = (
        "blocked", "client_id", "connect_ts", "deflate", "finish_count", "grant",
        "grant_until", "hang_up", "hostname", "in_flight_count", "is_waiting", "locality", "message_count",
        "msg_timeout_s", "number", "preference", "pub_counts", "ready_count", "remote_address", "requeue_count", "runs",
        "sample_rate", "secret", "send", "snappy", "state", "takes_headers", "timeout_count", "tls", "topology_region",
        "topology_zone", "touch_timeout_s", "user_agent",
    )  # fmt: skip

    def __init__(
        self,
        number: int,
        remote_address: str,
        terms: Terms,
        connect_ts: int,
        send: Callable[[bytes | memoryview], None],
        hang_up: Callable[[], None],
    ) -> None:
        self.number = number
        self.remote_address = remote_address
        host = remote_address.rpartition(":")[0].strip("[]")
        self.client_id = self.hostname = host
        self.user_agent = self.topology_region = self.topology_zone = ""
        self.connect_ts = connect_ts
        self.send = send
        self.hang_up = hang_up
        self.state = State.INIT
        self.sample_rate = terms.sample_rate
        self.takes_headers = terms.headers
        """True if messages with headers are sent to it in frames of type 3."""
        self.msg_timeout_s = self.touch_timeout_s = terms.msg_timeout_ms / 1000
        self.tls: TLSInfo | None = None
        self.deflate = self.snappy = False
        self.secret = b""
        self.grant: Grant | None = None
        """The last answer of the auth server, which is valid until ``grant_until`` (monotonic seconds)."""
        self.grant_until: Seconds = 0.0
        self.ready_count = 0
        self.in_flight_count = 0
        self.message_count = 0
        self.finish_count = 0
        self.requeue_count = 0
        self.timeout_count = 0
        """Number of its deliveries that timed out."""
        self.pub_counts: dict[str, int] = {}
        self.locality = self.preference = Locality.GLOBAL
        """How near it is to the broker: for the counts of its messages, and for the order of deliveries."""
        self.blocked = False
        """True while the connection's write buffer is full."""
        self.is_waiting = False
        """True while it is in its channel's queue of ready clients."""
        self.runs = Runs()
        """The runs of messages in their first delivery."""

    @property
    def is_authed(self) -> bool:
        """True if the last grant of an auth server has at least one entry."""
        return self.grant is not None and bool(self.grant.authorizations)

    @property
    def free(self) -> int:
        """Number of messages that may be sent to it now."""
        if self.blocked or self.state is not State.SUBSCRIBED:
            return 0
        return self.ready_count - self.in_flight_count

    def published(self, topic: str, messages: int) -> None:
        """Count ``messages`` that it published to ``topic``."""
        self.pub_counts[topic] = self.pub_counts.get(topic, 0) + messages
