"""The producer: finds a queue, sends, tries again elsewhere, tells how safe the message is."""

from collections.abc import Awaitable, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Self

from sparrowmq.client.checks import check_kind
from sparrowmq.client.client import Client
from sparrowmq.client.config import ClientConfig, name_servers_of
from sparrowmq.client.errors import ClientError, NotStarted
from sparrowmq.client.send_result import SendResult
from sparrowmq.client.sending.fault_avoidance import FaultAvoidance
from sparrowmq.client.sending.introductions import Introductions
from sparrowmq.client.sending.outgoing import Outgoing, Packing, pack, pack_batches
from sparrowmq.client.sending.producer_calls import routes
from sparrowmq.client.sending.producer_settings import check_settings, check_timeout
from sparrowmq.client.sending.queue_choice import Chooser, Selector, chooser, queue_on
from sparrowmq.client.sending.request_reply import Requests, reply_to
from sparrowmq.client.sending.send_attempts import RetryRules, SendAttempts
from sparrowmq.client.sending.send_queues import SendQueues
from sparrowmq.client.sending.trace import TraceLog
from sparrowmq.client.starting import Starting
from sparrowmq.client.stopping import Stopping
from sparrowmq.protocol.compression import CompressionType
from sparrowmq.protocol.headers.recall import MessageRecalled, RecallHandle, RecallMessage
from sparrowmq.protocol.headers.transactions import CheckTransactionState, EndTransaction
from sparrowmq.protocol.heartbeat import ConsumerData
from sparrowmq.protocol.message import MAX_BODY_BYTES, Message, MessageQueue
from sparrowmq.protocol.message_ext import MessageExt
from sparrowmq.protocol.names import check_group


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
        avoid_faults: bool = False,
        trace: bool = False,
    ) -> None:
        """`timeout_s` is the time of all attempts together; `retries` come after the first one.

        `retry_unless_ok` also tries again when a message is stored but less safe than asked for,
        which may store it twice. `avoid_faults` stays away from slow and failing brokers for a
        while. A topic that is created by sending to it gets `default_queues` on each broker.
        `trace` records every stored message in RMQ_SYS_TRACE_TOPIC, for RocketMQ's tools.

        Raises ValueError for an illegal group or setting.
        """
        self._group = check_group(group)
        self._owns_client = client is None
        servers = name_servers_of(name_servers)
        self.client = client or Client(ClientConfig(name_servers=servers), routes=routes)
        self._timeout_s = timeout_s
        self._packing = Packing(
            group=group,
            max_body_bytes=max_body_bytes,
            compress_from_bytes=compress_from_bytes,
            compression=compression,
            default_queues=default_queues,
        )
        check_settings(timeout_s, retries, self._packing)
        self._send_queues = SendQueues(self.client, default_queues)
        self._trace = TraceLog(self.client, group, self._send_queues) if trace else None
        self._attempts = SendAttempts(
            self.client,
            self._send_queues,
            RetryRules(retries=retries, unless_ok=retry_unless_ok),
            FaultAvoidance() if avoid_faults else None,
            self._trace,
        )
        self._introductions = Introductions(self.client)
        self._requests = Requests(self.client)
        self._is_started = False
        self._starting = Starting()
        self._stopping = Stopping()

    # ---- life

    @property
    def group(self) -> str:
        """The producer group."""
        return self._group

    def topics(self) -> set[str]:
        """Topics whose routes are kept fresh: those that were sent to."""
        return self._send_queues.topics()

    def consumer_data(self) -> ConsumerData | None:
        """None: this is no consumer."""
        return None

    async def start(self) -> None:
        """Begin; a producer of the same group in the same client is refused."""
        if self._group in self.client.producers:
            raise ValueError(f"this client has a producer of group {self._group} already")
        with self._starting:
            await self.client.make_ready(is_own=self._owns_client)
            self.client.producers[self._group] = self
            self._is_started = True
            if self._trace is not None:
                await self._trace.start()

    async def stop(self) -> None:
        """Say goodbye to the brokers and end the connections."""
        await self._starting.until_over()
        await self._stopping.run(self._stop)

    async def _stop(self) -> None:
        try:
            if self._is_started:
                self._is_started = False
                await self._leave()
        finally:
            if self._owns_client:
                await self.client.stop()

    async def _leave(self) -> None:
        self._requests.close()
        try:
            if self._trace is not None:
                await self._trace.stop()
        finally:
            self.client.producers.pop(self._group, None)
        await self.client.heartbeats.unregister(producer_group=self._group)

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:
            await self.stop()
            raise
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
        elsewhere. With one of them the message goes to that queue, once: the same key to the same
        queue, where a selector says, or to `queue` itself. A message's own `sharding_key` counts
        as `key`. A status other than SEND_OK is returned, not raised.

        Raises ValueError (nothing was sent), NoRoute, SendFailed, BrokerRefused.
        """
        self._check_started()
        choose = chooser(message, queue, key, selector)
        out = pack(message, self._packing, self.client.unique_ids, self.client.clock())
        limit_s = self._limit_s(timeout_s)
        return await self._send_out(message.topic, choose, out, limit_s)

    async def _send_named(
        self,
        message: Message,
        choose: Chooser | None,
        limit_s: float,
        system: Mapping[str, str],
    ) -> SendResult:
        """Send with properties of RocketMQ's own, to brokers that know this producer by then."""
        found = await self._attempts.find(message.topic, limit_s)
        await self._introductions.introduce(found.queues)
        client = self.client
        out = pack(message, self._packing, client.unique_ids, client.clock(), system)
        return await self._send_out(message.topic, choose, out, limit_s)

    def _send_out(
        self, topic: str, choose: Chooser | None, out: Outgoing, limit_s: float
    ) -> Awaitable[SendResult]:
        if choose is None:
            return self._attempts.send(topic, out, limit_s)
        return self._attempts.send_to(topic, choose, out, limit_s)

    # ---- request and reply

    async def request(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        key: str | None = None,
        selector: Selector | None = None,
        timeout_s: float | None = None,
    ) -> MessageExt:
        """Send a message and wait for the reply of whoever consumes it.

        Raises RequestTimedOut when none came in time, and what `send` raises.
        """
        self._check_started()
        choose = chooser(message, queue, key, selector)
        limit_s = self._limit_s(timeout_s)
        send = partial(self._send_named, message, choose, limit_s)
        return await self._requests.ask(message.topic, limit_s, send)

    async def reply(
        self, request: MessageExt, body: bytes, *, timeout_s: float | None = None
    ) -> SendResult:
        """Answer a consumed message that was sent with `request`.

        Raises ValueError when it is no request, and what `send` raises; BrokerRefused also when
        who asked has gone.
        """
        self._check_started()
        message, system = reply_to(request, body)
        out = pack(message, self._packing, self.client.unique_ids, self.client.clock(), system)
        limit_s = self._limit_s(timeout_s)
        # Who asked is connected to the broker that had the request, perhaps to no other
        choose = partial(queue_on, request.broker_name)
        return await self._attempts.send_to(message.topic, choose, out, limit_s)

    async def check_transaction(
        self, message: MessageExt, question: CheckTransactionState
    ) -> EndTransaction | None:
        """None: this producer has no transactions."""
        return None

    def take_reply(self, correlation_id: str, reply: MessageExt) -> bool:
        """A broker brings a reply; whether it was waited for here."""
        return self._requests.take(correlation_id, reply)

    # ---- many and unanswered

    async def send_batch(
        self, messages: Sequence[Message], *, timeout_s: float | None = None
    ) -> list[SendResult]:
        """Send messages of one topic together; split where they are too many for one send.

        Raises ValueError for what cannot go together (nothing was sent), and what `send` raises;
        `stored` of the error tells which sends of a split batch had succeeded by then.
        """
        self._check_started()
        check_kind("messages", messages, Sequence)
        limit_s = self._limit_s(timeout_s)
        packed = pack_batches(messages, self._packing, self.client.unique_ids, self.client.clock())
        results: list[SendResult] = []
        for out in packed:
            try:
                results.append(await self._attempts.send(messages[0].topic, out, limit_s))
            except ClientError as error:
                error.stored = results
                raise
        return results

    async def send_oneway(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        key: str | None = None,
        selector: Selector | None = None,
    ) -> None:
        """Send without an answer: fast, and nobody knows whether it arrived.

        Raises ValueError, NoRoute, or SendFailed when the broker cannot be reached.
        """
        self._check_started()
        choose = chooser(message, queue, key, selector)
        out = pack(message, self._packing, self.client.unique_ids, self.client.clock())
        await self._attempts.send_oneway(message.topic, choose, out, self._timeout_s)

    async def recall(self, recall_handle: str, *, timeout_s: float | None = None) -> str:
        """Take back a message with a delivery time before it is delivered; its unique id.

        `recall_handle` comes with the result of its send. Raises ValueError when it is none,
        NoRoute, SendFailed, and BrokerRefused when it is too late.
        """
        self._check_started()
        handle = RecallHandle.parse(recall_handle)
        header = RecallMessage(
            topic=handle.topic, recall_handle=recall_handle, producer_group=self._group
        )
        limit_s = self._limit_s(timeout_s)
        queue = MessageQueue(handle.topic, handle.broker_name, 0)
        response = await self._attempts.ask(queue, header, limit_s)
        return response.header(MessageRecalled).msg_id

    async def queues(self, topic: str) -> list[MessageQueue]:
        """The queues that messages of a topic are sent to. Raises NoRoute."""
        self._check_started()
        return list((await self._attempts.find(topic, self._timeout_s)).queues)

    def _check_started(self) -> None:
        if not self._is_started:
            raise NotStarted("the producer is not running: use `async with`, or start() it")
        self.client.check_loop()

    def _limit_s(self, timeout_s: float | None) -> float:
        if timeout_s is None:
            return self._timeout_s
        check_timeout(timeout_s)
        return timeout_s
