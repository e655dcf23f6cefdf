"""The producer: picks a queue, sends, retries elsewhere, reports how safe the message is."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Literal, TypedDict

from sparrowmq.client.argument_checks import (
    MAX_LONG,
    check_flags,
    check_kind,
    check_time,
    check_whole,
    member_of,
)
from sparrowmq.client.client import Client, core_of
from sparrowmq.client.client_core import ClientCore
from sparrowmq.client.config import FROM_ENVIRONMENT, ClientConfig, config_of
from sparrowmq.client.hooks import HookCalls, Hooks, check_hooks
from sparrowmq.client.send_result import SendResult
from sparrowmq.client.sending.attempts import RetryRules
from sparrowmq.client.sending.broker_requests import routes
from sparrowmq.client.sending.diversion import check_when_refused
from sparrowmq.client.sending.fault_avoidance import FaultAvoidance
from sparrowmq.client.sending.hooked_sender import HookedSender
from sparrowmq.client.sending.packing import Packing
from sparrowmq.client.sending.producer_member import GroupProducer
from sparrowmq.client.sending.queue_choice import Selector, chooser
from sparrowmq.client.sending.sender import Sender
from sparrowmq.client.setting_names import checks_setting_names
from sparrowmq.protocol.compression import CompressionType
from sparrowmq.protocol.message import MAX_BODY_BYTES, Message, MessageQueue
from sparrowmq.protocol.message_ext import MessageExt
from sparrowmq.protocol.names import check_producer_group, check_topic

CompressionName = Literal["LZ4", "ZSTD", "ZLIB"]
_NOWHERE: Mapping[str, str] = {}


class SendSettings(TypedDict, total=False):
    """The settings of a Producer, for code that passes them on; `Producer` documents them."""

    name_servers: str | Sequence[str]
    config: ClientConfig | None
    timeout_s: float
    retries: int
    default_queues: int
    max_body_bytes: int
    compress_from_bytes: int
    compression: CompressionType | CompressionName
    retry_unless_ok: bool
    idempotent: bool
    avoid_faults: bool
    when_refused: Mapping[str, str]
    trace: bool
    hooks: Sequence[Hooks]


class ProducerSettings(SendSettings, total=False):
    """SendSettings plus the client that producers and consumers may share."""

    client: Client | None


def check_timeout(timeout_s: float) -> None:
    """Raises ValueError for a timeout that leaves no time to send."""
    check_time("timeout_s", timeout_s)


def check_settings(timeout_s: float, retries: int, packing: Packing) -> None:
    """Raises ValueError for settings that make no sense."""
    check_timeout(timeout_s)
    check_whole("retries", retries, 0)
    check_whole("default_queues", packing.default_queues, 1)
    check_whole("max_body_bytes", packing.max_body_bytes, 1)
    check_whole("compress_from_bytes", packing.compress_from_bytes, 0, MAX_LONG)


@checks_setting_names
class Producer(GroupProducer):
    """Sends messages for a producer group.

        async with Producer("orders-svc") as producer:
            result = await producer.send(Message("orders", b"…", tags="created", keys="o-1"))

    Any number of sends may be in flight at once. A producer can be started only once, and is
    usable from one event loop only.
    """

    def __init__(
        self,
        group: str,
        *,
        name_servers: str | Sequence[str] = FROM_ENVIRONMENT,
        config: ClientConfig | None = None,
        client: Client | None = None,
        timeout_s: float = 3.0,
        retries: int = 2,
        default_queues: int = 4,
        max_body_bytes: int = MAX_BODY_BYTES,
        compress_from_bytes: int = 4096,
        compression: CompressionType | CompressionName = CompressionType.ZLIB,
        retry_unless_ok: bool = False,
        idempotent: bool = False,
        avoid_faults: bool = False,
        when_refused: Mapping[str, str] = _NOWHERE,
        trace: bool = False,
        hooks: Sequence[Hooks] = (),
    ) -> None:
        """`timeout_s` covers all attempts together; `retries` counts those after the first one.

        `retry_unless_ok` also retries when a message is stored but less safe than asked for, which
        may store it twice. `idempotent` repeats a send whose outcome is unknown, on the same broker
        only, which must de-duplicate the topic: the message is then stored once.
        `avoid_faults` stays away from slow and failing brokers for a while.
        `when_refused` maps a topic to the one that takes its messages when a quota or a largest
        backlog refuses them, as {"orders": "orders-overflow"}; `diverted_from` of the result tells.
        A topic that is created by sending to it gets `default_queues` queues on each broker.
        `trace` records every stored message in RMQ_SYS_TRACE_TOPIC, for RocketMQ's tools.
        `hooks` are called before and after every send.
        `config` has name servers and more; a shared `client` brings its own `config`.

        Raises ValueError for an illegal group or setting.
        """
        check_producer_group(group)
        packing = Packing(
            group=group,
            max_body_bytes=max_body_bytes,
            compress_from_bytes=compress_from_bytes,
            compression=member_of("compression", compression, CompressionType),
            default_queues=default_queues,
        )
        check_settings(timeout_s, retries, packing)
        check_flags(
            retry_unless_ok=retry_unless_ok,
            idempotent=idempotent,
            avoid_faults=avoid_faults,
            trace=trace,
        )
        check_hooks(hooks)
        self._timeout_s = timeout_s
        own = config_of(name_servers, config, has_client=client is not None)
        used = ClientCore(own, routes=routes) if client is None else core_of(client)
        others = check_when_refused(when_refused)
        rules = RetryRules(
            retries=retries,
            unless_ok=retry_unless_ok,
            idempotent=idempotent,
            diverted=frozenset(others),
        )
        make = partial(HookedSender, hooks=HookCalls(hooks, used.log)) if hooks else Sender
        faults = FaultAvoidance() if avoid_faults else None
        sender = make(used, packing, rules, faults=faults, has_trace=trace, when_refused=others)
        super().__init__(group, used, sender, owns_client=client is None)

    async def send(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        key: str | None = None,
        selector: Selector | None = None,
        timeout_s: float | None = None,
    ) -> SendResult:
        """Send and wait for the broker's answer.

        Without `queue`, `key` or `selector`, messages go to the queues in turn, and failed attempts
        are retried elsewhere. With one of them there is one attempt: on `queue`, on the queue that
        the selector picks, or on the queue of the key (the same key always picks the same queue).
        A message's own `sharding_key` counts as `key`. A status other than SEND_OK is returned, not
        raised.

        Raises ValueError (nothing was sent), NoRoute, SendFailed, BrokerRefused; NotDeduplicated
        if the producer is `idempotent` and the broker does not de-duplicate the topic.
        """
        self._check_started()
        choose = chooser(message, queue, key, selector)
        return await self._sender.send(message, choose, self._limit_s(timeout_s))

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
        """Send a message and wait for its consumer's reply.

        Raises RequestTimedOut if no reply came in time, whose `is_stored` says whether a broker has
        the request, and whatever `send` raises.
        """
        self._check_started()
        choose = chooser(message, queue, key, selector)
        limit_s = self._limit_s(timeout_s)
        send = partial(self._sender.send_named, message, choose, limit_s)
        return await self._requests.ask(message.topic, limit_s, send)

    async def reply(
        self, request: MessageExt, body: bytes, *, timeout_s: float | None = None
    ) -> SendResult:
        """Answer a consumed message that was sent with `request`.

        Raises ValueError if it was not a request, and whatever `send` raises; BrokerRefused also
        when the requester is gone.
        """
        self._check_started()
        check_kind("request", request, MessageExt)
        return await self._sender.reply(request, body, self._limit_s(timeout_s))

    # ---- many and unanswered

    async def send_batch(
        self, messages: Sequence[Message], *, timeout_s: float | None = None
    ) -> list[SendResult]:
        """Send messages of one topic together, split into several sends if one is too small. Each
        send goes to one queue, in turn: the messages' sharding keys choose none.

        Raises ValueError for messages that cannot share a batch (nothing was sent), and whatever
        `send` raises; `stored` of the error lists the sends of a split batch that had succeeded.
        """
        self._check_started()
        check_kind("messages", messages, Sequence)
        return await self._sender.send_batch(messages, self._limit_s(timeout_s))

    async def send_oneway(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        key: str | None = None,
        selector: Selector | None = None,
    ) -> None:
        """Send without waiting for an answer: fast, but you do not learn whether it arrived.

        Raises ValueError, NoRoute, or SendFailed if the broker cannot be reached.
        """
        self._check_started()
        choose = chooser(message, queue, key, selector)
        await self._sender.send_oneway(message, choose, self._timeout_s)

    async def recall(self, recall_handle: str, *, timeout_s: float | None = None) -> str:
        """Recall a message with a delivery time before it is delivered. Returns its unique id.

        `recall_handle` is in the result of the send. Raises ValueError if it is not a handle or was
        used before, NoRoute, SendFailed, and BrokerRefused if it is too late.
        """
        self._check_started()
        check_kind("recall_handle", recall_handle, str)
        return await self._sender.recall(recall_handle, self._limit_s(timeout_s))

    def diverted(self) -> dict[str, int]:
        """For each topic in `when_refused`, how many messages were diverted so far."""
        diverting = self._sender.diverting
        return {} if diverting is None else dict(diverting.counts)

    async def queues(self, topic: str) -> list[MessageQueue]:
        """The queues to which a topic's messages are sent. Raises ValueError, NoRoute."""
        self._check_started()
        return await self._sender.queues(check_topic(topic), self._timeout_s)

    def _limit_s(self, timeout_s: float | None) -> float:
        if timeout_s is None:
            return self._timeout_s
        check_timeout(timeout_s)
        return timeout_s
