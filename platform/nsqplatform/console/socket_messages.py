"""The messages of the websockets in the OpenAPI document, from which the web app's types are generated. OpenAPI itself
does not describe websockets."""

from __future__ import annotations

from typing import Any

from pydantic import TypeAdapter

from nsqplatform.alerts.schemas import AlertsMessage
from nsqplatform.cluster.live.signed_in_socket import ErrorMessage
from nsqplatform.cluster.messages.tail_socket import TailAsk, TailedMessages, TailStarted
from nsqplatform.cluster.snapshots.rows import Clients, Delta, SnapshotMessage
from nsqplatform.reports.schemas import RunMessage

MESSAGES: dict[str, Any] = {
    "ClusterMessage": SnapshotMessage | Delta | Clients | RunMessage | AlertsMessage | ErrorMessage,
    "TailMessage": TailStarted | TailAsk | TailedMessages | ErrorMessage,
}
"""By name: what the platform sends on ``/ws/cluster`` and ``/ws/tail``."""


def message_schemas() -> dict[str, Any]:
    """Name -> JSON schema, of MESSAGES and of the types that they contain."""
    schemas: dict[str, Any] = {}
    for name, messages in MESSAGES.items():
        schema = TypeAdapter(messages).json_schema(mode="serialization", ref_template="#/components/schemas/{model}")
        schemas |= schema.pop("$defs")
        schemas[name] = schema
    return schemas
