"""Planned changes of roles in simulation: nothing is lost, no send fails, and crashes leave no two
masters."""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

import pytest

from sparrowmq.broker.config import ReplicationMode
from sparrowmq.broker.registration import BrokerNameTaken
from sparrowmq.broker.replication.replication import Role
from sparrowmq.client.errors import NoRoute, SendFailed
from sparrowmq.client.sending.producer import Producer
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.group_config import SubscriptionGroupConfig
from sparrowmq.protocol.header import RequestHeader
from sparrowmq.protocol.headers.groups import CreateGroup
from sparrowmq.protocol.headers.offsets import UpdateConsumerOffset
from sparrowmq.protocol.headers.replication import HandOver, TakeOver
from sparrowmq.protocol.message import Message
from sparrowmq.testing.sim_cluster import RunningCluster, SimCluster
from sparrowmq.testing.wire import Refused
from tests.seeds import in_part
from tests.sim.replicated import bodies, follows, has_all, role
from tests.sim.test_producers import create_topic, produce

OLD, NEW = "broker-a", "broker-a.1"


def all_bodies(sim: RunningCluster, name: str) -> list[bytes]:
    return sorted(body for queue_id in range(4) for body in bodies(sim.brokers[name], queue_id))


def ask(sim: RunningCluster, name: str, header: RequestHeader, body: bytes = b"") -> None:
    """Raises Refused."""
    answer = sim.wait(sim.client.call(header, body, address=sim.brokers[name].address))
    if answer.code != ResponseCode.SUCCESS:
        raise Refused(answer)


def hand_over(sim: RunningCluster, slave_id: int = -1) -> None:
    ask(sim, OLD, HandOver(slave_id=slave_id))


def is_serving(sim: RunningCluster, name: str, wanted: Role) -> bool:
    node = sim.brokers[name]
    return node.is_running and hasattr(node.server, "broker") and role(node) is wanted


@pytest.mark.parametrize("replication", list(ReplicationMode))
def test_no_send_fails_and_nothing_is_lost_while_roles_change_and_change_back(
    replication: ReplicationMode,
) -> None:
    sent: list[bytes] = []
    longest_s = 0.0

    async def send(producer: Producer) -> None:
        nonlocal longest_s
        for number in range(400):
            began_s = asyncio.get_running_loop().time()
            result = await producer.send(Message("orders", b"%05d" % number))
            longest_s = max(longest_s, asyncio.get_running_loop().time() - began_s)
            assert result.is_ok
            sent.append(b"%05d" % number)
            await asyncio.sleep(0.02)

    with SimCluster(slaves=1, replication=replication).run() as sim:
        sim.until(lambda: follows(sim))
        create_topic(sim)
        sending = produce(sim, send)
        sim.until(lambda: len(sent) > 50)
        hand_over(sim)
        sim.until(lambda: is_serving(sim, NEW, Role.MASTER) and follows(sim, 1, NEW))
        sim.until(lambda: len(sent) > 200)
        ask(sim, NEW, HandOver())
        sim.until(lambda: is_serving(sim, OLD, Role.MASTER) and follows(sim, 1, OLD))
        sim.wait(sending)
        assert longest_s <= 1.0
        assert set(sent) <= set(all_bodies(sim, OLD))


def test_a_producer_finds_the_new_master_of_a_topic_that_its_first_send_has_made() -> None:
    """For 30 s its route is that of the default topic, and is not asked for again."""
    results: list[bool] = []

    async def send(producer: Producer) -> None:
        for _ in range(100):
            results.append((await producer.send(Message("made-by-sending", b"x"))).is_ok)
            await asyncio.sleep(0.02)

    with SimCluster(slaves=1, replication=ReplicationMode.SYNC).run() as sim:
        sim.until(lambda: follows(sim))
        sending = produce(sim, send)
        sim.until(lambda: len(results) > 20)
        hand_over(sim)
        sim.wait(sending)
        assert results == [True] * 100
        assert sim.now_s < 20


