"""Scorecard row 20: what clients did and saw while all faults happened at once, and its judge.

Every message has an id, and a body computed from it. It counts as `ok` only when its send said so;
any other end leaves it unknown. At the end, when everything is healed and drained:

```
lost       ok, and neither read by any group nor in the log
skipped    ok, and not handled by a group (or a broadcasting member) that had to see it
excused    a power cut under asynchronous flush left no record of it, half a second after its answer
           at most; or it expired, its topic was deleted, or its group was moved past it
```
"""

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from tests.faults.checker import MessageId, State, body_of

UNSYNCED_S = 0.6
"""The most that a power cut may take under asynchronous flush: half a second, and two syncs."""
TICK_S = 0.002
"""Clocks tell milliseconds."""
LATE_S = 40.0
"""A delayed message may be late by so much, and by every fault and backward step on its way."""
_SHOWN = 4


class Kind(StrEnum):
    """How a message is sent, and what becomes of it."""

    SINGLE = "single"
    BATCH = "batch"
    ONE_WAY = "one-way"
    ORDERED = "ordered"
    LEVEL = "level"
    TIME = "time"
    COMMIT = "commit"
    ROLLBACK = "rollback"
    RETRIED = "retried"
    """Its handler fails at first."""
    POISON = "poison"
    """Its handler always fails: it ends among the dead letters."""


@dataclass(slots=True)
class Sending:
    """A message and what its sender knows about it."""

    message: MessageId
    topic: str
    kind: Kind
    attempted_s: float
    attempted_ms: int
    """By the clock of that moment."""
    delay_s: float = 0.0
    state: State = State.UNKNOWN
    acknowledged_s: float = float("inf")

    @property
    def due_ms(self) -> int:
        """When it is to be delivered, by the clock of the moment in which it was sent."""
        return self.attempted_ms + round(self.delay_s * 1000)


@dataclass(slots=True)
class Call:
    """A handler was given a message."""

    group: str
    member: str
    topic: str
    queue_id: int
    message: MessageId
    began_s: float
    clock_ms: int
    ended_s: float | None = None
    """None: it never returned."""
    is_done: bool = False
    """It returned; else it raised, or never ended."""


@dataclass(slots=True)
class Fault:
    """Something happened, from when until when."""

    kind: str
    began_s: float
    ended_s: float = float("inf")
    members: tuple[str, ...] = ()
    """To which it happened; to a server, where there are none."""
    step_s: float = 0.0
    """By which the clock was set forward."""


@dataclass(slots=True)
class Cut:
    """The power failed; no record was left of some messages."""

    at_s: float
    vanished: set[MessageId] = field(default_factory=set)
    copied: set[MessageId] = field(default_factory=set)
    """Those that lost a copy, such as the one that was to come again, and those above."""


@dataclass(slots=True)
class Reset:
    """An operator moved a group back in a queue: these messages are to come again."""

    at_s: float
    again: set[MessageId]


@dataclass
class Story:
    """Everything that happened."""

    seed: int
    sync_flush: bool
    unsynced_s: float = UNSYNCED_S
    groups: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Group, or broadcasting member, to the topics of which it must see everything."""
    ordered: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Group to the topics that it handles in order."""
    dead_letter_topic: dict[str, str] = field(default_factory=dict)
    """Who reads the dead letters of which group."""
    sendings: dict[MessageId, Sending] = field(default_factory=dict)
    calls: list[Call] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    cuts: list[Cut] = field(default_factory=list)
    resets: dict[tuple[str, str, int], Reset] = field(default_factory=dict)
    """The last of each group, topic and queue."""
    excused: dict[str, set[MessageId]] = field(default_factory=lambda: defaultdict(set))
    """Group, or "" for all of them, to what it need not see."""
    logged: set[MessageId] = field(default_factory=set)
    """What the log holds in the end."""
    seen_wrong: list[str] = field(default_factory=list)
    """What was wrong when it was looked at: bodies, committed offsets, backlogs."""
    stalls: list[tuple[float, str]] = field(default_factory=list)
    """Milliseconds for which a callback held the broker's loop, and where."""
    ended: dict[str, set[MessageId]] = field(default_factory=lambda: defaultdict(set))
    """Group to the messages whose handler has returned, successfully or not."""

    def excuse(self, messages: Iterable[MessageId], group: str = "") -> None:
        """A group, or all of them, need not see these."""
        self.excused[group].update(messages)

    def end(self, call: Call, at_s: float, *, is_done: bool) -> None:
        """A handler returned, or raised."""
        call.ended_s, call.is_done = at_s, is_done
        self.ended[call.group].add(call.message)

    def owed(self, group: str) -> set[MessageId]:
        """What a group still has to handle, as far as is known by now."""
        topics = self.groups[group]
        sent = {
            one.message for one in self.sendings.values() if one.topic in topics and is_owed(one)
        }
        gone = set().union(*(cut.vanished for cut in self.cuts))
        return sent - self.ended[group] - self.excused[""] - self.excused[group] - gone

    def take(self, body: bytes, where: str) -> MessageId | None:
        """The message with this body; None, and recorded, if the body is invented or damaged."""
        message = identify(body)
        if message is None or message not in self.sendings:
            self.seen_wrong.append(f"phantom {where}: {body[:40]!r}")
            return None
        if body != body_of(message):
            self.seen_wrong.append(f"damaged {where}: {message}")
            return None
        return message


