"""Topics as Spark's data source `rocketmq`: what Spark calls for batch reads, and the way to the
stream reader and the sink.

    spark.read.format("rocketmq").option("nameServer", "127.0.0.1:9876")
        .option("subscribe", "orders").load()
"""

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)
from pyspark.sql.types import StructType

from sparrowmq.clock import system_clock
from sparrowmq.cluster_address import NameServerAddresses, find_name_servers
from sparrowmq.spark.catalog_tables import given_to_create, read_with, with_options
from sparrowmq.spark.errors import OptionError, RocketMQError
from sparrowmq.spark.offsets import QueueRange, split
from sparrowmq.spark.option_values import NAME_SERVER, find_servers, names_servers
from sparrowmq.spark.options import WAYS_TO_CHOOSE, Options, check_has_begun, parse_options
from sparrowmq.spark.pushdown import RowCondition, can_be_pushed, narrow_queues, narrow_range
from sparrowmq.spark.read_plan import batch_ranges, queues_at_start
from sparrowmq.spark.schema import SparkColumn, chosen_columns, struct_type
from sparrowmq.spark.sink_options import parse_batch_sink_options, parse_sink_options
from sparrowmq.spark.wire.cluster import RemoteCluster, split_name_servers
from sparrowmq.spark.wire.puller import read_range
from sparrowmq.spark.wire.remoting import Patience
from sparrowmq.spark.worker_errors import reported_by_text

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

_PUSHING_WORKER = "pyspark.sql.worker.data_source_pushdown_filters"
_OPERATORS: dict[type[Filter], str] = {
    EqualTo: "=",
    In: "in",
    GreaterThan: ">",
    GreaterThanOrEqual: ">=",
    LessThan: "<",
    LessThanOrEqual: "<=",
}


