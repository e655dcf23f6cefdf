"""Rebalance rounds: for each topic find the members, divide its queues, drop, take, announce.

route ▶ members of the group ▶ strategy ▶ plan ▶ give up ▶ take ▶ announce the new assignment

Every member computes the shares on its own, from the same sorted lists and with the same strategy;
there is no leader. Members that saw different lists disagree for a moment; until then the queue
locks decide. A round that fails for one topic changes nothing there and never stops the others.

The logger `sparrowmq.client.rebalance` prints each change at level DEBUG, with its reason.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Collection

from sparrowmq.backoff import Backoff
from sparrowmq.client.broker_calls import group_members, queue_owners
from sparrowmq.client.client_core import ClientCore
from sparrowmq.client.errors import ClientError, NoNameServer, StrategyFailed, counted
from sparrowmq.client.failures import ends_caller
from sparrowmq.client.group.member_settings import MemberSettings
from sparrowmq.client.group.queue_handover import MISSED_S, NEVER, QueueHandover, QueueReader
from sparrowmq.client.group.queue_ownership import QueueOwnership
from sparrowmq.client.group.rate_limit import RateLimit
from sparrowmq.client.group.rebalance_plan import (
    Action,
    QueueDecision,
    Reason,
    RebalancePlan,
    plan_rebalance,
)
from sparrowmq.client.route_table import subscribe_queues
from sparrowmq.client.subscriptions import Subscriptions
from sparrowmq.net.errors import NetError
from sparrowmq.protocol.errors import ProtocolError
from sparrowmq.protocol.message import MessageQueue
from sparrowmq.protocol.names import is_retry_topic

NO_QUEUES = (
    "topic {topic} has no queue that can be read: it has none, or its permission forbids it;"
    " look at: sparrowmq topic route {topic}"
)
NO_TOPIC = (
    "topic {topic} does not exist and is waited for;"
    " send to it, or create it with: sparrowmq topic create {topic}"
)


class Rebalance:
    """Runs rounds when the timer, a broker, a route change or the application triggers one."""

    def __init__(
        self,
        client: ClientCore,
        settings: MemberSettings,
        subscriptions: Subscriptions,
        ownership: QueueOwnership,
        handover: QueueHandover,
        reader: QueueReader,
        rate_limit: RateLimit,
    ) -> None:
        self._client = client
        self._settings = settings
        self._subscriptions = subscriptions
        self._ownership = ownership
        self._handover = handover
        self._reader = reader
        self._rate_limit = rate_limit
        self._sizes: dict[str, int] = {}
        """Number of queues of each topic that the group shares."""
        self._log = ownership.log
        self._interval_s = client.config.rebalance_s
        self._silence_s = client.config.pull_silence_s
        self._pauses = Backoff(first_s=MISSED_S, longest_s=self._interval_s)
        """For a topic that does not exist, or whose rounds fail unexpectedly."""
        self._idle_reason: str | None = None
        self._missing: Counter[str] = Counter()
        self._failed: Counter[str] = Counter()
        self._reported: set[str] = set()
        """Topics that do not work and were already logged as a warning."""
        self._is_settling = False
        self.manual: ManualAssignment | None = None
        """Set if the application chooses queues: then rounds make sure that those are held."""

    async def run(self) -> None:
        """Run rounds forever."""
        loop = asyncio.get_running_loop()
        signal = self._ownership.signal
        while True:
            signal.begin_round()
            began_s = loop.time()
            again_s = await self.round()
            if again_s >= self._interval_s:
                signal.round_was_complete()
            await signal.wait(began_s, loop.time() + min(self._interval_s, again_s))

    async def round(self) -> float:
        """Run one round over all topics. Returns in how many seconds to retry what failed."""
        if self.manual is not None:
            return await self.manual.settle()
        again_s = NEVER
        topics = set(self._subscriptions.topics)
        for topic in sorted(topics):
            try:
                again_s = min(again_s, await self._balance(topic))
                self._failed.pop(topic, None)
                if topic not in self._missing:
                    self._reported.discard(topic)
            except NoNameServer as error:  # the client reports this once for all its topics
                self._log.print(f"{topic}: nothing changes: {error}")
                again_s = min(again_s, MISSED_S)
            except (ClientError, NetError, ProtocolError) as error:
                is_outage = self._client.broker_failed(error)
                self._report(topic, str(error), is_quiet=is_outage)
                again_s = min(again_s, MISSED_S)
            except Exception as error:
                self._failed[topic] += 1
                again_s = min(again_s, self._pauses.wait_s(self._failed[topic]))
                text = "rebalance of %s for group %s failed"
                self._client.log.error(text, topic, self._settings.group, exc_info=error)
        unsubscribed = {queue for queue in self._ownership.held if queue.topic not in topics}
        outcome = await self._handover.give_up(dict.fromkeys(unsubscribed, Reason.NOT_SUBSCRIBED))
        self._sizes = {topic: size for topic, size in self._sizes.items() if topic in topics}
        self._share_rate()
        return min(again_s, outcome.again_s)

    async def _balance(self, topic: str) -> float:
        """Carry out the plan for one topic. Returns in how many seconds to retry what failed."""
        route = await self._client.route_table.fetch(topic)
        if route is None:
            # A group's retry topic is created by its first heartbeat and is known a moment later;
            # a topic that is never created is requested less and less often.
            self._missing[topic] += 1
            is_first = topic not in self._reported and not is_retry_topic(topic)
            lost = await self._client.name_servers.lost_route(topic) if is_first else ""
            self._report(topic, lost or NO_TOPIC.format(topic=topic))
            return self._pauses.wait_s(self._missing[topic])
        self._missing.pop(topic, None)
        queues = sorted(subscribe_queues(topic, route))
        self._is_settling = False
        await self._client.heartbeats.reach_new_brokers(route)
        if not queues:
            self._report(topic, NO_QUEUES.format(topic=topic))
            return MISSED_S
        assigned = await self._allocate(topic, queues)
        plan = self._plan(topic, queues, assigned)
        given_up = await self._handover.give_up(plan.reasons(Action.DROP))
        taken = await self._handover.take(plan.reasons(Action.TAKE))
        if given_up.changed or taken.changed:
            await self._announce(topic, queues)
        self._sizes[topic] = len(queues)
        self._share_rate()
        again_s = MISSED_S if self._is_settling else NEVER
        return min(again_s, given_up.again_s, taken.again_s)

    def _plan(
        self, topic: str, queues: list[MessageQueue], assigned: set[MessageQueue]
    ) -> RebalancePlan:
        restarting = dict.fromkeys(self._handover.leaving(), Reason.INTERRUPTED)
        if self._settings.drops_silent:
            since_s = asyncio.get_running_loop().time() - self._silence_s
            restarting |= dict.fromkeys(self._ownership.silent(since_s), Reason.SILENT)
        held = {queue for queue in self._ownership.held if queue.topic == topic}
        why = Reason.BROADCAST if self._settings.is_broadcasting else Reason.ASSIGNED
        plan = plan_rebalance(held, assigned, set(queues), restarting, why)
        for decision in plan.decisions:
            if decision.action is Action.KEEP:
                self._log.note(decision)
        return plan

    # ---- shares

    async def _allocate(self, topic: str, queues: list[MessageQueue]) -> set[MessageQueue]:
        """The queues that this member should hold. Raises StrategyFailed, ClientError, NetError."""
        if self._settings.is_broadcasting:
            self._log.note_share(
                topic, f"{counted(len(queues), 'queue')}, all of them for this member"
            )
            return set(queues)
        group, strategy = self._settings.group, self._settings.strategy
        members = sorted(await group_members(self._client, topic, group))
        owners = await self._owners(topic, queues)
        try:
            assigned = set(self._share(queues, members, owners))
            why_idle = strategy.why_idle(group, members)
        except BaseException as error:  # a strategy may be the user's own
            if ends_caller(error):
                raise
            reason = str(error) or type(error).__name__
            raise StrategyFailed(strategy.name, reason) from error
        unknown = assigned - set(queues)
        if unknown:
            text = f"it gave a queue that the topic does not have: {min(unknown)}"
            raise StrategyFailed(strategy.name, text)
        self._report_idle(why_idle)
        counts = f"{counted(len(queues), 'queue')}, {counted(len(members), 'member')}"
        self._log.note_share(topic, f"{counts}: {len(assigned)} for this member")
        return assigned

    async def _owners(
        self, topic: str, queues: list[MessageQueue]
    ) -> dict[MessageQueue, str] | None:
        """Which member holds which queue; None if the strategy or the brokers do not support it."""
        if self._settings.strategy.plan is None:
            return None
        names = {queue.broker_name for queue in queues}
        return await queue_owners(self._client, topic, self._settings.group, names)

    def _share(
        self,
        queues: list[MessageQueue],
        members: list[str],
        owners: dict[MessageQueue, str] | None,
    ) -> list[MessageQueue]:
        us, strategy = self._client.client_id, self._settings.strategy
        if strategy.plan is None or owners is None or us not in members:
            return strategy(self._settings.group, us, queues, members)
        planned = strategy.plan(queues, members, owners)
        # A member that looked earlier may have seen other owners and left a queue to us, or we may
        # have left one to it: look again until every queue is where it should be.
        self._is_settling = planned != {queue: owners.get(queue) for queue in queues}
        return [queue for queue in queues if planned[queue] == us]

    def _share_rate(self) -> None:
        """Divide the rate limit by queues held. Retry topics do not count: a single member has
        their one queue, and the other members would get less. While no topic has queues there is
        nothing to take, and the share stays."""
        held = sum(not is_retry_topic(queue.topic) for queue in self._ownership.held)
        queues = sum(size for topic, size in self._sizes.items() if not is_retry_topic(topic))
        if queues:
            self._rate_limit.share_out(held, queues)

    # ---- announcing

    async def _announce(self, topic: str, queues: list[MessageQueue]) -> None:
        """The assignment changed: divide the limits again, then notify brokers and the listener."""
        self._subscriptions.renew([topic], self._client.clock())
        self._reader.assignment_changed()
        await self._client.heartbeats.send_everywhere()
        self._log.print(f"{topic}: new assignment, heartbeat sent to all brokers")
        listener = self._settings.listener
        if listener is None or is_retry_topic(topic):
            return
        mine = sorted(queue for queue in self._ownership.held if queue.topic == topic)
        try:
            listener(topic, queues, mine)
        except BaseException as error:
            if ends_caller(error):
                raise
            text = "queue listener of group %s failed for %s: %r"
            self._client.log.error(text, self._settings.group, topic, error, exc_info=error)

    def _report(self, topic: str, reason: str, *, is_quiet: bool = False) -> None:
        """Warn once until the topic works. No warning for a retry topic: the first heartbeat
        creates it, and it holds nothing before that."""
        self._log.note_failure(topic, reason)
        if is_quiet:
            return
        is_new = topic not in self._reported and not is_retry_topic(topic)
        level = logging.WARNING if is_new else logging.DEBUG
        self._reported.add(topic)
        text = "no rebalance of %s for group %s: %s"
        self._client.log.log(level, text, topic, self._settings.group, reason)

    def _report_idle(self, reason: str | None) -> None:
        if reason is not None and reason != self._idle_reason:
            text = "no member of group %s consumes: %s"
            self._client.log.warning(text, self._settings.group, reason)
        self._idle_reason = reason


class ManualAssignment:
    """Queues that the application chose itself: held until it chooses others, no matter which other
    members have them.

    Choices take turns, so that the last one wins. Rebalance rounds catch up on what could not be
    given up or taken at once, and on what an operator's reset dropped.
    """

    def __init__(self, ownership: QueueOwnership, handover: QueueHandover) -> None:
        self._ownership = ownership
        self._handover = handover
        self._chosen: frozenset[MessageQueue] = frozenset()
        self._turn = asyncio.Lock()

    async def choose(
        self, queues: Collection[MessageQueue], look_up: Callable[[], Awaitable[None]]
    ) -> float:
        """Hold exactly these queues. Returns in how many seconds to retry what failed. If `look_up`
        raises, nothing changes."""
        async with self._turn:
            await look_up()
            self._chosen = frozenset(queues)
            return await self._settle()

    async def settle(self) -> float:
        """Hold the chosen queues. Returns in how many seconds to retry what failed."""
        async with self._turn:
            return await self._settle()

    async def _settle(self) -> float:
        held = self._ownership.held.keys()
        drop = dict.fromkeys(held - self._chosen, Reason.NOT_CHOSEN)
        drop |= dict.fromkeys(self._handover.leaving() & self._chosen, Reason.INTERRUPTED)
        for queue in held - drop.keys():
            self._ownership.log.note(QueueDecision(queue, Action.KEEP, Reason.CHOSEN))
        given_up = await self._handover.give_up(drop)
        taken = await self._handover.take(dict.fromkeys(self._chosen, Reason.CHOSEN))
        return min(given_up.again_s, taken.again_s)
