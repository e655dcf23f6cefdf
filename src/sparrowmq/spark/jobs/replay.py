"""The replay job: a time range of a topic, live or archived, sent to a topic again."""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from sparrowmq.clock import Clock, system_clock
from sparrowmq.spark.frames import resent, resent_by_key
from sparrowmq.spark.jobs.archive import read_archive
from sparrowmq.spark.jobs.archive_query import Question
from sparrowmq.spark.jobs.copy import (
    Copied,
    Copier,
    CopyTarget,
    Read,
    copied_from,
    new_copy,
    read_ranges,
)
from sparrowmq.spark.jobs.job import JobError, JobStep, OnStep, ignore_step
from sparrowmq.spark.jobs.journal import (
    JobJournal,
    check_same_cluster,
    cluster_facts,
    cluster_names,
    journal_place,
)
from sparrowmq.spark.offsets import Offsets, QueueRange
from sparrowmq.spark.positions import Positions
from sparrowmq.spark.wire.cluster import Queue, QueuePosition, RemoteCluster
from sparrowmq.spark.wire.sender import write_queues

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayJob:
    """What to send again."""

    name_server: str
    topic: str
    to: str
    since: datetime
    until: datetime
    """Exclusive."""
    where: str | None = None
    """A condition in Spark's SQL on the columns."""
    by_key: bool = False
    """Same key, same queue; otherwise round-robin."""
    archive: str | None = None
    """Read from this archive instead of the brokers."""
    batch_rows: int = 100_000
    rows_per_second: int | None = None

    def digest(self, clusters: Iterable[str]) -> str:
        """The same for the same replay, however it is written: it recognises a repeated run.

        Times count but not their zones, folders but not their spelling, the cluster but not the
        address of its name server. Speed and steps do not count.
        """
        facts = {
            "clusters": sorted(clusters),
            "topic": self.topic,
            "to": self.to,
            "since": _ms(self.since),
            "until": _ms(self.until),
            "where": self.where,
            "byKey": self.by_key,
            "archive": None if self.archive is None else _resolved(self.archive),
        }
        text = json.dumps(facts, sort_keys=True)
        return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()

    def check_range(self, now_ms: int) -> None:
        """Raises JobError if the range ends in the future.

        Messages stored later would belong to a range that counts as sent.
        """
        if _ms(self.until) > now_ms:
            raise JobError(
                f"the end {_text(_ms(self.until))} lies in the future: messages that come until"
                " then would never be replayed. Write a time that has passed: --until"
                f" {_text(now_ms)}"
            )


