"""Tables of topics and groups: saved together, in workers, before a change is answered."""

import asyncio
import errno
import json
import logging
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import pytest

from sparrowmq.broker.config import Flush
from sparrowmq.broker.topics import plain_topic
from sparrowmq.net.calls import Response
from sparrowmq.net.peers import Peers
from sparrowmq.net.routes import Reply, Request, Routes
from sparrowmq.net.workers import InlineWorkers
from sparrowmq.protocol.broker_stats import MessageRequestMode
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.group_config import SubscriptionGroupConfig, SubscriptionGroupList
from sparrowmq.protocol.header import RequestHeader
from sparrowmq.protocol.headers.admin import UpdateGroupForbidden
from sparrowmq.protocol.headers.clients import Heartbeat, NotifyConsumerIdsChanged
from sparrowmq.protocol.headers.consumer_calls import InvokeResetOffset
from sparrowmq.protocol.headers.groups import (
    CreateGroup,
    CreateGroups,
    DeleteGroup,
    GetAllGroupConfig,
    SetMessageRequestMode,
)
from sparrowmq.protocol.headers.send import MessageSent, SendBack
from sparrowmq.protocol.headers.statistics import CloneGroupOffset, GetAllConsumerOffsets
from sparrowmq.protocol.headers.topics import (
    CreateTopic,
    CreateTopics,
    DeleteTopic,
    GetAllTopicConfig,
)
from sparrowmq.protocol.headers.transactions import EndTransaction
from sparrowmq.protocol.heartbeat import HeartbeatData
from sparrowmq.protocol.ids import OffsetId
from sparrowmq.protocol.message_ext import decode_messages
from sparrowmq.protocol.sys_flag import PULL_SUBSCRIPTION, TRANSACTION_COMMIT
from sparrowmq.protocol.topic_config import TopicConfig, TopicConfigList
from sparrowmq.testing.loop_watchdog import LIMIT_MS
from sparrowmq.testing.sim_cluster import SimCluster
from sparrowmq.testing.sim_nodes import BrokerNode
from tests.broker.world import World, subscribes, world_with
from tests.faults.broker_process import BrokerProcess
from tests.patience import PATIENCE_S

P = ParamSpec("P")
T = TypeVar("T")

TABLES = ("topics.json", "subscriptionGroup.json", "messageRequestMode.json")


class SavedTables:
    """Counts how often each table is replaced on a broker's disk from now on."""

    def __init__(self, world: World) -> None:
        self.count: Counter[str] = Counter()
        world.sim.advance(1)  # its own topics and groups are saved by then
        node(world).disk.on_call = self._called

    def _called(self, operation: str, path: str) -> None:
        name = path.removeprefix("config/")
        if operation == "replace" and name in TABLES:
            self.count[name] += 1


def node(world: World) -> BrokerNode:
    return world.sim.brokers["broker-a"]


def create(topic: str) -> CreateTopic:
    return CreateTopic(topic=topic, read_queue_nums=1, write_queue_nums=1, perm=6)


@pytest.mark.parametrize("groups", [300, 1_000])
def test_a_heartbeat_that_names_many_new_groups_saves_each_table_once(
    world: World, groups: int
) -> None:
    member = world.client("a")
    saved = SavedTables(world)
    member.beat(*(subscribes(f"group-{number}") for number in range(groups)))
    world.sim.advance(1)
    assert len(world.broker.groups) > groups
    assert saved.count == {"topics.json": 1, "subscriptionGroup.json": 1}
    node(world).lose_power()
    node(world).start()
    assert f"%RETRY%group-{groups - 1}" in world.broker.topics
    assert f"group-{groups - 1}" in world.broker.groups


@pytest.mark.parametrize("ask", [create, lambda name: CreateGroup()])
def test_requests_that_come_together_share_a_save(
    world: World, ask: Callable[[str], RequestHeader]
) -> None:
    member = world.client("a")
    saved = SavedTables(world)
    thread = held_saves(world)
    calls = [
        member.asking(ask(f"name-{n}"), SubscriptionGroupConfig(group_name=f"name-{n}").to_json())
        for n in range(1_000)
    ]
    world.sim.advance(1)
    thread.let_go()
    answers = [world.sim.wait(call) for call in calls]
    assert {answer.code for answer in answers} == {ResponseCode.SUCCESS}
    assert list(saved.count.values()) == [2], "that of the first request, and of all others"


