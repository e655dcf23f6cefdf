"""Topics to Parquet, each message once.

    plan ── which offsets come next, from the newest commit
    write ── Spark writes them below _staging
    move ── the files get their names, which the version of the commit to come makes
    commit ── one file of the log names them, and the offsets that follow
    progress ── the brokers hear where the archive's consumer group is

A run that dies before the commit has done nothing that a reader sees, and the next one does the
same offsets again; one that dies after it goes on behind them. There is no second place that
remembers offsets, so that nothing can disagree (docs/decisions/0010).
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sparrowmq.clock import Clock, system_clock
from sparrowmq.spark.jobs.archive_compact import COMPACTING, CompactionRule, Compactor
from sparrowmq.spark.jobs.archive_files import ArchiveFiles
from sparrowmq.spark.jobs.archive_frames import (
    PARTITIONS,
    Question,
    answering,
    dated,
    stored_schema,
)
from sparrowmq.spark.jobs.archive_log import Archive, ArchiveLog, commit_of, partition_of
from sparrowmq.spark.jobs.errors import JobError
from sparrowmq.spark.jobs.journal import FolderLock
from sparrowmq.spark.jobs.ranges import next_ranges, read_ranges, rows_in
from sparrowmq.spark.jobs.steps import Step, Tell, tell_nobody
from sparrowmq.spark.offsets import Offsets, QueueRange
from sparrowmq.spark.options import Options, parse_options
from sparrowmq.spark.outage import Patience
from sparrowmq.spark.routes import Cluster
from sparrowmq.spark.source_plan import find_queues, resolve
from sparrowmq.spark.stream_group import GroupProgress

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

STAGING = "_staging"


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveJob:
    """What to archive, and where to."""

    name_server: str
    to: str
    """A folder that driver and executors reach by the same name."""
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    """A regular expression for topics, instead of their names."""
    group: str = "sparrowmq-archive"
    """The consumer group under which operators see the progress."""
    since_ms: int | None = None
    """Where a new archive begins; at the oldest messages without it."""
    batch_rows: int = 1_000_000
    """Messages in one commit at most."""
    fail_on_data_loss: bool = True
    compaction: CompactionRule = field(default_factory=CompactionRule)
    source_options: Mapping[str, str] = field(default_factory=dict)

    def options(self) -> Options:
        """The same as options of the source. Raises OptionError."""
        given = {"nameServer": self.name_server, "group": self.group}
        given["failOnDataLoss"] = str(self.fail_on_data_loss).lower()
        if self.topics:
            given["subscribe"] = ",".join(self.topics)
        if self.pattern is not None:
            given["subscribePattern"] = self.pattern
        given |= {"startingOffsets": "earliest"}
        if self.since_ms is not None:
            del given["startingOffsets"]
            given["startingTimestamp"] = str(self.since_ms)
        return parse_options(given, stream=True)


class Archiver:
    """Archives batch after batch; `opened_archive` makes one."""

    def __init__(
        self,
        spark: "SparkSession",
        job: ArchiveJob,
        files: ArchiveFiles,
        cluster: Cluster,
        tell: Tell = tell_nobody,
        clock: Clock = system_clock,
    ) -> None:
        self._spark = spark
        self._job = job
        self._options = job.options()
        self._files = files
        self._log = ArchiveLog(files)
        self._cluster = cluster
        self._patience = Patience(self._options.retry_timeout_s)
        self._progress = GroupProgress(cluster, job.group)
        self._tell = tell
        self._clock = clock
        self._compactor = Compactor(spark, files, self._log, job.compaction, tell, clock)
        self.archive = self._log.read()
        self._clean()
        self._progress.commit(self.archive.offsets)

    def _clean(self) -> None:
        """Remove what a run that died has left."""
        for unfinished in (STAGING, COMPACTING):
            self._files.delete(unfinished)
        known = self.archive.files.keys() | self.archive.removed.keys()
        for name in self._files.data_files().keys() - known:
            self._files.delete(name)

    def everything(self) -> Offsets:
        """Where all queues end now."""

        def ask() -> Offsets:
            queues = find_queues(self._cluster, self._options)
            return {queue: self._cluster.max_offset(queue) for queue in queues}

        return self._patience.call("asking where the queues end", ask)

    def step(self, target: Offsets | None = None) -> int:
        """Archive the next batch; how many messages that were, 0 when there are none."""
        ranges, end = self._patience.call("planning a batch", lambda: self._plan(target))
        if not ranges:
            return 0
        self._tell(Step("planned", rows_in(ranges), self.archive.rows))
        rows = self._write(ranges)
        self._tell(Step("written", rows, self.archive.rows))
        added = self._files.settle(STAGING, self.archive.version + 1)
        self._tell(Step("moved", rows, self.archive.rows))
        commit = commit_of(self.archive, self._clock(), add=added, offsets=end, rows=rows)
        self.archive = self._log.append(self.archive, commit)
        self._tell(Step("committed", rows, self.archive.rows))
        self._progress.commit(end)
        self._tell(Step("progress", rows, self.archive.rows))
        return rows_in(ranges)

    def _plan(self, target: Offsets | None) -> tuple[list[QueueRange], Offsets]:
        begin = self.archive.offsets or resolve(
            self._cluster,
            find_queues(self._cluster, self._options),
            self._options.starting,
            "startingOffsets",
            default="earliest",
        )
        return next_ranges(self._cluster, self._options, begin, target, self._job.batch_rows)

    def _write(self, ranges: list[QueueRange]) -> int:
        from pyspark.sql import Observation
        from pyspark.sql import functions as F

        loss = {"failOnDataLoss": str(self._job.fail_on_data_loss).lower()}
        options = {**self._job.source_options, **loss}
        frame = dated(read_ranges(self._spark, self._job.name_server, ranges, options))
        seen = Observation()
        frame = frame.observe(seen, F.count(F.lit(1)).alias("rows"))
        # A file for each core and not for each queue: small files cost every reader.
        frame = frame.coalesce(self._spark.sparkContext.defaultParallelism)
        staging = self._files.path(STAGING)
        frame.write.mode("overwrite").partitionBy(*PARTITIONS).parquet(staging)
        return int(seen.get["rows"])

    def compact(self, *, all_of_it: bool = False) -> int:
        """Make few files out of many where it is due; how many went away."""
        before = len(self.archive.files)
        self.archive = self._compactor.run(self.archive, all_of_it=all_of_it)
        return before - len(self.archive.files)


@contextmanager
def opened_archive(
    spark: "SparkSession", job: ArchiveJob, tell: Tell = tell_nobody, clock: Clock = system_clock
) -> Iterator[Archiver]:
    """An archiver that is alone in its archive. Raises JobError, OptionError, RocketMQError."""
    files = ArchiveFiles(spark, job.to)
    with ExitStack() as stack:
        if (folder := files.local_folder) is not None:
            stack.enter_context(FolderLock(folder, "this archive"))
        cluster = stack.enter_context(Cluster(job.name_server, 10.0))
        yield Archiver(spark, job, files, cluster, tell, clock)


def archive_once(archiver: Archiver) -> None:
    """Archive all that is there now, then compact what is due."""
    target = archiver.everything()
    while archiver.step(target):
        archiver.compact()


def archive_forever(archiver: Archiver, wait: Callable[[], bool]) -> None:
    """Archive what comes, until `wait`, called when there is nothing, says that it is over."""
    while archiver.step() or wait():
        archiver.compact()


def compact_archive(
    spark: "SparkSession",
    path: str,
    rule: CompactionRule,
    tell: Tell = tell_nobody,
    clock: Clock = system_clock,
) -> tuple[int, int]:
    """Compact all that can be, without a broker; files before and after."""
    files = ArchiveFiles(spark, path)
    log = ArchiveLog(files)
    _existing(log, path)
    with ExitStack() as stack:
        if (folder := files.local_folder) is not None:
            stack.enter_context(FolderLock(folder, "this archive"))
        before = log.read()
        after = Compactor(spark, files, log, rule, tell, clock).run(before, all_of_it=True)
    return len(before.files), len(after.files)


def _existing(log: ArchiveLog, path: str) -> Archive:
    archive = log.read()
    if archive.version == 0:
        raise JobError(f"there is no archive in {path}; make one with: sparrowmq pipeline archive")
    return archive


def read_archive(spark: "SparkSession", path: str, question: Question | None = None) -> "DataFrame":
    """The archive as its newest commit says; with a question only its answer.

    Reads just the files of the topics and days that can hold an answer. Raises JobError where
    there is no archive.
    """
    wanted = question or Question()
    files = ArchiveFiles(spark, path)
    archive = _existing(ArchiveLog(files), path)
    chosen = [files.path(name) for name in archive.files if wanted.wants(*partition_of(name))]
    if chosen:
        reader = spark.read.schema(stored_schema()).option("basePath", files.root)
        frame = reader.parquet(*chosen)
    else:
        frame = spark.createDataFrame([], stored_schema())
    return answering(frame, wanted) if question is not None else frame
