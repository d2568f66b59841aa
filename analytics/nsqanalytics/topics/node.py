"""A node's log of one topic, as ``GET /topic/scan`` returns it; docs/architecture.md describes the answers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NotRequired, TypedDict, cast

from nsqanalytics.topics.address import Address
from nsqanalytics.topics.connection import Connection
from nsqanalytics.topics.errors import MessagesRemoved, NodeUnreadable, TopicNotFound
from nsqanalytics.topics.options import Options


class Message(TypedDict):
    """``position`` is its number in the topic, ``timestamp`` Unix nanoseconds, ``body`` base64."""

    position: int
    id: str
    timestamp: int
    body: str
    headers: NotRequired[dict[str, str]]


class Page(TypedDict):
    """The parts of an answer that are used here."""

    topic_number: int
    earliest: int
    end: int
    start: int
    stop: int
    next: int | None
    messages: list[Message]


class Node:
    """One node's log of the topic that the options name."""

    def __init__(self, address: Address, options: Options) -> None:
        self.name = address.name
        self._options = options
        self._connection = Connection(address, options.tls, options.timeout_s)

    def positions(self) -> Page:
        """Return where the requested messages are now, without messages. Raises TopicUnreadable."""
        try:
            return self._page({"limit": 0})
        finally:
            self._connection.close()

    def pages(self, start: int, stop: int, topic_number: int, *, has_begun: bool) -> Iterator[Page]:
        """Yield the pages of the messages with the numbers ``[start, stop)``.

        Raises TopicUnreadable; it is MessagesRemoved if messages that are still to be read are no longer there, unless
        the options allow that. With ``has_begun`` false, messages before the node's earliest one do not count as lost.
        """
        position: int | None = start
        try:
            while position is not None:
                page = self._page({"from": position, "to": stop})
                if page["topic_number"] != topic_number or page["end"] < stop:
                    self._removed(f"the topic was deleted on {self.name}, or its data path was replaced")
                    return
                if has_begun and page["earliest"] > position:
                    last = min(page["earliest"], stop) - 1
                    self._removed(f"messages {position} to {last} of {self.name} were removed from the log")
                yield page
                position, has_begun = page["next"], True
        finally:
            self._connection.close()

    def _removed(self, what: str) -> None:
        if self._options.fail_on_data_loss:
            raise MessagesRemoved(
                f"topic {self._options.topic}: {what} before they were read: keep messages longer with --retention of "
                "nsqd, or set the option fail_on_data_loss to false"
            )

    def _page(self, query: dict[str, object]) -> Page:
        options = self._options
        times = {"since": options.start, "until": options.end}
        query |= {"topic": options.topic} | {name: time for name, time in times.items() if time is not None}
        status, body = self._connection.get("/topic/scan", query)
        if status == 200 and isinstance(body, dict) and "earliest" in body:
            return cast(Page, body)
        code = body.get("message") if isinstance(body, dict) else None
        if code == "TOPIC_NOT_FOUND":
            raise TopicNotFound(f"there is no topic {options.topic} on {self.name}")
        if status == 404:
            raise NodeUnreadable(
                f"{self.name} has no /topic/scan: it is Go's nsqd, or a brokerd that is older than this reader"
            )
        raise NodeUnreadable(f"{self.name} answers with status {status}, {code or 'and no JSON'}")
