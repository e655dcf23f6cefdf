"""The low-level pull consumer: the application decides what to pull, when, and from which offset.

    async with PullConsumer("audit") as consumer:
        for queue in await consumer.queues("orders"):
            found = await consumer.pull(queue, 0)

With `topics` it takes part in the group's rebalance: `assignment()` is its share.
"""

from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from typing import Unpack

from sparrowmq.client.argument_checks import (
    MAX_LONG,
    check_kind,
    check_names,
    check_offsets,
    check_whole,
)
from sparrowmq.client.broker_calls import Position, committed_offset, find_broker
from sparrowmq.client.consuming.handler_calls import DEAD_LETTER
from sparrowmq.client.consuming.send_back import GivingBack
from sparrowmq.client.errors import BrokerRefused, NoRoute
from sparrowmq.client.group.group_consumer import GroupConsumer
from sparrowmq.client.group.member_settings import ConsumerSettings
from sparrowmq.client.group.membership import Membership
from sparrowmq.client.group.queue_handover import QueueReader
from sparrowmq.client.group.queue_ownership import QueueOwnership
from sparrowmq.client.route_table import FoundBroker
from sparrowmq.client.setting_names import checks_setting_names
from sparrowmq.client.subscriptions import Sql, Subscriptions, check_tags, wanted
from sparrowmq.net.errors import NetError
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.delay import MAX_DELAY_LEVEL
from sparrowmq.protocol.headers.pull import Pulled, PullMessage
from sparrowmq.protocol.heartbeat import ConsumeType
from sparrowmq.protocol.message import MessageQueue
from sparrowmq.protocol.message_ext import MessageExt, decode_messages
from sparrowmq.protocol.route import MASTER_ID
from sparrowmq.protocol.subscription import SQL92, TAG, SubscriptionData
from sparrowmq.protocol.sys_flag import pull_sys_flag

_PULL_S = 10.0
_WAIT_S = 20.0
_WAITING_PULL_S = 30.0


class PullStatus(Enum):
    """What a pull found."""

    FOUND = "found"
    NO_NEW_MESSAGE = "no new message"
    NO_MATCHED_MESSAGE = "no message that matches"
    OFFSET_ILLEGAL = "offset out of range"


_STATUS = {
    ResponseCode.SUCCESS: PullStatus.FOUND,
    ResponseCode.PULL_NOT_FOUND: PullStatus.NO_NEW_MESSAGE,
    ResponseCode.PULL_RETRY_IMMEDIATELY: PullStatus.NO_MATCHED_MESSAGE,
    ResponseCode.PULL_OFFSET_MOVED: PullStatus.OFFSET_ILLEGAL,
}


@dataclass(frozen=True, slots=True)
class PullResult:
    """Messages, and where the next pull should begin whatever was found."""

    status: PullStatus
    next_offset: int
    min_offset: int
    max_offset: int
    messages: list[MessageExt]