def test_topics_that_are_created_in_bulk_are_saved_once(world: World) -> None:
    saved = SavedTables(world)
    topics = tuple(TopicConfig(topic_name=f"topic-{number}") for number in range(1_000))
    world.done(CreateTopics(), TopicConfigList(topic_config_list=topics).to_json())
    groups = tuple(SubscriptionGroupConfig(group_name=f"group-{number}") for number in range(1_000))
    world.done(CreateGroups(), SubscriptionGroupList(group_config_list=groups).to_json())
    assert saved.count == {"topics.json": 1, "subscriptionGroup.json": 1}


CHANGES: dict[str, tuple[RequestHeader, bytes]] = {
    "create topic": (create("new"), b""),
    "create topics": (
        CreateTopics(),
        TopicConfigList(topic_config_list=(TopicConfig(topic_name="new"),)).to_json(),
    ),
    "delete topic": (DeleteTopic(topic="old"), b""),
    "create group": (CreateGroup(), SubscriptionGroupConfig(group_name="new").to_json()),
    "create groups": (
        CreateGroups(),
        SubscriptionGroupList(
            group_config_list=(SubscriptionGroupConfig(group_name="new"),)
        ).to_json(),
    ),
    "delete group": (DeleteGroup(group_name="old"), b""),
    "forbid": (UpdateGroupForbidden(group="old", topic="old", readable=False), b""),
    "request mode": (
        SetMessageRequestMode(),
        MessageRequestMode(topic="old", consumer_group="old", mode="PULL").to_json(),
    ),
}


class HeldThread(InlineWorkers):
    """Runs nothing until it is released; then everything, also for tasks cancelled meanwhile."""

    def __init__(self) -> None:
        self._let_go = asyncio.Event()
        self.begun = 0

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        self.begun += 1
        await asyncio.shield(self._let_go.wait())
        return function(*args, **kwargs)

    def let_go(self) -> None:
        self._let_go.set()


def held_saves(world: World) -> HeldThread:
    """From now on saves of this broker stand still."""
    thread = HeldThread()
    world.broker.saving.workers = thread
    return thread


def tables(world: World) -> tuple[bytes, bytes, bytes]:
    broker = world.broker
    return (
        broker.topics.table().to_json(),
        broker.groups.table().to_json(),
        broker.request_modes.table().to_json(),
    )


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_is_answered_when_it_would_survive_a_power_cut(world: World, change: str) -> None:
    world.topic("old")
    world.group("old")
    thread = held_saves(world)
    header, body = CHANGES[change]
    answer = world.client("operator").asking(header, body)
    world.sim.until(lambda: bool(thread.begun))
    world.sim.advance(1)
    assert not answer.done()
    thread.let_go()
    assert world.sim.wait(answer).code == ResponseCode.SUCCESS
    expected = tables(world)
    node(world).lose_power()
    node(world).start()
    assert tables(world) == expected


PROGRESS_CHANGES: dict[str, RequestHeader] = {
    "delete topic": DeleteTopic(topic="orders"),
    "delete group": DeleteGroup(group_name="billing", clean_offset=True),
    "reset": InvokeResetOffset(topic="orders", group="billing", timestamp=0),
    "clone": CloneGroupOffset(src_group="billing", dest_group="mail", topic="orders", offline=True),
}


@pytest.mark.parametrize("crash", [BrokerNode.kill, BrokerNode.lose_power])
@pytest.mark.parametrize("change", PROGRESS_CHANGES)
def test_a_change_of_progress_that_was_answered_survives_a_crash(
    change: str, crash: Callable[[BrokerNode], None]
) -> None:
    with world_with(flush=Flush.SYNC) as world:
        world.topic("orders", 1)
        world.send("orders", b"1", b"2", b"3")
        world.commit("billing", "orders", 0, 3)
        world.sim.advance(5)
        world.done(PROGRESS_CHANGES[change])
        expected = dict(world.broker.offsets.rows())
        world.topic("orders", 1)
        world.send("orders", b"new")
        crash(node(world))
        node(world).start()
        assert dict(world.broker.offsets.rows()) == expected


@pytest.mark.parametrize("change", PROGRESS_CHANGES)
def test_a_change_of_progress_that_finds_no_space_is_not_answered_as_done(
    world: World, change: str
) -> None:
    world.topic("orders", 1)
    world.send("orders", b"1", b"2", b"3")
    world.commit("billing", "orders", 0, 3)
    world.sim.advance(5)
    node(world).disk.fail("write", errno.ENOSPC, path_prefix="sparrowmq/consumerOffset")
    answer = world.ask(PROGRESS_CHANGES[change])
    assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert "not saved" in answer.remark
    expected = dict(world.broker.offsets.rows())
    node(world).disk.heal()
    world.sim.advance(2)
    node(world).lose_power()
    node(world).start()
    assert dict(world.broker.offsets.rows()) == expected


