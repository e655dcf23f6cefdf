"""Members whose master is gone: they continue from its slave or wait, and return to it."""

import asyncio
import logging
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from sparrowmq.broker.commit_slots import PATHS
from sparrowmq.client.consuming.lite_pull_consumer import LitePullConsumer
from sparrowmq.client.consuming.pull_consumer import PullConsumer
from sparrowmq.client.consuming.pull_loop import FlowLimits
from sparrowmq.client.consuming.scheduled_pull import ScheduledPull, Turn
from sparrowmq.client.group.broker_requests import routes
from sparrowmq.net.errors import NetError
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.group_config import SubscriptionGroupConfig
from sparrowmq.protocol.headers.groups import CreateGroup
from sparrowmq.protocol.headers.offsets import (
    OffsetFound,
    QueryConsumerOffset,
    UpdateConsumerOffset,
)
from sparrowmq.protocol.heartbeat import ConsumeFromWhere, MessageModel
from sparrowmq.protocol.message import MessageQueue
from sparrowmq.protocol.message_ext import MessageExt
from sparrowmq.protocol.names import dlq_topic, retry_topic
from sparrowmq.testing.sim_cluster import RunningCluster
from sparrowmq.testing.sim_nodes import BrokerNode
from tests.client.lite_readers import using
from tests.client.members import GROUP, Member
from tests.sim.replicated import TOPIC, follows
from tests.sim.slaves import MASTER, SLAVE, send, with_slave

LIMIT_S = 5.0
"""The time within which a member continues from the slave after its master is gone."""
FEW_AT_ONCE: dict[str, Any] = {
    "limits": FlowLimits(messages=1),
    "pull_batch": 1,
    "batch": 1,
    "workers": 1,
}
"""Nearly everything is still at the brokers when the master is killed."""


def numbers(first: int, last: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, last)]


def kill(sim: RunningCluster, node: BrokerNode) -> float:
    """When it was killed."""
    node.kill()
    sim.client.disconnect()
    return sim.now_s


def stored_at(sim: RunningCluster, node: BrokerNode) -> int:
    """The group's progress at one broker."""
    header = QueryConsumerOffset(consumer_group=GROUP, topic=TOPIC, queue_id=0)
    response = sim.wait(sim.client.call(header, address=node.address))
    return response.header(OffsetFound).offset if response.code == 0 else -1


def freeze(sim: RunningCluster, node: BrokerNode) -> float:
    """Its host freezes, as after a power cut: no connection is closed, and name servers list
    the broker. When that was."""
    node.host.pause()
    return sim.now_s


LOSSES = (kill, freeze)


def progress_at(node: BrokerNode) -> int:
    """The same while others run."""
    return node.broker.offsets.get(GROUP, TOPIC, 0)


class Pace:
    """A handler that takes a while, and when it was last called."""

    def __init__(self, sim: RunningCluster, handler_s: float = 0.2) -> None:
        self.longest_gap_s = 0.0
        self._sim = sim
        self._handler_s = handler_s
        self._last_s: float | None = None

    async def handle(self, message: MessageExt) -> None:
        if self._last_s is not None:
            self.longest_gap_s = max(self.longest_gap_s, self._sim.now_s - self._last_s)
        await asyncio.sleep(self._handler_s)
        self._last_s = self._sim.now_s


def slow_member(sim: RunningCluster, pace: Pace, **options: Any) -> Member:
    return Member(sim, pace.handle, **(FEW_AT_ONCE | options))


@pytest.mark.parametrize("lose", LOSSES)
@pytest.mark.parametrize("model", list(MessageModel))
def test_a_concurrent_member_continues_from_the_slave(
    model: MessageModel, lose: Callable[[RunningCluster, BrokerNode], float], tmp_path: Path
) -> None:
    with with_slave() as sim:
        send(sim, *numbers(0, 40))
        pace = Pace(sim)
        member = slow_member(sim, pace, model=model, offsets_dir=tmp_path)
        sim.until(lambda: len(member.got) == 5)
        lose(sim, sim.brokers[MASTER])
        sim.until(lambda: len(member.got) >= 40)
        assert list(dict.fromkeys(member.got)) == numbers(0, 40)
        assert pace.longest_gap_s < LIMIT_S


def test_a_member_returns_to_a_master_that_was_frozen() -> None:
    with with_slave() as sim:
        send(sim, *numbers(0, 40))
        member = slow_member(sim, Pace(sim))
        sim.until(lambda: len(member.got) == 5)
        master = sim.brokers[MASTER]
        freeze(sim, master)
        sim.until(lambda: len(member.got) >= 20)
        master.host.resume()
        sim.until(lambda: follows(sim))
        sim.advance(10)
        kill(sim, sim.brokers[SLAVE])
        for body in numbers(40, 45):
            sim.wait(sim.client.send(TOPIC, body))
        sim.until(lambda: b"44" in member.got)
        sim.advance(6)
        assert list(dict.fromkeys(member.got)) == numbers(0, 45)
        assert stored_at(sim, master) == 45


