"""The archive job: topics written to Parquet, each message once.

    plan ── which offsets come next, from the newest commit
    write ── Spark writes them below _staging
    move ── the files are synced and get their names, which contain the next commit's number
    commit ── one file of the log names them, and the offsets that follow
    progress ── the brokers store where the archive's consumer group is

If a run dies before the commit, readers see nothing of it, and the next run archives the same
offsets again; if it dies after the commit, the next run continues after them. Offsets are stored in
one place only, so nothing can disagree (docs/decisions/0010).
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import TYPE_CHECKING

from sparrowmq.clock import Clock, system_clock
from sparrowmq.spark.errors import few_of
from sparrowmq.spark.group_progress import GroupProgress
from sparrowmq.spark.jobs.archive_compact import CompactionRule, Compactor
from sparrowmq.spark.jobs.archive_files import ArchiveFiles, archive_files
from sparrowmq.spark.jobs.archive_folder import ArchiveFolder, check_data, opened_folder
from sparrowmq.spark.jobs.archive_log import Archive, ArchiveLog, commit_of, partition_of
from sparrowmq.spark.jobs.archive_query import (
    PARTITIONS,
    Question,
    answering,
    dated,
    stored_schema,
)
from sparrowmq.spark.jobs.copy import next_ranges, read_ranges, rows_in
from sparrowmq.spark.jobs.job import JobError, JobStep, OnStep, ignore_step
from sparrowmq.spark.offsets import QueueRange
from sparrowmq.spark.options import Options, parse_options
from sparrowmq.spark.positions import Positions, ends_now
from sparrowmq.spark.read_plan import covers, find_queues, resolve
from sparrowmq.spark.wire.cluster import RemoteCluster
from sparrowmq.spark.wire.remoting import Patience

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveJob:
    """What to archive, and where to."""

    name_server: str
    to: str
    """A folder that driver and executors reach under the same name."""
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    """A regular expression for topics, instead of their names."""
    group: str = "sparrowmq-archive"
    """The consumer group under which operators see the progress."""
    since_ms: int | None = None
    """Store time from which a new archive begins; without it, at the oldest messages."""
    batch_rows: int = 1_000_000
    """The most messages in one commit."""
    fail_on_data_loss: bool = True
    compaction: CompactionRule = field(default_factory=CompactionRule)
    source_options: Mapping[str, str] = field(default_factory=dict)

    def options(self) -> Options:
        """The job as options of the source. Raises OptionError."""
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
        folder: ArchiveFolder,
        cluster: RemoteCluster,
        on_step: OnStep = ignore_step,
        clock: Clock = system_clock,
    ) -> None:
        self._spark = spark
        self._job = job
        self._options = job.options()
        self._folder = folder
        self._cluster = cluster
        self._patience = Patience(self._options.retry_timeout_s)
        self._progress = GroupProgress(cluster, job.group)
        self._on_step = on_step
        self._clock = clock
        self._compactor = Compactor(spark, folder, job.compaction, on_step, clock)
        self._progress.commit(self._begun())

    @property
    def archive(self) -> Archive:
        """The archive as of its newest commit."""
        return self._folder.archive

    def _begun(self) -> Positions:
        """Where the archive stands in this job's topics; other topics that it holds stay as is."""
        return {
            queue: at
            for queue, at in self.archive.positions.items()
            if covers(self._options, queue.topic)
        }

    def everything(self) -> Positions:
        """Where all queues end now."""

        return self._patience.call(
            "asking where the queues end",
            lambda: ends_now(self._cluster, find_queues(self._cluster, self._options)),
        )

    def step(self, target: Positions | None = None) -> int:
        """Archive the next batch. Returns its number of messages, 0 if there were none."""
        ranges, end = self._patience.call("planning a batch", lambda: self._plan(target))
        if not ranges:
            return 0
        self._on_step(JobStep("planned", rows_in(ranges), self.archive.rows))
        rows = self._write(ranges)
        self._on_step(JobStep("written", rows, self.archive.rows))
        added = self._folder.settle()
        self._on_step(JobStep("moved", rows, self.archive.rows))
        commit = commit_of(self.archive, self._clock(), add=added, positions=end, rows=rows)
        self._folder.commit(commit)
        self._on_step(JobStep("committed", rows, self.archive.rows))
        self._progress.commit(end)
        self._on_step(JobStep("progress", rows, self.archive.rows))
        return rows_in(ranges)

    def _plan(self, target: Positions | None) -> tuple[list[QueueRange], Positions]:
        begin = self._begun()
        begin |= self._new_topics({queue.topic for queue in begin})
        return next_ranges(self._cluster, self._options, begin, target, self._job.batch_rows)

    def _new_topics(self, known: set[str]) -> Positions:
        """Start positions for topics new to the archive: they begin where a new archive does.

        New queues of known topics begin at their oldest message (`next_ranges`).
        """
        options = self._options
        wanted = tuple(topic for topic in options.subscribe if topic not in known)
        if options.subscribe and not wanted:
            return {}
        found = find_queues(self._cluster, replace(options, subscribe=wanted))
        new = [queue for queue in found if queue.topic not in known]
        return resolve(self._cluster, new, options.starting, "startingOffsets", default="earliest")

    def _write(self, ranges: list[QueueRange]) -> int:
        from pyspark.sql import Observation
        from pyspark.sql import functions as F

        loss = {"failOnDataLoss": str(self._job.fail_on_data_loss).lower()}
        options = {**self._job.source_options, **loss}
        frame = dated(read_ranges(self._spark, self._job.name_server, ranges, options))
        seen = Observation()
        frame = frame.observe(seen, F.count(F.lit(1)).alias("rows"))
        # One file per core, not per queue: small files cost every reader.
        frame = frame.coalesce(self._spark.sparkContext.defaultParallelism)
        staging = f"{self._folder.files.root}/{self._folder.stage()}"
        frame.write.partitionBy(*PARTITIONS).parquet(staging)
        return int(seen.get["rows"])

    def compact(self, *, all_of_it: bool = False) -> int:
        """Merge small files where it is due. Returns by how many files the archive shrank."""
        before = len(self.archive.files)
        self._compactor.run(all_of_it=all_of_it)
        return before - len(self.archive.files)


