"""A slave has its master's tables: less than a second old, never ahead of its log, and all there
when it is promoted."""

import asyncio
from dataclasses import replace

import msgspec
import pytest

from sparrowmq.broker.broker import Broker
from sparrowmq.broker.config import Flush, ReplicationMode
from sparrowmq.broker.delivery.delay_levels import DelayOffsets
from sparrowmq.broker.delivery.timer_files import TimerCheck
from sparrowmq.broker.handlers import replication as handlers
from sparrowmq.broker.replication.replication import Role
from sparrowmq.broker.replication.table_copy import take_state
from sparrowmq.broker.replication.table_rules import OffsetChange
from sparrowmq.broker.replication.table_state import (
    TableCounts,
    TableQuestion,
    TableState,
    TopicsCopied,
)
from sparrowmq.net.calls import Response
from sparrowmq.protocol.body import DataVersion
from sparrowmq.protocol.broker_stats import MessageRequestMode
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.group_config import SubscriptionGroupConfig
from sparrowmq.protocol.header import RequestHeader
from sparrowmq.protocol.headers.clients import Heartbeat
from sparrowmq.protocol.headers.consumer_calls import InvokeResetOffset
from sparrowmq.protocol.headers.groups import CreateGroup, DeleteGroup, SetMessageRequestMode
from sparrowmq.protocol.headers.offsets import (
    OffsetFound,
    QueryConsumerOffset,
    UpdateConsumerOffset,
)
from sparrowmq.protocol.headers.replication import CopyTables, GiveTables
from sparrowmq.protocol.headers.topics import CreateTopic, DeleteTopic
from sparrowmq.protocol.heartbeat import ConsumerData, HeartbeatData
from sparrowmq.protocol.names import TIMER_TOPIC
from sparrowmq.testing.sim_cluster import RunningCluster, SimCluster
from sparrowmq.testing.sim_nodes import BrokerNode
from tests.seeds import seeds
from tests.sim.replicated import TOPIC, bodies, follows, has_all, role

GROUP = "billing"
CREATE = CreateTopic(topic=TOPIC, read_queue_nums=4, write_queue_nums=4, perm=6)
GROUP_BODY = SubscriptionGroupConfig(group_name=GROUP, retry_max_times=3).to_json()
NO_TOPICS = TopicsCopied((), (), True, DataVersion())
MODE_BODY = MessageRequestMode(topic=TOPIC, consumer_group=GROUP).to_json()


def master_of(sim: RunningCluster) -> BrokerNode:
    return sim.brokers["broker-a"]


def slave_of(sim: RunningCluster) -> BrokerNode:
    return sim.brokers["broker-a.1"]


def ask(
    sim: RunningCluster, header: RequestHeader, body: bytes = b"", *, of: BrokerNode
) -> Response:
    return sim.wait(sim.client.call(header, body, address=of.address))


def change(sim: RunningCluster, header: RequestHeader, body: bytes = b"") -> None:
    """Change something at the master."""
    answer = ask(sim, header, body, of=master_of(sim))
    assert answer.code == ResponseCode.SUCCESS, answer.remark


def commit(sim: RunningCluster, offset: int, *, at: BrokerNode) -> int:
    header = UpdateConsumerOffset(
        consumer_group=GROUP, topic=TOPIC, queue_id=0, commit_offset=offset
    )
    return ask(sim, header, of=at).code


def progress(sim: RunningCluster, *, of: BrokerNode) -> int:
    header = QueryConsumerOffset(
        consumer_group=GROUP, topic=TOPIC, queue_id=0, set_zero_if_not_found=False
    )
    answer = ask(sim, header, of=of)
    return answer.header(OffsetFound).offset if answer.code == ResponseCode.SUCCESS else -1


def reset(sim: RunningCluster, offset: int) -> None:
    change(sim, InvokeResetOffset(topic=TOPIC, group=GROUP, timestamp=0, queue_id=0, offset=offset))