def test_progress_is_stored_at_the_slave_soon_after_the_master_froze() -> None:
    """Name servers drop the master, and members look for one every few seconds."""
    with with_slave() as sim:
        send(sim, *numbers(0, 40))
        member = slow_member(sim, Pace(sim))
        sim.until(lambda: len(member.got) == 5)
        freeze(sim, sim.brokers[MASTER])
        sim.advance(35)
        assert list(dict.fromkeys(member.got)) == numbers(0, 40)
        assert stored_at(sim, sim.brokers[SLAVE]) == 40


def test_a_member_that_read_from_the_slave_returns_to_the_master() -> None:
    with with_slave() as sim:
        send(sim, *numbers(0, 20))
        member = slow_member(sim, Pace(sim))
        sim.until(lambda: len(member.got) == 5)
        master = sim.brokers[MASTER]
        kill(sim, master)
        sim.until(lambda: len(member.got) == 20)
        sim.advance(6)
        assert stored_at(sim, sim.brokers[SLAVE]) == 20, "progress goes to the slave meanwhile"
        master.start()
        sim.until(lambda: follows(sim))
        sim.advance(40)
        assert stored_at(sim, master) == 20, "and to the master, when it is back"
        kill(sim, sim.brokers[SLAVE])
        for body in numbers(20, 25):
            sim.wait(sim.client.send(TOPIC, body))
        sim.until(lambda: len(member.got) >= 25)
        assert member.got == numbers(0, 25)


@pytest.mark.parametrize("lose", LOSSES)
def test_a_lite_reader_continues_from_the_slave(
    lose: Callable[[RunningCluster, BrokerNode], float],
) -> None:
    with with_slave() as sim:
        send(sim, *numbers(0, 60))
        got: list[bytes] = []

        async def read(consumer: LitePullConsumer) -> None:
            while len(got) < 60:
                got.extend(message.body for message in await consumer.poll(1.0))
                await asyncio.sleep(0.3)

        few: dict[str, Any] = {"limits": FlowLimits(messages=1), "batch": 2}
        task = sim.host("reader").start(using(sim, "reader", read, **few))
        sim.until(lambda: len(got) >= 10)
        lost_s = lose(sim, sim.brokers[MASTER])
        seen = len(got)
        sim.until(lambda: len(got) > seen + 4)
        assert sim.now_s - lost_s < LIMIT_S
        sim.wait(task)
        assert got == numbers(0, 60)


def test_a_pull_consumer_continues_from_the_slave_and_returns() -> None:
    """With the pull after the one that failed. Its topic is none of the group's, whose routes are
    polled."""
    queue = MessageQueue(TOPIC, MASTER, 0)

    steps: asyncio.Queue[int] = asyncio.Queue()
    got: list[list[bytes] | str] = []

    async def run() -> None:
        client = sim.client_on("reader")
        await client.start()
        async with PullConsumer(GROUP, client=client) as consumer:
            while (offset := await steps.get()) >= 0:
                try:
                    got.append(
                        [each.body for each in (await consumer.pull(queue, offset)).messages]
                    )
                except NetError:
                    got.append("lost")
        await client.stop()

    def pull(offset: int = 0) -> list[bytes] | str:
        before = len(got)
        steps.put_nowait(offset)
        sim.until(lambda: len(got) > before)
        return got[-1]

    with with_slave() as sim:
        send(sim, b"0")
        task = sim.host("reader").start(run())
        assert pull() == [b"0"]
        sim.brokers[MASTER].kill()
        assert [pull(), pull(), pull()] == ["lost", [b"0"], [b"0"]]
        sim.brokers[MASTER].start()
        sim.until(lambda: follows(sim))
        sim.advance(30)
        assert pull(1) == [], "and the answer names the master"
        sim.brokers[SLAVE].kill()
        assert pull() == [b"0"]
        steps.put_nowait(-1)
        sim.wait(task)