@pytest.mark.parametrize("key", [None, "a key"])
@pytest.mark.parametrize("topic", ["orders", "made-by-sending"])
def test_a_producer_without_retries_sends_to_the_new_master_soon_after_it_is_there(
    topic: str, key: str | None
) -> None:
    """A refused send fails, and makes its producer ask the name servers for the new master."""
    refused_s: list[float] = []
    stored_s: list[float] = []

    async def send(producer: Producer) -> None:
        for _ in range(400):
            now_s = asyncio.get_running_loop().time()
            try:
                assert (await producer.send(Message(topic, b"x"), key=key)).is_ok
                stored_s.append(now_s)
            except SendFailed:
                refused_s.append(now_s)
            await asyncio.sleep(0.02)

    with SimCluster(slaves=1, replication=ReplicationMode.SYNC).run() as sim:
        sim.until(lambda: follows(sim))
        create_topic(sim)
        sending = produce(sim, send, retries=0)
        sim.until(lambda: len(stored_s) > 100)
        hand_over(sim)
        sim.until(lambda: is_serving(sim, NEW, Role.MASTER) and follows(sim, 1, NEW))
        is_there_s = sim.now_s
        sim.wait(sending)
        assert refused_s
        assert refused_s[-1] < is_there_s + 0.5
        assert len(stored_s) + len(refused_s) == 400


@pytest.mark.parametrize("topic", ["orders", "made-by-sending"])
def test_one_way_sends_arrive_again_soon_after_a_change_of_roles(topic: str) -> None:
    """What is sent while no broker is the master is dropped: no answer says so."""
    sent_s: dict[bytes, float] = {}

    async def send(producer: Producer) -> None:
        for number in range(300):
            body = b"%d" % number
            sent_s[body] = asyncio.get_running_loop().time()
            with suppress(SendFailed, NoRoute):
                await producer.send_oneway(Message(topic, body))
            await asyncio.sleep(0.02)

    with SimCluster(slaves=1, replication=ReplicationMode.SYNC).run() as sim:
        sim.until(lambda: follows(sim))
        create_topic(sim)
        sending = produce(sim, send)
        sim.until(lambda: len(sent_s) > 100)
        began_s = sim.now_s
        hand_over(sim)
        sim.until(lambda: is_serving(sim, NEW, Role.MASTER) and follows(sim, 1, NEW))
        is_there_s = sim.now_s
        sim.wait(sending)
        sim.advance(1)
        new = sim.brokers[NEW]
        arrived = {body for queue_id in range(8) for body in bodies(new, queue_id, topic)}
        lost_s = [at_s for body, at_s in sent_s.items() if body not in arrived]
        assert all(began_s - 0.1 < at_s < is_there_s + 1.0 for at_s in lost_s), lost_s
        assert max(sent_s.values()) > is_there_s + 2


def test_a_planned_change_is_logged_as_no_error(caplog: pytest.LogCaptureFixture) -> None:
    with SimCluster(slaves=1, replication=ReplicationMode.SYNC).run() as sim:
        sim.until(lambda: follows(sim))
        hand_over(sim)
        sim.until(lambda: is_serving(sim, NEW, Role.MASTER) and follows(sim, 1, NEW))
    assert [each.message for each in caplog.records if each.levelno >= logging.ERROR] == []


def test_a_new_master_has_topics_groups_and_progress() -> None:
    with SimCluster(slaves=1).run() as sim:
        sim.until(lambda: follows(sim))
        create_topic(sim)
        sim.wait(sim.client.send("orders", b"before"))
        ask(sim, OLD, CreateGroup(), SubscriptionGroupConfig(group_name="billing").to_json())
        done = UpdateConsumerOffset(
            consumer_group="billing", topic="orders", queue_id=0, commit_offset=1
        )
        ask(sim, OLD, done)
        hand_over(sim)
        sim.until(lambda: is_serving(sim, NEW, Role.MASTER) and follows(sim, 1, NEW))
        broker = sim.brokers[NEW].broker
        assert broker.topics.get("orders") is not None
        assert "billing" in broker.groups
        assert broker.offsets.get("billing", "orders", 0) == 1


def test_a_handed_over_role_survives_restarts_until_it_is_configured_otherwise() -> None:
    with SimCluster(slaves=1).run() as sim:
        sim.until(lambda: follows(sim))
        sim.wait(sim.client.send("orders", b"before"))
        hand_over(sim)
        sim.until(lambda: follows(sim, 1, NEW))
        for name in (OLD, NEW):
            sim.brokers[name].kill()
        for name in (OLD, NEW):
            sim.brokers[name].start()
        sim.until(lambda: follows(sim, 1, NEW))
        assert (role(sim.brokers[OLD]), role(sim.brokers[NEW])) == (Role.SLAVE, Role.MASTER)
        assert bodies(sim.brokers[NEW]) == bodies(sim.brokers[OLD]) == [b"before"]
        sim.brokers[OLD].stop()
        sim.brokers[OLD].config = replace(sim.brokers[OLD].config, broker_id=5)
        sim.brokers[OLD].start()
        sim.until(lambda: follows(sim, 5, NEW))


