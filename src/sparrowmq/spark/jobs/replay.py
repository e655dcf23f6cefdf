"""A time range of a topic, live or archived, sent to a topic again."""

import hashlib
import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from sparrowmq.spark.jobs.archive import read_archive
from sparrowmq.spark.jobs.archive_frames import Question
from sparrowmq.spark.jobs.copying import Copied, Copier, Read, Sending, copied_from, new_copy
from sparrowmq.spark.jobs.errors import JobError
from sparrowmq.spark.jobs.frames import resent, resent_by_key
from sparrowmq.spark.jobs.journal import Journal
from sparrowmq.spark.jobs.steps import Step, Tell, tell_nobody
from sparrowmq.spark.offsets import Offsets, QueueRange
from sparrowmq.spark.positions import Positions
from sparrowmq.spark.routes import Cluster, Position, Queue

if TYPE_CHECKING:
    from datetime import datetime

    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayJob:
    """What to send again."""

    name_server: str
    topic: str
    to: str
    since: "datetime"
    until: "datetime"
    """Exclusive."""
    where: str | None = None
    """A condition in Spark's SQL on the columns."""
    by_key: bool = False
    """Same key, same queue; else in turn."""
    archive: str | None = None
    """Read from this archive, not from the brokers."""
    batch_rows: int = 100_000
    rows_per_second: int | None = None

    def digest(self) -> str:
        """The same for the same job, whatever its speed and steps: by it a second run is known."""
        facts = asdict(replace(self, rows_per_second=None))
        del facts["batch_rows"]
        text = json.dumps(facts, default=str, sort_keys=True)
        return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


class Replay:
    """A replay and its journal."""

    def __init__(self, spark: "SparkSession", job: ReplayJob, journal: Journal) -> None:
        self._spark = spark
        self._job = job
        self._journal = journal

    def before(self) -> Copied | None:
        """What earlier runs of the same job have sent."""
        saved = self._journal.read()
        return copied_from(saved["copy"]) if saved else None

    def run(self, tell: Tell = tell_nobody) -> Copied:
        """Send what is left of it; nothing when all was sent before."""
        # Needs numpy, which a command that only tells its options must not.
        from sparrowmq.spark.sender import write_queues

        job = self._job
        with Cluster(job.name_server, 10.0) as cluster:
            queues = len(write_queues(cluster, job.to))
            copied = self.before()
            self._check_same(copied)
            if copied is None:
                starts, ends = self._archived() if job.archive else self._live(cluster)
                copied = new_copy(f"replay {job.digest()}", starts, ends)
                self._journal.write({"job": asdict_text(job), "copy": copied.to_json()})
        tell(Step("planned", 0, copied.looked_at, copied.wanted))
        if copied.is_finished:
            return copied
        sending = Sending(
            name_server=job.name_server,
            topic=job.to,
            queues=queues,
            batch_rows=job.batch_rows,
            rows_per_second=job.rows_per_second,
            where=job.where,
        )
        shape = resent_by_key if job.by_key else resent
        read: Read | None = self._from_archive if job.archive else None
        return Copier(self._spark, self._journal, sending, shape, tell, read).run(copied)

    def _check_same(self, copied: Copied | None) -> None:
        """A batch that is repeated has its old ids only if it is cut as it was."""
        if copied is None or copied.is_finished:
            return
        begun = int((self._journal.read() or {})["job"]["batch_rows"])
        if begun != self._job.batch_rows:
            raise JobError(
                f"this replay was begun with --batch {begun}, go on with that, not with"
                f" {self._job.batch_rows}"
            )

    def _live(self, cluster: Cluster) -> tuple[Offsets, Positions]:
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
        return starts, {queue: Position(int(row["last"]) + 1) for queue, row in queues.items()}

    def _asked(self) -> "DataFrame":
        job = self._job
        assert job.archive is not None
        question = Question(topic=job.topic, since=job.since, until=job.until)
        return read_archive(self._spark, job.archive, question)

    def _from_archive(self, ranges: list[QueueRange]) -> "DataFrame":
        rows = [
            (part.queue.broker_name, part.queue.queue_id, part.start, part.end) for part in ranges
        ]
        schema = "brokerName string, queueId int, first bigint, end bigint"
        return within(self._asked(), self._spark.createDataFrame(rows, schema))


def within(frame: "DataFrame", ranges: "DataFrame") -> "DataFrame":
    """The messages whose queue and offset lie in one of the ranges, in order."""
    from pyspark.sql import functions as F

    offset = F.col("queueOffset")
    joined = frame.join(F.broadcast(ranges), ["brokerName", "queueId"])
    chosen = joined.where((offset >= F.col("first")) & (offset < F.col("end")))
    return chosen.drop("first", "end").sort("brokerName", "queueId", "queueOffset")


def journal_folder(state: Path, job: ReplayJob) -> Path:
    """Where a replay is remembered below a folder for all of them."""
    return state / f"replay-{job.topic}-{job.digest()}"


def asdict_text(job: ReplayJob) -> dict[str, str]:
    """The job in words, for people who look into the journal."""
    return {name: str(value) for name, value in asdict(job).items() if value is not None}


def _ms(at: "datetime") -> int:
    return int(at.timestamp() * 1000)