def identify(body: bytes) -> MessageId | None:
    """The id that a body begins with."""
    text, bar, _ = body.partition(b"|")
    if not bar or len(text) > 40:
        return None
    try:
        return MessageId.parse(text.decode())
    except ValueError:
        return None


@dataclass
class Judged:
    """What a story comes to."""

    story: Story
    lost: int = 0
    skipped: int = 0
    out_of_order: int = 0
    unsynced: int = 0
    """Acknowledged and gone with the power, as asynchronous flush allows."""
    repeated: int = 0
    problems: list[str] = field(default_factory=list)

    def __bool__(self) -> bool:
        return not self.problems

    @property
    def faults(self) -> int:
        """How many there were."""
        return len(self.story.faults)

    @property
    def ok(self) -> int:
        """How many messages were acknowledged."""
        return sum(one.state is State.OK for one in self.story.sendings.values())

    def __str__(self) -> str:
        kinds = Counter(fault.kind for fault in self.story.faults)
        faults = ", ".join(f"{count} × {kind}" for kind, count in sorted(kinds.items()))
        flush = "sync" if self.story.sync_flush else "async"
        return (
            f"seed {self.story.seed}, {flush} flush: {self.faults} faults ({faults}),"
            f" {len(self.story.sendings)} sent, {self.ok} ok, {len(self.story.calls)} handled,"
            f" {self.repeated} repeated, {self.unsynced} unsynced:"
            f" {'; '.join(self.problems[:_SHOWN]) or 'nothing wrong'}"
        )


def judge(story: Story) -> Judged:
    """Compare the promises with the observations."""
    judged = Judged(story)
    judged.problems += story.seen_wrong[: 2 * _SHOWN]
    excused = _excused_by_cuts(story, judged)
    _judge_delivery(story, judged, excused)
    _judge_retries(story, judged)
    _judge_resets(story, judged, excused)
    _judge_order(story, judged)
    _judge_overlaps(story, judged)
    _judge_times(story, judged)
    rolled_back = {
        one.message for one in story.calls if story.sendings[one.message].kind is Kind.ROLLBACK
    }
    judged.problems += listed("rolled back and delivered", rolled_back)
    places = {(one.group, one.message) for one in story.calls if one.is_done}
    judged.repeated = sum(one.is_done for one in story.calls) - len(places)
    return judged


def _excused_by_cuts(story: Story, judged: Judged) -> set[MessageId]:
    """Messages of which nothing is left, with good reason."""
    excused: set[MessageId] = set()
    too_old = set()
    for cut in story.cuts:
        for message in cut.vanished:
            sending = story.sendings[message]
            excused.add(message)
            if sending.state is not State.OK or sending.acknowledged_s > cut.at_s:
                continue
            judged.unsynced += 1
            if story.sync_flush or cut.at_s - sending.acknowledged_s > story.unsynced_s:
                too_old.add(message)
    judged.lost += len(too_old)
    judged.problems += listed("acknowledged and not durable in a power cut", too_old)
    return excused


def _judge_delivery(story: Story, judged: Judged, excused: set[MessageId]) -> None:
    everywhere = set().union(*story.ended.values()) | story.logged
    owed = {one.message for one in story.sendings.values() if is_owed(one)}
    lost = owed - everywhere - excused - story.excused[""]
    judged.lost += len(lost)
    judged.problems += listed("lost", lost)
    for group in story.groups:
        missed = story.owed(group) - lost
        judged.skipped += len(missed)
        judged.problems += listed(f"skipped by {group}", missed)


def is_owed(sending: Sending) -> bool:
    """Whether every group of its topic has to see it."""
    return sending.state is State.OK and sending.kind is not Kind.ROLLBACK


def _judge_retries(story: Story, judged: Judged) -> None:
    """A failed message is retried until it succeeds or becomes a dead letter.

    Where the power may take acknowledged records, it may take the copy to be redelivered.
    """
    excused = story.excused[""]
    if not story.sync_flush:
        excused = excused.union(*(cut.copied for cut in story.cuts))
    for reader, group in story.dead_letter_topic.items():
        succeeded = {one.message for one in story.calls if one.group == group and one.is_done}
        failed = {one.message for one in story.calls if one.group == group} - excused
        dead = story.ended[reader]
        poison = {one for one in failed if story.sendings[one].kind is Kind.POISON}
        # What is handled again and again, because the group was moved back, may die of it.
        retried = {one for one in failed if story.sendings[one].kind is Kind.RETRIED}
        judged.problems += listed("neither handled nor among the dead letters", poison - dead)
        judged.problems += listed("failed and did not come again", retried - succeeded - dead)


