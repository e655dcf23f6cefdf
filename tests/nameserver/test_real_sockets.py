"""A name server on a real port, with both event loops."""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

import pytest
import uvloop

from sparrowmq.nameserver import NameServer, NameServerConfig
from sparrowmq.net.peers import Peers
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.headers.nameserver import (
    GetKvConfig,
    GetTopicRoute,
    KvConfigFound,
    PutKvConfig,
    RegisterBroker,
)
from sparrowmq.protocol.route import TopicRoute
from tests.nameserver.world import registration
from tests.patience import PATIENCE_S

LoopFactory = Callable[[], asyncio.AbstractEventLoop]
loops = pytest.mark.parametrize(
    "loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"]
)


@loops
def test_a_name_server_serves_on_a_free_port_and_keeps_key_values(
    loop: LoopFactory, tmp_path: Path
) -> None:
    config = NameServerConfig(listen_port=0, kv_config_path=tmp_path / "ns" / "kvConfig.json")

    async def first() -> TopicRoute:
        async with NameServer(config).running() as server, asyncio.TaskGroup() as tasks:
            peers = Peers(tasks, log=logging.getLogger("caller"))
            header = RegisterBroker(
                cluster_name="c",
                broker_name="broker-a",
                broker_id=0,
                broker_addr="127.0.0.1:10911",
                ha_server_addr="127.0.0.1:10912",
            )
            await peers.call(server.address, header, registration(["orders"]), timeout_s=PATIENCE_S)
            await peers.call(
                server.address, PutKvConfig(namespace="n", key="k", value="v"), timeout_s=PATIENCE_S
            )
            response = await peers.call(
                server.address, GetTopicRoute(topic="orders"), timeout_s=PATIENCE_S
            )
            assert response.code == ResponseCode.SUCCESS
            await peers.close()
            return TopicRoute.from_json(response.body)

    async def again() -> str:
        async with NameServer(config).running() as server, asyncio.TaskGroup() as tasks:
            peers = Peers(tasks, log=logging.getLogger("caller"))
            response = await peers.call(
                server.address, GetKvConfig(namespace="n", key="k"), timeout_s=PATIENCE_S
            )
            await peers.close()
            return response.header(KvConfigFound).value

    with asyncio.Runner(loop_factory=loop) as runner:
        assert runner.run(first()).broker_datas[0].broker_addrs == {0: "127.0.0.1:10911"}
        assert runner.run(again()) == "v"


@loops
def test_an_error_inside_the_block_is_raised_unchanged(loop: LoopFactory) -> None:
    async def fail() -> None:
        async with NameServer(NameServerConfig(listen_port=0)).running():
            raise LookupError("mine")

    with asyncio.Runner(loop_factory=loop) as runner, pytest.raises(LookupError, match="mine"):
        runner.run(fail())


@loops
def test_a_port_that_is_taken_is_an_error_at_the_start(loop: LoopFactory) -> None:
    async def twice() -> None:
        async with NameServer(NameServerConfig(listen_port=0)).running() as one:
            taken = NameServerConfig(listen_port=one.port)
            async with NameServer(taken).running():
                pass

    with asyncio.Runner(loop_factory=loop) as runner, pytest.raises(OSError, match="in use"):
        runner.run(twice())


def test_the_address_of_an_ipv6_listener_is_in_brackets() -> None:
    server = NameServer(NameServerConfig(listen_host="::1"))
    assert server.address == "[::1]:0"
