"""What nsqd and nsqlookupd answer, read so that a missing or null key costs its default and never the process."""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict

V = TypeVar("V")


def _or_empty(value: Any) -> Any:
    return [] if value is None else value


def _or_no_latency(value: Any) -> Any:
    return {} if value is None else value


Strings = Annotated[list[str], BeforeValidator(_or_empty)]


class Answer(BaseModel):
    model_config = ConfigDict(extra="ignore")


class Quantile(Answer):
    quantile: float = 0
    value: float = 0


class Latency(Answer):
    """``e2e_processing_latency``; values in nanoseconds."""

    count: int = 0
    percentiles: list[Quantile] | None = None


LatencyOrNone = Annotated[Latency, BeforeValidator(_or_no_latency)]


class Client(Answer):
    client_id: str = ""
    hostname: str = ""
    version: str = ""
    remote_address: str = ""
    user_agent: str = ""
    connect_ts: int = 0
    in_flight_count: int = 0
    ready_count: int = 0
    finish_count: int = 0
    requeue_count: int = 0
    message_count: int = 0
    sample_rate: int = 0
    deflate: bool = False
    snappy: bool = False
    authed: bool = False
    auth_identity: str = ""
    auth_identity_url: str = ""
    topology_region: str = ""
    topology_zone: str = ""
    tls: bool = False
    tls_cipher_suite: str = ""
    tls_version: str = ""
    tls_negotiated_protocol: str = ""
    tls_negotiated_protocol_is_mutual: bool = False


class Figures(Answer):
    depth: int = 0
    backend_depth: int = 0
    message_count: int = 0
    zone_local_msg_count: int = 0
    region_local_msg_count: int = 0
    global_msg_count: int = 0
    paused: bool = False
    e2e_processing_latency: LatencyOrNone = Latency()


class Channel(Figures):
    channel_name: str
    in_flight_count: int = 0
    deferred_count: int = 0
    requeue_count: int = 0
    timeout_count: int = 0
    client_count: int = 0
    clients: Annotated[list[Client], BeforeValidator(_or_empty)] = []


class Topic(Figures):
    topic_name: str
    channels: Annotated[list[Channel], BeforeValidator(_or_empty)] = []


class Stats(Answer):
    """``/stats?format=json``."""

    topics: Annotated[list[Topic], BeforeValidator(_or_empty)] = []


class Producer(Answer):
    """A node as ``/nodes``, ``/lookup`` and ``/info`` describe it. ``address`` is where it was asked, if elsewhere."""

    remote_address: str = ""
    hostname: str = ""
    broadcast_address: str = ""
    tcp_port: int = 0
    http_port: int = 0
    version: str = ""
    topology_zone: str = ""
    topology_region: str = ""
    tombstones: Annotated[list[bool], BeforeValidator(_or_empty)] = []
    topics: Strings = []


class Producers(Answer):
    """``/nodes`` and ``/lookup``."""

    producers: Annotated[list[Producer], BeforeValidator(_or_empty)] = []
    channels: Strings = []


class Topics(Answer):
    topics: Strings = []


class Channels(Answer):
    channels: Strings = []
