"""What a producer does with a message: pack it, find its queue, have it sent."""

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from functools import partial

from sparrowmq.client.client_core import ClientCore
from sparrowmq.client.errors import ClientError
from sparrowmq.client.send_result import SendResult
from sparrowmq.client.sending.attempts import FaultAvoidance, RetryRules, SendAttempts
from sparrowmq.client.sending.diversion import DivertingAttempts, room_for_origin
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
    transactions only where a heartbeat came from.
    """

    def __init__(self, client: ClientCore) -> None:
        self._client = client
        self._registered: set[str] = set()
        self._is_listening = False

    async def register_at(self, queues: Sequence[MessageQueue]) -> None:
        """Have a heartbeat on its way to every broker of these queues, ahead of what follows."""
        if not self._is_listening:
            self._is_listening = True
            self._client.when_peer_closes(self._registered.discard)
        masters = {self._client.route_table.master(queue.broker_name) for queue in queues}
        new = {address for address in masters if address is not None} - self._registered
        if new:
            self._registered |= new
            self._client.keep(partial(self._register, new), "producer registration")
            # Beside the send, for a broker that is not there must not cost its time. Two turns of
            # the loop, one for the task and one for its calls, put it first on the connection.
            for _ in range(2):
                await asyncio.sleep(0)

    async def _register(self, new: set[str]) -> None:
        """Register at brokers that do not know the producer yet; one that cannot be reached now is
        tried again the next time."""
        answered = await self._client.heartbeats.send_to(sorted(new))
        self._registered.difference_update(new - answered)


class RecalledMessages:
    """What this producer has taken back: brokers answer a second recall as they do the first, so
    that a program which repeats one by mistake would not notice."""

    _MOST = 10_000
    """Handles that are remembered; a program that recalls more than these is not checked for the
    oldest."""

    def __init__(self) -> None:
        self._handles: dict[RecallHandle, None] = {}

    def add(self, handle: RecallHandle) -> None:
        """Raises ValueError for one that was recalled before."""
        if handle in self._handles:
            raise ValueError(
                f"message {handle.msg_id} of topic {handle.topic} was recalled before by this"
                " producer; a handle is used once"
            )
        self._handles[handle] = None
        if len(self._handles) > self._MOST:
            del self._handles[next(iter(self._handles))]

    def discard(self, handle: RecallHandle) -> None:
        """It was not recalled, and may be tried again."""
        self._handles.pop(handle, None)


class Sender:
    """Sends for one producer group. `limit_s` is the time of all attempts of a call."""

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
        """What messages leave by."""
        self._registrations = BrokerRegistrations(client)
        self._recalled = RecalledMessages()

    def topics(self) -> set[str]:
        """Topics that were sent to."""
        return self._queues.topics()

    async def queues(self, topic: str, limit_s: float) -> list[MessageQueue]:
        """Where a topic is sent to. Raises NoRoute."""
        return list((await self._attempts.find(topic, limit_s)).queues)

    def send(
        self, message: Message, choose: Chooser | None, limit_s: float
    ) -> Awaitable[SendResult]:
        """Until a broker takes it, or once where its queue is chosen. Raises ValueError at once,
        and what SendAttempts raises."""
        return self._send(message.topic, choose, self._pack(message), limit_s)

    def send_system(
        self,
        message: Message,
        choose: Chooser | None,
        limit_s: float,
        system: Mapping[str, str],
    ) -> Awaitable[SendResult]:
        """The same with properties of RocketMQ's own."""
        return self._send(message.topic, choose, self._pack(message, system), limit_s)

    async def send_named(
        self,
        message: Message,
        choose: Chooser | None,
        limit_s: float,
        system: Mapping[str, str],
    ) -> SendResult:
        """The same to brokers that know this producer by then: they will have to call it. Raises
        ValueError where it would have to be diverted."""
        if self.diverting is not None:
            self.diverting.check_named(message.topic, system)
        out = self._pack(message, system)
        found = await self._attempts.find(message.topic, limit_s)
        await self._registrations.register_at(found.queues)
        return await self._send(message.topic, choose, out, limit_s)

    async def send_oneway(self, message: Message, choose: Chooser | None, limit_s: float) -> None:
        """Once, without an answer."""
        await self._out.send_oneway(message.topic, choose, self._pack(message), limit_s)

    async def send_batch(self, messages: Sequence[Message], limit_s: float) -> list[SendResult]:
        """Together, in as few sends as their size allows."""
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
        """Answer a message that waits for it. Raises ValueError when it does not."""
        message, system = reply_to(request, body)
        # The requester is connected to the broker that had the request, perhaps to no other
        choose = partial(queue_on, request.broker_name)
        return await self.send_system(message, choose, limit_s, system)

    async def recall(self, recall_handle: str, limit_s: float) -> str:
        """Take a message back; its unique id. Raises ValueError for what is no handle, and for one
        that was used before."""
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
        # Not a coroutine itself: a layer of them per send is noticeable
        if choose is None:
            return self._out.send(topic, out, limit_s)
        return self._out.send_to(topic, choose, out, limit_s)
