"""The dead letters of a group: a table to look at, to select from, and to send back from."""

import asyncio
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sparrowmq.admin.admin import Admin
from sparrowmq.admin.resends import TO_TOPIC, Resend, Resent
from sparrowmq.protocol.names import dlq_topic
from sparrowmq.spark.frames import resent_as_it_was, resent_to_origin
from sparrowmq.spark.jobs.copy import (
    Copied,
    Copier,
    CopyTarget,
    check_kept,
    copied_from,
    new_copy,
)
from sparrowmq.spark.jobs.job import OnStep, ignore_step
from sparrowmq.spark.jobs.journal import (
    JobJournal,
    check_same_cluster,
    cluster_facts,
    journal_place,
)
from sparrowmq.spark.positions import ends_now
from sparrowmq.spark.wire.cluster import RemoteCluster

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetters:
    """The dead letters of a group, or those that satisfy a condition."""

    name_server: str
    group: str
    where: str | None = None
    """A condition in Spark's SQL on the columns."""

    def frame(self, spark: "SparkSession") -> "DataFrame":
        """The current dead letters. Raises TopicMissing, from Spark, if there never were any."""
        reader = spark.read.format("rocketmq").option("nameServer", self.name_server)
        frame = reader.option("subscribe", dlq_topic(self.group)).load()
        return frame.where(self.where) if self.where is not None else frame

    def journal_folder(self, state: Path, cluster: RemoteCluster) -> Path:
        """The folder of the journal of what was sent back, below the folder of all jobs."""
        digest = hashlib.blake2b((self.where or "").encode(), digest_size=8).hexdigest()
        folder = state / f"dead-letters-{self.group}-{digest}"
        return journal_place(folder, cluster, dlq_topic(self.group))


def send_back(
    spark: "SparkSession",
    letters: DeadLetters,
    journal: JobJournal,
    *,
    to: str | None = None,
    rows_per_second: int | None = None,
    on_step: OnStep = ignore_step,
) -> tuple[int, Copied]:
    """Send dead letters to `to`, or each to the topic it came from.

    Skips those that an earlier run has looked at under the same condition, and those that
    `sparrowmq dlq resend` or another machine has already sent again. Messages keep their ids, so
    that the next resend can tell. Returns how many were sent now, and how far all runs are.
    """
    with RemoteCluster(letters.name_server, 10.0) as cluster:
        queues = cluster.queues(dlq_topic(letters.group))
        ends = ends_now(cluster, queues)
        oldest = {queue: cluster.min_offset(queue) for queue in queues}
        facts = cluster_facts(cluster, dlq_topic(letters.group))
        saved = journal.read()
        check_same_cluster(saved or {}, cluster, dlq_topic(letters.group), journal.path)
        copied = copied_from(saved["copy"]) if saved else None
        if copied is not None:
            check_kept(cluster, copied.reached, journal)
    if copied is None or copied.is_finished:
        starts = oldest | (copied.done if copied else {})
        runs = 1 + (saved["runs"] if saved else 0)
        copied = new_copy(f"{journal.path.parent.name} {runs}", starts, ends)
        journal.write({"runs": runs, "copy": copied.to_json(), **facts})
    before = copied.sent
    sending = CopyTarget(
        name_server=letters.name_server,
        topic=to,
        rows_per_second=rows_per_second,
        where=_condition(letters.where, _sent_before(letters, to)),
    )
    shape = resent_as_it_was if to is not None else resent_to_origin
    copied = Copier(spark, journal, sending, shape, on_step).run(copied)
    return copied.sent - before, copied


def _sent_before(letters: DeadLetters, to: str | None) -> list[str]:
    """Places of dead letters that anyone has sent again before: `broker/queue/offset`."""

    async def ask() -> list[Resent]:
        async with Admin(letters.name_server, timeout_s=10.0) as admin:
            return await admin.resend_dead_letters(letters.group, to=to or TO_TOPIC, dry_run=True)

    return [each.place for each in asyncio.run(ask()) if each.result is Resend.SENT_BEFORE]


def _condition(where: str | None, left_out: Sequence[str]) -> str | None:
    if not left_out:
        return where
    places = ", ".join(f"'{each}'" for each in left_out)
    rest = f"concat(brokerName, '/', queueId, '/', queueOffset) NOT IN ({places})"
    return rest if where is None else f"({where}) AND {rest}"
