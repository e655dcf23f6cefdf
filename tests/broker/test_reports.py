"""Reports about all queues and groups of a broker, and changes of many of them, never stop it,
however many there are."""

import asyncio
import gc
import logging
import random
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from sparrowmq.broker.broker import Broker
from sparrowmq.broker.config import BrokerConfig
from sparrowmq.broker.consumer_offsets import changes_in
from sparrowmq.broker.replication.table_copy import take_state
from sparrowmq.broker.replication.table_rules import OffsetChange
from sparrowmq.broker.replication.table_state import TableQuestion
from sparrowmq.broker.server import BrokerServer
from sparrowmq.broker.statistics import TOPIC_PUT_SIZE
from sparrowmq.broker.topics import plain_topic
from sparrowmq.cli.serve import GC_THRESHOLDS
from sparrowmq.clock import system_clock
from sparrowmq.disk.real_disk import RealDisk
from sparrowmq.disk.syncer import InlineSyncer
from sparrowmq.net import slices
from sparrowmq.net.peers import Peers
from sparrowmq.net.slices import SLICE_S, Slices
from sparrowmq.net.workers import ThreadWorkers
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.group_config import SubscriptionGroupConfig
from sparrowmq.protocol.header import RequestHeader
from sparrowmq.protocol.headers.admin import GetRuntimeInfo
from sparrowmq.protocol.headers.clients import Heartbeat
from sparrowmq.protocol.headers.connections import GetAllProducers
from sparrowmq.protocol.headers.groups import DeleteGroup
from sparrowmq.protocol.headers.replication import CopyTables
from sparrowmq.protocol.headers.statistics import (
    CloneGroupOffset,
    GetAllConsumerOffsets,
    GetBrokerConsumeStats,
    GetConsumeStats,
    GetConsumeTimeSpan,
    GetTopicStats,
    ViewBrokerStats,
)
from sparrowmq.protocol.heartbeat import HeartbeatData, ProducerData
from sparrowmq.protocol.offsets_body import ConsumerOffsetTable
from sparrowmq.store.config import StoreConfig
from sparrowmq.testing.loop_watchdog import LoopWatchdog, Stall
from tests.patience import PATIENCE_S
from tests.store.stores import message

LOG = logging.getLogger("tests.reports")
STALL_MS = 50.0
LOG_FILE_BYTES = 16 * 1024 * 1024
OWN_FILES = (
    *("/handlers/statistics.py", "/sampling.py", "/reports.py", "/runtime_info.py"),
    *("/handlers/groups.py", "/handlers/connections.py", "/handlers/offset_tables.py"),
    *("/broker/consumer_offsets.py", "/broker/tables.py", "/offset_saving.py", "/table_copy.py"),
)
READS_ALL = "group-0"
IN_MEMORY = 128
"""Units of a queue; older ones are in its file."""


@dataclass(frozen=True)
class Size:
    """How much a broker has to report about."""

    topics: int
    groups: int
    queues: int = 2
    topics_of_a_group: int = 10
    long_topics: int = 8
    """Topics whose queues are so long that positions have to be read from files."""


SMALL = Size(topics=60, groups=12)
FULL = Size(topics=10_000, groups=1_000)


def topics_of(size: Size, group: int) -> Sequence[str]:
    """The first group reads everything."""
    numbers = range(size.topics) if group == 0 else range(group, group + size.topics_of_a_group)
    return [f"topic-{number % size.topics}" for number in numbers]


def fill(broker: Broker, size: Size) -> None:
    """Topics with messages, and groups that have consumed one message of each queue."""
    broker.topics.put(*(plain_topic(f"topic-{n}", size.queues) for n in range(size.topics)))
    for number in range(size.topics):
        count = IN_MEMORY + 10 if number < size.long_topics else 2
        for queue_id in range(size.queues):
            for _ in range(count):
                broker.store.append(message(number, f"topic-{number}", queue_id), broker.clock())
    for number in range(size.groups):
        group = f"group-{number}"
        broker.groups.put(SubscriptionGroupConfig(group_name=group))
        for topic in topics_of(size, number):
            for queue_id in range(size.queues):
                broker.offsets.commit(group, topic, queue_id, 1)


