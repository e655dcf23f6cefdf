"""What a drain has done, and whether the temporary topic can go."""

from dataclasses import dataclass

from sparrowmq.spark.jobs.copying import Copied, copied_from
from sparrowmq.spark.jobs.drain import Drain
from sparrowmq.spark.offsets import Offsets, backlog
from sparrowmq.spark.routes import Queue


@dataclass(frozen=True, slots=True)
class DrainReport:
    """Before and after, in numbers that the brokers gave."""

    copied: Copied
    group: Offsets
    """Where the slow group is now, by queue of the old topic."""
    there: Offsets
    """What each queue of the temporary topic has got."""
    handled: Offsets
    """How far the group that works on the temporary topic is."""

    @property
    def twice(self) -> int:
        """Messages of the temporary topic that are there once more than they should be."""
        return sum(self.there.values()) - self.copied.sent

    @property
    def spread(self) -> tuple[int, int]:
        """The emptiest and the fullest queue."""
        return min(self.there.values(), default=0), max(self.there.values(), default=0)

    @property
    def left(self) -> int:
        """Messages of the temporary topic that nobody has handled."""
        return backlog(self.handled, self.there)

    def behind(self) -> list[Queue]:
        """Queues in which the slow group is not yet at the fixed end."""
        return [queue for queue, end in self.copied.ends.items() if self.group[queue] < end.offset]

    def open_points(self) -> list[str]:
        """What keeps the temporary topic from being deleted; nothing when all is well."""
        points = []
        if not self.copied.is_finished:
            left = self.copied.wanted - self.copied.looked_at
            points.append(f"{left:,} messages are not copied yet")
        if behind := self.behind():
            points.append(f"the group is behind the fixed end in {len(behind)} queues")
        if self.twice < 0:
            points.append(f"{-self.twice:,} copies are missing in the temporary topic")
        if self.left:
            points.append(f"{self.left:,} messages of the temporary topic are not handled yet")
        return points


def drain_report(drain: Drain, worked_by: str) -> DrainReport:
    """The state of a drain; `worked_by` is the group that consumes the temporary topic."""
    job = drain.job
    copied = copied_from(drain.saved()["copy"])
    group = drain.offsets_of(job.group, job.topic)
    handled = drain.offsets_of(worked_by, job.to)
    return DrainReport(copied, group, drain.ends_of(job.to), handled)