class ScheduledReader:
    """Reads the topic as the documentation's example does: each turn asks where the group stands,
    pulls a message, and stores the progress. One that does not commit leaves the last to the
    consumer, and waits for it."""

    def __init__(self, sim: RunningCluster, *, commits: bool = True) -> None:
        self.got: list[bytes] = []
        self.read_s: list[float] = []
        self._sim = sim
        self._commits = commits
        sim.host("reader").start(self._run())

    async def _run(self) -> None:
        client = self._sim.client_on("reader", routes)
        await client.start()
        async with ScheduledPull(GROUP, {TOPIC: self._turn}, client=client):
            await asyncio.Event().wait()

    async def _turn(self, queue: MessageQueue, turn: Turn) -> None:
        at = await turn.consumer.committed(queue) or 0
        found = await turn.consumer.pull(queue, at, count=1)
        if found.messages:
            self.got.extend(message.body for message in found.messages)
            self.read_s.append(self._sim.now_s)
        turn.consumer.update_offset(queue, found.next_offset)
        if self._commits:
            await turn.consumer.commit([queue])
        else:
            turn.next_delay_s = 5.5


@pytest.mark.parametrize("lose", LOSSES)
def test_a_scheduled_pull_continues_from_the_slave(
    lose: Callable[[RunningCluster, BrokerNode], float],
) -> None:
    with with_slave() as sim:
        send(sim, *numbers(0, 40))
        reader = ScheduledReader(sim)
        sim.until(lambda: len(reader.got) >= 10)
        lose(sim, sim.brokers[MASTER])
        sim.until(lambda: b"39" in reader.got)
        assert list(dict.fromkeys(reader.got)) == numbers(0, 40)
        longest_gap_s = max(after - before for before, after in pairwise(reader.read_s))
        assert longest_gap_s < LIMIT_S


