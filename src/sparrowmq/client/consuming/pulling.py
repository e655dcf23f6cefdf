"""Pulling one queue for as long as it is held: one pull in flight, repeated when it ends."""

import asyncio
import logging
from collections.abc import Callable

from sparrowmq.client.broker_calls import UNKNOWN_EPOCH, find_broker
from sparrowmq.client.client import Client
from sparrowmq.client.errors import ClientError
from sparrowmq.client.group.consume_rates import ConsumeRates
from sparrowmq.client.group.held_queue import HeldQueue
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
PAUSED_S = 1.0
ERROR_S = 3.0

_EMPTY = (ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_RETRY_IMMEDIATELY)


class PullLoop:
    """What the loops of one consumer share."""

    def __init__(
        self,
        client: Client,
        group: str,
        *,
        pull_batch: int,
        suspend_s: float,
        call_timeout_s: float,
        subscription: Callable[[str], SubscriptionData | None],
        committed: Callable[[HeldQueue], int],
        reason_to_wait: Callable[[HeldQueue], str],
        paused: Callable[[HeldQueue], str],
        arrived: Callable[[HeldQueue, list[MessageExt]], None],
        moved: Callable[[HeldQueue, int], None],
        shortened: Callable[[HeldQueue, int, int | None], None],
        rates: ConsumeRates,
        log: logging.Logger,
        is_lite: bool = False,
    ) -> None:
        """`paused` and `reason_to_wait` give a reason, empty to go on. What `arrived` is every
        pull's harvest, maybe empty; `moved` is told where an offset out of range is set to, and
        `shortened` where the messages of a queue end that got shorter, and the epoch since."""
        self._client = client
        self._group = group
        self._pull_batch = pull_batch
        self._suspend_s = suspend_s
        self._call_timeout_s = call_timeout_s
        self._subscription = subscription
        self._committed = committed
        self._reason_to_wait = reason_to_wait
        self._paused = paused
        self._arrived = arrived
        self._moved = moved
        self._shortened = shortened
        self._rates = rates
        self._log = log
        self._is_lite = is_lite

    async def run(self, held: HeldQueue) -> None:
        """Pull until the queue is dropped. Nothing that goes wrong ends it."""
        while held.may_begin:
            delay_s = await self._turn(held)
            if delay_s:
                await asyncio.sleep(delay_s)

    async def _turn(self, held: HeldQueue) -> float:
        started_s = held.last_pull_s = asyncio.get_running_loop().time()
        held.waits_for = self._paused(held)
        if held.waits_for:
            return PAUSED_S
        held.waits_for = self._reason_to_wait(held)
        if held.waits_for:
            return FLOW_CONTROL_S
        subscription = self._subscription(held.queue.topic)
        if subscription is None:
            held.waits_for = f"topic {held.queue.topic} is no longer subscribed"
            return ERROR_S
        asked = held.next_offset
        try:
            response = await self._pull(held, subscription)
            if not held.may_begin or held.next_offset != asked:
                return 0.0  # left, or sought elsewhere meanwhile
            return self._take(held, subscription, response, started_s)
        except (NetError, ClientError, ProtocolError) as error:
            held.broker_id = MASTER_ID
            held.waits_for = f"the last pull failed: {error}"
            self._log.info("pull of %s failed: %s", held.queue, error)
            return ERROR_S

    async def _pull(self, held: HeldQueue, subscription: SubscriptionData) -> Response:
        queue = held.queue
        broker = await find_broker(self._client, queue.topic, queue.broker_name, held.broker_id)
        # Only the master keeps progress: a pull from a slave carries none, also where a slave
        # stands in for a master that has no address.
        committed = self._committed(held) if broker.is_master else -1
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
        return await self._client.peers.call(broker.address, header, timeout_s=self._call_timeout_s)

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
            _go_on(held, pulled)
            self._arrived(held, wanted(messages, subscription))
            return 0.0
        if response.code in _EMPTY:
            _go_on(held, response.header(PulledInEpoch))
            self._arrived(held, [])
            return 0.0
        if response.code == ResponseCode.PULL_OFFSET_MOVED:
            pulled = response.header(PulledInEpoch)
            if pulled.valid_end is not None:
                self._shortened(held, pulled.valid_end, pulled.epoch)
            else:
                held.epoch = pulled.epoch
                self._moved(held, pulled.next_begin_offset)
            return 0.0
        held.waits_for = f"the broker answered {response.code}: {response.remark}"
        self._log.warning("pull of %s: %s", held.queue, held.waits_for)
        return ERROR_S


def _go_on(held: HeldQueue, pulled: PulledInEpoch) -> None:
    held.next_offset = pulled.next_begin_offset
    held.epoch = pulled.epoch
    held.broker_id = pulled.suggest_which_broker_id
