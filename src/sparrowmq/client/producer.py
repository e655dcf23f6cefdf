"""The producer: finds a queue, sends, tries again elsewhere, tells how safe the message is."""

import asyncio
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self

import msgspec

from sparrowmq.client.client import Client
from sparrowmq.client.config import ClientConfig, parse_name_servers
from sparrowmq.client.errors import BrokerRefused, NoRoute, NotStarted, SendFailed
from sparrowmq.client.outgoing import Outgoing, Packing, pack, pack_batch, split_batch
from sparrowmq.client.queue_choice import RoundRobin, queue_for_key
from sparrowmq.client.route_table import cut_route, publish_queues
from sparrowmq.client.send_result import STATUS_OF_CODE, SendResult
from sparrowmq.net.calls import Response
from sparrowmq.net.errors import NetError
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.compression import CompressionType
from sparrowmq.protocol.headers.send import SpecialMessageSent
from sparrowmq.protocol.heartbeat import ConsumerData
from sparrowmq.protocol.message import MAX_BODY_BYTES, Message, MessageQueue
from sparrowmq.protocol.names import AUTO_CREATE_TOPIC, check_group

Selector = Callable[[Sequence[MessageQueue], Message], MessageQueue]

RETRIED = frozenset(
    {
        ResponseCode.TOPIC_NOT_EXIST,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.NO_PERMISSION,
        ResponseCode.NOT_IN_CURRENT_UNIT,
        ResponseCode.NO_BUYER_ID,
        ResponseCode.GO_AWAY,
    }
)
"""Answers that another broker may not give; all others are raised at once."""


