"""A connected client, as topics and channels see it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from brokerd.kernel import Runs
from brokerd.topology import Locality
from nsqwire.identify import Terms
from nsqwire.session import State

if TYPE_CHECKING:
    from brokerd.auth import Grant
    from brokerd.channel import Channel
    from brokerd.net.tls import TLSInfo


class Client:
    """One TCP connection. ``send`` takes frames; ``hang_up`` closes the connection once they are flushed."""

    __slots__ = (
        "blocked", "channel", "client_id", "connect_ts", "deflate", "finish_count", "grant",
        "grant_until", "hang_up", "hostname", "in_flight_count", "is_waiting", "locality", "message_count",
        "msg_timeout", "number", "preference", "pub_counts", "ready_count", "remote_address", "requeue_count", "runs",
        "sample_rate", "secret", "send", "snappy", "state", "tls", "topology_region", "topology_zone",
        "touch_timeout", "user_agent",
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
        self.msg_timeout = self.touch_timeout = terms.msg_timeout / 1000
        self.tls: TLSInfo | None = None
        self.deflate = self.snappy = False
        self.secret = b""
        self.grant: Grant | None = None
        """What the auth server last allowed it, asked anew after ``grant_until`` (monotonic seconds)."""
        self.grant_until = 0.0
        self.channel: Channel | None = None
        self.ready_count = 0
        self.in_flight_count = 0
        self.message_count = 0
        self.finish_count = 0
        self.requeue_count = 0
        self.pub_counts: dict[str, int] = {}
        self.locality = self.preference = Locality.GLOBAL
        """How near it is to the broker, as its messages are counted and as it is served."""
        self.blocked = False
        """True while the connection takes no more bytes."""
        self.is_waiting = False
        """True while it stands in its channel's queue of clients that can take messages."""
        self.runs = Runs()
        """Its first deliveries."""

    @property
    def is_authed(self) -> bool:
        """True once an auth server has allowed it anything at all."""
        return self.grant is not None and bool(self.grant.authorizations)

    @property
    def free(self) -> int:
        """How many more messages may be in flight with it now."""
        if self.blocked or self.state is not State.SUBSCRIBED:
            return 0
        return self.ready_count - self.in_flight_count

    def published(self, topic: str, messages: int) -> None:
        """Count what it published."""
        self.pub_counts[topic] = self.pub_counts.get(topic, 0) + messages
