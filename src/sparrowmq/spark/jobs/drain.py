"""The drain job: the backlog of a blocked topic is copied to a temporary topic with ten times the
queues, so that ten times the consumers can work on it.

    claimed ── the cluster knows who drains, see `claims`
    planned ── the group's offsets are the starts, the queues' ends are fixed for good
    created ── the temporary topic exists
    copied ── batch by batch, see `copy`
    moved ── the slow group continues at the ends; only now, when the copies are safe
    released ── others may drain what came later

Every step is recorded before the next begins, and a run continues where the last one died. Messages
that arrive meanwhile come after the ends and stay in the old topic.
"""

import difflib
import uuid
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from sparrowmq.clock import Clock, system_clock
from sparrowmq.protocol.names import check_topic
from sparrowmq.spark.frames import resent, resent_by_key
from sparrowmq.spark.jobs.claims import Claim, Claims, claim_from
from sparrowmq.spark.jobs.copy import Copied, Copier, CopyTarget, copied_from, new_copy
from sparrowmq.spark.jobs.job import JobError, JobStep, OnStep, ignore_step
from sparrowmq.spark.jobs.journal import JobJournal, check_same_cluster, cluster_facts
from sparrowmq.spark.offsets import Offsets, backlog
from sparrowmq.spark.positions import ends_now, good_up_to
from sparrowmq.spark.wire.cluster import UNKNOWN_EPOCH, Queue, QueuePosition, RemoteCluster
from sparrowmq.spark.wire.remoting import Patience

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


TIMES = 10
_PATIENCE_S = 60.0
"""The same as source and sink wait for servers, see their option retryTimeout."""
_FLAGS = {"spread": "--spread", "to": "--to"}
"""The command-line option for each saved value."""


class Spread(StrEnum):
    """Which queue of the temporary topic a message goes to."""

    EVENLY = "evenly"
    """Round-robin: the fullest and the emptiest queue differ by one message."""
    KEY = "key"
    """Same key, same queue, in order; round-robin without a key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainJob:
    """What to drain, and how."""

    name_server: str
    topic: str
    group: str
    """The group that is too slow."""
    to: str
    """The temporary topic, which the job creates."""
    state: Path
    """The folder of the job's journal; each job needs a separate one."""
    spread: Spread = Spread.EVENLY
    batch_rows: int = 100_000
    """Messages sent between two commits, which is also how many a kill -9 may duplicate."""
    rows_per_second: int | None = None
    live: bool = False
    """Drain although group members are live: messages may be handled by them and from the copy."""
    by: str = "unknown"
    """The operator who drains, shown to others who try to."""
    take_over: bool = False
    """Drain although another operator has begun a drain and not finished it."""


class Operator(Protocol):
    """What a drain changes in a cluster; `sparrowmq.admin` does it over the wire."""

    def members(self, group: str) -> Sequence[str]:
        """Client ids of a group's live members."""

    def create_topic(self, topic: str, queues: dict[str, int]) -> None:
        """Create a topic with this many queues on each broker."""

    def reset(self, group: str, queue: Queue, offset: int) -> None:
        """Move a group with live members."""

    def delete_topic(self, topic: str) -> None:
        """Delete a topic everywhere."""


