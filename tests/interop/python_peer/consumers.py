"""Push, pull and lite pull consumers by name."""

import asyncio
import datetime
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sparrowmq.client.client import Client
from sparrowmq.client.consuming.handler_calls import RetryLater
from sparrowmq.client.consuming.lite_pull_consumer import LitePullConsumer
from sparrowmq.client.consuming.pull_consumer import PullConsumer, PullStatus
from sparrowmq.client.consuming.push_consumer import PushConsumer
from sparrowmq.client.subscriptions import Sql
from sparrowmq.protocol.heartbeat import ConsumeFromWhere, MessageModel
from sparrowmq.protocol.message import MessageQueue
from sparrowmq.protocol.message_ext import MessageExt
from tests.interop.python_peer.producers import Producers
from tests.interop.python_peer.values import Command, Plain, client_of, queue_of, received, shown

_SUSPEND_S = 0.2
_POLL_S = 0.2
_FROM = {
    "CONSUME_FROM_LAST_OFFSET": ConsumeFromWhere.LAST_OFFSET,
    "CONSUME_FROM_FIRST_OFFSET": ConsumeFromWhere.FIRST_OFFSET,
    "CONSUME_FROM_TIMESTAMP": ConsumeFromWhere.TIMESTAMP,
}
_PULLED = {
    PullStatus.FOUND: "FOUND",
    PullStatus.NO_NEW_MESSAGE: "NO_NEW_MSG",
    PullStatus.NO_MATCHED_MESSAGE: "NO_MATCHED_MSG",
    PullStatus.OFFSET_ILLEGAL: "OFFSET_ILLEGAL",
}


class Member:
    """A push consumer that remembers what came; `fails` makes it refuse a body so many times."""

    def __init__(self, command: Command, client: Client, producers: Producers) -> None:
        self.client = client
        self.got: list[Plain] = []
        self.news = asyncio.Event()
        self._command = command
        self._producers = producers
        self._seen: Counter[str] = Counter()
        stamp = command.get("from_timestamp")
        at = datetime.datetime.strptime(stamp, "%Y%m%d%H%M%S").astimezone() if stamp else None
        self.consumer = PushConsumer(
            command["group"],
            {
                command["topic"]: Sql(command["sql"])
                if "sql" in command
                else command.get("tags", "*")
            },
            client=client,
            model=MessageModel[command.get("model", "CLUSTERING")],
            orderly=bool(command.get("orderly")),
            offsets_dir=Path("offsets"),
            from_where=_FROM[command.get("from_where", "CONSUME_FROM_LAST_OFFSET")],
            from_timestamp_ms=int(at.timestamp() * 1000) if at else None,
            max_reconsume_times=int(command.get("max_reconsume_times", -1)),
        )

    async def handle(self, messages: Sequence[MessageExt]) -> None:
        """Record the message, take the configured time, and reply or refuse as configured."""
        fails = self._command.get("fails", {})
        good = True
        for message in messages:
            body = shown(message.body)
            self._seen[body] += 1
            good = good and self._seen[body] > fails.get(body, 0)
            self.got.append(received(message))
            self.news.set()
            if name := self._command.get("reply_producer"):
                await self._producers.by_name[name].reply(message, f"reply to {body}".encode())
        if takes_ms := self._command.get("takes_ms"):
            await asyncio.sleep(takes_ms / 1000)
        if not good:
            level = int(self._command.get("retry_level", 0))
            raise RetryLater("told to", delay_level=level, suspend_s=_SUSPEND_S)


class PushConsumers:
    """Each has its own client."""

    def __init__(self, producers: Producers) -> None:
        self._producers = producers
        self._members: dict[str, Member] = {}

    async def push_start(self, command: Command) -> None:
        """Subscribe and consume."""
        client = client_of(command)
        await client.start()
        member = Member(command, client, self._producers)
        await member.consumer.start(member.handle)
        self._members[command["name"]] = member

    async def push_received(self, command: Command) -> list[Plain]:
        """Wait until so many came, or the time is over, and answer what came after `from`."""
        member = self._members[command["name"]]
        count, timeout_s = command.get("count", 0), command.get("timeout_ms", 0) / 1000
        try:
            async with asyncio.timeout(timeout_s):
                while len(member.got) < count:
                    member.news.clear()
                    await member.news.wait()
        except TimeoutError:
            pass  # what there is
        return member.got[command.get("from", 0) :]

    async def push_suspend(self, command: Command) -> None:
        """Pull nothing more."""
        self._members[command["name"]].consumer.pause()

    async def push_resume(self, command: Command) -> None:
        """Resume."""
        self._members[command["name"]].consumer.resume()

    async def push_stop(self, command: Command) -> None:
        """Leave the group. It stays listed: what came while it stopped can still be asked for."""
        member = self._members[command["name"]]
        await member.consumer.stop()
        await member.client.stop()