@pytest.mark.parametrize("frozen_s", [10, pytest.param(300, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("commits", "count"), [(True, 400), (False, 70)])
def test_a_scheduled_pull_repeats_nothing_after_its_master_was_frozen(
    commits: bool, count: int, frozen_s: int
) -> None:
    """Name servers list the frozen master for up to 20 s, and then only its slave."""
    with with_slave() as sim:
        send(sim, *numbers(0, count))
        reader = ScheduledReader(sim, commits=commits)
        sim.until(lambda: len(reader.got) >= 5)
        master = sim.brokers[MASTER]
        freeze(sim, master)
        sim.advance(frozen_s)
        master.host.resume()
        sim.until(lambda: len(reader.got) >= count)
        assert reader.got == numbers(0, count)
        sim.advance(6)
        assert stored_at(sim, master) == count


def test_an_ordered_member_pauses_and_logs_it_once(caplog: pytest.LogCaptureFixture) -> None:
    with with_slave() as sim:
        send(sim, *numbers(0, 30))
        member = slow_member(sim, Pace(sim), orderly=True)
        sim.until(lambda: len(member.got) == 5)
        master = sim.brokers[MASTER]
        with caplog.at_level(logging.WARNING):
            kill(sim, master)
            sim.advance(60)
        texts = [record.getMessage() for record in caplog.records]
        assert [text for text in texts if "only a master locks queues; start" in text] == [
            "ordered queues of broker broker-a wait: its master is away, and only a master locks"
            " queues; start the master again, or start its slave as the master (broker id 0)"
        ]
        assert len(member.got) <= 7
        rested = len(member.got)
        master.start()
        back_s = sim.now_s
        sim.until(lambda: len(member.got) > rested)
        assert sim.now_s - back_s < LIMIT_S + 1
        sim.until(lambda: b"29" in member.got)
        assert list(dict.fromkeys(member.got)) == numbers(0, 30)
        order = [int(body) for body in member.got]
        assert all(later <= former + 1 for former, later in pairwise(order)), order


def handled_without_the_slaves_knowledge(sim: RunningCluster, **options: Any) -> Member:
    """A member has committed all of its progress at the master, a moment ago."""
    member = Member(sim, **options)
    sim.until(lambda: len(member.got) == 1)
    sim.advance(10)
    sim.brokers[SLAVE].host.pause()
    for body in numbers(1, 3):
        sim.wait(sim.client.send(TOPIC, body))
    sim.until(lambda: progress_at(sim.brokers[MASTER]) == 3)
    return member


def test_progress_that_went_down_with_the_master_is_stored_at_its_slave_again() -> None:
    with with_slave() as sim:
        send(sim, *numbers(0, 1))
        handled_without_the_slaves_knowledge(sim)
        kill(sim, sim.brokers[MASTER])
        sim.brokers[SLAVE].host.resume()
        sim.until(lambda: progress_at(sim.brokers[SLAVE]) == 3)


@pytest.mark.parametrize("orderly", [False, True])
def test_progress_that_went_down_with_the_master_is_stored_there_again(orderly: bool) -> None:
    with with_slave(offsets_journal_s=600.0, offsets_save_s=600.0) as sim:
        send(sim, *numbers(0, 1))
        member = handled_without_the_slaves_knowledge(sim, orderly=orderly)
        master = sim.brokers[MASTER]
        kill(sim, master)
        for path in PATHS:  # where a kill leaves it, unlike a power cut
            master.disk.unlink(path)
        master.start()
        assert progress_at(master) < 3
        sim.until(lambda: progress_at(master) == 3)
        assert member.got == numbers(0, 3), "no message is repeated"


def test_the_queues_of_a_member_that_dies_meanwhile_are_taken_over() -> None:
    with with_slave(queues=2) as sim:
        for queue_id in range(2):
            send(sim, *numbers(0, 40), queue_id=queue_id)
        members = [slow_member(sim, Pace(sim), name=name) for name in ("one", "two")]
        sim.until(lambda: all(len(member.got) >= 5 for member in members))
        kill(sim, sim.brokers[MASTER])
        sim.advance(5)
        members[0].host.kill()
        sim.until(lambda: members[1].got.count(b"39") == 2)


def test_a_group_without_progress_does_not_start_from_a_slaves_answer() -> None:
    with with_slave(young_queue_bytes=0) as sim:
        send(sim, *numbers(0, 3))
        master = sim.brokers[MASTER]
        # The group has consumed one message, which the slave does not know.
        group = SubscriptionGroupConfig(group_name=GROUP)
        sim.wait(sim.client.call(CreateGroup(), group.to_json()))
        commit = UpdateConsumerOffset(
            consumer_group=GROUP, topic=TOPIC, queue_id=0, commit_offset=1
        )
        sim.brokers[SLAVE].host.pause()
        assert sim.wait(sim.client.call(commit)).code == ResponseCode.SUCCESS
        sim.advance(2)  # the master's journal has it
        kill(sim, master)
        sim.brokers[SLAVE].host.resume()
        sim.advance(2)
        member = Member(sim, from_where=ConsumeFromWhere.LAST_OFFSET)
        sim.advance(10)
        master.start()
        sim.until(lambda: len(member.got) >= 2)
        assert member.got == numbers(1, 3), "the slave knows the end, and not where to begin"


def test_a_member_continues_from_the_slave_while_no_name_server_answers() -> None:
    with with_slave() as sim:
        send(sim, *numbers(0, 40))
        pace = Pace(sim)
        member = slow_member(sim, pace)
        sim.until(lambda: len(member.got) == 5)
        for name_server in sim.name_servers.values():
            name_server.kill()
        kill(sim, sim.brokers[MASTER])
        sim.until(lambda: len(member.got) >= 40)
        assert list(dict.fromkeys(member.got)) == numbers(0, 40)
        assert pace.longest_gap_s < LIMIT_S


def test_a_message_that_cannot_be_sent_back_is_handled_again() -> None:
    async def fail_when_the_master_is_gone(message: MessageExt) -> None:
        if message.body == b"0" and not message.reconsume_times:
            await asyncio.sleep(3)
            raise ValueError("not yet")

    with with_slave() as sim:
        member = Member(sim, fail_when_the_master_is_gone)
        send(sim, *numbers(0, 2))
        sim.until(lambda: b"0" in member.got)
        kill(sim, sim.brokers[MASTER])
        sim.until(lambda: member.got.count(b"0") == 2)
        sim.advance(6)
        assert member.got.count(b"1") == 1
        assert stored_at(sim, sim.brokers[SLAVE]) == 2


@pytest.mark.parametrize(
    ("times", "groups", "topic"),
    [
        (16, 0, retry_topic(GROUP)),
        (0, 16, dlq_topic(GROUP)),
        (-1, 16, retry_topic(GROUP)),
        (-1, 0, dlq_topic(GROUP)),
    ],
)
def test_a_message_that_is_sent_back_goes_to_another_master(
    times: int, groups: int, topic: str
) -> None:
    async def fail_once(message: MessageExt) -> None:
        if not message.reconsume_times:
            await asyncio.sleep(3)
            raise ValueError("not yet")

    with with_slave(brokers=2) as sim:
        config = SubscriptionGroupConfig(group_name=GROUP, retry_max_times=groups)
        for name in (MASTER, "broker-b"):
            address = sim.brokers[name].address
            sim.wait(sim.client.call(CreateGroup(), config.to_json(), address=address))
        member = Member(sim, fail_once, max_reconsume_times=times)
        sim.advance(2)  # the slave knows the group
        send(sim, b"0")
        sim.until(lambda: member.got == [b"0"])
        kill(sim, sim.brokers[MASTER])
        other = sim.brokers["broker-b"].broker.store
        sim.until(lambda: other.max_offset(topic, 0) == 1)
        sim.advance(6)
        assert stored_at(sim, sim.brokers[SLAVE]) == 1
        if topic == retry_topic(GROUP):
            sim.until(lambda: member.got == [b"0", b"0"])
