"""Graphite: names of the series that nsqd writes through statsd, the rate, and the proxy for browsers."""

from __future__ import annotations

import re
import ssl
from collections.abc import Iterator, Mapping
from datetime import timedelta
from functools import cache
from urllib.parse import urlencode, urlsplit

import httpx

from nsqdaemon.http import HTTPError, Response
from nsqplatform.clusters import current
from nsqplatform.nsqadmin.settings import AdminSettings

PATIENCE_S = 10.0
TOPIC_GRAPHS = {"depth": "Depth", "message_count": "Messages"}
CHANNEL_GRAPHS = {
    "depth": "Depth",
    "in_flight_count": "In flight",
    "deferred_count": "Deferred",
    "requeue_count": "Requeued",
    "timeout_count": "Timed out",
    "message_count": "Messages",
    "clients": "Clients",
}
NODE_GRAPHS = {
    "*_bytes": "Memory",
    "gc_pause_*": "GC pauses",
    "gc_runs": "GC runs",
    "heap_objects": "Objects on the heap",
}
GAUGES = {"depth", "in_flight_count", "deferred_count", "clients", "*_bytes", "gc_pause_*", "heap_objects"}
RED = {"depth", "deferred_count"}


@cache
def certificates() -> ssl.SSLContext:
    """The certificate authorities that httpx trusts by default. It would read them for each request of a page."""
    return httpx.create_ssl_context(trust_env=False)


def cleaned(name: str) -> str:
    """The name of a topic or channel in statsd."""
    return re.sub(r"[^a-zA-Z0-9\-_.]", "", name.replace(" ", "_").replace("/", "-"))


def host_key(node: str) -> str:
    return node.replace(".", "_").replace(":", "_")


def without_credentials(url: str) -> str:
    parts = urlsplit(url.rstrip("/"))
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


class Graphite:
    """Targets in graphite by the statsd settings, URLs of graphs, and requests to graphite. ``node`` is ``*`` for all
    nodes."""

    def __init__(self, settings: AdminSettings) -> None:
        self.settings = settings

    @property
    def seconds(self) -> int:
        return max(1, self.settings.statsd_interval // timedelta(seconds=1))

    def metric(self, key: str, *, gauge: bool, node: str = "*") -> str:
        prefix = self.settings.statsd_prefix.replace("%s", host_key(node)) + "."
        form = self.settings.statsd_gauge_format if gauge else self.settings.statsd_counter_format
        return form.replace("%s", prefix + key)

    def target(self, key: str, *, topic: str, channel: str | None = None, node: str = "*") -> str:
        """The target of a figure of a topic or channel, before ``summarize``."""
        where = f"topic.{cleaned(topic)}." + (f"channel.{cleaned(channel)}." if channel else "")
        return f"sumSeries({self.metric(where + key, gauge=key in GAUGES, node=node)})"

    def of_topic(self, topic: str, channel: str | None, timeframe: str) -> Iterator[tuple[str, str]]:
        """Title and URL of each graph of a topic or channel; empty without graphite."""
        for key, title in (TOPIC_GRAPHS if channel is None else CHANNEL_GRAPHS).items():
            yield from self._graph(title, self.target(key, topic=topic, channel=channel), timeframe, key)

    def of_node(self, node: str, timeframe: str) -> Iterator[tuple[str, str]]:
        """Title and URL of each graph of a node's memory, which only Go's nsqd reports; empty without graphite."""
        for key, title in NODE_GRAPHS.items():
            target = self.metric(f"mem.{key}", gauge=key in GAUGES, node=node)
            yield from self._graph(title, target, timeframe, key)

    def _graph(self, title: str, target: str, timeframe: str, key: str) -> Iterator[tuple[str, str]]:
        """Yield title and URL of a large graph; nothing without graphite.

        The URL is that of our proxy if it is enabled, because browsers may not reach graphite. It does not contain our
        credentials for graphite.
        """
        ours = f"{self.settings.base}{current.path()}"
        at = ours if self.settings.proxy_graphite else without_credentials(self.settings.graphite_url)
        if not self.settings.graphite_url:
            return
        if key not in GAUGES:
            target = f"scale({target},{1 / self.seconds:.6g})"
        query = {
            "target": f'summarize({target},"{self.seconds}sec","avg")',
            "height": 450,
            "width": 800,
            "bgcolor": "ff000000",
            "fgcolor": "999999",
            "yMin": 0,
            "lineMode": "connected",
            "drawNullAsZero": "false",
            "from": f"-{timeframe}",
            "until": "-1min",
            "colorList": "red,green,blue,purple" if key in NODE_GRAPHS else "red" if key in RED else "blue",
        }
        yield title, f"{at}/render?{urlencode(query)}"

    async def rate(self, params: Mapping[str, str]) -> str:
        """``/api/graphite``: the target's first point over one interval, with two decimals; ``N/A`` without a point.

        Raises HTTPError.
        """
        if params.get("metric") != "rate":
            raise HTTPError(400, "INVALID_ARG_METRIC")
        target = params.get("target")
        if target is None:
            raise HTTPError(400, "INVALID_ARG_TARGET")
        response = await self._get(
            urlencode(
                {
                    "format": "json",
                    "from": f"-{2 * self.seconds}sec",
                    "target": target,
                    "until": f"-{self.seconds}sec",
                }
            )
        )
        try:
            points = response.json()[0]["datapoints"]
            point = points[0][0]
        except (ValueError, LookupError, TypeError):
            point = None
        if response.status_code != 200:
            raise HTTPError(502, f"UPSTREAM_ERROR: graphite answered {response.status_code}")
        if not isinstance(point, (int, float)) or point < 0:
            return "N/A"
        return f"{point / self.seconds:.2f}"

    async def proxied(self, query: str, peer: str) -> Response:
        """``/render``: graphite's response. Raises HTTPError."""
        response = await self._get(query, {"X-Forwarded-For": peer})
        kind = response.headers.get("Content-Type", "application/octet-stream").encode("latin-1")
        return Response(response.status_code, response.content, ((b"Content-Type", kind),))

    async def _get(self, query: str, headers: Mapping[str, str] | None = None) -> httpx.Response:
        url = self.settings.graphite_url.rstrip("/")
        if urlsplit(url).scheme not in ("http", "https"):
            raise HTTPError(404, "NOT_FOUND")
        try:
            async with httpx.AsyncClient(timeout=PATIENCE_S, trust_env=False, verify=certificates()) as client:
                return await client.get(f"{url}/render?{query}", headers=dict(headers or {}))
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise HTTPError(502, f"UPSTREAM_ERROR: graphite: {error or type(error).__name__}") from None