@pytest.mark.parametrize("flush", Flush)
def test_the_first_send_to_a_topic_is_answered_when_the_topic_is_saved(flush: Flush) -> None:
    with world_with(flush=flush) as world:
        world.topic("known", 1)
        world.send("known", b"before")
        thread = held_saves(world)
        client = world.sim.client
        first, second = client.send("new", b"first"), client.send("new", b"second")
        world.sim.until(lambda: bool(thread.begun))
        world.send("known", b"others do not wait")
        world.sim.advance(0.1)
        assert not first.done() and not second.done()
        thread.let_go()
        world.sim.wait(first)
        world.sim.wait(second)
        node(world).lose_power() if flush is Flush.SYNC else node(world).kill()
        node(world).start()
        assert "new" in world.broker.topics
        assert world.broker.store.max_offset("new", 0) == 2


@pytest.mark.parametrize(
    ("level", "topic", "queues"), [(1, "%RETRY%billing", 3), (-1, "%DLQ%billing", 1)]
)
def test_topics_of_failed_messages_come_back_although_they_were_not_saved(
    world: World, level: int, topic: str, queues: int
) -> None:
    world.topic("orders", 1)
    world.send("orders", b"hello")
    world.group("billing", retry_queue_nums=3)
    thread = held_saves(world)
    world.done(SendBack(offset=0, group="billing", delay_level=level))
    world.sim.advance(2)
    assert thread.begun
    store = world.broker.store
    (queue_id,) = (number for number in range(queues) if store.max_offset(topic, number) == 1)
    node(world).kill()
    assert topic.encode() not in node(world).disk.files()["config/topics.json"]
    node(world).start()
    config = world.broker.topics.get(topic)
    assert config is not None and config.read_queue_nums == queues
    answer = world.pull(topic, sys_flag=PULL_SUBSCRIPTION, subscription="*", queue_id=queue_id)
    assert [message.body for message in decode_messages(answer.body)] == [b"hello"]


WAITING: dict[str, Callable[[World, MessageSent], asyncio.Task[Any]]] = {
    "level": lambda world, half: world.sim.client.send("orders", b"later", DELAY="1"),
    "delay": lambda world, half: world.sim.client.send("orders", b"later", TIMER_DELAY_SEC="5"),
    "half": lambda world, half: world.sim.client.send("orders", b"x", TRAN_MSG="true", PGROUP="b"),
    "retry": lambda world, half: world.sim.client.call(
        SendBack(offset=0, group="billing", delay_level=1)
    ),
    "commit": lambda world, half: world.sim.client.call(
        EndTransaction(
            producer_group="bank",
            tran_state_table_offset=half.queue_offset,
            commit_log_offset=OffsetId.parse(half.msg_id).log_offset,
            commit_or_rollback=TRANSACTION_COMMIT,
        )
    ),
}


@pytest.mark.parametrize("what", WAITING)
def test_what_waits_is_stored_when_a_step_of_the_clock_is_saved(world: World, what: str) -> None:
    """Else it would count, after a crash, as stored before the step, and come early or late."""
    world.topic("orders", 1)
    world.group("billing")
    world.send("orders", b"hello")
    sending = world.sim.client.send("orders", b"half", TRAN_MSG="true", PGROUP="bank", DELAY="1")
    half = world.sim.wait(sending)
    thread = held_saves(world)
    world.sim.set_clock(3_600_000)
    set_at = world.broker.store.max_log_offset
    answer = WAITING[what](world, half)
    world.sim.until(lambda: bool(thread.begun))
    world.send("orders", b"others do not wait")
    end = world.broker.store.max_log_offset
    world.sim.advance(1)
    assert not answer.done()
    assert world.broker.store.max_log_offset == end
    thread.let_go()
    world.sim.wait(answer)
    assert world.broker.store.max_log_offset > end
    node(world).kill()
    node(world).start()
    assert world.broker.delivery.clock.since(set_at - 1) == 3_600_000
    assert world.broker.delivery.clock.since(set_at) == 0


def test_delayed_messages_are_refused_while_a_clock_step_cannot_be_saved(world: World) -> None:
    disk = node(world).disk
    disk.fail("create", errno.ENOSPC, path_prefix="config/clockSteps.json")
    world.sim.set_clock(-3_600_000)
    world.send("orders", b"others do not wait")
    answer = world.ask(SendBack(offset=0, group="billing", delay_level=1))
    assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert "clockSteps.json cannot be saved" in answer.remark
    disk.heal()
    world.sim.advance(2)
    world.send("orders", b"later", DELAY="1")