@dataclass(frozen=True)
class Asked:
    """A broker on real files and threads, and a connection to it."""

    broker: Broker
    peers: Peers

    async def ask(self, header: RequestHeader, body: bytes = b"") -> bytes:
        address = f"127.0.0.1:{self.broker.port}"
        self.broker.statistics.sampled_ms -= 2_000  # so that it begins with a look at everything
        answer = await self.peers.call(address, header, body, timeout_s=PATIENCE_S)
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        return bytes(answer.body)


@asynccontextmanager
async def filled(folder: Path, size: Size) -> AsyncIterator[Asked]:
    disk, workers = RealDisk(folder), ThreadWorkers(2, "reports")
    server = BrokerServer(
        BrokerConfig(
            data_dir=folder,
            port=0,
            busy_lag_s=3600.0,
            store=StoreConfig(log_file_size=LOG_FILE_BYTES),
            offsets_save_s=0.001,  # with each journal entry
        ),
        disk=disk,
        clock=system_clock,
        rng=random.Random(1),
        workers=workers,
        syncer=InlineSyncer(disk),
        pid=1,
        log=LOG,
    )
    try:
        async with server.running(), asyncio.TaskGroup() as tasks:
            fill(server.broker, size)
            peers = Peers(tasks, log=LOG)
            yield Asked(server.broker, peers)
            await peers.close()
    finally:
        workers.close()


REPORTS: dict[str, Callable[[], RequestHeader]] = {
    "317, all groups": GetBrokerConsumeStats,
    "208, a group that reads everything": lambda: GetConsumeStats(consumer_group=READS_ALL),
    "208, one topic": lambda: GetConsumeStats(consumer_group=READS_ALL, topic="topic-1"),
    "202": lambda: GetTopicStats(topic="topic-1"),
    "303": lambda: GetConsumeTimeSpan(topic="topic-1", group=READS_ALL),
    "315": lambda: ViewBrokerStats(stats_name=TOPIC_PUT_SIZE, stats_key="topic-1"),
    "28": GetRuntimeInfo,
}


OTHERS: dict[str, Callable[[], RequestHeader]] = {
    "43": GetAllConsumerOffsets,
    "328": GetAllProducers,
    "an unknown slave's question": CopyTables,
    "clone": lambda: CloneGroupOffset(
        src_group=READS_ALL, dest_group="clone", topic="", offline=True
    ),
    "delete": lambda: DeleteGroup(group_name=READS_ALL, clean_offset=True),
    "delete what is not there, when all of that is saved": lambda: DeleteGroup(group_name="no"),
}
"""Other requests that look at everything, or change much at once."""


async def watched(folder: Path, size: Size) -> list[Stall]:
    """What held the loop while everything was asked at once, as far as it worked for reports."""
    stalls: list[Stall] = []
    async with filled(folder, size) as asked:
        await asked.ask(Heartbeat(), producer_of(size.groups))
        gc.collect()
        # As a broker's process does; this one holds pytest as well.
        gc.freeze()
        thresholds = gc.get_threshold()
        gc.set_threshold(*GC_THRESHOLDS)
        try:
            for name, header in (REPORTS | OTHERS).items():
                with LoopWatchdog(STALL_MS, report=stalls.append):
                    began_s = time.perf_counter()
                    body = await asked.ask(header())
                LOG.info("%s: %d bytes, %.2f s", name, len(body), time.perf_counter() - began_s)
        finally:
            gc.set_threshold(*thresholds)
            gc.unfreeze()
    # What was computed counts, and what waited for a disk: a busy machine may stop any callback.
    late = [one for one in stalls if one.cpu_ms >= STALL_MS or is_of(one, "/disk/")]
    return [one for one in late if is_of(one, *OWN_FILES)]


def is_of(stall: Stall, *files: str) -> bool:
    return any(each in line for line in stall.stack for each in files)


def producer_of(groups: int) -> bytes:
    """The heartbeat of a client with many producer groups."""
    sends_in = tuple(ProducerData(group_name=f"producers-{number}") for number in range(groups))
    return HeartbeatData(client_id="producer", producer_data_set=sends_in).to_json()


