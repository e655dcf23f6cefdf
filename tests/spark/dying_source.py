"""The format `rocketmq-dying`: source and sink as they are, in workers that die on command.

Rows go through one by one, so that there is a middle in every task.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from sparrowmq.spark.sink import BATCH_ID, BatchWriter, StreamWriter, batch_writer, stream_writer
from sparrowmq.spark.sink_options import parse_sink_options
from sparrowmq.spark.source import BatchReader, RocketMQSource
from sparrowmq.spark.stream import StreamReader
from tests.spark.death import ROWS_BEFORE, Death

if TYPE_CHECKING:
    import pyarrow as pa

OPTION = "death"
BATCH = 1
"""The micro-batch to die in: one is committed before, one is left."""


class DyingSource(RocketMQSource):
    """Takes one option more."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        given = {name.lower(): value for name, value in options.items()}
        self._death = Death.of(given.pop(OPTION))
        super().__init__(given)

    @classmethod
    def name(cls) -> str:
        """What `format` takes."""
        return "rocketmq-dying"

    def reader(self, schema: StructType) -> BatchReader:
        """For `spark.read`."""
        whole = super().reader(schema)
        assert isinstance(whole, BatchReader)
        return _BatchReader(whole, self._death)

    def streamReader(self, schema: StructType) -> StreamReader:
        """For `spark.readStream`."""
        whole = super().streamReader(schema)
        assert isinstance(whole, StreamReader)
        return _StreamReader(whole, self._death)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """For `df.write`."""
        return _BatchWriter(
            batch_writer(parse_sink_options(self.options), schema, overwrite), self._death
        )

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        """For `df.writeStream`."""
        return _StreamWriter(
            stream_writer(parse_sink_options(self.options), schema, overwrite), self._death
        )


class _BatchReader(BatchReader):
    def __init__(self, whole: BatchReader, death: Death) -> None:
        super().__init__(whole.options, whole.columns)
        self._death = death

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(super().read(partition), self._death)


class _StreamReader(StreamReader):
    def __init__(self, whole: StreamReader, death: Death) -> None:
        super().__init__(whole.options, whole.columns)
        self._death = death

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(super().read(partition), self._death)


class _BatchWriter(DataSourceArrowWriter):
    def __init__(self, whole: BatchWriter, death: Death) -> None:
        self._whole = whole
        self._death = death

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return _write(self._whole, iterator, self._death)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self._death.from_driver("before the commit")
        self._whole.commit(messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        self._whole.abort(messages)


class _StreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, whole: StreamWriter, death: Death) -> None:
        self._whole = whole
        self._death = death

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return _write(self._whole, iterator, self._death)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        if batchId == BATCH:
            self._death.from_driver("before the commit")
        self._whole.commit(messages, batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self._whole.abort(messages, batchId)


def _read(batches: Iterator[pa.RecordBatch], death: Death) -> Iterator[pa.RecordBatch]:
    death.seen()
    if not _is_to_die():
        yield from batches
        return
    death.in_task("before reading")
    yield from _singly(batches, death, "while reading")
    death.in_task("after reading")


def _write(
    whole: BatchWriter | StreamWriter, batches: Iterator[pa.RecordBatch], death: Death
) -> WriterCommitMessage:
    death.seen()
    if not _is_to_die():
        return whole.write(batches)

    def given() -> Iterator[pa.RecordBatch]:
        yield from _singly(batches, death, "while sending")
        death.in_task("before the answer")

    death.in_task("before sending")
    sent = whole.write(given())
    death.in_task("after sending")
    return sent


def _singly(
    batches: Iterator[pa.RecordBatch], death: Death, point: str
) -> Iterator[pa.RecordBatch]:
    """One row after the other; the next is asked for when the one before is through."""
    rows = (batch.slice(at, 1) for batch in batches for at in range(batch.num_rows))
    for number, row in enumerate(rows):
        if number == ROWS_BEFORE:
            death.in_task(point)
        yield row


def _is_to_die() -> bool:
    """In its micro-batch, and in any task that belongs to none."""
    context = TaskContext.get()
    batch = context.getLocalProperty(BATCH_ID) if context else None
    return batch in (None, str(BATCH))
