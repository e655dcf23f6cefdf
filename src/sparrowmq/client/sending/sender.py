"""What a producer does with a message: pack it, find its queue, send it."""

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from functools import partial

from sparrowmq.client.client_core import ClientCore
from sparrowmq.client.errors import ClientError
from sparrowmq.client.send_result import SendResult
from sparrowmq.client.sending.attempts import RetryRules, SendAttempts
from sparrowmq.client.sending.diversion import DivertingAttempts, room_for_origin
from sparrowmq.client.sending.fault_avoidance import FaultAvoidance
from sparrowmq.client.sending.idempotent import IdempotentAttempts
from sparrowmq.client.sending.packing import Outgoing, Packing, pack, pack_batches
from sparrowmq.client.sending.queue_choice import Chooser, SendQueues, queue_on
from sparrowmq.client.sending.request_reply import reply_to
from sparrowmq.client.sending.trace import TraceLog
from sparrowmq.protocol.headers.messages import MessageRecalled, RecallHandle, RecallMessage
from sparrowmq.protocol.message import Message, MessageQueue
from sparrowmq.protocol.message_ext import MessageExt

_NOTHING: Mapping[str, str] = {}
_NOT_RECALLABLE = (
    "the recall handle is empty: brokers give one for messages with delay, delay_ms, deliver_at or"
    " deliver_time_ms, and cannot recall what is delayed by delay_level"
)


class BrokerRegistrations:
    """Which brokers know this client on its present connection.

    The next regular heartbeat may be 30 s away, and a broker pushes replies and asks about
    transactions only over connections that sent a heartbeat.
    """

    def __init__(self, client: ClientCore) -> None:
        self._client = client
        self._registered: set[str] = set()
        self._is_listening = False

    async def register_at(self, queues: Sequence[MessageQueue]) -> None:
        """Send a heartbeat to every new broker of these queues, ahead of what follows."""
        if not self._is_listening:
            self._is_listening = True
            self._client.when_peer_closes(self._registered.discard)
        masters = {self._client.route_table.master(queue.broker_name) for queue in queues}
        new = {address for address in masters if address is not None} - self._registered
        if new:
            self._registered |= new
            self._client.keep(partial(self._register, new), "producer registration")
            # In parallel to the send, which a dead broker must not delay. Two turns of the loop,
            # one for the task and one for its calls, put the heartbeat first on the connection.
            for _ in range(2):
                await asyncio.sleep(0)

    async def _register(self, new: set[str]) -> None:
        """Register at brokers that do not know the producer yet; a broker that cannot be reached
        now is retried the next time."""
        answered = await self._client.heartbeats.send_to(sorted(new))
        self._registered.difference_update(new - answered)


class RecalledMessages:
    """The messages that this producer has recalled: brokers answer a second recall like the first,
    so a program that repeats one by mistake would not notice."""

    _MOST = 10_000
    """How many handles are remembered; beyond that, repeating the oldest goes unnoticed."""

    def __init__(self) -> None:
        self._handles: dict[RecallHandle, None] = {}

    def add(self, handle: RecallHandle) -> None:
        """Record a recall. Raises ValueError for a message that was recalled before."""
        if handle in self._handles:
            raise ValueError(
                f"message {handle.msg_id} of topic {handle.topic} was recalled before by this"
                " producer; a handle is used once"
            )
        self._handles[handle] = None
        if len(self._handles) > self._MOST:
            del self._handles[next(iter(self._handles))]

    def discard(self, handle: RecallHandle) -> None:
        """The recall failed, and may be retried."""
        self._handles.pop(handle, None)


