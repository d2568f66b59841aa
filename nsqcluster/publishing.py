"""Publishing to a topic of one node over HTTP. The functions raise RequestFailed."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Mapping, Sequence
from struct import pack

from nsqcluster.client import Client
from nsqcluster.errors import Refused


async def stores_headers(http: Client, address: str) -> bool:
    """Whether the node stores the headers of messages: brokerd does, Go's nsqd does not. Any answer that only brokerd
    gives counts, so that no other server gets what only brokerd understands."""
    try:
        await http.get_body(address, "/channel/peek")
    except Refused as error:
        if error.is_unknown_request:
            return False
        if error.status == 400 and error.message.startswith("MISSING_ARG"):
            return True
        raise
    return False


async def publish(
    http: Client, address: str, topic: str, body: bytes, *, headers: Mapping[str, str] | None = None, defer_ms: int = 0
) -> None:
    """Publish one message, which is delivered after ``defer_ms`` at the earliest.

    Go's nsqd drops the headers. The node removes spaces at both ends of their values.
    """
    params: dict[str, str | int] = {"topic": topic}
    if defer_ms:
        params["defer"] = defer_ms
    sent = {f"X-NSQ-Header-{name}": value for name, value in (headers or {}).items()}
    await http.post(address, "/pub", params, body, headers=sent)


async def publish_all(http: Client, address: str, topic: str, bodies: Sequence[bytes]) -> None:
    """Publish messages with one request: the node stores all of them or none."""
    if len(bodies) == 1:  # an empty message is a body of /pub, but not in /mpub
        await publish(http, address, topic, bodies[0])
    else:
        await http.post(address, "/mpub", {"topic": topic, "binary": "true"}, _packed(bodies))


async def publish_with_headers(
    http: Client, address: str, topic: str, published: Sequence[tuple[bytes, Mapping[str, str]]]
) -> None:
    """Publish bodies with headers with one request: the node stores all of them or none.

    Go's nsqd would store each envelope as a body, so the address must be that of a node that stores headers
    (:func:`stores_headers`). Bodies are in base64, and the node's --max-body-size bounds the whole.
    """
    lines = [{"headers": dict(headers), "body_base64": b64encode(body).decode()} for body, headers in published]
    text = "\n".join(json.dumps(line, ensure_ascii=False) for line in lines)
    await http.post(address, "/mpub", {"topic": topic, "envelope": "true"}, text.encode())


def _packed(bodies: Sequence[bytes]) -> bytes:
    """The body of a binary /mpub: ``count i32``, then ``size i32 | message`` each, big-endian."""
    return pack(">i", len(bodies)) + b"".join(pack(">i", len(body)) + body for body in bodies)
