"""The sink as Spark sees it: writers for batch and stream.

    df.write.format("rocketmq").option("nameServer", "127.0.0.1:9876").option("topic", "orders")
      .mode("append").save()

At-least-once: a task or a micro-batch that Spark repeats sends its rows again, under the same
unique ids (see `encode.row_encoder.RowKeys`), so that `frames.deduplicated` drops the copies.
"""

import logging
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from sparrowmq.spark.errors import RocketMQError
from sparrowmq.spark.schema import ColumnPlaces, check_columns
from sparrowmq.spark.sink_options import SinkOptions
from sparrowmq.spark.wire.remoting import Patience
from sparrowmq.spark.wire.sender import write_queues
from sparrowmq.spark.worker_errors import reported_by_text

if TYPE_CHECKING:
    import pyarrow as pa

_log = logging.getLogger(__name__)

# Spark passes these to every task of a micro-batch; restarts from the checkpoint keep them.
QUERY_ID = "sql.streaming.queryId"
BATCH_ID = "streaming.sql.batchId"


@dataclass
class TaskSent(WriterCommitMessage):
    """What a task has sent."""

    rows: int
    body_bytes: int


@reported_by_text
class BatchWriter(DataSourceArrowWriter):
    """Writes a DataFrame once."""

    def __init__(self, options: SinkOptions, positions: ColumnPlaces) -> None:
        self.options = options
        self._positions = positions
        # Chosen on the driver, so that a repeated task has the same one.
        self._write_id = options.job_id or uuid.uuid4().hex

    def write(self, iterator: "Iterator[pa.RecordBatch]") -> TaskSent:
        """Send the rows of one task."""
        return _write(iterator, self.options, self._positions, f"job {self._write_id}")

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Every task has sent its rows."""
        _log.info("%s", _summary(messages))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """A task has failed for good; what the others sent cannot be taken back."""
        _log.warning("the write failed: %s", _known_of_failure(messages))


@reported_by_text
class StreamWriter(DataSourceStreamArrowWriter):
    """Writes micro-batches."""

    def __init__(self, options: SinkOptions, positions: ColumnPlaces) -> None:
        self.options = options
        self._positions = positions

    def write(self, iterator: "Iterator[pa.RecordBatch]") -> TaskSent:
        """Send the rows of one task of one micro-batch."""
        from pyspark import TaskContext

        context = TaskContext.get()
        query = context.getLocalProperty(QUERY_ID) if context else None
        batch = context.getLocalProperty(BATCH_ID) if context else None
        if query is None or batch is None:
            raise RocketMQError(f"Spark did not say which micro-batch this is ({QUERY_ID})")
        return _write(iterator, self.options, self._positions, f"query {query} {batch}")

    # Spark calls the argument batchId; both names are its own.
    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Every task of the micro-batch has sent its rows."""
        _log.info("batch %d: %s", batchId, _summary(messages))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """The micro-batch failed; Spark repeats it when the query is started again."""
        _log.warning("batch %d failed: %s", batchId, _known_of_failure(messages))


def batch_writer(options: SinkOptions, schema: StructType, overwrite: bool) -> BatchWriter:
    """The writer of a DataFrame. Raises OptionError, ColumnError, RocketMQError."""
    parsed, positions = _checked(options, schema, overwrite)
    # The option topic was found or created just now, by the driver; topics of rows never were.
    seen = parsed.topic is not None
    create = parsed.create_topic and not seen
    return BatchWriter(replace(parsed, waits_for_topics=seen, create_topic=create), positions)


def stream_writer(options: SinkOptions, schema: StructType, overwrite: bool) -> StreamWriter:
    """The writer of a stream. Raises OptionError, ColumnError, RocketMQError."""
    return StreamWriter(*_checked(options, schema, overwrite, is_stream=True))


def _checked(
    options: SinkOptions, schema: StructType, overwrite: bool, *, is_stream: bool = False
) -> tuple[SinkOptions, ColumnPlaces]:
    """Check what can be known before the first row is sent.

    Spark creates a writer for every micro-batch, and no writer knows about the others. A topic that
    a stream does not find may have existed in the last batch, and its broker may have gone away
    since: the tasks wait for it. Failing here instead, in the writer that Spark asks to abort,
    would hide the tasks' reason.
    """
    if overwrite:
        raise RocketMQError(
            "a topic cannot be overwritten, only appended to: write with mode append, a stream"
            " with output mode append or update"
        )
    parsed = replace(options, waits_for_topics=is_stream)
    fields = [(field.name, field.dataType.simpleString()) for field in schema.fields]
    positions = check_columns(fields, has_topic=parsed.topic is not None)
    if parsed.topic is not None and not is_stream:
        _check_topic(parsed, parsed.topic)
    return parsed, positions


def _check_topic(options: SinkOptions, topic: str) -> None:
    """Find the topic, or create it if the options ask for that. Raises UnknownTopic."""
    patience = Patience(options.retry_timeout_s)
    with options.cluster() as cluster:
        patience.call(
            f"looking for topic {topic}",
            lambda: write_queues(cluster, topic, new_queues=options.new_topic_queues),
        )


def _write(
    iterator: "Iterator[pa.RecordBatch]",
    options: SinkOptions,
    positions: ColumnPlaces,
    write_id: str,
) -> TaskSent:
    from pyspark import TaskContext

    from sparrowmq.spark.write_task import write_rows

    context = TaskContext.get()
    assert context is not None, "Spark runs writers in tasks"
    sent = write_rows(iterator, options, positions, write_id, context.partitionId())
    return TaskSent(sent.rows, sent.body_bytes)


def _summary(messages: list[WriterCommitMessage | None]) -> str:
    sent = _reported(messages)
    return f"{_amount(sent)} sent by {len(sent)} of {len(messages)} tasks"


def _known_of_failure(messages: list[WriterCommitMessage | None]) -> str:
    """What is known to be sent: Spark has the reports only of tasks that ended before the first
    failure."""
    sent = _reported(messages)
    by = f"by {len(sent)} of {len(messages)} tasks"
    return f"at least {_amount(sent)} were sent, {by}; the others may have sent more"


def _reported(messages: list[WriterCommitMessage | None]) -> list[TaskSent]:
    return [message for message in messages if isinstance(message, TaskSent)]


def _amount(sent: list[TaskSent]) -> str:
    return f"{sum(one.rows for one in sent)} rows ({sum(one.body_bytes for one in sent)} bytes)"