class Sender:
    """Sends for one producer group. `limit_s` covers all attempts of a call."""

    def __init__(
        self,
        client: ClientCore,
        packing: Packing,
        rules: RetryRules,
        *,
        faults: FaultAvoidance | None,
        has_trace: bool,
        when_refused: Mapping[str, str] = _NOTHING,
    ) -> None:
        self._client = client
        self._packing = packing
        self._queues = SendQueues(client, packing.default_queues)
        self.trace = TraceLog(client, packing.group) if has_trace else None
        kind = IdempotentAttempts if rules.idempotent else SendAttempts
        self._attempts = kind(client, self._queues, rules, faults, self.trace)
        self.diverting = (
            DivertingAttempts(self._attempts, when_refused, client) if when_refused else None
        )
        self._out = self.diverting or self._attempts
        """What sends the messages: the diverting attempts if there are any."""
        self._registrations = BrokerRegistrations(client)
        self._recalled = RecalledMessages()

    def topics(self) -> set[str]:
        """Topics that this producer has sent to."""
        return self._queues.topics()

    async def queues(self, topic: str, limit_s: float) -> list[MessageQueue]:
        """The queues to which a topic's messages are sent. Raises NoRoute."""
        return list((await self._attempts.find(topic, limit_s)).queues)

    def send(
        self, message: Message, choose: Chooser | None, limit_s: float
    ) -> Awaitable[SendResult]:
        """Send until a broker takes the message, or once if its queue is chosen. Raises ValueError
        at once, and what SendAttempts raises."""
        return self._send(message.topic, choose, self._pack(message), limit_s)

    def send_system(
        self,
        message: Message,
        choose: Chooser | None,
        limit_s: float,
        system: Mapping[str, str],
    ) -> Awaitable[SendResult]:
        """Like `send`, with additional properties of RocketMQ's own."""
        return self._send(message.topic, choose, self._pack(message, system), limit_s)

    async def send_named(
        self,
        message: Message,
        choose: Chooser | None,
        limit_s: float,
        system: Mapping[str, str],
    ) -> SendResult:
        """Like `send_system`, but registers at the brokers first, because they will have to call
        this producer. Raises ValueError if the message would have to be diverted."""
        if self.diverting is not None:
            self.diverting.check_named(message.topic, system)
        out = self._pack(message, system)
        found = await self._attempts.find(message.topic, limit_s)
        await self._registrations.register_at(found.queues)
        return await self._send(message.topic, choose, out, limit_s)

    async def send_oneway(self, message: Message, choose: Chooser | None, limit_s: float) -> None:
        """Send once, without waiting for an answer."""
        await self._out.send_oneway(message.topic, choose, self._pack(message), limit_s)

    async def send_batch(self, messages: Sequence[Message], limit_s: float) -> list[SendResult]:
        """Send messages together, in as few sends as their size allows."""
        client = self._client
        room = 0
        if self.diverting is not None and messages:
            room = room_for_origin(messages[0].topic)
        packed = pack_batches(messages, self._packing, client.unique_ids, client.clock(), room)
        results: list[SendResult] = []
        for out in packed:
            try:
                results.append(await self._out.send(messages[0].topic, out, limit_s))
            except ClientError as error:
                error.stored = results
                raise
        return results

    async def reply(self, request: MessageExt, body: bytes, limit_s: float) -> SendResult:
        """Reply to a request. Raises ValueError if the message is not a request."""
        message, system = reply_to(request, body)
        # The requester is connected to the broker that got the request, and perhaps to no other
        choose = partial(queue_on, request.broker_name)
        return await self.send_system(message, choose, limit_s, system)

    async def recall(self, recall_handle: str, limit_s: float) -> str:
        """Recall a message. Returns its unique id. Raises ValueError for an invalid handle, and for
        one that was used before."""
        if not recall_handle:
            raise ValueError(_NOT_RECALLABLE)
        handle = RecallHandle.parse(recall_handle)
        header = RecallMessage(
            topic=handle.topic, recall_handle=recall_handle, producer_group=self._packing.group
        )
        queue = MessageQueue(handle.topic, handle.broker_name, 0)
        self._recalled.add(handle)
        try:
            response = await self._attempts.ask(queue, header, limit_s)
        except BaseException:
            self._recalled.discard(handle)
            if self.trace is not None:
                self.trace.recalled(handle.topic, handle.msg_id, is_ok=False)
            raise
        if self.trace is not None:
            self.trace.recalled(handle.topic, handle.msg_id, is_ok=True)
        return response.header(MessageRecalled).msg_id

    def _pack(self, message: Message, system: Mapping[str, str] = _NOTHING) -> Outgoing:
        client = self._client
        return pack(message, self._packing, client.unique_ids, client.clock(), system)

    def _send(
        self, topic: str, choose: Chooser | None, out: Outgoing, limit_s: float
    ) -> Awaitable[SendResult]:
        # Not a coroutine itself: an extra coroutine per send is measurable
        if choose is None:
            return self._out.send(topic, out, limit_s)
        return self._out.send_to(topic, choose, out, limit_s)
