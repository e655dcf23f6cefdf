"""How a group's queues moved between two looks.

Members know their progress at once, brokers only after members commit it, every few seconds. So a
member's answer is preferred; a broker's counts if the two looks are further apart than a commit.
"""

from dataclasses import dataclass

from sparrowmq.admin.doctor.facts import GroupFacts, GroupLook
from sparrowmq.admin.lag import QueueLag
from sparrowmq.protocol.message import MessageQueue

COMMIT_S = 5.0
"""How often clients of all languages commit, unless set otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueProgress:
    """One queue at both looks."""

    queue: MessageQueue
    before: int
    after: int
    end_before: int
    end_after: int
    owner: str | None
    is_certain: bool
    """Whether an unchanged offset means that nothing moved."""

    @property
    def lag_before(self) -> int:
        """Messages that waited at the first look."""
        return max(0, self.end_before - self.before)

    @property
    def lag_after(self) -> int:
        """Messages that waited at the second look."""
        return max(0, self.end_after - self.after)

    @property
    def stands_still(self) -> bool:
        """Whether messages waited all the time and none was finished."""
        return self.after == self.before and self.lag_before > 0


def progress_of(facts: GroupFacts) -> list[QueueProgress]:
    """Every queue that both looks know, without those in which the group has never been."""
    first = {each.queue: each for each in facts.first.queues}
    owners = owners_of(facts.second)
    found = []
    for now in facts.second.queues:
        then = first.get(now.queue)
        if then is None:
            continue
        owner = owners.get(now.queue)
        told = _told(facts.first, owner, then), _told(facts.second, owner, now)
        before, after = told
        is_told = before is not None and after is not None
        if before is None or after is None:
            before, after = _stored(then), _stored(now)
        found.append(
            QueueProgress(
                queue=now.queue,
                before=before,
                after=after,
                end_before=then.broker_offset,
                end_after=now.broker_offset,
                owner=owner or now.owner,
                is_certain=is_told or facts.window_s > COMMIT_S,
            )
        )
    return found


def _stored(queue: QueueLag) -> int:
    return max(queue.min_offset, queue.consumer_offset or 0)


def _told(look: GroupLook, owner: str | None, queue: QueueLag) -> int | None:
    """What the owner itself reports; it answers 0 if it does not know."""
    info = look.members.get(owner or "")
    held = None if info is None else info.mq_table.get(queue.queue)
    return None if held is None else max(queue.min_offset, held.commit_offset)


def owners_of(look: GroupLook) -> dict[MessageQueue, str]:
    """Which member holds each queue, according to the members."""
    return {
        queue: client_id
        for client_id, info in sorted(look.members.items())
        if info is not None
        for queue, held in info.mq_table.items()
        if not held.dropped
    }
