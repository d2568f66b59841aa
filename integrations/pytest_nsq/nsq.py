"""The value of the fixture ``nsq``."""

from __future__ import annotations

import http.client
import json
import time
from base64 import b64decode
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import urlencode

from pytest_nsq.broker import Broker, BrokerFailed
from pytest_nsq.proxy import HOST, Loop, Proxy

REQUEST_S: Final = 60.0
WAIT_S: Final = 10.0
POLL_S: Final = 0.01
CHANNEL: Final = "pytest-nsq"
"""The channel through which :meth:`NSQ.messages` reads."""
FULL_DISK: Final = "--disk-reserve=99.9999%"
FAULTS: Final = ("refuse_connections", "close_connections", "full_disk", "delay")


class Fault:
    """A fault that lasts until :meth:`clear`, the end of its ``with`` block, or the end of the test."""

    def __init__(self, clear: Callable[[], None]) -> None:
        self._clear: Callable[[], None] | None = clear

    def clear(self) -> None:
        """End the fault. Does nothing the second time."""
        clear, self._clear = self._clear, None
        if clear is not None:
            clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.clear()


class NSQ:
    """A broker, and the addresses at which services reach it. Its own requests are not subject to faults."""

    def __init__(self, folder: Path, flags: Sequence[str] = ()) -> None:
        """``folder`` is for the broker's data; ``flags`` are additional flags of the broker."""
        self._broker = Broker(folder, flags)
        self._faults: list[Fault] = []

    def __enter__(self) -> Self:
        self._broker.start()
        self._loop = Loop()
        self._tcp = Proxy(lambda: self._broker.tcp_port)
        self._http = Proxy(lambda: self._broker.http_port)
        self._each(Proxy.listen)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._each(Proxy.close)
        self._loop.close()
        self._broker.stop()

    # --- addresses

    @property
    def host(self) -> str:
        """The address of the machine, ``127.0.0.1``."""
        return HOST

    @property
    def tcp_port(self) -> int:
        """The port of NSQ's protocol."""
        return self._tcp.port

    @property
    def http_port(self) -> int:
        """The port of the HTTP API."""
        return self._http.port

    @property
    def tcp_address(self) -> str:
        """``host:port`` for producers and consumers. It stays the same for the whole session."""
        return f"{HOST}:{self.tcp_port}"

    @property
    def http_address(self) -> str:
        """``host:port`` of the HTTP API."""
        return f"{HOST}:{self.http_port}"

    @property
    def http_url(self) -> str:
        """The HTTP API, such as ``http://127.0.0.1:41233``."""
        return f"http://{self.http_address}"

    # --- messages

    def publish(self, topic: str, body: bytes | str, *, delay_s: float = 0.0) -> str:
        """Publish a message and return its id. A text is encoded as UTF-8."""
        query: dict[str, object] = {"topic": topic, "ids": "true"}
        if delay_s:
            query["defer"] = round(1000 * delay_s)
        answer = self._request("POST", "/pub", query, body.encode() if isinstance(body, str) else body)
        return _first_id(answer)

    def messages(self, topic: str) -> list[bytes]:
        """Return the bodies of all messages that were published to the topic in this test, consumed or not.

        They are in the order of publication. Other channels are not affected. If the topic has no channel, this creates
        its first one. A channel that is created later receives only later messages, as always in NSQ.

        Raises ValueError for an ephemeral topic.
        """
        if topic not in self._topics():
            return []
        if topic.endswith("#ephemeral"):
            raise ValueError(f"{topic}: the messages of ephemeral topics are not kept, and cannot be shown")
        where: dict[str, object] = {"topic": topic, "channel": CHANNEL}
        self._request("POST", "/channel/create", where)
        self._request("POST", "/channel/rewind", {**where, "since": "24h"})
        bodies: list[bytes] = []
        start: int | None = 0
        while start is not None:
            page = json.loads(self._request("GET", "/channel/scan", {**where, "from": start}))
            bodies += [b64decode(each["body"]) for each in page["messages"]]
            start = page["next"]
        return bodies

    def wait_for_messages(self, topic: str, count: int = 1, *, timeout_s: float = WAIT_S) -> list[bytes]:
        """Wait until the topic has ``count`` messages, and return all of them. Raises AssertionError."""
        found: list[bytes] = []

        def has_enough() -> bool:
            found[:] = self.messages(topic)
            return len(found) >= count

        if not _wait(has_enough, timeout_s):
            raise AssertionError(f"{topic} has {len(found)} and not {count} messages after {timeout_s:g} s: {found}")
        return found

    def wait_until_finished(self, topic: str, channel: str, *, timeout_s: float = WAIT_S) -> None:
        """Wait until the channel exists and its consumers have finished all its messages. Raises AssertionError."""
        seen: dict[str, Any] = {}

        def is_finished() -> bool:
            seen.clear()
            seen.update(self.channel(topic, channel) or {})
            return bool(seen) and not any(seen[name] for name in ("depth", "in_flight_count", "deferred_count"))

        if not _wait(is_finished, timeout_s):
            names = ("depth", "in_flight_count", "deferred_count", "requeue_count", "timeout_count", "client_count")
            shown = {name: seen.get(name) for name in names} if seen else "there is no such channel"
            raise AssertionError(f"{topic}/{channel} is not finished after {timeout_s:g} s: {shown}")

    def channel(self, topic: str, channel: str) -> dict[str, Any] | None:
        """Return the channel's statistics from ``/stats``, or None if it does not exist."""
        channels = self._topics().get(topic, {"channels": []})["channels"]
        return next((each for each in channels if each["channel_name"] == channel), None)

    # --- faults

    def fault(self, kind: str, *, seconds: float | None = None) -> Fault:
        """Begin a fault for services that use the fixture's addresses:

        ``refuse_connections``: as if no broker ran. Connections are refused, and open ones are reset.
        ``close_connections``: as if the broker failed during each request. Open connections are reset, and new ones
        when the client sends something.
        ``full_disk``: the broker refuses publishes. It is restarted with a disk reserve that is larger than the free
        space, and restarted without it when the fault ends. Each restart resets open connections.
        ``delay``: everything that the broker sends arrives ``seconds`` later.

        Raises ValueError for another kind, and if ``seconds`` is missing or does not apply.
        """
        if kind not in FAULTS:
            raise ValueError(f"there is no fault {kind!r}; the faults are {', '.join(FAULTS)}")
        if (kind == "delay") != (seconds is not None) or (seconds is not None and seconds < 0):
            raise ValueError(f"fault({kind!r}): only the fault delay has seconds, which it requires, 0 or more")
        if kind == "refuse_connections":
            self._each(Proxy.refuse)
        elif kind == "close_connections":
            self._each(Proxy.close_connections)
        elif kind == "delay":
            self._each(lambda proxy: proxy.delay(seconds or 0.0))
        else:
            self._restart(FULL_DISK)
            return self._begun(self._restart)
        return self._begun(lambda: self._each(Proxy.listen))

    def restart(self) -> None:
        """Kill the broker with SIGKILL and start it again at the same addresses. Its messages are kept."""
        self._restart()

    # --- between tests

    def reset(self) -> None:
        """Clear faults, and delete all topics and policies. Consumers are disconnected."""
        for fault in self._faults[::-1]:
            fault.clear()
        self._faults.clear()
        for topic in self._topics():
            self._request("POST", "/topic/delete", {"topic": topic})
        for policy in json.loads(self._request("GET", "/policies"))["policies"]:
            if not policy.get("in_file"):
                self._request("POST", "/policy/delete", {name: policy[name] for name in ("pattern", "channel")})

    def _begun(self, clear: Callable[[], None]) -> Fault:
        fault = Fault(clear)
        self._faults.append(fault)
        return fault

    def _restart(self, *flags: str) -> None:
        self._broker.kill()
        self._broker.start(*flags)

    def _topics(self) -> dict[str, dict[str, Any]]:
        stats = json.loads(self._request("GET", "/stats", {"format": "json", "include_clients": "false"}))
        return {each["topic_name"]: each for each in stats["topics"]}

    def _request(self, method: str, path: str, query: dict[str, object] | None = None, body: bytes = b"") -> bytes:
        status, answer = self._answer(method, path, query or {}, body)
        if status != 200:
            raise BrokerFailed(f"{method} {path}: the broker answered {status} {answer.decode(errors='replace')}")
        return answer

    def _answer(self, method: str, path: str, query: dict[str, object], body: bytes = b"") -> tuple[int, bytes]:
        connection = http.client.HTTPConnection(HOST, self._broker.http_port, timeout=REQUEST_S)
        try:
            connection.request(method, f"{path}?{urlencode(query)}" if query else path, body)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def _each(self, act: Callable[[Proxy], Any]) -> None:
        for proxy in (self._tcp, self._http):
            self._loop.call(act(proxy))


def _wait(condition: Callable[[], bool], timeout_s: float) -> bool:
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_S)
    return True


def _first_id(answer: bytes) -> str:
    found: Any = json.loads(answer)
    return str(found["ids"][0])
