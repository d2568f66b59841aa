"""Peek: the ready messages of a channel, read over HTTP without consuming them. Go's nsqd has no such request."""

from __future__ import annotations

import logging
from base64 import b64decode
from collections.abc import AsyncGenerator, Mapping

from aionsq.tools.flags import ToolFailed
from nsqcluster import Client, Refused, RequestFailed, reads
from nsqcluster.errors import detail_of
from nsqcluster.messages import LISTED_BYTES, MESSAGES_IN_A_PAGE, PeekPage, peek

log = logging.getLogger(__name__)


async def ready_messages(
    client: Client, addresses: list[str], topic: str, channel: str
) -> AsyncGenerator[tuple[Mapping[str, str], bytes], None]:
    """Yield headers and body of each of the channel's ready messages, node by node, in the order of delivery.

    Messages that are delivered or published meanwhile may be missing. Raises ToolFailed, before the first message if a
    node cannot be read.
    """
    for address, total in (await _totals(client, addresses, topic, channel)).items():
        offset = 0
        while offset < total:
            page = await _page(client, address, topic, channel, offset)
            for message in page.messages:
                if message.truncated:
                    log.warning(
                        "message %s has %d bytes, the first %d are shown", message.id, message.size, LISTED_BYTES
                    )
                yield message.headers, b64decode(message.body)
            offset += MESSAGES_IN_A_PAGE  # not the number of messages: damaged ones are left out


async def _totals(client: Client, addresses: list[str], topic: str, channel: str) -> Mapping[str, int]:
    """The number of ready messages of each node that has the channel. Raises ToolFailed."""
    answers = await reads.gather({each: peek(client, each, topic, channel, limit=0) for each in addresses})
    for address, error in answers.failures.items():
        if isinstance(error, Refused) and error.is_unknown_request:
            raise ToolFailed(f"{address} cannot show messages without consuming them: brokerd can, Go's nsqd cannot")
    for address, error in answers.errors.items():
        raise ToolFailed(f"{address}: {detail_of(error)}")
    if not answers.found:
        raise ToolFailed(f"no node has channel {channel} of topic {topic}: name one with --channel")
    return {address: page.total for address, page in answers.found.items()}


async def _page(client: Client, address: str, topic: str, channel: str, offset: int) -> PeekPage:
    try:
        return await peek(client, address, topic, channel, limit=MESSAGES_IN_A_PAGE, offset=offset)
    except RequestFailed as error:
        raise ToolFailed(f"{address}: {detail_of(error)}") from None
