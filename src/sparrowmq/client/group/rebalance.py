"""Who consumes which queues: a pure plan, computed alike by every member alone."""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Set
from contextlib import suppress
from dataclasses import dataclass

from sparrowmq.backoff import Backoff
from sparrowmq.client.broker_calls import group_members, queue_owners
from sparrowmq.client.client import Client
from sparrowmq.client.errors import ClientError, StrategyFailed
from sparrowmq.client.failures import ends_caller
from sparrowmq.client.group.assignment import MISSED_S, NEVER, Assignment
from sparrowmq.client.route_table import subscribe_queues
from sparrowmq.client.strategies import Strategy
from sparrowmq.net.errors import NetError
from sparrowmq.protocol.errors import ProtocolError
from sparrowmq.protocol.message import MessageQueue
from sparrowmq.protocol.names import is_retry_topic

# Queues that the application chose by itself: held until it chooses others, whoever has them.


class ByHand:
    """Choices take turns, so that the last one is what is held. What could not be given up or taken
    at once, and what an operator's reset dropped, follows in the rounds of the rebalance."""

    def __init__(self, assignment: Assignment) -> None:
        self._assignment = assignment
        self._chosen: frozenset[MessageQueue] = frozenset()
        self._turn = asyncio.Lock()

    async def choose(
        self, queues: Collection[MessageQueue], look_up: Callable[[], Awaitable[None]]
    ) -> float:
        """Hold exactly these; when to try again what did not succeed. Nothing changes where
        `look_up` raises."""
        async with self._turn:
            await look_up()
            self._chosen = frozenset(queues)
            return await self._settle()

    async def settle(self) -> float:
        """Hold what was chosen; when to try again what did not succeed."""
        async with self._turn:
            return await self._settle()

    async def _settle(self) -> float:
        assignment = self._assignment
        gone = assignment.held.keys() - self._chosen | assignment.leaving()
        given_up = await assignment.give_up(gone, "not assigned any more")
        taken = await assignment.take(self._chosen)
        return min(given_up.again_s, taken.again_s)


@dataclass(frozen=True, slots=True)
class RebalancePlan:
    """What changes: queues to give up and queues to take."""

    drop: frozenset[MessageQueue]
    take: frozenset[MessageQueue]

    @property
    def is_empty(self) -> bool:
        """Whether everything stays as it is."""
        return not self.drop and not self.take


def plan_rebalance(
    held: Set[MessageQueue],
    assigned: Set[MessageQueue],
    anew: Set[MessageQueue] = frozenset(),
) -> RebalancePlan:
    """The difference between what a member has and what it should have.

    A held queue that is among `anew` is given up and taken again.
    """
    drop = (held - assigned) | (held & anew)
    return RebalancePlan(drop=frozenset(drop), take=frozenset(assigned - (held - drop)))


# Rebalance rounds: per topic look who is there, allocate, drop, take, tell.
#
# A round that fails for one topic changes nothing there and never stops the others. What a round
# does is logged, step by step, at level DEBUG by the logger `sparrowmq.client.rebalance`.


MERGE_S = 1.0
"""Wake-ups closer together than this share one round."""
AT_ONCE_S = 0.02
"""Queues that become free together, or may be given up together, do so within this time."""
NO_TOPIC = (
    "topic {topic} does not exist and is waited for;"
    " send to it, or create it with: sparrowmq topic create {topic}"
)