def test_a_power_cut_soon_after_a_change_loses_nothing_that_was_acknowledged() -> None:
    """The log then ends where the new master took over, as if nothing had been stored since."""
    cluster = SimCluster(slaves=1, replication=ReplicationMode.SYNC, flush_interval_s=600.0)
    with cluster.run() as sim:
        sim.until(lambda: follows(sim))
        create_topic(sim)
        sim.wait(sim.client.send("orders", b"before"))
        hand_over(sim)
        sim.until(lambda: is_serving(sim, NEW, Role.MASTER) and follows(sim, 1, NEW))
        new = sim.brokers[NEW]
        answer = sim.wait(sim.client.send("orders", b"acknowledged", address=new.address))
        took_over_at = new.broker.store.durable_log_offset
        assert took_over_at < new.broker.store.max_log_offset, "it was synced, and cannot be lost"
        new.lose_power()
        new.start()
        assert all_bodies(sim, NEW) == [b"acknowledged", b"before"], answer


def _no_slave(sim: RunningCluster) -> int:
    sim.brokers[NEW].kill()
    sim.until(lambda: not follows(sim))
    return -1


def _stuck(sim: RunningCluster) -> int:
    """It answers, and its log does not grow."""
    sim.brokers[NEW].broker.store.append_raw = lambda log_offset, data: log_offset
    sim.wait(sim.client.send("orders", b"only on the master"))
    return 1


def _frozen(sim: RunningCluster) -> int:
    """It has everything, and acknowledged it before it froze."""
    sim.until(lambda: has_all(sim))
    sim.advance(1)
    sim.brokers[NEW].host.pause()
    return 1


@pytest.mark.parametrize(
    ("prepare", "text"),
    [
        (_no_slave, "no slave follows broker-a"),
        (lambda sim: 7, "slave 7 does not follow; slaves that do: 1"),
        (_stuck, "slave 1 still lacks"),
        (_frozen, "slave 1 cannot take over: .* did not answer GetHaStatus within 1 s"),
    ],
)
def test_a_master_that_cannot_hand_over_stays_the_master(
    prepare: Callable[[RunningCluster], int], text: str
) -> None:
    with SimCluster(slaves=1).run() as sim:
        sim.until(lambda: follows(sim))
        sim.wait(sim.client.send("orders", b"before"))
        slave_id = prepare(sim)
        with pytest.raises(Refused, match=text):
            hand_over(sim, slave_id)
        sim.wait(sim.client.send("orders", b"after"))
        assert role(sim.brokers[OLD]) is Role.MASTER


def test_a_slave_whose_master_lives_takes_over_from_that_master_only() -> None:
    with SimCluster(slaves=1).run() as sim:
        sim.until(lambda: follows(sim))
        with pytest.raises(Refused, match="is alive"):
            ask(sim, NEW, TakeOver(accept_loss="broker-a"))
        stranger = TakeOver(master_address="10.9.9.9:10911", log_end=0)
        with pytest.raises(Refused, match=r"not 10\.9\.9\.9:10911"):
            ask(sim, NEW, stranger, b"{}")
        assert role(sim.brokers[NEW]) is Role.SLAVE


def test_a_slave_of_a_lost_master_takes_over_if_the_loss_is_accepted() -> None:
    with SimCluster(slaves=1).run() as sim:
        sim.until(lambda: follows(sim))
        sim.wait(sim.client.send("orders", b"before"))
        sim.until(lambda: bodies(sim.brokers[NEW]) == [b"before"])
        sim.brokers[OLD].kill()
        follower = sim.brokers[NEW].broker.replication.follower
        assert follower is not None
        sim.until(lambda: not follower.master_address)
        with pytest.raises(Refused, match="add --accept-loss broker-a"):
            ask(sim, NEW, TakeOver())
        ask(sim, NEW, TakeOver(accept_loss="broker-a"))
        sim.until(lambda: is_serving(sim, NEW, Role.MASTER))
        sim.client.disconnect()
        sim.wait(sim.client.send("orders", b"after", address=sim.brokers[NEW].address))