class ReplayRun:
    """A replay and its journal."""

    def __init__(
        self,
        spark: "SparkSession | None",
        job: ReplayJob,
        journal: JobJournal,
        clock: Clock = system_clock,
    ) -> None:
        """`spark` may be None if nothing is read: to look at a range of a live topic, or when
        everything was sent before."""
        self._given_spark = spark
        self._job = job
        self._journal = journal
        self._clock = clock

    @property
    def _spark(self) -> "SparkSession":
        assert self._given_spark is not None, "it is needed to read messages"
        return self._given_spark

    def run(self, on_step: OnStep = ignore_step) -> Copied:
        """Send what is left; does nothing if everything was sent before."""
        job = self._job
        with RemoteCluster(job.name_server, 10.0) as cluster:
            queues = len(write_queues(cluster, job.to))
            saved = self._journal.read() or {}
            copied = self._planned(cluster)
            if not saved:
                saved = {"job": asdict_text(job), "copy": copied.to_json()}
            self._journal.write({**saved, **cluster_facts(cluster, job.to)})
        on_step(JobStep("planned", 0, copied.looked_at, copied.wanted))
        if copied.is_finished:
            return copied
        sending = CopyTarget(
            name_server=job.name_server,
            topic=job.to,
            queues=queues,
            batch_rows=job.batch_rows,
            rows_per_second=job.rows_per_second,
            where=job.where,
        )
        shape = resent_by_key if job.by_key else resent
        read: Read | None = self._from_archive if job.archive else None
        return Copier(self._spark, self._journal, sending, shape, on_step, read).run(copied)

    def look(self, *, again: bool = False) -> Copied:
        """How far the replay is, or what a new one would copy; with `again`, always a new one, even
        if it was sent before. Changes nothing."""
        with RemoteCluster(self._job.name_server, 10.0) as cluster:
            write_queues(cluster, self._job.to)
            return self._new(cluster) if again else self._planned(cluster)

    def count(self, copied: Copied) -> int:
        """How many of the remaining messages satisfy the condition."""
        job = self._job
        assert job.where is not None
        ranges = copied.left
        if job.archive:
            frame = self._from_archive(ranges)
        else:
            frame = read_ranges(self._spark, job.name_server, ranges)
        return frame.where(job.where).count()

    def _planned(self, cluster: RemoteCluster) -> Copied:
        saved = self._journal.read() or {}
        check_same_cluster(saved, cluster, self._job.to, self._journal.path)
        return sent_before(self._journal) or self._new(cluster)

    def _new(self, cluster: RemoteCluster) -> Copied:
        job = self._job
        job.check_range(self._clock())
        starts, ends = self._archived() if job.archive else self._live(cluster)
        name = f"replay {job.digest(cluster_names(cluster, job.to))}"
        # Messages sent once more count as new ones, also for a de-duplicated topic.
        runs = self._journal.put_aside_before()
        return new_copy(f"{name} {runs + 1}" if runs else name, starts, ends)

    def _live(self, cluster: RemoteCluster) -> tuple[Offsets, Positions]:
        since_ms, until_ms = _ms(self._job.since), _ms(self._job.until)
        queues = cluster.queues(self._job.topic)
        ends = {queue: cluster.position_at(queue, until_ms) for queue in queues}
        starts = {
            queue: min(end.offset, cluster.offset_at(queue, since_ms))
            for queue, end in ends.items()
        }
        return starts, ends

    def _archived(self) -> tuple[Offsets, Positions]:
        from pyspark.sql import functions as F

        found = (
            self._asked()
            .groupBy("brokerName", "queueId")
            .agg(F.min("queueOffset").alias("first"), F.max("queueOffset").alias("last"))
            .collect()
        )
        topic = self._job.topic
        queues = {Queue(topic, row["brokerName"], row["queueId"]): row for row in found}
        starts = {queue: int(row["first"]) for queue, row in queues.items()}
        return starts, {queue: QueuePosition(int(row["last"]) + 1) for queue, row in queues.items()}

    def _asked(self) -> "DataFrame":
        job = self._job
        assert job.archive is not None
        question = Question(topic=job.topic, since=_at(_ms(job.since)), until=_at(_ms(job.until)))
        return read_archive(self._spark, job.archive, question)

    def _from_archive(self, ranges: list[QueueRange]) -> "DataFrame":
        rows = [
            (part.queue.broker_name, part.queue.queue_id, part.start, part.end) for part in ranges
        ]
        schema = "brokerName string, queueId int, first bigint, end bigint"
        return within(self._asked(), self._spark.createDataFrame(rows, schema))


def sent_before(journal: JobJournal) -> Copied | None:
    """What the earlier runs of the same replay have sent."""
    saved = journal.read()
    return copied_from(saved["copy"]) if saved else None


def within(frame: "DataFrame", ranges: "DataFrame") -> "DataFrame":
    """The messages whose queue and offset lie in one of the ranges, in order."""
    from pyspark.sql import functions as F

    offset = F.col("queueOffset")
    joined = frame.join(F.broadcast(ranges), ["brokerName", "queueId"])
    chosen = joined.where((offset >= F.col("first")) & (offset < F.col("end")))
    return chosen.drop("first", "end").sort("brokerName", "queueId", "queueOffset")


def journal_folder(state: Path, job: ReplayJob, cluster: RemoteCluster) -> Path:
    """The folder of a replay's journal, below a folder for all replays. Raises TopicMissing."""
    folder = state / f"replay-{job.topic}-{job.digest(cluster_names(cluster, job.to))}"
    return journal_place(folder, cluster, job.to)


def asdict_text(job: ReplayJob) -> dict[str, str]:
    """The job as text, for people who read the journal."""
    return {name: str(value) for name, value in asdict(job).items() if value is not None}


def _ms(at: datetime) -> int:
    return int(at.timestamp() * 1000)


def _at(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)


def _text(ms: int) -> str:
    return f"{_at(ms):%Y-%m-%dT%H:%M:%SZ}"


def _resolved(folder: str) -> str:
    """A local folder by its absolute path, any other as Hadoop names it."""
    scheme, colon, rest = folder.partition(":")
    if colon and scheme != "file":
        return folder.rstrip("/")
    path = "/" + rest.lstrip("/") if colon else folder
    return str(Path(path).resolve())