class Producer:
    """Sends messages for a producer group.

        async with Producer("orders-svc") as producer:
            result = await producer.send(Message("orders", b"…", tags="created", keys="o-1"))

    Any number of sends may be under way at once. Not started twice; usable from one event loop.
    """

    def __init__(
        self,
        group: str,
        *,
        name_servers: str | Sequence[str] = "127.0.0.1:9876",
        client: Client | None = None,
        timeout_s: float = 3.0,
        retries: int = 2,
        default_queues: int = 4,
        max_body_bytes: int = MAX_BODY_BYTES,
        compress_from_bytes: int = 4096,
        compression: CompressionType = CompressionType.ZLIB,
        retry_unless_ok: bool = False,
    ) -> None:
        """`timeout_s` is the time of all attempts together; `retries` come after the first one.

        `retry_unless_ok` also tries again when a message is stored but less safe than asked for,
        which may store it twice. Raises ValueError for an illegal group.
        """
        self._group = check_group(group)
        self._owns_client = client is None
        servers = (
            parse_name_servers(name_servers) if isinstance(name_servers, str) else name_servers
        )
        self.client = client or Client(ClientConfig(name_servers=tuple(servers)))
        self._timeout_s = timeout_s
        self._retries = retries
        self._retry_unless_ok = retry_unless_ok
        self._packing = Packing(
            group=group,
            max_body_bytes=max_body_bytes,
            compress_from_bytes=compress_from_bytes,
            compression=compression,
            default_queues=default_queues,
        )
        self._choices: dict[str, RoundRobin] = {}
        self._is_started = False

    # ---- life

    @property
    def group(self) -> str:
        """The producer group."""
        return self._group

    def topics(self) -> set[str]:
        """Topics whose routes are kept fresh: those that were sent to."""
        return set(self._choices)

    def consumer_data(self) -> ConsumerData | None:
        """None: this is no consumer."""
        return None

    async def start(self) -> None:
        """Begin; a producer of the same group in the same client is refused."""
        if self._owns_client:
            await self.client.start()
        if self._group in self.client.producers:
            raise ValueError(f"this client has a producer of group {self._group} already")
        self.client.producers[self._group] = self
        self._is_started = True

    async def stop(self) -> None:
        """Say goodbye to the brokers and end the connections."""
        if not self._is_started:
            return
        self._is_started = False
        self.client.producers.pop(self._group, None)
        await self.client.unregister(producer_group=self._group)
        if self._owns_client:
            await self.client.stop()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop()

    # ---- sending

    async def send(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        key: str | None = None,
        selector: Selector | None = None,
        timeout_s: float | None = None,
    ) -> SendResult:
        """Send and wait for the broker's word.

        Without `queue`, `key` or `selector` queues are taken in turn and failed attempts repeated
        elsewhere. With one of them the message goes to that queue, once. A message's own
        `sharding_key` counts as `key`. A status other than SEND_OK is returned, not raised.

        Raises ValueError (nothing was sent), NoRoute, SendFailed, BrokerRefused.
        """
        self._check_started()
        out = pack(message, self._packing, self.client.unique_ids, self.client.clock())
        limit_s = self._timeout_s if timeout_s is None else timeout_s
        key = message.sharding_key if key is None else key
        if queue is None and key is None and selector is None:
            return await self._send_with_retries(message.topic, out, limit_s)
        queues = await self._queues(message.topic)
        if queue is None:
            queue = selector(queues, message) if selector else queue_for_key(queues, str(key))
        return await self._send_once(queue, out, limit_s)

    async def send_batch(
        self, messages: Sequence[Message], *, timeout_s: float | None = None
    ) -> list[SendResult]:
        """Send messages of one topic together; split where they are too many for one send."""
        self._check_started()
        results = []
        limit_s = self._timeout_s if timeout_s is None else timeout_s
        for part in split_batch(messages, self._packing):
            out = pack_batch(part, self._packing, self.client.unique_ids, self.client.clock())
            results.append(await self._send_with_retries(messages[0].topic, out, limit_s))
        return results

    async def send_oneway(self, message: Message, *, key: str | None = None) -> None:
        """Send without an answer: fast, and nobody knows whether it arrived."""
        self._check_started()
        out = pack(message, self._packing, self.client.unique_ids, self.client.clock())
        queues = await self._queues(message.topic)
        key = message.sharding_key if key is None else key
        chosen = queue_for_key(queues, key) if key else self._choice(message.topic).next(queues)
        await self.client.peers.send_oneway(self._address(chosen), out.for_queue(chosen), out.body)

    async def queues(self, topic: str) -> list[MessageQueue]:
        """The queues that messages of a topic are sent to. Raises NoRoute."""
        self._check_started()
        return await self._queues(topic)

    def _check_started(self) -> None:
        if not self._is_started:
            raise NotStarted("the producer is not running: use `async with`, or start() it")

    async def _queues(self, topic: str) -> list[MessageQueue]:
        self._choice(topic)
        table = self.client.route_table
        route = await table.fetch(topic)
        queues = publish_queues(topic, route) if route is not None else []
        if not queues:
            queues = await self._queues_of_new_topic(topic)
        return queues

    async def _queues_of_new_topic(self, topic: str) -> list[MessageQueue]:
        """A topic nobody has yet is sent along the route of TBW102, where brokers create it.

        The borrowed route stays until the next poll: asked again at once, the name server would
        know the topic on the first broker only, and the others would never get it.
        """
        table = self.client.route_table
        default = await table.fetch(AUTO_CREATE_TOPIC)
        borrowed = cut_route(default, self._packing.default_queues) if default else None
        queues = publish_queues(topic, borrowed) if borrowed else []
        if borrowed is None or not queues:
            raise NoRoute(
                topic,
                "it does not exist and no broker creates topics;"
                f" create it with: sparrowmq topic create {topic}",
            )
        table.put(topic, borrowed)
        return queues

    def _choice(self, topic: str) -> RoundRobin:
        choice = self._choices.get(topic)
        if choice is None:
            choice = self._choices[topic] = RoundRobin(self.client.rng.randrange(1 << 16))
        return choice

    def _address(self, queue: MessageQueue) -> str:
        address = self.client.route_table.master(queue.broker_name)
        if address is None:
            raise NoRoute(queue.topic, f"broker {queue.broker_name} has no master now")
        return address

    async def _send_with_retries(self, topic: str, out: Outgoing, limit_s: float) -> SendResult:
        loop = asyncio.get_running_loop()
        start_s = loop.time()
        queues = await self._queues(topic)
        attempts: list[tuple[str, str]] = []
        failed: str | None = None
        less_safe: SendResult | None = None
        for _ in range(1 + self._retries):
            left_s = limit_s - (loop.time() - start_s)
            if attempts and left_s <= 0:
                break
            queue = self._choice(topic).next(queues, failed)
            try:
                result = await self._send_once(queue, out, left_s)
            except BrokerRefused as error:
                if error.code not in RETRIED:
                    raise
                attempts.append((queue.broker_name, str(error)))
            except (NetError, NoRoute) as error:
                attempts.append((queue.broker_name, str(error)))
            else:
                if result.is_ok or not self._retry_unless_ok:
                    return result
                less_safe = result
                attempts.append((queue.broker_name, str(result.status)))
            failed = queue.broker_name
        if less_safe is not None:
            return less_safe
        raise SendFailed(topic, attempts, loop.time() - start_s)

    async def _send_once(self, queue: MessageQueue, out: Outgoing, limit_s: float) -> SendResult:
        address = self._address(queue)
        response = await self.client.peers.call(
            address, out.for_queue(queue), out.body, timeout_s=limit_s
        )
        return _result(address, queue, out, response)


def _result(address: str, queue: MessageQueue, out: Outgoing, response: Response) -> SendResult:
    status = STATUS_OF_CODE.get(response.code)
    if status is None:
        raise BrokerRefused(address, response.code, response.remark)
    sent = response.header(SpecialMessageSent)
    return SendResult(
        status=status,
        msg_id=out.msg_id,
        offset_msg_id=sent.msg_id,
        queue=msgspec.structs.replace(queue, queue_id=sent.queue_id),
        queue_offset=sent.queue_offset,
        transaction_id=sent.transaction_id or "",
        recall_handle=sent.recall_handle or "",
    )