@reported_by_text
class RocketMQSource(DataSource):
    """The format `rocketmq`."""

    kept_servers: ClassVar[NameServerAddresses | str | None] = None
    """What a driver found once, used instead of the environment; a text says why it found none."""

    def __init__(self, options: dict[str, str]) -> None:
        """Spark creates it on the driver. The name servers it finds in the environment travel with
        it: readers, writers and the tasks on executors use these and look for no others."""
        super().__init__(options)
        self._created_with = given_to_create(options)
        given = options if self._created_with is None else self._created_with
        kept = None if names_servers(given) else self.kept_servers
        if isinstance(kept, str):
            raise OptionError(NAME_SERVER, kept)
        self._servers = kept or find_servers(given)

    @classmethod
    def name(cls) -> str:
        """The name that `format` takes."""
        return "rocketmq"

    def schema(self) -> StructType:
        """The chosen columns. Raises OptionError for any wrong option, before anything runs."""
        given = self._created_with
        if given is None:
            return struct_type(parse_options(self.options, servers=self._servers).columns)
        return with_options(struct_type(parse_options(given, servers=self._servers).columns), given)

    def _read_options(self, schema: StructType, *, stream: bool) -> Options:
        options = read_with(schema, self.options, WAYS_TO_CHOOSE, (NAME_SERVER,))
        servers = find_servers(options) if names_servers(options) else self._servers
        return parse_options(options, stream=stream, servers=servers)

    def reader(self, schema: StructType) -> DataSourceReader:
        """For `spark.read`."""
        options = self._read_options(schema, stream=False)
        # Spark refuses a reader with pushFilters unless it is set to push filters; then, and only
        # then, this runs in the worker that pushes them.
        pushes = options.push_down and _PUSHING_WORKER in sys.modules
        kind = PushingReader if pushes else BatchReader
        return kind(options, chosen_columns(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """For `spark.readStream`."""
        from sparrowmq.spark.stream import RefusedStream, StreamReader

        try:
            options = self._read_options(schema, stream=True)
            return StreamReader(options, chosen_columns(schema))
        except RocketMQError as error:
            return RefusedStream(error)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """For `df.write`."""
        from sparrowmq.spark.sink import batch_writer

        options = parse_batch_sink_options(self.options, servers=self._servers)
        return batch_writer(options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """For `df.writeStream`."""
        from sparrowmq.spark.sink import stream_writer

        options = parse_sink_options(self.options, servers=self._servers)
        return stream_writer(options, schema, overwrite)


def register(spark: "SparkSession", name_servers: str | Sequence[str] | None = None) -> None:
    """Register the formats in a running session, with the name servers of this program.

    Reads and writes of this session without the option nameServer go to `name_servers`, or by
    default to those that the program's environment names now: Spark plans in processes that still
    have the environment in which Java was started. Raises ValueError for malformed addresses.
    """
    from sparrowmq.spark.log_source import LogSource

    found = find_name_servers(name_servers)
    split_name_servers(";".join(found.addresses))
    spark.dataSource.register(_source_with(found))
    spark.dataSource.register(LogSource)


def source_of_driver() -> type[RocketMQSource]:
    """The format as a driver gets it, with the name servers that its environment names now.

    Spark asks once per driver, but creates a source for each read and for every micro-batch of a
    stream that writes: looking again would move a running query when the file of contexts changes.
    """
    try:
        return _source_with(find_servers({}))
    except OptionError as error:
        remedy = "give the option, or mend that and start Spark's driver again"
        return _source_with(f"{error.problem}; {remedy}")


def _source_with(found: NameServerAddresses | str) -> type[RocketMQSource]:
    class SourceOfDriver(RocketMQSource):
        # A new class each time, which Spark pickles by value.
        kept_servers = found

    return SourceOfDriver


@dataclass(frozen=True)
class Piece(InputPartition):
    """What one task reads, and where its broker was last seen."""

    range: QueueRange
    address: str


@reported_by_text
class BatchReader(DataSourceReader):
    """Reads the ranges that the options ask for, fixed when the query is planned."""

    def __init__(self, options: Options, columns: tuple[SparkColumn, ...]) -> None:
        self.options = options
        self.columns = columns
        self.conditions: list[RowCondition] = []

    def partitions(self) -> list[InputPartition]:
        """One piece for each queue, or as many as the options ask for."""
        check_has_begun(self.options, system_clock())
        patience = Patience(self.options.retry_timeout_s)
        with self.options.cluster() as cluster:
            return patience.call("planning the read", lambda: self._plan(cluster))

    def _plan(self, cluster: RemoteCluster) -> list[InputPartition]:
        queues = narrow_queues(queues_at_start(cluster, self.options), self.conditions)
        ranges = [
            narrow_range(found, self.conditions, cluster.offset_at)
            for found in batch_ranges(cluster, queues, self.options)
        ]
        # Spark needs at least one partition; this one is empty.
        return list(pieces(cluster, ranges, self.options)) or [InputPartition(None)]

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        """The messages of one piece."""
        if not isinstance(partition, Piece):
            return iter(())
        return read_range(
            partition.range,
            self.options,
            self.columns,
            self.conditions,
            address=partition.address,
        )


class PushingReader(BatchReader):
    """A BatchReader for sessions with spark.sql.python.filterPushdown.enabled."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Takes the conditions that the source applies itself; the others go back to Spark."""
        for found in filters:
            condition = _condition(found)
            if condition is None:
                yield found
            else:
                self.conditions.append(condition)


def _condition(found: Any) -> RowCondition | None:
    op = _OPERATORS.get(type(found))
    if op is None or len(found.attribute) != 1:
        return None
    condition = RowCondition(found.attribute[0], op, found.value)
    return condition if can_be_pushed(condition) else None


def pieces(cluster: RemoteCluster, ranges: list[QueueRange], options: Options) -> Iterator[Piece]:
    """The tasks that read these ranges."""
    for found in split(
        ranges,
        min_partitions=options.min_partitions,
        max_records=options.max_records_per_partition,
    ):
        queue = found.queue
        yield Piece(found, cluster.address(queue.topic, queue.broker_name))