def test_a_save_that_finds_no_space_is_reported_and_repeated_later(world: World) -> None:
    disk = node(world).disk
    disk.fail("create", errno.ENOSPC, path_prefix="config/topics.json")
    answer = world.ask(create("new"))
    assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert "no space" in answer.remark
    assert world.ask(create("newer")).code == ResponseCode.SERVICE_NOT_AVAILABLE
    world.done(CreateGroup(), SubscriptionGroupConfig(group_name="other").to_json())
    disk.heal()
    world.sim.advance(2)
    node(world).lose_power()
    node(world).start()
    assert "new" in world.broker.topics and "newer" in world.broker.topics
    assert "other" in world.broker.groups


def test_a_disk_that_fails_under_a_save_stops_the_broker(world: World) -> None:
    node(world).disk.fail("create", errno.EIO, path_prefix="config/topics.json")
    thread, operator = held_saves(world), world.client("operator")
    first = operator.asking(create("first"))
    world.sim.until(lambda: bool(thread.begun))
    second = operator.asking(create("second"))
    world.sim.advance(1)
    thread.let_go()
    for answer in (first, second):
        assert world.sim.wait(answer).code == ResponseCode.SERVICE_NOT_AVAILABLE
    with pytest.raises(ExceptionGroup) as caught:
        node(world).wait_for_end()
    assert caught.group_contains(OSError, match="Input/output")


def test_a_stop_waits_for_a_running_save_and_saves_what_changed_meanwhile(world: World) -> None:
    thread = held_saves(world)
    world.broker.topics.put(plain_topic("first", 1))
    world.sim.until(lambda: bool(thread.begun))
    world.broker.topics.put(plain_topic("second", 1))
    broker_node = node(world)
    broker_node.begin_stop()
    world.sim.advance(5)
    assert broker_node.is_running, "its save is still under way"
    thread.let_go()
    broker_node.stop()
    broker_node.start()
    assert "first" in world.broker.topics and "second" in world.broker.topics


def test_an_older_table_never_replaces_a_newer_one() -> None:
    with SimCluster(seed=1).run() as sim:
        world = World(sim)
        member = world.client("a")
        thread = held_saves(world)
        answers: list[asyncio.Task[Response]] = []
        for number in range(20):
            answers.append(member.asking(create(f"topic-{number}")))
            sim.advance(0.01)
        assert thread.begun == 1, "saves of a table do not overlap"
        thread.let_go()
        for answer in answers:
            sim.wait(answer)
        node(world).lose_power()
        node(world).start()
        assert all(f"topic-{number}" in world.broker.topics for number in range(20))


members: Routes[None] = Routes()


@members.on(NotifyConsumerIdsChanged)
def ignore(_: None, request: Request[NotifyConsumerIdsChanged]) -> Reply:
    return Reply()


BULK = 1_000
GROUPS = tuple(subscribes(f"group-{number}") for number in range(BULK))
LARGE_REQUESTS: dict[str, tuple[RequestHeader, bytes]] = {
    "heartbeat": (Heartbeat(), HeartbeatData(client_id="a", consumer_data_set=GROUPS).to_json()),
    "create topics": (
        CreateTopics(),
        TopicConfigList(
            topic_config_list=tuple(TopicConfig(topic_name=f"topic-{n}") for n in range(BULK))
        ).to_json(),
    ),
    "create groups": (
        CreateGroups(),
        SubscriptionGroupList(
            group_config_list=tuple(
                SubscriptionGroupConfig(group_name=f"bulk-{n}") for n in range(BULK)
            )
        ).to_json(),
    ),
    "create one": (create("one"), b""),
    "all topics": (GetAllTopicConfig(), b""),
    "all groups": (GetAllGroupConfig(), b""),
    "all offsets": (GetAllConsumerOffsets(), b""),
}


def test_no_large_request_holds_the_loop(tmp_path: Path) -> None:
    """A separate broker: in this process, collecting the garbage of all tests takes longer. What
    counts is what its loop computes: it may have to wait for a busy disk, or for its start."""

    async def ask_all(address: str) -> list[int]:
        async with asyncio.TaskGroup() as tasks:
            peers = Peers(tasks, log=logging.getLogger("operator"), context=None, routes=members)
            answers = [
                await peers.call(address, header, body, timeout_s=PATIENCE_S)
                for header, body in LARGE_REQUESTS.values()
            ]
            await peers.close()
            return [answer.code for answer in answers]

    stalls = tmp_path / "stalls"
    broker = BrokerProcess(tmp_path / "data", stalls=stalls)
    assert asyncio.run(ask_all(f"127.0.0.1:{broker.port}")) == [0] * len(LARGE_REQUESTS)
    found = stalls.read_text("utf-8") if stalls.exists() else ""
    assert broker.stop() == 0
    assert [stall for stall in found.splitlines() if json.loads(stall)["cpu_ms"] >= LIMIT_MS] == []