@checks_setting_names
class PullConsumer(GroupConsumer):
    """Pulls what the application asks for. It does not track progress: call `update_offset` and
    `commit`."""

    def __init__(
        self,
        group: str,
        topics: Iterable[str] = (),
        **settings: Unpack[ConsumerSettings],
    ) -> None:
        """The queues of `topics` are balanced over the group; `listener` is notified of changes.

        Raises ValueError for an illegal group or topic.
        """
        check_names("topics", topics)
        super().__init__(
            group,
            Subscriptions(dict.fromkeys(topics, "*")),
            settings,
            consume_type=ConsumeType.ACTIVELY,
            takes_retries=False,
            drops_silent=False,
            starts_at_0=True,
        )
        self._suggested: dict[MessageQueue, int] = {}
        """Id of the broker that the last answer suggested, if that is not the master."""
        self._lost: dict[MessageQueue, int] = {}
        """Queues whose next pull should go to another broker than the one with this id."""
        self._limited: Counter[MessageQueue] = Counter()
        """How many pulls of each queue wait for the rate limit."""
        self._giving = GivingBack(self._client, group, None, self._client.log)
        self._owed: set[MessageQueue] = set()
        """Queues whose recorded progress could not be stored, and counts until it is."""

    async def _open(self) -> None:
        await self.start()

    async def start(self, *, wait_s: float | None = None) -> None:
        """Join the group. Raises ValueError if another member in this process has the client id.

        With `wait_s`, waits up to that long for a name server and raises NoNameServer if none
        answers. Without, starts at once, and if no name server answers, logs a warning and begins
        to consume when one does."""
        await self._start_with(self._make_member, wait_s)

    def _make_member(self) -> Membership:
        ownership = QueueOwnership(self._client, self._settings)
        reader = QueueReader()
        return Membership(
            self._client,
            self._settings,
            self._subscriptions,
            ownership,
            reader,
            self._rate_limit,
        )

    async def stop(self, within_s: float = 0.0) -> None:
        """Store progress and leave the group."""
        await self._starting.until_none()
        await self._leave(within_s)

    @property
    def _has_topics(self) -> bool:
        return len(self._subscriptions) > 0

    async def pull(
        self,
        queue: MessageQueue,
        offset: int,
        *,
        choice: str | Sql = "*",
        count: int = 32,
        waits: bool = False,
    ) -> PullResult:
        """Pull messages from an offset on. With `waits` the broker holds an empty pull for up to
        20 s. With a rate limit a pull may have to wait, and may return fewer messages.

        Raises ValueError for a negative offset, a count below 1 or a malformed choice, NoRoute,
        BrokerRefused, and NetError if the broker is lost: the next pull of the queue goes to
        another broker of that name, such as a slave.
        """
        check_kind("queue", queue, MessageQueue)
        check_whole("offset", offset, 0, MAX_LONG)
        check_whole("count", count, 1)
        subscription = _subscription(queue.topic, choice)
        await self._look_again(queue)
        await self.queues(queue.topic)
        if self._rate_limit.rate is not None:
            count = await self._permitted(queue, count)
        used = 0
        try:
            result = await self._pull(queue, offset, subscription, count, waits=waits)
            used = len(result.messages)
        finally:
            self._rate_limit.give_back(count - used)
        return result

    async def _permitted(self, queue: MessageQueue, count: int) -> int:
        """How many messages the rate limit lets a pull take, once it lets it take any."""
        self._limited[queue] += 1
        try:
            return await self._rate_limit.some(count)
        finally:
            self._limited[queue] -= 1
            if not self._limited[queue]:
                del self._limited[queue]

    async def _pull(
        self,
        queue: MessageQueue,
        offset: int,
        subscription: SubscriptionData,
        count: int,
        *,
        waits: bool,
    ) -> PullResult:
        wanted_id = self._suggested.get(queue, MASTER_ID)
        broker = await find_broker(
            self._client, queue.topic, queue.broker_name, wanted_id, avoids_silent=True
        )
        header = PullMessage(
            consumer_group=self.group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            queue_offset=offset,
            max_msg_nums=count,
            sys_flag=pull_sys_flag(commit_offset=False, suspend=waits, subscription=True),
            commit_offset=0,
            suspend_timeout_millis=int(_WAIT_S * 1000),
            sub_version=subscription.sub_version,
            subscription=subscription.sub_string,
            expression_type=subscription.expression_type,
        )
        timeout_s = _WAITING_PULL_S if waits else _PULL_S
        started_s = self._rates.now_s()
        self._suggested.pop(queue, None)  # unless this pull is answered
        try:
            response = await self._client.peers.call(broker.address, header, timeout_s=timeout_s)
        except NetError as error:
            self._client.broker_failed(error)
            self._lost[queue] = broker.broker_id
            raise
        if self._client.outages.is_any:
            self._client.broker_answered(broker.address)
        if response.code not in _STATUS:
            raise BrokerRefused(broker.address, response.code, response.remark)
        pulled = response.header(Pulled)
        self._follow(queue, pulled.suggest_which_broker_id, broker)
        messages: list[MessageExt] = []
        if response.code == ResponseCode.SUCCESS:
            messages = wanted(decode_messages(response.body, queue.broker_name), subscription)
            self._rates.pulled(queue.topic, len(messages), started_s)
        return PullResult(
            _STATUS[ResponseCode(response.code)],
            pulled.next_begin_offset,
            pulled.min_offset,
            pulled.max_offset,
            messages,
        )

    def waits(self) -> dict[MessageQueue, str]:
        """Queues whose pulls wait for the rate limit now, each with the reason. Raises
        NotStarted."""
        self._running()
        reason = self._rate_limit.reason
        return dict.fromkeys(self._limited, reason) if reason else {}

    async def _look_again(self, queue: MessageQueue) -> None:
        """After a lost pull, or one whose suggested master is not in the route: refresh the route
        and choose another broker. Regular route polls cover only the topics of the group."""
        lost = self._lost.pop(queue, None)
        if lost is not None:
            with suppress(NoRoute):
                await self._client.route_table.refresh(queue.topic)
            self._suggested[queue] = self._client.route_table.another(queue.broker_name, lost)

    def _follow(self, queue: MessageQueue, suggested_id: int, asked: FoundBroker) -> None:
        """Choose the broker of the next pull, as the answer suggests."""
        if suggested_id != MASTER_ID:
            self._suggested[queue] = suggested_id
        elif self._client.route_table.master(queue.broker_name) is None:  # it is back
            self._lost[queue] = asked.broker_id

    # ---- progress

    def update_offset(self, queue: MessageQueue, offset: int) -> None:
        """Record progress. It is stored every 5 s for assigned queues, or by `commit`."""
        check_offsets({queue: offset})
        self._running().offsets.update(queue, Position(offset), may_lower=True)

    async def commit(self, queues: Iterable[MessageQueue]) -> None:
        """Store the recorded progress of these queues now. Raises QueueLost, and NoRoute,
        BrokerRefused, NetError or OSError if it cannot be stored: at once while the master is
        silent and its slave is read from. `committed` then returns it all the same."""
        chosen = list(queues)
        for queue in chosen:
            check_kind("a queue", queue, MessageQueue)
        for topic in sorted({queue.topic for queue in chosen}):
            await self.queues(topic)
        self._owed.update(chosen)
        await self._running().store(chosen)
        self._owed.difference_update(chosen)

    async def committed(self, queue: MessageQueue) -> int | None:
        """The stored offset, or None. Recorded progress that could not be stored, because a commit
        failed or the master is silent, counts until it is: a reader continues there at the slave.
        """
        check_kind("queue", queue, MessageQueue)
        member = self._running()
        if self._settings.is_broadcasting:
            stored = await member.offsets.load(queue)
            return None if stored is None else stored.offset
        await self.queues(queue.topic)
        if member.ownership.silent_master(queue) is not None:
            self._owed.add(queue)
        if queue in self._owed:
            recorded = member.offsets.get(queue)  # none once the queue went to another member
            if recorded >= 0 and member.offsets.unstored([queue]):
                return recorded
            self._owed.discard(queue)
        stored = await committed_offset(self._client, self.group, queue)
        return None if stored is None else stored.offset

    async def give_back(self, message: MessageExt, delay_level: int = 0) -> bool:
        """Send a message back, for the broker to deliver it to the group again later. Returns
        whether the broker has it."""
        check_kind("message", message, MessageExt)
        check_whole("delay_level", delay_level, DEAD_LETTER, MAX_DELAY_LEVEL)
        return await self._giving.give_back(message, delay_level, "give_back() was called")


def _subscription(topic: str, choice: str | Sql) -> SubscriptionData:
    if isinstance(choice, Sql):
        expression, kind = choice.expression, SQL92
    else:
        check_tags("choice", choice)
        expression, kind = choice, TAG
    return SubscriptionData.build(topic, expression, version=0, expression_type=kind)
