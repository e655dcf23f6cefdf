"""A log that is copied over a real HA connection, with both event loops."""

import asyncio
import logging
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import uvloop

from sparrowmq.broker.config import BrokerConfig
from sparrowmq.broker.replication.follower import Follower
from sparrowmq.broker.replication.own_log import describe_log
from sparrowmq.broker.server import BrokerServer
from sparrowmq.disk.real_disk import RealDisk
from sparrowmq.disk.syncer import InlineSyncer
from sparrowmq.net.peers import Peers
from sparrowmq.net.workers import InlineWorkers
from sparrowmq.store.store import Store
from tests.patience import PATIENCE_S
from tests.store.stores import message, numbers

LOG = logging.getLogger("replication")
MESSAGES = 2_000


def master_in(folder: Path) -> BrokerServer:
    disk = RealDisk(folder)
    return BrokerServer(
        BrokerConfig(data_dir=folder, port=0),
        disk=disk,
        clock=lambda: 1_000,
        rng=random.Random(1),
        workers=InlineWorkers(),
        syncer=InlineSyncer(disk),
        pid=1,
        log=LOG,
    )


async def copy_log(master: BrokerServer, folder: Path) -> list[int]:
    """The numbers of the messages that a slave gets, chunk by chunk."""
    names = ("127.0.0.1:1",)  # a slave has to have one; this one is given its master
    config = replace(master.config, data_dir=folder, broker_id=1, name_servers=names)
    store = Store.open(config.store_config(1), RealDisk(folder), 1_000, is_copy=True)
    async with asyncio.TaskGroup() as tasks:
        peers = Peers(tasks, log=LOG)
        follower = Follower(
            store, peers, describe=lambda: describe_log(config, store, 1), sync=None, log=LOG
        )
        async with asyncio.timeout(PATIENCE_S):
            await follower.copy_from(master.address, until=master.broker.store.max_log_offset)
        await peers.close()
    copied = numbers(store)
    store.close()
    return copied


@pytest.mark.parametrize(
    "loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"]
)
def test_a_slave_copies_the_log(
    loop: Callable[[], asyncio.AbstractEventLoop], tmp_path: Path
) -> None:
    async def main() -> list[int]:
        (tmp_path / "slave").mkdir()
        async with master_in(tmp_path / "master").running() as master:
            for number in range(MESSAGES):
                master.broker.store.append(message(number), 1_000)
            return await copy_log(master, tmp_path / "slave")

    with asyncio.Runner(loop_factory=loop) as runner:
        assert runner.run(main()) == list(range(MESSAGES))