@contextmanager
def opened_archive(
    spark: "SparkSession",
    job: ArchiveJob,
    on_step: OnStep = ignore_step,
    clock: Clock = system_clock,
) -> Iterator[Archiver]:
    """The only archiver at work in its archive. Raises JobError, OptionError, RocketMQError."""
    with (
        opened_folder(archive_files(spark, job.to)) as folder,
        RemoteCluster(job.name_server, 10.0) as cluster,
    ):
        yield Archiver(spark, job, folder, cluster, on_step, clock)


def archive_once(archiver: Archiver) -> None:
    """Archive everything that exists now, then compact what is due."""
    target = archiver.everything()
    while archiver.step(target):
        archiver.compact()


def archive_forever(archiver: Archiver, wait: Callable[[], bool]) -> None:
    """Archive what arrives until `wait`, called when nothing is left, returns False."""
    while archiver.step() or wait():
        archiver.compact()


def compact_archive(
    spark: "SparkSession",
    path: str,
    rule: CompactionRule,
    on_step: OnStep = ignore_step,
    clock: Clock = system_clock,
) -> tuple[int, int]:
    """Compact everything possible, without a broker. Returns file counts before and after."""
    files = archive_files(spark, path)
    existing_archive(files, path)
    with opened_folder(files) as folder:
        before = len(folder.archive.files)
        Compactor(spark, folder, rule, on_step, clock).run(all_of_it=True)
        return before, len(folder.archive.files)


def existing_archive(files: ArchiveFiles, path: str) -> Archive:
    """The archive in a folder. Raises JobError if there is none, or its log is not intact."""
    archive = ArchiveLog(files).read()
    if archive.version == 0:
        raise JobError(f"there is no archive in {path}; make one with: sparrowmq pipeline archive")
    return archive


def check_archived(archive: Archive, topic: str, path: str) -> None:
    """Raises JobError for a topic never archived here; an archived topic may have no messages."""
    topics = {partition_of(name)[0] for name in archive.files}
    topics |= {queue.topic for queue in archive.positions}
    if topic not in topics:
        near = get_close_matches(topic, topics, 1)
        maybe = f"did you mean {near[0]}? " if near else ""
        there = few_of(sorted(topics)) or "no topic"
        raise JobError(f"topic {topic} is not in the archive {path}; {maybe}it has {there}")


def read_archive(spark: "SparkSession", path: str, question: Question | None = None) -> "DataFrame":
    """The archive as of its newest commit; with a question, only the messages it asks for.

    Reads only the files of topics and days that can contain an answer. Raises JobError if there is
    no archive, it is not intact, or it does not have the topic.
    """
    wanted = question or Question()
    files = archive_files(spark, path)
    archive = existing_archive(files, path)
    if wanted.topic is not None:
        check_archived(archive, wanted.topic, path)
    chosen = {
        name: size for name, size in archive.files.items() if wanted.wants(*partition_of(name))
    }
    check_data(files, chosen)
    if chosen:
        reader = spark.read.schema(stored_schema()).option("basePath", files.root)
        frame = reader.parquet(*(f"{files.root}/{name}" for name in chosen))
    else:
        frame = spark.createDataFrame([], stored_schema())
    return answering(frame, wanted) if question is not None else frame
