"""`format("rocketmq-log")` as Spark sees it: the log files of a store, read without a broker.

    spark.read.format("rocketmq-log").option("path", "/data/broker-a").load()

SparrowMQ's store or Apache's; the broker may be running or stopped, or it may be a copy. Nothing is
written.
"""

import json
from collections.abc import Iterable, Iterator
from contextlib import suppress
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.types import StructType

from sparrowmq.protocol.names import is_system_topic
from sparrowmq.spark.catalog_tables import given_to_create, read_with, with_options
from sparrowmq.spark.errors import OptionError, RocketMQError, few_of
from sparrowmq.spark.log_files.options import LogOptions, parse_log_options
from sparrowmq.spark.log_files.ranges import LogRange, log_files, log_ranges
from sparrowmq.spark.schema import struct_type
from sparrowmq.spark.worker_errors import reported_by_text
from sparrowmq.store.layout import CONFIG_DIR, LOG_DIR, QUEUE_DIR

if TYPE_CHECKING:
    import pyarrow as pa


class RangePartition(InputPartition):
    """One range of the log."""

    def __init__(self, wanted: LogRange) -> None:
        self.wanted = wanted


@reported_by_text
class LogReader(DataSourceReader):
    """Reads a log once."""

    def __init__(self, options: LogOptions) -> None:
        self._options = options

    def partitions(self) -> list[InputPartition]:
        """The log in ranges. Raises OptionError, LogFileError."""
        path = self._options.path
        check_topics(path, self._options.topics)
        ranges = log_ranges(log_files(path), self._options.max_bytes_per_partition, _sure(path))
        # Spark needs at least one partition; this one is empty.
        return [RangePartition(one) for one in ranges] or [InputPartition(None)]

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        """The rows of one range."""
        from sparrowmq.spark.log_files.rows import LogRows

        if not isinstance(partition, RangePartition):
            return iter(())
        return LogRows(self._options).batches(partition.wanted)


@reported_by_text
class LogSource(DataSource):
    """The log files of one broker as a table."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "rocketmq-log"

    def schema(self) -> StructType:
        """The columns of a topic, and the record's place in the log."""
        given = given_to_create(self.options)
        if given is None:
            return struct_type(parse_log_options(self.options).columns)
        return with_options(struct_type(parse_log_options(given).columns), given)

    def reader(self, schema: StructType) -> LogReader:
        """The reader of a batch."""
        return LogReader(parse_log_options(read_with(schema, self.options, ("path",))))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Of `spark.readStream`: refused."""
        from sparrowmq.spark.stream import RefusedStream

        text = "rocketmq-log reads files once and is no stream: use spark.read, or the format"
        return RefusedStream(RocketMQError(f"{text} rocketmq"))


def _sure(path: Path) -> int:
    """Up to where the store itself knows its log to be intact; 0 if it does not say."""
    try:
        from sparrowmq.store.files import StoreFiles
    except ImportError:  # a driver that has only the zip
        return 0
    mark = StoreFiles.at(path).mark()
    return 0 if mark is None else mark.log_offset


def check_topics(path: Path, topics: Iterable[str]) -> None:
    """Raises OptionError for a topic that the store does not have, if its files list the topics: a
    log without the rest of its store is read without this check.
    """
    known = _topics_of(path if (path / LOG_DIR).is_dir() else path.parent)
    for topic in topics:
        if known and topic not in known:
            near = get_close_matches(topic, known, 1)
            maybe = f"did you mean {near[0]}? " if near else ""
            users = [name for name in sorted(known) if not _is_brokers_own(name)]
            there = few_of(users) or "none"
            raise OptionError(
                "topic",
                f"there is no topic {topic} in the store {path}; {maybe}it has {there}."
                " For messages of a topic that was deleted, leave out this option and filter by the"
                " column topic",
            )


def _is_brokers_own(topic: str) -> bool:
    return is_system_topic(topic) or topic.startswith("%")


def _topics_of(store: Path) -> set[str]:
    """Topics that have a queue or a configuration; Apache's brokers keep both in the same place."""
    found: set[str] = set()
    with suppress(OSError):
        found |= {entry.name for entry in (store / QUEUE_DIR).iterdir() if entry.is_dir()}
    with suppress(OSError, ValueError, AttributeError):  # no file, or another program's
        config = json.loads((store / CONFIG_DIR / "topics.json").read_bytes())
        found |= set(config.get("topicConfigTable") or ())
    return found
