"""What a rebalance would do, computed by the code that does it: strategies and plans of the client.

    group, events ▶ for each strategy: owners ▶ plan of every member ▶ moves ▶ pause, repeats, spike

Nothing is asked and nothing is changed. Shares come from `client.strategies`, the decisions and
their reasons from `client.group.rebalance_plan`, and every time from the constant that the client
waits by. docs/rebalance.md lists the rules.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from typing import Any

from sparrowmq.admin.values import BrokerFailure
from sparrowmq.client.config import ClientConfig
from sparrowmq.client.group.member_settings import PERSIST_S
from sparrowmq.client.group.queue_handover import HAND_OVER_S, LEASE_S
from sparrowmq.client.group.rebalance_plan import Action, Reason, plan_rebalance
from sparrowmq.client.group.rebalance_signal import AT_ONCE_S, MERGE_S
from sparrowmq.client.strategies import NAMED, strategy_named
from sparrowmq.client.strategies.strategy import Owners, Strategy
from sparrowmq.protocol.message import MessageQueue

_DEFAULTS: dict[str, Any] = {each.name: each.default for each in fields(ClientConfig)}
ROUTE_POLL_S: float = _DEFAULTS["route_poll_s"]
ROUND_S: float = _DEFAULTS["rebalance_s"]
"""How often members check on their own: Java's RebalanceService as well as ours."""
SESSION_S = 4.0
"""A silent member that uses SparrowMQ's client counts as dead after this, at SparrowMQ's brokers
(`session_timeout_s`); the broker checks every second."""
JAVA_SILENCE_S = 120.0
"""The same for other clients, and at Apache's brokers."""
MOST_QUEUES = 4096
MOST_MEMBERS = 1000


class EventKind(StrEnum):
    """What happens to a group."""

    JOIN = "join"
    LEAVE = "leave"
    KILL = "kill"
    VANISH = "vanish"
    QUEUES = "queues"
    BROKER = "broker"


@dataclass(frozen=True, slots=True)
class RebalanceEvent:
    """Something that starts a rebalance. `name` is a member or a broker, empty for the next one;
    `queues` how many each broker has then."""

    what: EventKind
    name: str = ""
    queues: int = 0

    def __str__(self) -> str:
        if self.what is EventKind.QUEUES:
            return f"queues={self.queues}"
        return f"{self.what}={self.name}" if self.name else self.what.value


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedGroup:
    """A group before the events."""

    queues: tuple[MessageQueue, ...]
    members: tuple[str, ...]
    others: frozenset[str] = frozenset()
    """Members with other clients: Java's and Go's neither lock nor wait for each other."""
    joins_as_other: bool = False
    """Whether a member that joins is one of `others`."""
    owners: Mapping[MessageQueue, str] = field(default_factory=dict)
    """Which member holds which queue now; known for live groups only."""
    strategy: str = ""
    """The strategy in use, which led to `owners`."""
    per_s: float = 1000.0
    """Messages that arrive per second, in all queues together."""
    handler_s: float = 0.1
    """How long a handler call takes."""
    in_flight: Mapping[MessageQueue, int] = field(default_factory=dict)
    """Messages that members have fetched and not finished, if known."""
    lag: Mapping[MessageQueue, int] = field(default_factory=dict)
    """Messages that wait before any event, those in flight among them; for live groups only."""
    errors: tuple[BrokerFailure, ...] = ()
    """Brokers that did not answer: their rates and what waits there are missing."""

    def __post_init__(self) -> None:
        """Raises ValueError."""
        if not 1 <= len(self.queues) <= MOST_QUEUES:
            raise ValueError(f"{len(self.queues)} queues, must be 1 to {MOST_QUEUES}")
        if not 1 <= len(self.members) <= MOST_MEMBERS:
            raise ValueError(f"{len(self.members)} members, must be 1 to {MOST_MEMBERS}")


