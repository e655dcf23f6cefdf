"""`format("rocketmq-log")` as Spark sees it: the log files of a store, read without a broker.

    spark.read.format("rocketmq-log").option("path", "/data/broker-a").load()

SparrowMQ's store or Apache's, of a running broker, a stopped one or a copy. Nothing is written.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from sparrowmq.spark.log_files.options import LogOptions, parse_log_options
from sparrowmq.spark.log_files.ranges import LogRange, log_files, log_ranges
from sparrowmq.spark.schema import struct_type

if TYPE_CHECKING:
    import pyarrow as pa


class RangePartition(InputPartition):
    """One range of the log."""

    def __init__(self, wanted: LogRange) -> None:
        self.wanted = wanted


class LogReader(DataSourceReader):
    """Reads a log once."""

    def __init__(self, options: LogOptions) -> None:
        self._options = options

    def partitions(self) -> list[InputPartition]:
        """The log in ranges."""
        path = self._options.path
        ranges = log_ranges(log_files(path), self._options.max_bytes_per_partition, _sure(path))
        # Spark needs at least one partition; this one is empty.
        return [RangePartition(one) for one in ranges] or [InputPartition(None)]

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        """The rows of one range."""
        from sparrowmq.spark.log_files.rows import LogRows

        if not isinstance(partition, RangePartition):
            return iter(())
        return LogRows(self._options).batches(partition.wanted)


class LogSource(DataSource):
    """The log files of one broker as a table."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "rocketmq-log"

    def schema(self) -> StructType:
        """The columns of a topic, and the record's place in the log."""
        return struct_type(parse_log_options(self.options).columns)

    def reader(self, schema: StructType) -> LogReader:
        """The reader of a batch."""
        return LogReader(parse_log_options(self.options))


def _sure(path: Path) -> int:
    """How far the store itself knows its log to be whole; 0 where it does not say."""
    try:
        from sparrowmq.store.files import StoreFiles
    except ImportError:  # a driver that has the zip only
        return 0
    mark = StoreFiles.at(path).mark()
    return 0 if mark is None else mark.log_offset