class Rebalancing:
    """Runs rounds when the timer, the broker, a route or the user says so."""

    def __init__(
        self,
        client: Client,
        group: str,
        strategy: Strategy,
        assignment: Assignment,
        *,
        is_broadcasting: bool,
        drops_silent: bool,
        topics: Callable[[], Iterable[str]],
        changed: Callable[[str, list[MessageQueue]], Awaitable[None]],
        log: logging.Logger,
    ) -> None:
        self._client = client
        self._group = group
        self._strategy = strategy
        self._assignment = assignment
        self._is_broadcasting = is_broadcasting
        self._drops_silent = drops_silent
        self._topics = topics
        self._changed = changed
        self._log = log
        self._interval_s = client.config.rebalance_s
        self._silence_s = client.config.pull_silence_s
        self._pauses = Backoff(first_s=MISSED_S, longest_s=self._interval_s)
        """For a topic that does not exist, or whose rounds fail unexpectedly."""
        self._steps = log.getChild("rebalance")
        self._wake_up = asyncio.Event()
        self._at_once = asyncio.Event()
        self._is_changed = False
        self._idle_reason: str | None = None
        self._missing: Counter[str] = Counter()
        self._failed: Counter[str] = Counter()
        self._told: set[str] = set()
        """Topics that do not work and were complained about."""
        self._is_settling = False
        self.by_hand: ByHand | None = None
        """Where the application chooses queues: then rounds see to it that those are held."""

    def wake(self) -> None:
        """Something changed: look again soon."""
        self._is_changed = True
        self._wake_up.set()

    def wake_at_once(self) -> None:
        """What the last round missed can be done now, and messages wait for nothing else."""
        self._at_once.set()
        self._wake_up.set()

    async def run(self) -> None:
        """Rounds for ever."""
        loop = asyncio.get_running_loop()
        while True:
            self._clear()
            began_s = loop.time()
            again_s = await self.round()
            if again_s >= self._interval_s and not self._is_changed:
                self._clear()  # whatever it was, this round has seen it
            next_s = loop.time() + min(self._interval_s, again_s)
            if await _is_set_by(self._wake_up, next_s):
                early_s = min(began_s + MERGE_S, next_s)
                if loop.time() < early_s and await _is_set_by(self._at_once, early_s):
                    await asyncio.sleep(AT_ONCE_S)

    def _clear(self) -> None:
        self._is_changed = False
        self._wake_up.clear()
        self._at_once.clear()

    async def round(self) -> float:
        """One round over all topics; when to try again what missed its target."""
        if self.by_hand is not None:
            return await self.by_hand.settle()
        again_s = NEVER
        topics = set(self._topics())
        for topic in sorted(topics):
            try:
                again_s = min(again_s, await self._balance(topic))
                self._failed.pop(topic, None)
                if topic not in self._missing:
                    self._told.discard(topic)
            except (ClientError, NetError, ProtocolError) as error:
                self._step(topic, "nothing changes: %s", error)
                self._tell(topic, str(error))
                again_s = min(again_s, MISSED_S)
            except Exception as error:
                self._failed[topic] += 1
                again_s = min(again_s, self._pauses.wait_s(self._failed[topic]))
                text = "rebalance of %s for group %s failed"
                self._log.error(text, topic, self._group, exc_info=error)
        strange = {queue for queue in self._assignment.held if queue.topic not in topics}
        if strange:
            outcome = await self._assignment.give_up(strange, "its topic is no longer subscribed")
            again_s = min(again_s, outcome.again_s)
        return again_s

    async def _balance(self, topic: str) -> float:
        route = await self._client.route_table.fetch(topic)
        if route is None:
            self._step(topic, "nothing changes: there is no route")
            # A group's retry topic is made by its first heartbeat and is known a moment later;
            # a topic that nobody makes is asked for less and less often.
            self._missing[topic] += 1
            self._tell(topic, NO_TOPIC.format(topic=topic))
            return self._pauses.wait_s(self._missing[topic])
        self._missing.pop(topic, None)
        queues = sorted(subscribe_queues(topic, route))
        self._is_settling = False
        await self._client.heartbeats.meet(route)
        assigned = await self._allocate(topic, queues)
        held = {queue for queue in self._assignment.held if queue.topic == topic}
        silent: set[MessageQueue] = set()
        if self._drops_silent:
            now_s = asyncio.get_running_loop().time()
            silent = held & assigned & self._assignment.silent(now_s - self._silence_s)
        plan = plan_rebalance(held, assigned, silent | self._assignment.leaving())
        assignment = self._assignment
        dropped = await assignment.give_up(plan.drop - silent, "not assigned any more")
        again_s = dropped.again_s
        why = f"no pull for {self._silence_s:g} s"
        restarted = await assignment.give_up(plan.drop & silent, why, number=2)
        taken = await assignment.take(plan.take)
        if dropped.changed or restarted.changed or taken.changed:
            await self._changed(topic, queues)
        if self._is_settling:
            again_s = min(again_s, MISSED_S)
        return min(again_s, restarted.again_s, taken.again_s)

    async def _allocate(self, topic: str, queues: list[MessageQueue]) -> set[MessageQueue]:
        if self._is_broadcasting:
            self._step(topic, "%d queues, all of them are ours", len(queues))
            return set(queues)
        members = sorted(await group_members(self._client, topic, self._group))
        owners = await self._owners(topic, queues)
        try:
            assigned = set(self._share(queues, members, owners))
            why_idle = self._strategy.why_idle(self._group, members)
        except BaseException as error:  # a strategy may be the user's own
            if ends_caller(error):
                raise
            reason = str(error) or type(error).__name__
            raise StrategyFailed(self._strategy.name, reason) from error
        strange = assigned - set(queues)
        if strange:
            text = f"it gave queues that topic {topic} does not have: {min(strange)}"
            raise StrategyFailed(self._strategy.name, text)
        self._tell_why_idle(why_idle)
        self._step(
            topic, "%d queues, %d members: %d for us", len(queues), len(members), len(assigned)
        )
        return assigned

    async def _owners(
        self, topic: str, queues: list[MessageQueue]
    ) -> dict[MessageQueue, str] | None:
        """Who holds what, for strategies that want to know and where brokers do."""
        if self._strategy.plan is None:
            return None
        names = {queue.broker_name for queue in queues}
        return await queue_owners(self._client, topic, self._group, names)

    def _share(
        self,
        queues: list[MessageQueue],
        members: list[str],
        owners: dict[MessageQueue, str] | None,
    ) -> list[MessageQueue]:
        us, plan = self._client.client_id, self._strategy.plan
        if plan is None or owners is None or us not in members:
            return self._strategy(self._group, us, queues, members)
        planned = plan(queues, members, owners)
        # Whoever looked earlier may have seen other owners and left a queue to us, or we to them:
        # look again until every queue is where it should be.
        self._is_settling = planned != {queue: owners.get(queue) for queue in queues}
        return [queue for queue in queues if planned[queue] == us]

    def _tell(self, topic: str, reason: str) -> None:
        """Complain once until it works. A retry topic comes with the first heartbeat and has
        nothing before that."""
        is_new = topic not in self._told and not is_retry_topic(topic)
        level = logging.WARNING if is_new else logging.INFO
        self._told.add(topic)
        self._log.log(level, "no rebalance of %s for group %s: %s", topic, self._group, reason)

    def _tell_why_idle(self, reason: str | None) -> None:
        if reason is not None and reason != self._idle_reason:
            self._log.warning("nobody consumes for %s: %s", self._group, reason)
        self._idle_reason = reason

    def _step(self, topic: str, text: str, *args: object) -> None:
        self._steps.debug("%s: %s: " + text, self._group, topic, *args)


async def _is_set_by(event: asyncio.Event, at_s: float) -> bool:
    """Wait for an event until a time of the loop."""
    with suppress(TimeoutError):
        async with asyncio.timeout_at(at_s):
            await event.wait()
    return event.is_set()
