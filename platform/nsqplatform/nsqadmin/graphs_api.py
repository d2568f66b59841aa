"""URLs of graphite's graphs of a topic, channel or node."""

from __future__ import annotations

from typing import Literal

from django.conf import settings
from django.http import HttpRequest
from ninja import Query, Router, Schema
from ninja.errors import HttpError
from pydantic import Field

from nsqplatform.accounts.auth import needs
from nsqplatform.accounts.roles import Permission
from nsqplatform.accounts.schemas import InvalidRequest, Message
from nsqplatform.nsqadmin.graphite import Graphite

router = Router(tags=["cluster"])


class Graph(Schema):
    title: str
    url: str = Field(description="URL of an image, at graphite or at this platform with --proxy-graphite")


class GraphsOut(Schema):
    graphs: list[Graph] = Field(description="empty without --graphite-url")


@router.get(
    "graphs", auth=needs(Permission.VIEW), response={200: GraphsOut, 401: Message, 403: Message, 422: InvalidRequest}
)
def graphs(
    request: HttpRequest,
    topic: str = Query("", max_length=300),
    channel: str = Query("", max_length=300),
    node: str = Query("", max_length=300),
    timeframe: Literal["1h", "2h", "12h", "24h", "48h", "168h"] = "2h",
) -> GraphsOut:
    """nsqadmin's large graphs of a topic, of a channel, or of a node's memory."""
    if bool(node) == bool(topic):
        raise HttpError(422, "graphs are of a topic, of a topic and a channel, or of a node")
    drawn = Graphite(settings.NSQADMIN)
    found = drawn.of_node(node, timeframe) if node else drawn.of_topic(topic, channel or None, timeframe)
    return GraphsOut(graphs=[Graph(title=title, url=url) for title, url in found])
