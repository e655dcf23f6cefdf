"""Pulling one queue for as long as it is held, and flow control: when the next pull has to wait.

paused? ▶ flow control ▶ pull (waits at the broker when there is nothing) ─┬ messages: to the target
   ▲                                                                       ├ nothing: pull again
   └──────────────── after an error 3 s, else at once ◀────────────────────┴ offset moved: go there

Each answer suggests which broker of the name to pull from next: a slave if the master is busy or
would have to read from its device, the master otherwise. After an error another one is tried, so
that a slave serves within seconds when its master is gone.

There is one pull in flight per queue, and the next one starts where its answer ended. Two at a time
would deliver messages out of order, and progress could not be the smallest offset in work. An
answer moves `next_offset` only after it was decoded: what fails on the way is pulled again.

Flow control looks at what waits for handlers in this process. It does not slow the broker down or
lose anything: messages stay in the log until handlers have caught up. Three limits are needed,
because each alone can be evaded: many small messages (count), few large ones (bytes), and
one message that is stuck while thousands after it are done (span). The span matters because
progress stays at the stuck message: after a crash everything past it is delivered again.
"""

import asyncio
from dataclasses import dataclass, replace
from typing import Protocol

from sparrowmq.client.argument_checks import MAX_LONG, check_whole
from sparrowmq.client.broker_calls import UNKNOWN_EPOCH, find_broker
from sparrowmq.client.client_core import ClientCore
from sparrowmq.client.errors import BrokerRefused, ClientError, NoNameServer
from sparrowmq.client.group.held_queue import HeldQueue
from sparrowmq.client.group.process_queue import ProcessQueue
from sparrowmq.client.group.queue_ownership import QueueOwnership
from sparrowmq.client.group.running_info import ConsumeRates
from sparrowmq.client.sessions import BrokerSilent
from sparrowmq.client.setting_names import checks_setting_names
from sparrowmq.client.subscriptions import wanted
from sparrowmq.net.calls import Response
from sparrowmq.net.errors import NetError
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.errors import ProtocolError
from sparrowmq.protocol.headers.pull import PulledInEpoch, PullMessage
from sparrowmq.protocol.message_ext import MessageExt, decode_messages
from sparrowmq.protocol.route import MASTER_ID
from sparrowmq.protocol.subscription import SubscriptionData
from sparrowmq.protocol.sys_flag import pull_sys_flag

FLOW_CONTROL_S = 0.05
"""How long to wait before checking again whether slow handlers have caught up: about the time of a
round trip, so that a queue which has room again loses little."""
PAUSED_S = 1.0
ERROR_S = 3.0

_EMPTY = (ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_RETRY_IMMEDIATELY)

# ---- flow control

OFF = -1


@checks_setting_names
@dataclass(frozen=True, slots=True, kw_only=True)
class FlowLimits:
    """How much of a queue may wait for its handler."""

    messages: int = 1_000
    size_bytes: int = 100 * 1024 * 1024
    span: int = 2_000
    """From the oldest to the newest offset; limits how far one slow message holds progress back."""
    topic_messages: int = OFF
    """Divided among all queues a consumer holds; -1 is off. Replaces `messages` when set."""
    topic_mib: int = OFF
    """The same in mebibytes. Replaces `size_bytes` when set."""

    def __post_init__(self) -> None:
        for name in ("messages", "size_bytes", "span"):
            check_whole(name, getattr(self, name), 1, MAX_LONG)
        for name in ("topic_messages", "topic_mib"):
            if getattr(self, name) != OFF:
                check_whole(name, getattr(self, name), 1, MAX_LONG)


_MIB = 1024 * 1024


