"""Acknowledged commits of a broker process that is killed right afterwards."""

import asyncio
import os
import re
import signal
from pathlib import Path

from sparrowmq.clock import system_clock
from sparrowmq.protocol.group_config import SubscriptionGroupConfig
from sparrowmq.protocol.headers.groups import CreateGroup
from sparrowmq.protocol.headers.offsets import (
    OffsetFound,
    QueryConsumerOffset,
    UpdateConsumerOffset,
)
from sparrowmq.protocol.headers.pull import PullMessage
from sparrowmq.protocol.sys_flag import PULL_COMMIT_OFFSET, PULL_SUBSCRIPTION
from sparrowmq.testing.wire import Wire, wire
from tests.cli.servers import up
from tests.patience import PATIENCE_S

GROUP = "billing"
MESSAGES = 6


async def prepare(broker: Wire, at: str) -> None:
    for number in range(MESSAGES):
        await broker.send(at, "orders", b"%d" % number)
    await broker.call(at, CreateGroup(), SubscriptionGroupConfig(group_name=GROUP).to_json())


def commit_of(offset: int) -> UpdateConsumerOffset:
    return UpdateConsumerOffset(
        consumer_group=GROUP, topic="orders", queue_id=0, commit_offset=offset
    )


async def progress(broker: Wire, at: str) -> int:
    asked = QueryConsumerOffset(consumer_group=GROUP, topic="orders", queue_id=0, only_looks=True)
    return (await broker.call(at, asked)).header(OffsetFound).offset


async def commit_explicitly(broker: Wire, at: str, offset: int) -> None:
    assert (await broker.call(at, commit_of(offset))).code == 0


async def commit_one_way(broker: Wire, at: str, offset: int) -> None:
    await broker.send_oneway(at, commit_of(offset))
    assert await progress(broker, at) == offset


async def commit_by_pulling(broker: Wire, at: str, offset: int) -> None:
    pull = PullMessage(
        consumer_group=GROUP,
        topic="orders",
        queue_id=0,
        queue_offset=offset,
        max_msg_nums=1,
        sys_flag=PULL_SUBSCRIPTION | PULL_COMMIT_OFFSET,
        commit_offset=offset,
        suspend_timeout_millis=0,
        sub_version=0,
        subscription="*",
        expression_type="TAG",
    )
    assert (await broker.call(at, pull)).code == 0


COMMITS = (commit_explicitly, commit_one_way, commit_by_pulling)


async def use(ready: str, pid: int, number: int) -> None:
    """Look at the progress of the life before, commit, and kill the broker when it has answered."""
    found = re.search(r"broker\S* \S*?((?:\d+\.){3}\d+:\d+)", ready)
    assert found is not None, ready
    at = found[1]
    async with wire("member", system_clock, call_s=PATIENCE_S) as broker:
        if number == 0:
            await prepare(broker, at)
        else:
            assert await progress(broker, at) == number
        if number < len(COMMITS):
            await COMMITS[number](broker, at, number + 1)
            os.kill(pid, signal.SIGKILL)


def test_a_broker_that_is_killed_right_after_a_commit_knows_it_when_it_starts_again(
    tmp_path: Path,
) -> None:
    for number in range(len(COMMITS) + 1):
        with up(tmp_path) as server:
            asyncio.run(use(server.ready, server.process.pid, number))