class DrainRun:
    """One drain and its journal."""

    def __init__(
        self,
        job: DrainJob,
        cluster: RemoteCluster,
        operator: Operator,
        journal: JobJournal,
        clock: Clock = system_clock,
    ) -> None:
        self.job = job
        self._cluster = cluster
        self._operator = operator
        self._journal = journal
        self._clock = clock
        self._claims = Claims(cluster, job.topic, job.group)
        self._patience = Patience(_PATIENCE_S)

    def run(self, spark: "SparkSession | None", on_step: OnStep = ignore_step) -> Copied:
        """Finish the drain; `spark` may be None if everything is copied. Raises JobError,
        RocketMQError and what Spark raises."""
        saved = self.prepare()
        claim = claim_from(saved.get("claim", {}))
        copied = copied_from(saved["copy"])
        on_step(JobStep("planned", 0, copied.looked_at, copied.wanted))
        self._create_topic(copied)
        on_step(JobStep("created", 0, copied.looked_at, copied.wanted))
        if not copied.is_finished:
            assert spark is not None
            copied = self._copier(spark, on_step, claim).run(copied)
        if not saved["isMoved"]:
            self._check_claim(claim)
            self._move(copied)
            on_step(JobStep("moving", 0, copied.looked_at, copied.wanted))
            self._journal.write({**(self._journal.read() or {}), "isMoved": True})
        on_step(JobStep("moved", 0, copied.looked_at, copied.wanted))
        self._patience.call("giving up the claim", lambda: self._claims.release(claim))
        return copied

    def prepare(self) -> dict[str, Any]:
        """Claim and plan the drain, or find the plan of an earlier run.

        Raises JobError if it must not begin; then nothing was changed.
        """
        saved = self._checked()
        if saved is None or not saved.get("isMoved"):
            saved = self._claimed(saved)
        if "copy" not in saved:
            saved = self._plan(saved)
        self._check_same(saved)
        return saved

    def look(self) -> Copied:
        """How far the drain is, or what a new one would copy. Changes nothing. Raises JobError if
        it must not begin."""
        saved = self._checked()
        if saved is None or "copy" not in saved:
            return self._new_copy()
        self._check_same(saved)
        return copied_from(saved["copy"])

    def _checked(self) -> dict[str, Any] | None:
        """The journal, None if there is none. Raises JobError if the drain must not begin."""
        saved = self._journal.read()
        check_same_cluster(saved or {}, self._cluster, self.job.topic, self._journal.path)
        if saved is None:
            self._check_group()
            if not self.job.take_over:
                self._claims.check_free()  # a better error than "the temporary topic exists"
        if saved is None or "copy" not in saved:
            self._check_new_topic()
        if saved is None or not saved.get("isMoved"):
            self._check_members()
        return saved

    def _claimed(self, saved: dict[str, Any] | None) -> dict[str, Any]:
        """The journal, with a claim that is registered in the cluster."""
        job, is_new = self.job, saved is None
        begun = saved or {}
        if "claim" not in begun:
            at = datetime.fromtimestamp(self._clock() / 1000, UTC)
            claim = Claim(
                id=uuid.uuid4().hex,
                by=job.by,
                journal=str(self._journal.path.absolute()),
                to=job.to,
                since=f"{at:%Y-%m-%dT%H:%M:%SZ}",
            )
            # Written first: after a kill in between, the next run has to recognise its own claim.
            begun = {
                **begun,
                "claim": asdict(claim),
                **cluster_facts(self._cluster, job.topic),
            }
            self._journal.write(begun)
        try:
            self._claims.take(claim_from(begun["claim"]), take_over=job.take_over)
        except JobError:  # refused; a server that did not answer may have stored the claim
            if is_new:
                self._journal.discard()
            raise
        return begun

    def saved(self) -> dict[str, Any]:
        """The journal of a drain that was begun. Raises JobError if there is none."""
        found = self._journal.read()
        if found is None and self._journal.put_aside_before():
            raise JobError(
                f"the last drain of {self.job.topic} for {self.job.group} was handed back and its"
                f" temporary topic deleted; there is no journal {self._journal.path} of a later one"
            )
        if found is None:
            raise JobError(
                f"{self.job.topic} was not drained for {self.job.group}: there is no journal"
                f" {self._journal.path}; drain it first, without --report and --hand-back, or say"
                " with --state where its journal is"
            )
        if "copy" not in found:
            raise JobError(f"the drain of {self.job.topic} was claimed and not begun: run it again")
        self._check_same(found, is_continued=False)
        return found

    def _check_group(self) -> None:
        """Refuse an unknown group: a mistyped name would copy the whole topic."""
        job = self.job
        known = self._cluster.groups(job.topic)
        if job.group in known or self._operator.members(job.group):
            return
        if any(
            self._cluster.consumer_offset(job.group, queue) is not None
            for queue in self._cluster.queues(job.topic)
        ):
            return
        near = difflib.get_close_matches(job.group, known, 1)
        maybe = f"Did you mean {near[0]}? " if near else ""
        raise JobError(
            f"group {job.group} does not exist at the brokers of {job.topic}: it has no members, no"
            f" progress and no settings. {maybe}Nothing was copied"
        )

    def _check_new_topic(self) -> None:
        job = self.job
        try:
            check_topic(job.to)
        except ValueError as error:
            raise JobError(f"--to {job.to}: {error}") from error
        if job.to == job.topic:
            raise JobError(f"--to {job.to} is the topic that is drained; name one that is new")
        if job.to in self._cluster.topics():
            raise JobError(
                f"topic {job.to} exists already, and not by this job; name another with --to, or"
                f" delete it: sparrowmq topic delete {job.to}"
            )

    def _plan(self, saved: dict[str, Any]) -> dict[str, Any]:
        """Plan the drain. Call it only under the claim: an earlier drain moves the group before it
        releases the claim."""
        copied = self._new_copy()
        value = {**saved, **self._begun_with(), "isMoved": False, "copy": copied.to_json()}
        self._journal.write(value)
        return value

    def _new_copy(self) -> Copied:
        job = self.job
        # Read before the starts: an epoch that is too old is safe, one that is too new is not.
        now = ends_now(self._cluster, self._cluster.queues(job.topic))
        starts = {queue: self._start(queue) for queue in now}
        ends = {
            queue: QueuePosition(max(starts[queue], at.offset), at.epoch)
            for queue, at in now.items()
        }
        return new_copy(f"drain {job.topic} {job.group} {job.to}", starts, ends)

    def _start(self, queue: Queue) -> int:
        oldest = self._cluster.min_offset(queue)
        at = self._cluster.consumer_offset(self.job.group, queue)
        return oldest if at is None else max(at, oldest)

    def _check_members(self) -> None:
        members = self._operator.members(self.job.group)
        if members and not self.job.live:
            raise JobError(
                f"{len(members)} members of group {self.job.group} are alive"
                f" ({', '.join(members[:3])}): what they handle now would be handled again from"
                " the copy. Stop them first, or accept that with --live"
            )

    def _check_same(self, saved: dict[str, Any], *, is_continued: bool = True) -> None:
        """Refuse changed options: a batch repeats exactly only if it is spread the same way.

        And the temporary topic belongs to this job only under the name it was created with.
        """
        has_batches = is_continued and not saved["copy"]["isFinished"]
        for name, value in self._begun_with().items():
            matters = name == "to" or has_batches
            if saved[name] != value and matters:
                raise JobError(
                    f"this drain was begun with {_FLAGS[name]} {saved[name]}, continue with that,"
                    f" not with {value}"
                )

    def _begun_with(self) -> dict[str, Any]:
        job = self.job
        return {
            "spread": job.spread.value,
            "to": job.to,
        }

    def _create_topic(self, copied: Copied) -> None:
        counts = queues_for(copied)
        if self.job.to not in self._cluster.topics():
            if copied.batches:
                raise JobError(f"topic {self.job.to} is gone, with the messages copied so far")
            self._operator.create_topic(self.job.to, counts)
            return
        there = {queue.broker_name for queue in self._cluster.queues(self.job.to)}
        if missing := {name: count for name, count in counts.items() if name not in there}:
            self._operator.create_topic(self.job.to, missing)

    def _copier(self, spark: "SparkSession", on_step: OnStep, claim: Claim) -> Copier:
        job = self.job
        sending = CopyTarget(
            name_server=job.name_server,
            topic=job.to,
            queues=len(self._cluster.queues(job.to)),
            batch_rows=job.batch_rows,
            rows_per_second=job.rows_per_second,
        )
        shape = resent if job.spread is Spread.EVENLY else resent_by_key
        return Copier(
            spark,
            self._journal,
            sending,
            shape,
            on_step,
            before_batch=lambda: self._check_claim(claim),
        )

    def _check_claim(self, claim: Claim) -> None:
        """Check the claim with retries: a restarting name server does not stop the drain."""
        self._patience.call("looking at the claim", lambda: self._claims.check(claim))

    def _move(self, copied: Copied) -> None:
        """Move the group past what was copied; a queue's offset never goes back."""
        group = self.job.group
        self._check_members()
        is_live = bool(self._operator.members(group))
        for queue, end in sorted(copied.ends.items()):
            target = self._left_of(queue, end)
            at = self._cluster.consumer_offset(group, queue)
            if at is not None and at >= target.offset:
                continue
            if is_live:
                self._operator.reset(group, queue, target.offset)
            else:
                self._cluster.update_consumer_offset(group, queue, target)
            self._check_moved(queue, target.offset)

    def _left_of(self, queue: Queue, end: QueuePosition) -> QueuePosition:
        """Where the group continues in a queue: if it went back since it was copied, the group
        handles the new messages itself."""
        if end.epoch == UNKNOWN_EPOCH:
            return end
        now = self._cluster.end(queue, since=end.epoch)
        good = good_up_to(end, now)
        return end if end.offset <= good else QueuePosition(good, now.position.epoch)

    def _check_moved(self, queue: Queue, end: int) -> None:
        at = self._cluster.consumer_offset(self.job.group, queue)
        if at is None or at < end:
            raise JobError(
                f"group {self.job.group} is at {at} in {queue} and not at {end}, where it was"
                " moved to: a member seems to commit its own progress; stop all members and run"
                " this again"
            )

    def offsets_of(self, group: str, topic: str) -> Offsets:
        """A group's offsets in a topic; 0 where it has none."""
        queues = self._cluster.queues(topic)
        return {queue: self._cluster.consumer_offset(group, queue) or 0 for queue in queues}

    def left_by_group(self) -> dict[str, int]:
        """The groups that consume the temporary topic, and how much of it each has yet to do."""
        there = self.ends_of(self.job.to)
        return {
            group: backlog(self.offsets_of(group, self.job.to), there)
            for group in self._cluster.consuming_groups(self.job.to)
        }

    def ends_of(self, topic: str) -> Offsets:
        """Where the queues of a topic end."""
        return {queue: self._cluster.max_offset(queue) for queue in self._cluster.queues(topic)}

    def forget(self) -> None:
        """Delete the temporary topic; the next drain of this topic and group starts over."""
        self._operator.delete_topic(self.job.to)
        self._journal.put_aside()


