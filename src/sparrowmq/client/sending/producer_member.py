"""The producer as its client and brokers see it: a member of a group."""

from collections.abc import Callable, Coroutine
from typing import Any

from sparrowmq.client.client_core import ClientCore
from sparrowmq.client.errors import NotStarted
from sparrowmq.client.lifecycle import Lifecycle
from sparrowmq.client.sending.request_reply import Requests
from sparrowmq.client.sending.sender import Sender
from sparrowmq.protocol.headers.transactions import CheckTransactionState, EndTransaction
from sparrowmq.protocol.heartbeat import ConsumerData
from sparrowmq.protocol.message_ext import MessageExt

CheckTransaction = Callable[
    [MessageExt, CheckTransactionState], Coroutine[Any, Any, EndTransaction | None]
]


class ProducerCalls:
    """What brokers and the client itself call on a producer: the part that users do not see."""

    def __init__(
        self, group: str, sender: Sender, requests: Requests, check: CheckTransaction
    ) -> None:
        self.group = group
        self._sender = sender
        self._requests = requests
        self._check = check

    def topics(self) -> set[str]:
        """Topics whose routes are kept fresh: those this producer has sent to."""
        return self._sender.topics()

    def consumer_data(self) -> ConsumerData | None:
        """None: a producer is not a consumer."""
        return None

    async def check_transaction(
        self, message: MessageExt, question: CheckTransactionState
    ) -> EndTransaction | None:
        """How a transaction ended; None if this producer has no transactions."""
        return await self._check(message, question)

    def take_reply(self, correlation_id: str, reply: MessageExt) -> bool:
        """A broker delivers a reply. Returns whether a request of this producer was waiting."""
        return self._requests.take(correlation_id, reply)


class GroupProducer(Lifecycle):
    """Base of the producers. Brokers and the client talk to `ProducerCalls`.

    `async with` starts the producer, and its client unless that is shared, and stops them at the
    end.
    """

    def __init__(
        self, group: str, client: ClientCore, sender: Sender, *, owns_client: bool
    ) -> None:
        super().__init__()
        self._group = group
        self._client = client
        self._sender = sender
        self._owns_client = owns_client
        self._requests = Requests(client)
        self._calls = ProducerCalls(group, sender, self._requests, self._check_transaction)
        self._is_started = False

    # ---- lifecycle

    async def start(self) -> None:
        """Start the producer; a second producer of the same group in one client is refused."""
        if self._is_started:
            raise ValueError("the producer is running already")
        if self._group in self._client.producers:
            raise ValueError(f"this client has a producer of group {self._group} already")
        with self._starting:
            await self._client.make_ready(is_own=self._owns_client)
            self._client.producers[self._group] = self._calls
            self._is_started = True
            if self._sender.trace is not None:
                await self._sender.trace.start()

    async def stop(self) -> None:
        """Unregister from the brokers, and close the connections unless the client is shared."""
        await self._starting.until_none()
        await self._stop_once(self._stop)

    async def _stop(self) -> None:
        try:
            if self._is_started:
                self._is_started = False
                await self._leave()
        finally:
            if self._owns_client:
                await self._client.stop()

    async def _leave(self) -> None:
        self._requests.close()
        try:
            if self._sender.trace is not None:
                await self._sender.trace.stop()
        finally:
            self._client.producers.pop(self._group, None)
            if self._sender.diverting is not None:
                self._sender.diverting.log_rest()
        await self._client.heartbeats.unregister(producer_group=self._group)

    async def _open(self) -> None:
        await self.start()

    def _check_started(self) -> None:
        if not self._is_started:
            raise NotStarted("the producer is not running: use `async with`, or start() it")
        self._client.check_loop()

    @property
    def group(self) -> str:
        """The producer group."""
        return self._group

    async def _check_transaction(
        self, message: MessageExt, question: CheckTransactionState
    ) -> EndTransaction | None:
        """None: this producer has no transactions."""
        return None


# ---- what users do not see, for tools and tests


def core_of_producer(producer: GroupProducer) -> ClientCore:
    """The client core of a producer."""
    return producer._client
