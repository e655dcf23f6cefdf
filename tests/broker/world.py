"""A broker to talk to, and clients that broker calls reach."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from sparrowmq.broker.broker import Broker
from sparrowmq.net.calls import Response
from sparrowmq.net.peers import Peers
from sparrowmq.net.routes import Reply, Request, Routes
from sparrowmq.protocol.body import Body
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.group_config import SubscriptionGroupConfig
from sparrowmq.protocol.header import RequestHeader
from sparrowmq.protocol.headers.clients import Heartbeat, NotifyConsumerIdsChanged, UnregisterClient
from sparrowmq.protocol.headers.consumer_calls import (
    ConsumeMessageDirectly,
    GetConsumerRunningInfo,
    GetConsumerStatus,
    ResetConsumerOffset,
)
from sparrowmq.protocol.headers.groups import CreateGroup
from sparrowmq.protocol.headers.offsets import UpdateConsumerOffset
from sparrowmq.protocol.headers.pull import PullMessage
from sparrowmq.protocol.headers.reply import PushReply
from sparrowmq.protocol.headers.topics import CreateTopic
from sparrowmq.protocol.headers.transactions import CheckTransactionState
from sparrowmq.protocol.heartbeat import ConsumerData, HeartbeatData, MessageModel, ProducerData
from sparrowmq.protocol.message import MessageQueue
from sparrowmq.protocol.subscription import SubscriptionData
from sparrowmq.testing.sim_cluster import RunningCluster, SimCluster

B = TypeVar("B", bound=Body)


class Answered:
    """The routes of a client: every call of the broker is noted and answered as prepared."""

    def __init__(self) -> None:
        self.calls: list[Request[Any]] = []
        self.answers: dict[type[RequestHeader], Reply | None] = {}

    def of(self, kind: type[RequestHeader]) -> list[Request[Any]]:
        return [call for call in self.calls if isinstance(call.header, kind)]


routes: Routes[Answered] = Routes()


@routes.on(
    NotifyConsumerIdsChanged,
    ResetConsumerOffset,
    GetConsumerStatus,
    GetConsumerRunningInfo,
    ConsumeMessageDirectly,
    PushReply,
    CheckTransactionState,
)
def note(client: Answered, request: Request[Any]) -> Reply | None:
    client.calls.append(request)
    return client.answers.get(type(request.header), Reply())


class TalkingClient:
    """A client with one connection, on its own host."""

    def __init__(self, sim: RunningCluster, name: str) -> None:
        self.name = name
        self.host = sim.host(name)
        self.answered = Answered()
        self._sim = sim
        self._address = next(iter(sim.brokers.values())).address
        self._peers: Peers
        ready = asyncio.Event()
        self.host.start(self._live(ready))
        sim.until(ready.is_set)

    async def _live(self, ready: asyncio.Event) -> None:
        async with asyncio.TaskGroup() as tasks:
            log = logging.getLogger(f"tests.{self.name}")
            self._peers = Peers(tasks, log=log, context=self.answered, routes=routes)
            ready.set()
            await asyncio.Event().wait()

    def ask(self, header: RequestHeader, body: bytes = b"", *, timeout_s: float = 30) -> Response:
        return self._sim.wait(self.asking(header, body, timeout_s=timeout_s))

    def asking(
        self, header: RequestHeader, body: bytes = b"", *, timeout_s: float = 30
    ) -> asyncio.Task[Response]:
        """Ask, and do something else meanwhile."""
        work = self._peers.call(self._address, header, body, timeout_s=timeout_s)
        return self.host.start(work)

    async def send_oneway(self, header: RequestHeader, body: bytes = b"") -> None:
        await self._peers.send_oneway(self._address, header, body)

    def disconnect(self) -> None:
        for address in self._peers.known():
            self._peers.drop(address)
        self._sim.until_idle()

    def beat(
        self,
        *groups: ConsumerData,
        producers: tuple[str, ...] = (),
        client_id: str = "",
        **more: Any,
    ) -> Response:
        data = HeartbeatData(
            client_id=client_id or self.name,
            consumer_data_set=groups,
            producer_data_set=tuple(ProducerData(group_name=name) for name in producers),
            **more,
        )
        answer = self.ask(Heartbeat(), data.to_json())
        self._sim.until_idle()
        return answer

    def leave(self, group: str) -> Response:
        return self.ask(UnregisterClient(client_id=self.name, consumer_group=group))


class World:
    """The running cluster with short ways to say usual things."""

    def __init__(self, sim: RunningCluster) -> None:
        self.sim = sim

    @property
    def broker(self) -> Broker:
        return self.sim.broker

    def client(self, name: str) -> TalkingClient:
        return TalkingClient(self.sim, name)

    def ask(self, header: RequestHeader, body: bytes = b"", *, timeout_s: float = 30) -> Response:
        """Any answer."""
        return self.sim.wait(self.sim.client.call(header, body, timeout_s=timeout_s))

    def done(self, header: RequestHeader, body: bytes = b"") -> Response:
        """An answer that has to be a success."""
        answer = self.ask(header, body)
        assert answer.code == ResponseCode.SUCCESS, (answer.code, answer.remark)
        return answer

    def read(self, header: RequestHeader, kind: type[B], body: bytes = b"") -> B:
        return kind.from_json(self.done(header, body).body)

    def topic(self, name: str, queues: int = 2, *, perm: int = 6, order: bool = False) -> None:
        self.done(
            CreateTopic(
                topic=name, read_queue_nums=queues, write_queue_nums=queues, perm=perm, order=order
            )
        )

    def group(self, name: str, **settings: Any) -> None:
        self.done(CreateGroup(), SubscriptionGroupConfig(group_name=name, **settings).to_json())

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Progress of a group, which is made if it does not exist."""
        if group not in self.broker.groups:
            self.group(group)
        self.done(
            UpdateConsumerOffset(
                consumer_group=group, topic=topic, queue_id=queue_id, commit_offset=offset
            )
        )

    def send(self, topic: str, *bodies: bytes, queue_id: int = 0, **properties: str) -> None:
        for body in bodies:
            self.sim.wait(self.sim.client.send(topic, body, queue_id=queue_id, **properties))

    def pull(self, topic: str, group: str = "billing", **changes: Any) -> Response:
        """A pull of a member: by its group's subscription, without waiting."""
        fields: dict[str, Any] = {
            "queue_id": 0,
            "queue_offset": 0,
            "max_msg_nums": 32,
            "sys_flag": 0,
            "commit_offset": 0,
            "suspend_timeout_millis": 0,
            "sub_version": 0,
        }
        return self.ask(PullMessage(consumer_group=group, topic=topic, **(fields | changes)))


@contextmanager
def world_with(**settings: Any) -> Iterator[World]:
    """A world whose broker has other settings."""
    with SimCluster(seed=1, **settings).run() as sim:
        yield World(sim)


def subscribes(
    group: str, topic: str = "orders", expression: str = "*", *, version: int = 1, **more: Any
) -> ConsumerData:
    """A group that subscribes to a topic, as heartbeats tell it."""
    wanted = SubscriptionData.build(topic, expression, version=version)
    return ConsumerData(group_name=group, subscription_data_set=(wanted,), **more)


def broadcasts(group: str, topic: str = "orders") -> ConsumerData:
    return subscribes(group, topic, message_model=MessageModel.BROADCASTING)


def queue(topic: str, queue_id: int) -> MessageQueue:
    return MessageQueue(topic, "broker-a", queue_id)
