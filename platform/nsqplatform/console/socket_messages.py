"""The messages of the websockets and of NDJSON responses in the OpenAPI document, from which the web app's types are
generated. OpenAPI itself describes neither."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import TypeAdapter
from pydantic.json_schema import JsonSchemaValue

from nsqplatform.alerts.schemas import AlertsMessage
from nsqplatform.cluster.live.signed_in_socket import AccountMessage, ErrorMessage
from nsqplatform.cluster.messages.search import FoundMessage, SearchEnd, SearchProgress
from nsqplatform.cluster.messages.tail_socket import TailAsk, TailedMessages, TailStarted
from nsqplatform.cluster.snapshots.rows import Clients, Delta, RestMessage, SnapshotMessage
from nsqplatform.jobs.schemas import JobMessage
from nsqplatform.reports.schemas import RunMessage

MESSAGES: Mapping[str, Any] = {
    "ClusterMessage": SnapshotMessage
    | RestMessage
    | Delta
    | Clients
    | RunMessage
    | JobMessage
    | AlertsMessage
    | AccountMessage
    | ErrorMessage,
    "TailMessage": TailStarted | TailAsk | TailedMessages | AccountMessage | ErrorMessage,
    "SearchMessage": FoundMessage | SearchProgress | SearchEnd,
}
"""By name: what the platform sends on ``/ws/cluster``, on ``/ws/tail`` and in the lines of ``messages/search``."""


def message_schemas() -> dict[str, JsonSchemaValue]:
    """Name -> JSON schema, of MESSAGES and of the types that they contain."""
    schemas: dict[str, JsonSchemaValue] = {}
    for name, messages in MESSAGES.items():
        schema = TypeAdapter(messages).json_schema(mode="serialization", ref_template="#/components/schemas/{model}")
        schemas |= schema.pop("$defs")
        schemas[name] = schema
    return schemas