def described_group(
    queues: int, members: int, *, brokers: Sequence[str] = ("a",), java: bool = False
) -> SimulatedGroup:
    """A group by its numbers: queues of each broker, and members named member-1, member-2 …
    Raises ValueError."""
    if not 1 <= members <= MOST_MEMBERS:
        raise ValueError(f"{members} members, must be 1 to {MOST_MEMBERS}")
    names = tuple(f"member-{number}" for number in range(1, members + 1))
    found = tuple(
        MessageQueue("topic", _broker_name(broker), number)
        for broker in brokers
        for number in range(queues)
    )
    others = frozenset(names) if java else frozenset()
    return SimulatedGroup(
        queues=tuple(sorted(found)), members=names, others=others, joins_as_other=java
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """A queue whose owner differs before and after an event."""

    queue: MessageQueue
    giver: str | None
    """None for a new queue, or one whose owner was not known."""
    taker: str | None
    """None where no member is left."""
    why: str
    pause_s: float
    """Seconds in which no member starts on a message of it, typically."""
    longest_s: float
    """The same at worst."""
    repeated: int
    """Messages that may be delivered again."""
    waiting: int
    """Messages that the new owner finds: those that waited or are repeated, and those that have
    arrived meanwhile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedStep:
    """One event under one strategy."""

    event: RebalanceEvent
    members: tuple[str, ...]
    """After it."""
    owners: Owners
    moves: tuple[Move, ...]

    @property
    def skew(self) -> int:
        """By how many queues the largest share exceeds the smallest."""
        return skew_of(self.owners, self.members)

    @property
    def pause_s(self) -> float:
        """The longest pause of a queue, as a rule."""
        return max((move.pause_s for move in self.moves), default=0.0)

    @property
    def longest_s(self) -> float:
        """The longest pause of a queue, at worst."""
        return max((move.longest_s for move in self.moves), default=0.0)

    @property
    def repeated(self) -> int:
        """Messages that may be delivered again."""
        return sum(move.repeated for move in self.moves)

    @property
    def spike(self) -> int:
        """The most messages that one member finds waiting in the queues that it takes."""
        loads: Counter[str | None] = Counter()
        for move in self.moves:
            loads[move.taker] += move.waiting
        return max(loads.values(), default=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class RebalanceSimulation:
    """What the events do to a group under one strategy."""

    strategy: str
    members: tuple[str, ...]
    """Before the first event."""
    owners: Owners
    steps: tuple[SimulatedStep, ...]
    is_in_use: bool = False

    @property
    def moves(self) -> int:
        """How many queues change their owner, in all events; new queues do not count."""
        return sum(move.giver is not None for step in self.steps for move in step.moves)

    @property
    def skew(self) -> int:
        """The worst skew, including that before the first event."""
        before = skew_of(self.owners, self.members)
        return max([before, *(step.skew for step in self.steps)])

    @property
    def pause_s(self) -> float:
        """The longest pause of a queue, as a rule."""
        return max((step.pause_s for step in self.steps), default=0.0)

    @property
    def longest_s(self) -> float:
        """The longest pause of a queue, at worst."""
        return max((step.longest_s for step in self.steps), default=0.0)

    @property
    def repeated(self) -> int:
        """Messages that may be delivered again, in all events."""
        return sum(step.repeated for step in self.steps)

    @property
    def spike(self) -> int:
        """The most messages that one member finds waiting after one event."""
        return max((step.spike for step in self.steps), default=0)


def skew_of(owners: Mapping[MessageQueue, str], members: Sequence[str]) -> int:
    """By how many queues the largest share exceeds the smallest."""
    if not members:
        return 0
    loads = Counter(owners.values())
    shares = [loads[member] for member in members]
    return max(shares) - min(shares)


# ---- events


def read_event(text: str) -> RebalanceEvent:
    """Parse `join`, `kill=member-2`, `queues=24`, `broker=c`. Raises ValueError that says what is
    allowed."""
    word, has_value, value = text.partition("=")
    allowed = "join, leave, kill, vanish (each also with =MEMBER), queues=N or broker=NAME"
    if word not in set(EventKind):
        raise ValueError(f"{text!r} is not an event; there are {allowed}")
    what = EventKind(word)
    if has_value and not value:
        raise ValueError(f"{text!r} has nothing after '='; there are {allowed}")
    if what is EventKind.QUEUES:
        if not value.isdecimal() or not 1 <= int(value) <= MOST_QUEUES:
            raise ValueError(f"{text!r}: write queues=N with 1 to {MOST_QUEUES} queues per broker")
        return RebalanceEvent(what, queues=int(value))
    if what is EventKind.BROKER and not value:
        raise ValueError(f"{text!r}: write broker=NAME, the one that is added")
    return RebalanceEvent(what, value)


def after_event(
    group: SimulatedGroup, event: RebalanceEvent
) -> tuple[SimulatedGroup, RebalanceEvent]:
    """The group after an event, and the event with the name it got. Raises ValueError for a member
    that does not exist, or already exists."""
    match event.what:
        case EventKind.JOIN:
            name = event.name or _next_member(group.members)
            if name in group.members:
                raise ValueError(f"member {name} cannot join: it is one already")
            others = group.others | {name} if group.joins_as_other else group.others
            joined = replace(group, members=tuple(sorted({*group.members, name})), others=others)
            return joined, replace(event, name=name)
        case EventKind.LEAVE | EventKind.KILL | EventKind.VANISH:
            name = event.name or group.members[-1]
            left = tuple(each for each in group.members if each != name)
            if len(left) == len(group.members):
                known = ", ".join(group.members)
                raise ValueError(f"there is no member {name} to {event.what}; there are {known}")
            if not left:
                raise ValueError(f"{name} is the last member: after {event} there is none to share")
            return replace(group, members=left), replace(event, name=name)
        case EventKind.QUEUES:
            brokers = {queue.broker_name for queue in group.queues}
            return replace(group, queues=_queues(group, brokers, event.queues)), event
        case EventKind.BROKER:
            name = _broker_name(event.name)
            sizes = Counter(queue.broker_name for queue in group.queues)
            if name in sizes:
                raise ValueError(f"broker {name} has queues already")
            size = max(sizes.values()) // len({queue.topic for queue in group.queues})
            more = _queues(group, {name}, size)
            return replace(group, queues=tuple(sorted((*group.queues, *more)))), event


def _queues(group: SimulatedGroup, brokers: set[str], size: int) -> tuple[MessageQueue, ...]:
    topics = {queue.topic for queue in group.queues}
    return tuple(
        MessageQueue(topic, broker, number)
        for topic in sorted(topics)
        for broker in sorted(brokers)
        for number in range(size)
    )


def _broker_name(text: str) -> str:
    return text if len(text) > 1 else f"broker-{text}"


def _next_member(members: Sequence[str]) -> str:
    number = len(members) + 1
    while f"member-{number}" in members:
        number += 1
    return f"member-{number}"


# ---- shares, by the client's own code


def shares_of(
    strategy: Strategy,
    queues: Sequence[MessageQueue],
    members: Sequence[str],
    previous: Mapping[MessageQueue, str],
) -> Owners:
    """Which member gets which queues, as every member computes it: by topic, from sorted lists."""
    owners: Owners = {}
    for topic in sorted({queue.topic for queue in queues}):
        mine = sorted(queue for queue in queues if queue.topic == topic)
        if strategy.plan is not None:
            owners |= strategy.plan(mine, sorted(members), previous)
            continue
        for member in sorted(members):
            owners |= dict.fromkeys(strategy("simulated", member, mine, sorted(members)), member)
    return owners


def simulate(
    group: SimulatedGroup, events: Sequence[RebalanceEvent], strategies: Sequence[str] = ()
) -> list[RebalanceSimulation]:
    """Simulate the events under every strategy. Raises ValueError for an impossible event or
    strategy."""
    names = strategies or list(NAMED)
    return [_simulation(group, events, strategy_named(name)) for name in names]


def _simulation(
    group: SimulatedGroup, events: Sequence[RebalanceEvent], strategy: Strategy
) -> RebalanceSimulation:
    is_in_use = bool(group.owners) and strategy.name == group.strategy
    known = dict(group.owners) if is_in_use else {}
    owners = known or shares_of(strategy, group.queues, group.members, {})
    steps: list[SimulatedStep] = []
    first, now, before = owners, group, owners
    for event in events:
        after, named = after_event(now, event)
        owners = shares_of(strategy, after.queues, after.members, _surviving(before, after))
        moves = tuple(_moves(now, after, named, before, owners))
        steps.append(SimulatedStep(event=named, members=after.members, owners=owners, moves=moves))
        now, before = after, owners
    return RebalanceSimulation(
        strategy=strategy.name,
        members=group.members,
        owners=first,
        steps=tuple(steps),
        is_in_use=is_in_use,
    )


def _surviving(owners: Owners, after: SimulatedGroup) -> Owners:
    """What brokers still know: the queues of a member that left have no owner."""
    return {queue: member for queue, member in owners.items() if member in after.members}


# ---- moves, by the client's own plans and times


def _moves(
    before: SimulatedGroup,
    after: SimulatedGroup,
    event: RebalanceEvent,
    held: Owners,
    assigned: Owners,
) -> Iterator[Move]:
    dropped, taken = _decisions(after, held, assigned)
    in_route = set(after.queues)
    for queue in sorted({*held, *assigned}):
        giver, taker = held.get(queue), assigned.get(queue)
        if giver == taker:
            continue
        if queue not in in_route:
            why = Reason.NOT_IN_ROUTE.value
        elif giver is None:
            why = "new"
        elif giver not in after.members:
            why = f"{giver} {_WENT[event.what]}"
        else:
            why = dropped.get(queue, taken.get(queue, Reason.ASSIGNED)).value
        # Between members that stay it is a planned hand-over, whatever happened to a third one.
        is_planned = giver in after.members and event.what not in _OF_ROUTES
        what = EventKind.JOIN if is_planned else event.what
        yield _timed(before, what, queue, giver, taker, why)


_OF_ROUTES = (EventKind.QUEUES, EventKind.BROKER)
_WENT = {EventKind.LEAVE: "left", EventKind.KILL: "was killed", EventKind.VANISH: "vanished"}


def _decisions(
    after: SimulatedGroup, held: Owners, assigned: Owners
) -> tuple[dict[MessageQueue, Reason], dict[MessageQueue, Reason]]:
    """What the members that exist after the event decide, each on its own."""
    dropped: dict[MessageQueue, Reason] = {}
    taken: dict[MessageQueue, Reason] = {}
    in_route = set(after.queues)
    for member in after.members:
        has = {queue for queue, owner in held.items() if owner == member}
        gets = {queue for queue, owner in assigned.items() if owner == member}
        plan = plan_rebalance(has, gets, in_route, {})
        dropped |= plan.reasons(Action.DROP)
        taken |= plan.reasons(Action.TAKE)
    return dropped, taken


def _timed(
    group: SimulatedGroup,
    what: EventKind,
    queue: MessageQueue,
    giver: str | None,
    taker: str | None,
    why: str,
) -> Move:
    # A member that joins is not in the group before the event.
    others = group.others if taker in group.members or not group.joins_as_other else {taker}
    is_ours = not {giver, taker} & {*others, *group.others}
    if what in _OF_ROUTES:
        pause_s, longest_s = _route_pause(is_new=giver is None, is_ours=is_ours)
    else:
        pause_s, longest_s = _pause(what, group.handler_s, is_ours=is_ours)
    if giver is None and what not in _OF_ROUTES:
        pause_s = longest_s = 0.0  # it had no owner before, so the event costs it nothing
    per_s = group.per_s / max(1, len(group.queues))
    repeated = 0 if giver is None else _repeated(group, what, queue, per_s, is_ours=is_ours)
    return Move(
        queue=queue,
        giver=giver,
        taker=taker,
        why=why,
        pause_s=pause_s,
        longest_s=longest_s,
        repeated=repeated,
        waiting=round(per_s * pause_s) + max(repeated, group.lag.get(queue, 0)),
    )


def _pause(what: EventKind, handler_s: float, *, is_ours: bool) -> tuple[float, float]:
    """How long no member starts on a message of a moving queue: typically, and at worst."""
    if not is_ours:
        # Brokers notify members, which look at once, at most every second; a member that misses
        # it looks at its next round. The silence of a host is noticed late.
        noticed_s = JAVA_SILENCE_S if what is EventKind.VANISH else 0.0
        return noticed_s + MERGE_S, noticed_s + ROUND_S
    if what is EventKind.KILL:
        return AT_ONCE_S, MERGE_S
    if what is EventKind.VANISH:
        return SESSION_S + AT_ONCE_S, SESSION_S + MERGE_S
    # A planned hand-over: the giver's handlers finish, then the queue is free at once. A handler
    # that takes longer than the limit loses the queue while it works.
    finished_s = min(handler_s, HAND_OVER_S)
    return finished_s + AT_ONCE_S, min(HAND_OVER_S + MERGE_S, LEASE_S)


def _route_pause(*, is_new: bool, is_ours: bool) -> tuple[float, float]:
    """The same after a route change, which each member discovers by polling, at its own time.

    A new queue waits for its owner to poll: half an interval on average. An old one waits only if
    its giver polled before its taker: a sixth on average, which is the mean of the positive part of
    the difference of two moments in one interval. Java's members then wait for their next round.
    """
    interval_s = ROUTE_POLL_S + (0.0 if is_ours else ROUND_S)
    return interval_s / (2 if is_new else 6), interval_s + MERGE_S


def _repeated(
    group: SimulatedGroup, what: EventKind, queue: MessageQueue, per_s: float, *, is_ours: bool
) -> int:
    """Messages that the giver has started, or finished without storing its progress."""
    working = group.in_flight.get(queue, round(per_s * group.handler_s))
    if what in (EventKind.KILL, EventKind.VANISH):
        return working + round(per_s * PERSIST_S)
    if is_ours:
        return working if group.handler_s > HAND_OVER_S else 0
    return working
