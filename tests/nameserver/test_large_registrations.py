"""Registrations with thousands of topics: read in slices, applied at once."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple

import pytest

from sparrowmq.nameserver import NameServer, NameServerConfig
from sparrowmq.net import slices
from sparrowmq.net.calls import Response
from sparrowmq.net.peers import Peers
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.header import RequestHeader
from sparrowmq.protocol.headers.nameserver import GetAllTopics, RegisterBroker
from sparrowmq.protocol.route import TopicList
from tests.nameserver.world import EVERYWHERE, registration, topic
from tests.patience import PATIENCE_S

NAMES = [f"topic-{number}" for number in range(5_000)]
ALL = len(NAMES) + len(EVERYWHERE)


class Asked(NamedTuple):
    """A name server, and two who talk to it: a broker and a client."""

    server: NameServer
    broker: Peers
    client: Peers

    async def register(self, body: bytes, **fields: object) -> Response:
        header = RegisterBroker(
            cluster_name="c",
            broker_name="broker-a",
            broker_id=0,
            broker_addr="127.0.0.1:10911",
            ha_server_addr="127.0.0.1:10912",
            **fields,  # type: ignore[arg-type]
        )
        return await self.broker.call(self.server.address, header, body, timeout_s=PATIENCE_S)

    async def ask(self, header: RequestHeader) -> Response:
        return await self.client.call(self.server.address, header, timeout_s=PATIENCE_S)

    async def topics(self) -> int:
        return len(TopicList.from_json((await self.ask(GetAllTopics())).body).topic_list)


@asynccontextmanager
async def asked() -> AsyncIterator[Asked]:
    async with (
        NameServer(NameServerConfig(listen_port=0)).running() as server,
        asyncio.TaskGroup() as tasks,
    ):
        broker, client = (Peers(tasks, log=logging.getLogger(name)) for name in ("b", "c"))
        yield Asked(server, broker, client)
        await broker.close()
        await client.close()


async def seen_while_registering(compressed: bool) -> list[int]:
    """How many topics a client saw at each question, until the broker was registered."""
    seen = []
    async with asked() as known:
        body = registration(NAMES, compressed=compressed)
        registering = asyncio.ensure_future(known.register(body, compressed=compressed))
        while not registering.done():
            seen.append(await known.topics())
        response = await registering
        assert response.code == ResponseCode.SUCCESS, response.remark
        assert await known.topics() == ALL
    return seen


@pytest.mark.parametrize("compressed", [False, True])
def test_clients_are_answered_during_a_registration_and_see_all_or_nothing_of_it(
    compressed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slices, "SLICE_S", 0.0)  # every slice is over at once
    seen = asyncio.run(seen_while_registering(compressed))
    assert len(seen) > 50
    assert set(seen) <= {0, ALL}


def test_a_broker_whose_connection_ends_while_its_registration_is_read_stays_unknown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(slices, "SLICE_S", 0.0)

    async def end_early() -> int:
        async with asked() as known:
            registering = asyncio.ensure_future(known.register(registration(NAMES)))
            while not (known.server.slices.active or registering.done()):
                await known.topics()
            await known.broker.close()
            await asyncio.wait([registering])
            while known.server.slices.active:
                await known.topics()
            return await known.topics()

    assert asyncio.run(end_early()) == 0


def test_one_bad_topic_among_thousands_refuses_the_registration() -> None:
    async def refused() -> tuple[Response, int]:
        async with asked() as known:
            response = await known.register(registration([*NAMES, topic("bad", perm=99)]))
            return response, await known.topics()

    response, count = asyncio.run(refused())
    assert "perm of topic bad is 99" in response.remark
    assert count == 0