def shared_out(limits: FlowLimits, queues: int) -> FlowLimits:
    """The limits of one queue when this many are held: a topic's limit is divided among them."""
    queues = max(1, queues)
    shared = limits
    if limits.topic_messages != OFF:
        shared = replace(shared, messages=max(1, limits.topic_messages // queues))
    if limits.topic_mib != OFF:
        shared = replace(shared, size_bytes=max(1, limits.topic_mib // queues) * _MIB)
    return shared


def reason_to_wait(queue: ProcessQueue, limits: FlowLimits, *, is_orderly: bool = False) -> str:
    """Why the next pull has to wait; empty if it does not."""
    if len(queue) > limits.messages:
        return (
            f"{len(queue):,} messages wait for the handler; at most {limits.messages:,} are allowed"
        )
    if queue.size_bytes > limits.size_bytes:
        return (
            f"{queue.size_bytes:,} bytes wait for the handler; at most {limits.size_bytes:,} are"
            " allowed"
        )
    if not is_orderly and queue.span > limits.span:
        return f"offsets in work span {queue.span:,}; at most {limits.span:,} is allowed"
    return ""


# ---- pulling


class PullTarget(Protocol):
    """What pull loops ask their consumer, and where they deliver what they pull."""

    def subscription(self, topic: str) -> SubscriptionData | None:
        """The subscription of a topic; None if it is no longer subscribed."""
        ...

    def committed(self, held: HeldQueue) -> int:
        """Progress that a pull carries to the broker; -1 for none."""
        ...

    def paused(self, held: HeldQueue) -> str:
        """Why a queue is not pulled for now, such as a pause; empty if it is pulled."""
        ...

    def reason_to_wait(self, held: HeldQueue) -> str:
        """Why the next pull has to wait for handlers; empty if it does not."""
        ...

    def arrived(self, held: HeldQueue, messages: list[MessageExt]) -> None:
        """A pull was answered, possibly without messages."""
        ...

    def moved(self, held: HeldQueue, offset: int) -> None:
        """The offset was out of range, and the queue continues at `offset`."""
        ...


class PullLoop:
    """Pulls the queues of one consumer; `run` is the loop of one queue."""

    def __init__(
        self,
        client: ClientCore,
        group: str,
        ownership: QueueOwnership,
        target: PullTarget,
        rates: ConsumeRates,
        *,
        pull_batch: int,
        suspend_s: float,
        call_timeout_s: float,
        is_lite: bool = False,
    ) -> None:
        self._client = client
        self._group = group
        self._pull_batch = pull_batch
        self._suspend_s = suspend_s
        self._call_timeout_s = call_timeout_s
        self._ownership = ownership
        self._target = target
        self._rates = rates
        self._log = client.log
        self._is_lite = is_lite

    async def run(self, held: HeldQueue) -> None:
        """Pull until the queue is given up. Errors do not end the loop."""
        while held.may_begin:
            delay_s = await self._turn(held)
            if delay_s:
                await asyncio.sleep(delay_s)

    async def _turn(self, held: HeldQueue) -> float:
        started_s = held.last_pull_s = asyncio.get_running_loop().time()
        held.waits_for = self._target.paused(held)
        if held.waits_for:
            return PAUSED_S
        held.waits_for = self._target.reason_to_wait(held)
        if held.waits_for:
            return FLOW_CONTROL_S
        subscription = self._target.subscription(held.queue.topic)
        if subscription is None:
            held.waits_for = f"topic {held.queue.topic} is no longer subscribed"
            return ERROR_S
        asked = held.next_offset
        try:
            response = await self.pull(held, subscription)
            outages = self._client.outages
            is_answer = response.code == ResponseCode.SUCCESS or response.code in _EMPTY
            if outages.is_any and is_answer:  # nearly never: do not build a text for each pull
                outages.reached(f"broker {held.queue.broker_name}")
            if not held.may_begin or held.next_offset != asked:
                return 0.0  # the queue was given up or moved meanwhile
            return self._take(held, subscription, response, started_s)
        except (NetError, ClientError, ProtocolError) as error:
            self._try_another(held)
            held.waits_for = f"the last pull failed: {error}"
            self._failed(held, error)
            return 0.0 if isinstance(error, BrokerSilent) else ERROR_S

    async def pull(self, held: HeldQueue, subscription: SubscriptionData) -> Response:
        """Send one pull for the queue's next offset. Raises ClientError or NetError."""
        queue = held.queue
        broker = await find_broker(
            self._client, queue.topic, queue.broker_name, held.broker_id, avoids_silent=True
        )
        held.broker_id = broker.broker_id
        # Only the master keeps progress: a pull from a slave carries none, even if the slave
        # stands in for a master that has no address.
        committed = self._target.committed(held) if broker.is_master else -1
        carries = subscription.is_tag  # SQL92 stays at the broker, compiled once per heartbeat
        header = PullMessage(
            consumer_group=self._group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            queue_offset=held.next_offset,
            max_msg_nums=self._pull_batch,
            sys_flag=pull_sys_flag(
                commit_offset=committed >= 0,
                suspend=True,
                subscription=carries,
                lite_pull=self._is_lite,
            ),
            commit_offset=max(0, committed),
            suspend_timeout_millis=int(self._suspend_s * 1000),
            sub_version=subscription.sub_version,
            subscription=subscription.sub_string if carries else None,
            expression_type=subscription.expression_type,
            epoch=UNKNOWN_EPOCH if held.epoch is None else held.epoch,
        )
        if not self._client.route_table.has_another(queue.broker_name, broker.broker_id):
            timeout_s = self._call_timeout_s
            return await self._client.peers.call(broker.address, header, timeout_s=timeout_s)
        return await self._call_unless_silent(broker.address, header)

    async def _call_unless_silent(self, address: str, header: PullMessage) -> Response:
        """Pull from a broker that another one can stand in for. A host that freezes or loses power
        closes no connection: keep-alives notice that long before the pull times out."""
        sessions, timeout_s = self._client.sessions, self._call_timeout_s
        try:
            async with asyncio.timeout(None) as wait:
                with sessions.ends_with_silence(address, wait):
                    return await self._client.peers.call(address, header, timeout_s=timeout_s)
        except TimeoutError:
            raise BrokerSilent(address) from None

    def _take(
        self,
        held: HeldQueue,
        subscription: SubscriptionData,
        response: Response,
        started_s: float,
    ) -> float:
        if response.code == ResponseCode.SUCCESS:
            pulled = response.header(PulledInEpoch)
            messages = decode_messages(response.body, held.queue.broker_name)
            self._rates.pulled(held.queue.topic, len(messages), started_s)
            chosen = wanted(messages, subscription)
            _go_on(held, pulled)  # once nothing can fail: what failed is pulled again
            self._target.arrived(held, chosen)
            return 0.0
        if response.code in _EMPTY:
            _go_on(held, response.header(PulledInEpoch))
            self._target.arrived(held, [])
            return 0.0
        if response.code == ResponseCode.PULL_OFFSET_MOVED:
            pulled = response.header(PulledInEpoch)
            if pulled.valid_end is not None:
                self._ownership.shorten(held, pulled.valid_end, pulled.epoch)
            else:
                held.epoch = pulled.epoch
                text = "offset %d of %s is out of range, going on at %d"
                offset = pulled.next_begin_offset
                self._log.warning(text, held.next_offset, held.queue, offset)
                self._target.moved(held, offset)
            return 0.0
        if held.broker_id != MASTER_ID or response.code == ResponseCode.SERVICE_NOT_AVAILABLE:
            self._try_another(held)
        held.waits_for = f"the broker answered {response.code}: {response.remark}"
        self._failed(held, BrokerRefused(held.queue.broker_name, response.code, response.remark))
        return ERROR_S

    def _try_another(self, held: HeldQueue) -> None:
        """Make the next pull go to another broker of the name, if there is one: name servers may
        list a dead master for a while."""
        routes = self._client.route_table
        held.broker_id = routes.another(held.queue.broker_name, held.broker_id)

    def _failed(self, held: HeldQueue, error: Exception) -> None:
        """The broker's outage is logged once, no matter how many queues it affects."""
        self._log.debug("pull of %s failed: %s", held.queue, error)
        if not isinstance(error, NoNameServer):
            self._client.outages.failed(f"broker {held.queue.broker_name}", error)


def _go_on(held: HeldQueue, pulled: PulledInEpoch) -> None:
    held.next_offset = pulled.next_begin_offset
    held.epoch = pulled.epoch
    held.broker_id = pulled.suggest_which_broker_id