def _judge_resets(story: Story, judged: Judged, excused: set[MessageId]) -> None:
    """A group sees messages again after a rewind: an acknowledged rewind survives every crash."""
    missed: list[str] = []
    for (group, topic, queue_id), reset in story.resets.items():
        again = {
            call.message
            for call in story.calls
            if call.group == group and (call.ended_s or 0.0) >= reset.at_s
        }
        left = reset.again - again - excused - story.excused[""]
        missed += [f"{message} by {group} in {topic}/{queue_id}" for message in left]
    judged.skipped += len(missed)
    judged.problems += listed("not handled again after a reset", missed)


def _judge_order(story: Story, judged: Judged) -> None:
    """Messages of one sender in one queue are handled first in the order of their answers."""
    wrong: list[str] = []
    newest: dict[tuple[str, str, str, int], MessageId] = {}
    seen: set[tuple[str, MessageId]] = set()
    for call in sorted(story.calls, key=lambda call: call.began_s):
        if (
            call.topic not in story.ordered.get(call.group, ())
            or (call.group, call.message) in seen
        ):
            continue
        seen.add((call.group, call.message))
        if story.sendings[call.message].state is not State.OK:
            continue
        lane = call.group, call.message.producer, call.topic, call.queue_id
        before = newest.get(lane)
        if before is not None and before.number > call.message.number:
            wrong.append(f"{call.message} after {before} in {call.topic}/{call.queue_id}")
        else:
            newest[lane] = call.message
    judged.out_of_order += len(wrong)
    judged.problems += listed("out of order", wrong)


def _judge_overlaps(story: Story, judged: Judged) -> None:
    """No two members work on one ordered queue, unless one of them is frozen."""
    wrong: list[str] = []
    last: dict[tuple[str, str, int], Call] = {}
    for call in sorted(story.calls, key=lambda call: call.began_s):
        if call.topic not in story.ordered.get(call.group, ()):
            continue
        queue = call.group, call.topic, call.queue_id
        before = last.get(queue)
        if before is not None and call.began_s < _works_until_s(story, before):
            wrong.append(f"{call.topic}/{call.queue_id} by {call.member} and {before.member}")
        last[queue] = call
    judged.out_of_order += len(wrong)
    judged.problems += listed("two workers at once", wrong)


def _works_until_s(story: Story, call: Call) -> float:
    ends_s = float("inf") if call.ended_s is None else call.ended_s
    stops = (
        fault.began_s
        for fault in story.faults
        if call.member in fault.members and call.began_s <= fault.began_s < ends_s
    )
    return min(stops, default=ends_s)


def _judge_times(story: Story, judged: Judged) -> None:
    """Nothing delayed is early, by the clock and by the time that passed; nor late by itself."""
    first: dict[MessageId, Call] = {}
    for call in sorted(story.calls, key=lambda call: call.began_s):
        first.setdefault(call.message, call)
    early, late = [], []
    for sending in story.sendings.values():
        if sending.message not in first or not sending.delay_s:
            continue
        call = first[sending.message]
        waited_s = call.began_s - sending.attempted_s
        # A level is a delay in time that passes, a time is one of the clock.
        is_due = sending.kind is Kind.TIME and call.clock_ms >= sending.due_ms
        if not is_due and waited_s < sending.delay_s - TICK_S:
            early.append(f"{sending.message} after {waited_s:.3f} s, {sending.delay_s} s asked for")
        disturbed_s = _disturbed_s(story, sending, call.began_s)
        if waited_s > sending.delay_s + LATE_S + disturbed_s:
            late.append(f"{sending.message} after {waited_s:.0f} s, {sending.delay_s} s asked for")
    judged.problems += listed("early", early) + listed("late", late)


def _disturbed_s(story: Story, sending: Sending, until_s: float) -> float:
    """How long faults lasted while a message waited, and how far they set its clock back."""
    total_s = 0.0
    for fault in story.faults:
        if sending.attempted_s <= fault.ended_s and fault.began_s <= until_s:
            total_s += min(fault.ended_s, until_s) - fault.began_s
            total_s += max(0.0, -fault.step_s) if sending.kind is Kind.TIME else 0.0
    return total_s


def listed(kind: str, found: Iterable[object]) -> list[str]:
    """One text for all that was found, none for nothing."""
    every = sorted(map(str, found))
    if not every:
        return []
    more = ", …" if len(every) > _SHOWN else ""
    return [f"{len(every)} {kind}: {', '.join(every[:_SHOWN])}{more}"]