class PullConsumers:
    """The caller keeps the offsets."""

    def __init__(self) -> None:
        self._by_name: dict[str, tuple[PullConsumer, Client]] = {}

    def _get(self, command: Command) -> PullConsumer:
        return self._by_name[command["name"]][0]

    async def pull_start(self, command: Command) -> None:
        """Join."""
        client = client_of(command)
        await client.start()
        consumer = PullConsumer(command["group"], client=client)
        await consumer.start()
        self._by_name[command["name"]] = consumer, client

    async def pull_queues(self, command: Command) -> list[Plain]:
        """All queues of a topic."""
        queues = await self._get(command).queues(command["topic"])
        return [{"broker": one.broker_name, "queue_id": one.queue_id} for one in queues]

    async def pull(self, command: Command) -> Plain:
        """Once."""
        result = await self._get(command).pull(
            queue_of(command),
            int(command.get("offset", 0)),
            choice=command.get("tags", "*"),
            count=int(command.get("max", 32)),
            waits=bool(command.get("wait")),
        )
        return {
            "status": _PULLED[result.status],
            "next_offset": result.next_offset,
            "min_offset": result.min_offset,
            "max_offset": result.max_offset,
            "messages": [received(message) for message in result.messages],
        }

    async def pull_commit(self, command: Command) -> None:
        """Store an offset."""
        consumer, queue = self._get(command), queue_of(command)
        consumer.update_offset(queue, int(command["offset"]))
        await consumer.commit([queue])

    async def pull_committed(self, command: Command) -> int:
        """The stored offset, -1 for none."""
        offset = await self._get(command).committed(queue_of(command))
        return -1 if offset is None else offset

    async def pull_stop(self, command: Command) -> None:
        """Leave."""
        consumer, client = self._by_name.pop(command["name"])
        await consumer.stop()
        await client.stop()


class LitePullConsumers:
    """Subscribe or assign, poll, seek, commit."""

    def __init__(self) -> None:
        self._by_name: dict[str, tuple[LitePullConsumer, Client]] = {}

    def _get(self, command: Command) -> LitePullConsumer:
        return self._by_name[command["name"]][0]

    async def lite_start(self, command: Command) -> None:
        """Join."""
        client = client_of(command)
        await client.start()
        topic: Any = command.get("topic")
        consumer = LitePullConsumer(
            command["group"],
            {topic: command.get("tags", "*")} if topic else None,
            client=client,
            from_where=ConsumeFromWhere.FIRST_OFFSET,
            auto_commit=bool(command.get("auto_commit")),
        )
        await consumer.start()
        self._by_name[command["name"]] = consumer, client

    async def lite_assign(self, command: Command) -> None:
        """Choose queues by hand."""
        broker = command.get("broker", "broker-a")
        ids = command["queue_ids"]
        await self._get(command).assign([MessageQueue(command["topic"], broker, n) for n in ids])

    async def lite_poll(self, command: Command) -> list[Plain]:
        """Until so many messages came or the time is over."""
        loop = asyncio.get_running_loop()
        end_s = loop.time() + command.get("timeout_ms", 0) / 1000
        got: list[Plain] = []
        while len(got) < command.get("count", 1) and loop.time() < end_s:
            got += [received(message) for message in await self._get(command).poll(_POLL_S)]
        return got

    async def lite_seek(self, command: Command) -> None:
        """Seek."""
        await self._get(command).seek(queue_of(command), int(command["offset"]))

    async def lite_seek_to_begin(self, command: Command) -> None:
        """The oldest message."""
        await self._get(command).seek_to_begin(queue_of(command))

    async def lite_seek_to_end(self, command: Command) -> None:
        """What comes next."""
        await self._get(command).seek_to_end(queue_of(command))

    async def lite_commit(self, command: Command) -> None:
        """Store progress."""
        await self._get(command).commit()

    async def lite_committed(self, command: Command) -> int:
        """The stored offset, -1 for none."""
        offset = await self._get(command).committed(queue_of(command))
        return -1 if offset is None else offset

    async def lite_offset_for_timestamp(self, command: Command) -> int:
        """The first offset stored at that time or later."""
        return await self._get(command).offset_at(queue_of(command), int(command["timestamp"]))

    async def lite_stop(self, command: Command) -> None:
        """Leave."""
        consumer, client = self._by_name.pop(command["name"])
        await consumer.stop()
        await client.stop()
