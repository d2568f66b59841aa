"""The rows of a topic's table, from the pages of its nodes."""

from __future__ import annotations

from binascii import a2b_base64

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    BinaryType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from nsqanalytics.topics.node import Page

SCHEMA = StructType(
    [
        StructField("id", StringType()),
        StructField("published", TimestampType()),
        StructField("body", BinaryType()),
        StructField("headers", MapType(StringType(), StringType())),
        StructField("node", StringType()),
        StructField("position", LongType()),
        StructField("topic_number", IntegerType()),
    ]
)
"""``published`` is when the node accepted the message. ``headers`` is null for a message without any. ``node`` is
``host:port``, ``position`` the message's number on the node, ``topic_number`` that of the topic there."""
_ARROW_SCHEMA = to_arrow_schema(SCHEMA, timezone="UTC")


def batch_of(page: Page, node: str) -> pa.RecordBatch:
    """Return a page's messages as rows of SCHEMA."""
    messages = page["messages"]
    columns = {
        "id": [each["id"] for each in messages],
        "published": [each["timestamp"] // 1000 for each in messages],
        "body": [a2b_base64(each["body"]) for each in messages],
        "headers": [list(each["headers"].items()) if "headers" in each else None for each in messages],
        "node": [node] * len(messages),
        "position": [each["position"] for each in messages],
        "topic_number": [page["topic_number"]] * len(messages),
    }
    arrays = [pa.array(values, _ARROW_SCHEMA.field(name).type) for name, values in columns.items()]
    return pa.RecordBatch.from_arrays(arrays, schema=_ARROW_SCHEMA)
