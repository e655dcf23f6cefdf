"""Producers by name: every way to send, transactions, requests, and a load in the background."""

import asyncio

from sparrowmq.client.client import Client
from sparrowmq.client.errors import ClientError
from sparrowmq.client.sending.producer import Producer
from sparrowmq.client.sending.producer_member import core_of_producer
from sparrowmq.client.sending.transactional_producer import (
    HalfMessage,
    TransactionalProducer,
    TransactionState,
)
from sparrowmq.protocol.message import Message
from sparrowmq.protocol.message_ext import MessageExt
from tests.interop.python_peer.values import (
    Command,
    Plain,
    client_of,
    described,
    messages_of,
    queue_of,
    sent,
    shown,
)

_STATES = {
    "COMMIT_MESSAGE": TransactionState.COMMIT,
    "ROLLBACK_MESSAGE": TransactionState.ROLLBACK,
    "UNKNOW": TransactionState.UNKNOWN,
}


class Load:
    """Sends at a fixed rate and remembers which bodies were acknowledged."""

    def __init__(self, producer: Producer, topic: str, per_second: int) -> None:
        self._producer = producer
        self._topic = topic
        self._pause_s = 1 / per_second
        self._stopping = asyncio.Event()
        self.acknowledged: list[str] = []
        self.attempted = 0
        self.failed = 0
        self.task = core_of_producer(producer).tasks.create_task(self._run())

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        async with asyncio.TaskGroup() as tasks:
            while not self._stopping.is_set():
                tasks.create_task(self._send(f"load {self.attempted}"))
                self.attempted += 1
                # By the clock, so that the rate is kept whatever a turn of the loop takes.
                await asyncio.sleep(began_s + self.attempted * self._pause_s - loop.time())

    async def _send(self, body: str) -> None:
        try:
            result = await self._producer.send(Message(self._topic, body.encode()))
        except ClientError:
            self.failed += 1
            return
        self.failed += not result.is_ok
        if result.is_ok:
            self.acknowledged.append(body)

    async def stop(self) -> Plain:
        """What it came to."""
        self._stopping.set()
        await self.task
        return {
            "acknowledged": self.acknowledged,
            "attempted": self.attempted,
            "failed": self.failed,
        }


class Producers:
    """Each has its own client."""

    def __init__(self) -> None:
        self.by_name: dict[str, Producer] = {}
        self._loads: dict[str, Load] = {}

    async def producer_start(self, command: Command) -> None:
        """Settings as the other drivers have them."""
        client = client_of(command)
        await client.start()
        producer = Producer(
            command["group"],
            client=client,
            timeout_s=int(command.get("timeout_ms", 15_000)) / 1000,
            default_queues=int(command.get("queues", 4)),
            max_body_bytes=int(command.get("max_message_bytes", 4 * 1024 * 1024)),
        )
        await producer.start()
        self.by_name[command["name"]] = producer

    async def producer_stop(self, command: Command) -> None:
        """Goodbye."""
        producer = self.by_name.pop(command["name"])
        await producer.stop()
        await core_of_producer(producer).stop()

    async def send(self, command: Command) -> list[Plain]:
        """One after the other, each so many times; a sharding key chooses the queue."""
        producer, times = self.by_name[command["name"]], int(command.get("times", 1))
        repeated = [message for message in messages_of(command) for _ in range(times)]
        return [sent(await producer.send(message)) for message in repeated]

    send_selected = send

    async def send_to_queue(self, command: Command) -> list[Plain]:
        """To one queue."""
        producer, queue = self.by_name[command["name"]], queue_of(command)
        return [sent(await producer.send(one, queue=queue)) for one in messages_of(command)]

    async def send_async(self, command: Command) -> list[Plain]:
        """All at once."""
        producer = self.by_name[command["name"]]
        sends = (producer.send(message) for message in messages_of(command))
        results = await asyncio.gather(*sends, return_exceptions=True)
        return [
            {"error": described(one)} if isinstance(one, BaseException) else sent(one)
            for one in results
        ]

    async def send_one_way(self, command: Command) -> None:
        """Without answers."""
        for message in messages_of(command):
            await self.by_name[command["name"]].send_oneway(message)

    async def send_batch(self, command: Command) -> Plain:
        """In one request."""
        (result,) = await self.by_name[command["name"]].send_batch(messages_of(command))
        return sent(result)

    async def request(self, command: Command) -> Plain:
        """Send and wait for the reply."""
        (message,) = messages_of(command)
        timeout_s = int(command["timeout_ms"]) / 1000
        reply = await self.by_name[command["name"]].request(message, timeout_s=timeout_s)
        return {"body": shown(reply.body)}

    async def load_start(self, command: Command) -> None:
        """Begin to send."""
        producer, rate = self.by_name[command["name"]], int(command.get("per_second", 100))
        self._loads[command["name"]] = Load(producer, command["topic"], rate)

    async def load_stop(self, command: Command) -> Plain:
        """What was acknowledged."""
        return await self._loads.pop(command["name"]).stop()


class Transactions:
    """Transactional producers whose answers are written in the messages' own properties."""

    def __init__(self) -> None:
        self._by_name: dict[str, tuple[TransactionalProducer, Client]] = {}
        self._checks: dict[str, int] = {}

    async def execute(self, half: HalfMessage) -> TransactionState:
        """The listener's part."""
        return _STATES[half.message.properties["execute"]]

    async def check(self, message: MessageExt) -> TransactionState:
        """The listener's part, counted."""
        body = message.body.decode()
        self._checks[body] = self._checks.get(body, 0) + 1
        return _STATES[message.properties["check"]]

    async def transaction_start(self, command: Command) -> None:
        """Begin."""
        client = client_of(command)
        await client.start()
        producer = TransactionalProducer(command["group"], self, client=client)
        await producer.start()
        self._by_name[command["name"]] = producer, client

    async def transaction_send(self, command: Command) -> list[Plain]:
        """Half messages, executed and ended."""
        producer, _ = self._by_name[command["name"]]
        return [
            sent(await producer.send_in_transaction(message)) for message in messages_of(command)
        ]

    async def transaction_checks(self, command: Command) -> dict[str, int]:
        """How often the broker asked, by body."""
        return self._checks

    async def transaction_stop(self, command: Command) -> None:
        """Goodbye."""
        producer, client = self._by_name.pop(command["name"])
        await producer.stop()
        await client.stop()