def queues_for(copied: Copied) -> dict[str, int]:
    """How many queues the temporary topic gets on each broker."""
    counts = Counter(queue.broker_name for queue in copied.ends)
    return {name: count * TIMES for name, count in counts.items()}


# ---- the report: what a drain has done, and whether the temporary topic can be deleted


@dataclass(frozen=True, slots=True)
class DrainFigures:
    """Before and after, in numbers from the brokers."""

    copied: Copied
    group: Offsets
    """Where the slow group is now, by queue of the old topic."""
    there: Offsets
    """How many messages each queue of the temporary topic has received."""
    handled: Offsets
    """How far the group that works on the temporary topic is."""

    @property
    def twice(self) -> int:
        """Number of surplus messages in the temporary topic; negative if copies are missing."""
        return sum(self.there.values()) - self.copied.sent

    @property
    def spread(self) -> tuple[int, int]:
        """The sizes of the emptiest and the fullest queue."""
        return min(self.there.values(), default=0), max(self.there.values(), default=0)

    @property
    def left(self) -> int:
        """Number of messages in the temporary topic that are not handled yet."""
        return backlog(self.handled, self.there)

    def behind(self) -> list[Queue]:
        """Queues in which the slow group is not yet at the fixed end."""
        return [queue for queue, end in self.copied.ends.items() if self.group[queue] < end.offset]

    def open_points(self) -> list[str]:
        """Why the temporary topic cannot be deleted yet; empty if it can."""
        points = []
        if not self.copied.is_finished:
            left = self.copied.wanted - self.copied.looked_at
            points.append(f"{left:,} messages are not copied yet")
        if behind := self.behind():
            points.append(f"the group is not yet at the fixed end in {len(behind)} queues")
        if self.twice < 0:
            points.append(f"{-self.twice:,} copies are missing in the temporary topic")
        if self.left:
            points.append(f"{self.left:,} messages of the temporary topic are not handled yet")
        return points


def drain_report(drain: DrainRun, worked_by: str) -> DrainFigures:
    """The state of a drain; `worked_by` is the group that consumes the temporary topic."""
    job = drain.job
    copied = copied_from(drain.saved()["copy"])
    group = drain.offsets_of(job.group, job.topic)
    handled = drain.offsets_of(worked_by, job.to)
    return DrainFigures(copied, group, drain.ends_of(job.to), handled)
