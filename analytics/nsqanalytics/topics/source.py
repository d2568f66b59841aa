"""The Spark data source ``nsq``: a topic's log as a table and as a stream, read without consuming it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, cast

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from nsqanalytics.topics.discovery import node, positions
from nsqanalytics.topics.errors import BadOption, MessagesRemoved
from nsqanalytics.topics.offsets import NodeOffset, Offsets, Part, latest, limited, parts
from nsqanalytics.topics.options import Options
from nsqanalytics.topics.rows import SCHEMA, batch_of

if TYPE_CHECKING:
    import pyarrow as pa


class TopicSource(DataSource):
    """``spark.read.format("nsq")``. The options are those of Options; docs/analytics.md describes them."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "nsq"

    def schema(self) -> StructType:
        """The columns. Raises BadOption, because this is the first call."""
        Options.parse(self.options)
        return SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        """The reader of a batch."""
        options = Options.parse(self.options)
        if options.max_messages is not None:
            raise BadOption("max_messages", "is for streams only: it limits each of their batches")
        return TopicReader(options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """The reader of a stream."""
        options = Options.parse(self.options)
        if options.end is not None:
            raise BadOption("end", "is for tables only: a stream has no end")
        return TopicStreamReader(options)


class PartOfTopic(InputPartition):
    """What one task reads."""

    def __init__(self, part: Part) -> None:
        super().__init__(part)


class TopicReader(DataSourceReader):
    """Reads the messages that the nodes have when the query is planned."""

    def __init__(self, options: Options) -> None:
        self._options = options

    def partitions(self) -> list[PartOfTopic]:
        """The ranges of messages of each node. Raises TopicUnreadable."""
        found = positions(self._options)
        whole = [Part(name, page["topic_number"], page["start"], page["stop"]) for name, page in found.items()]
        return _pieces(whole, self._options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the messages of a range, a page at a time. Raises TopicUnreadable."""
        return _read(partition, self._options)


class TopicStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads each message of the nodes once. Offsets have the next message of each node."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._target: Offsets | None = None
        self._earliest: dict[str, int] = {}
        """The first message that each node had when its end was read."""

    def initialOffset(self) -> dict[str, Any]:
        """The first messages, or those since the option ``start``. Raises TopicUnreadable."""
        found = positions(self._options)
        return {
            name: NodeOffset(topic_number=page["topic_number"], position=page["start"])
            for name, page in sorted(found.items())
        }

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """The ends of the logs, or less as the limit requires. Raises TopicUnreadable."""
        begin = cast(Offsets, start)
        end = self._ends(begin) if self._target is None else {**begin, **self._target}
        if isinstance(limit, ReadMaxRows):
            end = limited(begin, end, limit.max_rows, self._earliest)
        return cast(dict[str, Any], end)

    def getDefaultReadLimit(self) -> ReadLimit:
        """The option ``max_messages``."""
        most = self._options.max_messages
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def prepareForTriggerAvailableNow(self) -> None:
        """Read what is there now, and then end."""
        self._target = self._ends({})

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[PartOfTopic]:
        """The ranges of messages between two offsets. Raises MessagesRemoved for a topic that was deleted."""
        found = parts(cast(Offsets, start), cast(Offsets, end))
        for part in found:
            if part.is_reset and self._options.fail_on_data_loss:
                raise MessagesRemoved(
                    f"topic {self._options.topic} of {part.node} was deleted and created again, or its data path was "
                    "replaced, after the stream began: messages may have gone unread; start without the checkpoint, or "
                    "set the option fail_on_data_loss to false"
                )
        return _pieces(found, self._options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """As TopicReader.read."""
        return _read(partition, self._options)

    def _ends(self, start: Offsets) -> Offsets:
        found = positions(self._options)
        self._earliest = {name: page["earliest"] for name, page in found.items()}
        return latest(start, found)


def _pieces(whole: list[Part], options: Options) -> list[PartOfTopic]:
    return [PartOfTopic(piece) for part in whole for piece in part.pieces(options.partition_messages)]


def _read(partition: InputPartition, options: Options) -> Iterator[pa.RecordBatch]:
    part: Part | None = partition.value
    if part is None:  # Spark's own, in place of an empty list
        return
    log = node(part.node, options)
    for page in log.pages(part.start, part.stop, part.topic_number, has_begun=part.has_begun):
        if page["messages"]:
            yield batch_of(page, part.node)