def tables(broker: Broker) -> tuple[object, ...]:
    """Everything that a slave copies."""
    return (
        broker.topics.table(),
        broker.groups.table(),
        broker.request_modes.table(),
        sorted(broker.offsets.everything()),
        broker.delivery.levels.offsets,
        broker.delivery.timers.marks,
        broker.store.epochs.current,
        broker.store.deletions,
    )


def promote(node: BrokerNode) -> None:
    """Stop a slave and start it as the master."""
    if node.is_running:
        node.stop()
    node.config = replace(node.config, broker_id=0)
    node.start()


def with_progress(sim: RunningCluster, count: int = 20) -> None:
    """A topic with messages, and a group that may commit in it."""
    change(sim, CREATE)
    change(sim, CreateGroup(), GROUP_BODY)
    for number in range(count):
        sim.wait(sim.client.send(TOPIC, b"message %d" % number))


CHANGES: dict[str, tuple[RequestHeader, bytes]] = {
    "a topic": (CreateTopic(topic="news", read_queue_nums=7, write_queue_nums=3, perm=4), b""),
    "another size": (CreateTopic(topic=TOPIC, read_queue_nums=9, write_queue_nums=9, perm=6), b""),
    "a topic less": (DeleteTopic(topic=TOPIC), b""),
    "a group": (CreateGroup(), SubscriptionGroupConfig(group_name="news").to_json()),
    "a group less": (DeleteGroup(group_name=GROUP, clean_offset=True), b""),
    "a request mode": (SetMessageRequestMode(), MODE_BODY),
    "progress": (
        UpdateConsumerOffset(consumer_group=GROUP, topic=TOPIC, queue_id=0, commit_offset=9),
        b"",
    ),
    "progress that moves back": (
        UpdateConsumerOffset(consumer_group=GROUP, topic=TOPIC, queue_id=0, commit_offset=2),
        b"",
    ),
    "a reset": (
        InvokeResetOffset(topic=TOPIC, group=GROUP, timestamp=0, queue_id=0, offset=1),
        b"",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("what", CHANGES)
@pytest.mark.parametrize("moment_s", [0.0, 0.1, 0.2])
def test_a_change_is_at_the_slave_within_a_second(what: str, moment_s: float) -> None:
    with SimCluster(slaves=1).run() as sim:
        sim.until(lambda: follows(sim))
        with_progress(sim)
        commit(sim, 5, at=master_of(sim))
        sim.advance(5.0 + moment_s)
        before = tables(sim.broker)
        assert tables(slave_of(sim).broker) == before
        change(sim, *CHANGES[what])
        assert tables(sim.broker) != before
        sim.advance(1.0)
        assert tables(slave_of(sim).broker) == tables(sim.broker)
        assert bodies(slave_of(sim)) == bodies(master_of(sim))


def test_a_slave_that_was_away_gets_whole_tables() -> None:
    with SimCluster(slaves=1).run() as sim:
        sim.until(lambda: follows(sim))
        with_progress(sim)
        commit(sim, 5, at=master_of(sim))
        slave_of(sim).kill()
        change(sim, DeleteTopic(topic=TOPIC))
        change(sim, CREATE)
        sim.wait(sim.client.send(TOPIC, b"new"))
        slave_of(sim).start()
        sim.until(lambda: follows(sim) and has_all(sim))
        sim.advance(5.0)
        assert tables(slave_of(sim).broker) == tables(sim.broker)
        assert bodies(slave_of(sim)) == [b"new"]


def test_how_far_delivery_is_follows_too() -> None:
    with SimCluster(slaves=1).run() as sim:
        sim.until(lambda: follows(sim))
        sim.wait(sim.client.send(TOPIC, b"a level", DELAY="1"))
        sim.wait(sim.client.send(TOPIC, b"a time", TIMER_DELAY_SEC="2"))
        sim.advance(5.0)
        assert sim.broker.delivery.levels.offsets[1] == 1
        assert sim.broker.store.max_offset(TIMER_TOPIC, 0) == 1
        marks = sim.broker.delivery.timers.marks
        assert tables(slave_of(sim).broker) == tables(sim.broker)
        master_of(sim).kill()
        slave_of(sim).stop()
        disk = slave_of(sim).disk
        assert DelayOffsets.from_json(disk.files()["config/delayOffset.json"]).offset_table[1] == 1
        assert TimerCheck(disk).load()[0] == marks[-1]
        promote(slave_of(sim))
        sim.advance(5.0)
        assert len(slave_of(sim).broker.delivery.timers) == 0
        assert sorted(bodies(slave_of(sim))) == [b"a level", b"a time"], "delivered twice"


def test_a_state_waits_for_the_log() -> None:
    # The slave has taken the delayed message and syncs it for long. The master delivers it
    # meanwhile, and reports it with a log end that the slave has not reached.
    with SimCluster(slaves=1, flush=Flush.SYNC).run() as sim:
        sim.until(lambda: follows(sim))
        sim.advance(2.0)
        slave_of(sim).sync_s = 60.0
        sim.wait(sim.client.send(TOPIC, b"delayed", DELAY="1"))
        sim.until(lambda: has_all(sim))
        sim.advance(3.0)
        change(sim, CreateGroup(), GROUP_BODY)
        sim.advance(3.0)
        assert bodies(master_of(sim)) == [b"delayed"]
        assert not has_all(sim)
        assert GROUP not in slave_of(sim).broker.groups, "applied too early"
        master_of(sim).kill()
        slave_of(sim).kill()
        slave_of(sim).sync_s = 0.0
        promote(slave_of(sim))
        sim.advance(5.0)
        assert bodies(slave_of(sim)) == [b"delayed"], "it was never delivered"


def test_a_promoted_slave_has_everything() -> None:
    with SimCluster(slaves=1).run() as sim:
        sim.until(lambda: follows(sim))
        with_progress(sim)
        change(sim, SetMessageRequestMode(), MODE_BODY)
        commit(sim, 7, at=master_of(sim))
        sim.advance(1.0)
        expected = tables(sim.broker)
        master_of(sim).lose_power()
        sim.client.disconnect()
        assert commit(sim, 12, at=slave_of(sim)) == ResponseCode.SUCCESS
        promote(slave_of(sim))
        broker = slave_of(sim).broker
        assert (broker.topics.table(), broker.groups.table()) == expected[:2]
        assert broker.request_modes.table() == expected[2]
        assert progress(sim, of=slave_of(sim)) == 12
        sim.wait(sim.client.send(TOPIC, b"after", address=slave_of(sim).address))
        assert len(bodies(slave_of(sim))) == 21


def test_a_promoted_slave_creates_a_topic_whose_table_it_did_not_get() -> None:
    with SimCluster(slaves=1).run() as sim:
        sim.until(lambda: follows(sim))
        sim.advance(2.05)
        sim.wait(sim.client.send("last-second", b"acknowledged"))
        sim.until(lambda: has_all(sim))
        master_of(sim).kill()
        assert "last-second" not in slave_of(sim).broker.topics
        promote(slave_of(sim))
        pulled = sim.wait(sim.client.pull("last-second", address=slave_of(sim).address))
        assert pulled.bodies == [b"acknowledged"]


def delete_topic(sim: RunningCluster) -> None:
    change(sim, DeleteTopic(topic=TOPIC))


def create_topic(sim: RunningCluster) -> None:
    change(sim, CREATE)
    sim.wait(sim.client.send(TOPIC, b"again"))


STEPS = {"delete": delete_topic, "create": create_topic}


@pytest.mark.slow
@pytest.mark.parametrize(
    "before, after",
    [
        ("", "delete"),
        ("delete", ""),
        ("", "delete create"),
        ("delete", "create"),
        ("delete create", ""),
        ("delete create", "delete"),
        ("delete create delete", "create"),
    ],
)
@pytest.mark.parametrize("loss", ["kill", "stop", "lose_power"])
@pytest.mark.parametrize("wait_s", [0.0, 1.0])
def test_a_topic_is_deleted_and_recreated_around_a_loss_of_the_master(
    before: str, after: str, loss: str, wait_s: float
) -> None:
    with SimCluster(slaves=1, flush=Flush.SYNC).run() as sim:
        sim.until(lambda: follows(sim))
        with_progress(sim)
        commit(sim, 15, at=master_of(sim))
        sim.advance(2.0)
        for step in before.split():
            STEPS[step](sim)
        sim.advance(wait_s)
        getattr(master_of(sim), loss)()
        sim.client.disconnect()
        sim.advance(3.0)
        master_of(sim).start()
        sim.until(lambda: follows(sim))
        for step in after.split():
            STEPS[step](sim)
        sim.until(lambda: has_all(sim))
        sim.advance(5.0)
        assert tables(slave_of(sim).broker) == tables(sim.broker)
        is_there = f"{before} {after}".split()[-1] == "create"
        assert (TOPIC in sim.broker.topics) == is_there
        assert bodies(slave_of(sim)) == bodies(master_of(sim)) == [b"again"] * is_there
        assert progress(sim, of=slave_of(sim)) == -1


@pytest.mark.slow
@pytest.mark.parametrize("history", seeds(20, few=2))
def test_progress_never_moves_back_over_50_losses_of_the_master(history: int) -> None:
    with SimCluster(history, slaves=1, limit_s=7200.0).run() as sim:
        sim.until(lambda: follows(sim))
        with_progress(sim, 1000)
        rng = sim.rng("losses")
        reached = 1
        commit(sim, reached, at=master_of(sim))
        for number in range(50):
            # While the master is there, the slave may be up to a second behind.
            for _ in range(rng.randrange(4)):
                reached += rng.randrange(5)
                assert commit(sim, reached, at=master_of(sim)) == ResponseCode.SUCCESS
            if number % 10 == 9:
                reached //= 2
                reset(sim, reached)
            node = master_of(sim)
            loss = rng.choice((node.kill, node.stop, node.lose_power))
            # A kill undoes nothing that was answered. A power cut may undo a second; and a slave
            # needs as long to learn of a reset, and then that a member has applied it.
            has_time = number % 10 in (9, 0) or loss != node.kill
            if has_time:
                sim.advance(1.0)
                assert progress(sim, of=slave_of(sim)) == reached
            loss()
            sim.client.disconnect()
            for _ in range(rng.randrange(4)):
                reached += rng.randrange(5)
                assert commit(sim, reached, at=slave_of(sim)) == ResponseCode.SUCCESS
                assert progress(sim, of=slave_of(sim)) == reached
            if rng.randrange(3) == 0:
                if has_time:
                    sim.advance(1.0)
                slave_of(sim).kill()
                slave_of(sim).start()
            node.start()
            assert progress(sim, of=node) == reached
            sim.until(lambda: follows(sim))
        sim.advance(5.0)
        assert tables(slave_of(sim).broker) == tables(sim.broker)


def test_what_is_committed_at_a_slave_reaches_its_master_and_the_other_slave() -> None:
    with SimCluster(slaves=2).run() as sim:
        sim.until(lambda: follows(sim) and follows(sim, 2))
        with_progress(sim)
        commit(sim, 3, at=master_of(sim))
        sim.advance(1.0)
        assert commit(sim, 8, at=slave_of(sim)) == ResponseCode.SUCCESS
        sim.advance(1.0)
        assert progress(sim, of=master_of(sim)) == 8
        sim.advance(0.5)
        assert progress(sim, of=sim.brokers["broker-a.2"]) == 8


def test_commits_at_a_slave_count_when_it_returns_after_its_master() -> None:
    with SimCluster(slaves=1).run() as sim:
        sim.until(lambda: follows(sim))
        with_progress(sim)
        commit(sim, 3, at=master_of(sim))
        sim.advance(1.0)
        master_of(sim).kill()
        assert commit(sim, 8, at=slave_of(sim)) == ResponseCode.SUCCESS
        slave_of(sim).stop()
        sim.client.disconnect()
        master_of(sim).start()
        assert progress(sim, of=master_of(sim)) == 3
        slave_of(sim).start()
        assert progress(sim, of=slave_of(sim)) == 8
        sim.until(lambda: follows(sim))
        sim.advance(1.0)
        assert progress(sim, of=slave_of(sim)) == 8
        assert progress(sim, of=master_of(sim)) == 8


@pytest.mark.parametrize(("lost", "known"), [(1, 8), (2, 8), (1000, 3)])
def test_a_master_asks_again_for_progress_whose_answer_was_lost(
    lost: int, known: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For a while: redeliveries are better than no master."""
    asked: list[TableQuestion] = []

    async def lose_answers(broker: Broker, question: TableQuestion) -> TableState:
        if question.only_progress:
            asked.append(question)
            if len(asked) <= lost:
                await asyncio.Event().wait()
        return await take_state(broker, question)

    with SimCluster(slaves=1).run() as sim:
        sim.until(lambda: follows(sim))
        with_progress(sim)
        commit(sim, 3, at=master_of(sim))
        sim.advance(1.0)
        master_of(sim).kill()
        assert commit(sim, 8, at=slave_of(sim)) == ResponseCode.SUCCESS
        sim.client.disconnect()
        monkeypatch.setattr(handlers, "take_state", lose_answers)
        began_s = sim.now_s
        master_of(sim).start()
        assert progress(sim, of=master_of(sim)) == known
        assert sim.now_s - began_s < 20


def test_a_reset_wins_over_progress_a_slave_stored_before_it() -> None:
    with SimCluster(slaves=1).run() as sim:
        sim.until(lambda: follows(sim))
        with_progress(sim)
        commit(sim, 3, at=master_of(sim))
        sim.advance(1.0)
        master_of(sim).kill()
        sim.client.disconnect()
        assert commit(sim, 8, at=slave_of(sim)) == ResponseCode.SUCCESS
        slave_of(sim).stop()
        master_of(sim).start()
        reset(sim, 1)
        slave_of(sim).start()
        sim.until(lambda: follows(sim))
        sim.advance(1.0)
        assert progress(sim, of=slave_of(sim)) == 1
        assert progress(sim, of=master_of(sim)) == 1


def test_a_master_that_waits_takes_no_reset_which_its_slave_would_undo() -> None:
    with SimCluster(slaves=1, replication=ReplicationMode.SYNC).run() as sim:
        sim.until(lambda: follows(sim))
        with_progress(sim)
        commit(sim, 8, at=master_of(sim))
        sim.advance(1.0)
        master_of(sim).kill()
        slave_of(sim).kill()
        sim.client.disconnect()
        master_of(sim).start()
        assert role(master_of(sim)) is Role.WAITING
        header = InvokeResetOffset(topic=TOPIC, group=GROUP, timestamp=0, queue_id=0, offset=1)
        answer = ask(sim, header, of=master_of(sim))
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert "--accept-loss" in answer.remark
        assert progress(sim, of=master_of(sim)) == 8


def test_members_at_a_slave_can_read_but_create_nothing_there() -> None:
    with SimCluster(slaves=1).run() as sim:
        sim.until(lambda: follows(sim))
        with_progress(sim, 3)
        sim.until(lambda: has_all(sim))
        sim.advance(1.0)
        master_of(sim).kill()
        before = tables(slave_of(sim).broker)[:2]
        beat = HeartbeatData(
            client_id="member", consumer_data_set=(ConsumerData(group_name="unheard-of"),)
        )
        assert ask(sim, Heartbeat(), beat.to_json(), of=slave_of(sim)).code == 0
        pulled = sim.wait(sim.client.pull(TOPIC, group="unheard-of", address=slave_of(sim).address))
        assert len(pulled.messages) == 3
        assert tables(slave_of(sim).broker)[:2] == before
        header = UpdateConsumerOffset(
            consumer_group="unheard-of", topic=TOPIC, queue_id=0, commit_offset=3
        )
        assert ask(sim, header, of=slave_of(sim)).code == ResponseCode.SUCCESS


@pytest.mark.parametrize(
    "header, body",
    [
        (CREATE, b""),
        (DeleteTopic(topic=TOPIC), b""),
        (CreateGroup(), GROUP_BODY),
        (DeleteGroup(group_name=GROUP, clean_offset=True), b""),
        (SetMessageRequestMode(), MODE_BODY),
    ],
)
def test_a_slave_refuses_changes_of_its_tables(header: RequestHeader, body: bytes) -> None:
    with SimCluster(slaves=1).run() as sim:
        sim.until(lambda: follows(sim))
        answer = ask(sim, header, body, of=slave_of(sim))
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert "change them there (id 0)" in answer.remark


def test_a_question_that_cannot_be_read_is_refused() -> None:
    with SimCluster().run() as sim:
        answer = ask(sim, CopyTables(), b"[1, 2", of=master_of(sim))
        assert answer.code == ResponseCode.INVALID_PARAMETER


@pytest.mark.parametrize(
    "sent",
    [
        OffsetChange("unheard-of@billing", 0, 4),
        OffsetChange(f"{TOPIC}@{GROUP}", 0, 21),
        OffsetChange(f"{TOPIC}@{GROUP}", 0, -1),
        OffsetChange(f"{TOPIC}@{GROUP}", 0, 20, rewind=2**50),
        OffsetChange(f"{TOPIC}@{GROUP}", -3, 0),
    ],
)
def test_progress_that_no_slave_can_have_is_ignored(sent: OffsetChange) -> None:
    with SimCluster().run() as sim:
        with_progress(sim, 20)
        commit(sim, 4, at=master_of(sim))
        before = sim.broker.offsets.everything()
        question = msgspec.json.encode(TableQuestion(progress=(sent,)))
        assert ask(sim, CopyTables(), question, of=master_of(sim)).code == ResponseCode.SUCCESS
        assert sim.broker.offsets.everything() == before


def test_a_restarted_slave_keeps_its_tables() -> None:
    with SimCluster(slaves=1).run() as sim:
        sim.until(lambda: follows(sim))
        with_progress(sim)
        commit(sim, 5, at=master_of(sim))
        sim.advance(1.0)
        master_of(sim).kill()
        commit(sim, 9, at=slave_of(sim))
        before = tables(slave_of(sim).broker)[:3]
        slave_of(sim).stop()
        sim.client.disconnect()
        slave_of(sim).start()
        assert tables(slave_of(sim).broker)[:3] == before
        assert progress(sim, of=slave_of(sim)) == 9
        assert role(slave_of(sim)).value == "slave"


@pytest.mark.parametrize("moment_s", [0.0, 0.1, 0.2])
def test_a_master_that_stops_leaves_its_slave_the_tables_of_its_last_moment(
    moment_s: float,
) -> None:
    """Not of its slave's last question, which is 0.3 s old at worst."""
    with SimCluster(slaves=1).run() as sim:
        sim.until(lambda: follows(sim))
        with_progress(sim)
        sim.advance(1.0 + moment_s)
        change(sim, CreateTopic(topic="late", read_queue_nums=4, write_queue_nums=4, perm=6))
        change(sim, SetMessageRequestMode(), MODE_BODY)
        commit(sim, 9, at=master_of(sim))
        master_of(sim).begin_stop()
        expected = tables(sim.broker)
        sim.until(lambda: not master_of(sim).is_running)
        broker = slave_of(sim).broker
        assert tables(broker) == expected
        assert broker.offsets.get(GROUP, TOPIC, 0) == 9


def test_only_the_master_of_a_slave_can_give_it_tables() -> None:
    with SimCluster(slaves=1).run() as sim:
        sim.until(lambda: follows(sim))
        with_progress(sim)
        sim.advance(1.0)
        expected = tables(slave_of(sim).broker)
        state = TableState(counts=TableCounts(), log_end=0, topics=NO_TOPICS)
        body = msgspec.json.encode(state)
        for header, sent, text in [
            (GiveTables(master_address="10.9.9.9:10911"), body, "not 10.9.9.9:10911"),
            (GiveTables(master_address=master_of(sim).address), body, "another log than this one"),
            (GiveTables(master_address=master_of(sim).address), b"[1", "no state of tables"),
        ]:
            answer = ask(sim, header, sent, of=slave_of(sim))
            assert answer.code != ResponseCode.SUCCESS
            assert text in answer.remark
        refused = ask(sim, header, body, of=master_of(sim))
        assert "this broker is not a slave" in refused.remark
        assert tables(slave_of(sim).broker) == expected