def lose_touch_with_master(sim: RunningCluster) -> None:
    """The slave's connections to its master end; both still reach the name server."""
    sim.paths.partition([sim.brokers[OLD].host], [sim.brokers[NEW].host])
    sim.network.reset_connections(sim.brokers[NEW].host)
    follower = sim.brokers[NEW].broker.replication.follower
    assert follower is not None
    sim.until(lambda: not follower.master_address)


@pytest.mark.parametrize("is_dry", [True, False])
def test_a_slave_does_not_take_over_while_the_registered_master_answers(is_dry: bool) -> None:
    """A waiting master hands nothing over, and does not feed its slave."""
    with SimCluster(slaves=2, replication=ReplicationMode.SYNC).run() as sim:
        sim.until(lambda: follows(sim, 1) and follows(sim, 2))
        old, new, other = sim.brokers.values()
        other.kill()
        old.restart()
        sim.client.disconnect()
        assert role(old) is Role.WAITING
        with pytest.raises(Refused, match=f"{old.address}, the registered master .* stop it"):
            ask(sim, NEW, TakeOver(accept_loss="broker-a", dry_run=is_dry))
        sim.advance(20)
        assert is_serving(sim, NEW, Role.SLAVE)
        old.kill()
        ask(sim, NEW, TakeOver(accept_loss="broker-a", dry_run=is_dry))
        sim.until(lambda: is_serving(sim, NEW, Role.SLAVE if is_dry else Role.MASTER))
        assert new.is_running


def test_a_slave_that_the_name_servers_refuse_as_master_is_a_slave_again() -> None:
    """It does not reach its master, and the name servers do."""
    with SimCluster(slaves=1).run() as sim:
        sim.until(lambda: follows(sim))
        sim.wait(sim.client.send("orders", b"before"))
        sim.until(lambda: has_all(sim))
        lose_touch_with_master(sim)
        ask(sim, NEW, TakeOver(accept_loss="broker-a"))
        sim.advance(20)
        assert is_serving(sim, NEW, Role.SLAVE)
        sim.wait(sim.client.send("orders", b"after"))
        sim.brokers[NEW].restart()
        sim.paths.heal()
        sim.until(lambda: follows(sim) and has_all(sim))
        assert all_bodies(sim, NEW) == [b"after", b"before"]


def test_a_slave_that_took_over_stays_the_master_when_it_is_refused_later() -> None:
    """It has taken messages by then."""
    with SimCluster(slaves=1).run() as sim:
        sim.until(lambda: follows(sim))
        old, new = sim.brokers.values()
        old.kill()
        sim.advance(6)
        ask(sim, NEW, TakeOver(accept_loss="broker-a"))
        sim.until(lambda: is_serving(sim, NEW, Role.MASTER))
        sim.client.disconnect()
        sim.wait(sim.client.send("orders", b"new", address=new.address))
        new.kill()
        old.start()
        with pytest.raises(ExceptionGroup) as caught:
            new.start()
        assert caught.group_contains(BrokerNameTaken)
        old.kill()
        sim.client.disconnect()
        sim.advance(6)
        new.start()
        assert is_serving(sim, NEW, Role.MASTER)


@pytest.mark.parametrize("victim", [OLD, NEW])
@pytest.mark.parametrize("after_s", in_part([0.003, 0.05, 0.2, 0.0, 0.01, 0.1, 0.5], few=3))
def test_a_crash_on_the_way_leaves_no_two_masters_and_everything_stored(
    victim: str, after_s: float
) -> None:
    with SimCluster(slaves=1, replication=ReplicationMode.SYNC).run() as sim:
        sim.until(lambda: follows(sim))
        for number in range(20):
            sim.wait(sim.client.send("orders", b"%d" % number))
        asking = sim.client.call(HandOver(), address=sim.brokers[OLD].address)
        sim.advance(after_s)
        sim.brokers[victim].lose_power()
        sim.advance(5.0)
        sim.brokers[victim].start()
        sim.advance(30.0)
        asking.cancel()
        roles = [role(sim.brokers[name]) for name in (OLD, NEW)]
        assert roles.count(Role.MASTER) <= 1, roles
        for name in (OLD, NEW):
            if role(sim.brokers[name]) is Role.MASTER:
                assert bodies(sim.brokers[name]) == [b"%d" % number for number in range(20)]