async def counted_turns(reports: int, work_s: float) -> int:
    """How often other requests were served while the reports ran."""
    slices, turns = Slices(), 0
    loop = asyncio.get_running_loop()
    now = [0.0]
    loop.time = lambda: now[0]  # type: ignore[method-assign]

    async def report() -> None:
        with slices.begin() as turn:
            for _ in range(round(work_s * 1000)):
                now[0] += 0.001
                if turn.is_over:
                    await turn.pause()

    async def others() -> None:
        nonlocal turns
        while slices.active or not turns:
            turns += 1
            await asyncio.sleep(0)

    await asyncio.gather(*(report() for _ in range(reports)), others())
    return turns


@pytest.mark.parametrize("reports", [1, 4])
def test_all_reports_together_take_one_slice_of_a_turn(reports: int) -> None:
    turns = asyncio.run(counted_turns(reports, work_s=0.1))
    assert turns >= 0.1 * reports / (SLICE_S + reports * 0.001)


def test_reports_hold_the_loop_for_a_slice_at_most(tmp_path: Path) -> None:
    assert asyncio.run(watched(tmp_path, SMALL)) == []


async def turns_of_others(folder: Path) -> dict[str, int]:
    """How often the loop came round while each report was computed."""
    turns: dict[str, int] = {}
    async with filled(folder, SMALL) as asked:
        await asked.ask(Heartbeat(), producer_of(SMALL.groups))
        for name, header in (REPORTS | OTHERS).items():
            asking = asyncio.ensure_future(asked.ask(header()))
            turns[name] = 0
            while not asking.done():
                turns[name] += 1
                await asyncio.sleep(0)
            await asking
    return turns


def test_a_report_lets_others_go_first_at_every_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slices, "SLICE_S", 0.0)  # every slice is over at once
    turns = asyncio.run(turns_of_others(tmp_path))
    queues = SMALL.topics * SMALL.queues
    all_groups, one_group, *_ = turns.values()
    assert all_groups > one_group > 2 * queues, "each queue is looked at, and reported"
    assert turns["202"] > queues
    assert turns["28"] > queues
    assert turns["43"] > SMALL.topics
    assert turns["328"] > SMALL.groups
    assert turns["an unknown slave's question"] > SMALL.topics
    assert turns["clone"] > queues, "copied, and journaled"
    assert turns["delete"] > queues


async def turns_of_a_heartbeat(folder: Path, producers: int) -> int:
    async with filled(folder, SMALL) as asked:
        asking = asyncio.ensure_future(asked.ask(Heartbeat(), producer_of(producers)))
        turns = 0
        while not asking.done():
            turns += 1
            await asyncio.sleep(0)
        await asking
        assert sum(1 for _ in asked.broker.producers.groups()) == producers
        return turns


def test_a_client_with_many_producers_is_registered_in_slices(tmp_path: Path) -> None:
    few, many = (
        asyncio.run(turns_of_a_heartbeat(tmp_path / str(count), count)) for count in (1, 10_000)
    )
    assert many > few + 30


async def taken_under_load(folder: Path) -> tuple[list[OffsetChange], list[OffsetChange]]:
    """Progress as a slave gets it whole, which changes while it is copied, and as it is then."""
    async with filled(folder, SMALL) as asked:
        offsets = asked.broker.offsets
        taking = asyncio.ensure_future(take_state(asked.broker, TableQuestion()))
        rng = random.Random(1)
        while not taking.done():
            group = f"group-{rng.randrange(SMALL.groups)}"
            offsets.reset(group, f"topic-{rng.randrange(SMALL.topics)}", 0, rng.randrange(100))
            if rng.random() < 0.1:
                offsets.remove_topic(f"topic-{rng.randrange(SMALL.topics)}")
            await asyncio.sleep(0)
        now, state = offsets.everything(), await taking
        assert isinstance(state.progress, ConsumerOffsetTable)
        assert state.counts.offsets == offsets.recent.count
        return sorted(changes_in(state.progress)), sorted(now)


def test_a_whole_table_for_a_slave_is_of_one_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slices, "SLICE_S", 0.0)
    taken, now = asyncio.run(taken_under_load(tmp_path))
    assert taken == now


@pytest.mark.slow
def test_reports_about_10000_topics_and_1000_groups_do_not_stop_the_broker(tmp_path: Path) -> None:
    assert asyncio.run(watched(tmp_path, FULL)) == []
