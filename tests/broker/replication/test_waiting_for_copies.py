"""Which requests wait for copies where replication is synchronous, what they are answered while
copies are missing or late, and when consumers see messages that no sender waits for.

decisions/0040 has the table.
"""

from collections.abc import Callable, Iterator

import pytest

from sparrowmq.broker.config import ReplicationMode
from sparrowmq.net.calls import Response
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.headers.send import MessageSent, SendBack
from sparrowmq.protocol.headers.transactions import EndTransaction
from sparrowmq.protocol.ids import OffsetId
from sparrowmq.protocol.sys_flag import TRANSACTION_COMMIT, TRANSACTION_ROLLBACK
from sparrowmq.testing.sim_cluster import RunningCluster, SimCluster
from sparrowmq.testing.virtual_tasks import SimTask
from sparrowmq.testing.wire import wire

TOPIC, GROUP = "orders", "billing"
SLAVE_TIMEOUT_S = 2.0
WATCHED_S = 1.0
"""A master looks that often for messages that have waited for too long."""


@pytest.fixture
def sim() -> Iterator[RunningCluster]:
    cluster = SimCluster(
        slaves=1, replication=ReplicationMode.SYNC, slave_timeout_s=SLAVE_TIMEOUT_S
    )
    with cluster.run() as sim:
        sim.until(lambda: bool(sim.broker.replication.feed.links))
        yield sim


def pause_slave(sim: RunningCluster) -> None:
    sim.brokers["broker-a.1"].host.pause()


def lose_slave(sim: RunningCluster) -> None:
    sim.brokers["broker-a.1"].kill()
    sim.until(lambda: not sim.broker.replication.feed.links)


Ask = Callable[[RunningCluster, MessageSent, MessageSent], SimTask[Response]]


def give_back(sim: RunningCluster, message: MessageSent, _: MessageSent) -> SimTask[Response]:
    offset = OffsetId.parse(message.msg_id).log_offset
    return sim.client.call(SendBack(offset=offset, group=GROUP, delay_level=-1))


def commit(sim: RunningCluster, _: MessageSent, half: MessageSent) -> SimTask[Response]:
    header = EndTransaction(
        producer_group="test",
        tran_state_table_offset=half.queue_offset,
        commit_log_offset=OffsetId.parse(half.msg_id).log_offset,
        commit_or_rollback=TRANSACTION_COMMIT,
    )
    return sim.client.call(header)


REQUESTS: dict[str, tuple[Ask, ResponseCode, ResponseCode]] = {
    "given back": (give_back, ResponseCode.SUCCESS, ResponseCode.SUCCESS),
    "committed": (commit, ResponseCode.SLAVE_NOT_AVAILABLE, ResponseCode.FLUSH_SLAVE_TIMEOUT),
}


@pytest.mark.parametrize("name", REQUESTS)
def test_a_request_that_stores_is_answered_when_its_copy_is_there(
    name: str, sim: RunningCluster
) -> None:
    ask, when_missing, when_late = REQUESTS[name]
    message = sim.wait(sim.client.send(TOPIC, b"a message"))
    halves = [
        sim.wait(sim.client.send(TOPIC, b"half", TRAN_MSG="true", PGROUP="test")) for _ in range(3)
    ]
    assert sim.wait(ask(sim, message, halves[0])).code == ResponseCode.SUCCESS
    end = sim.broker.store.max_log_offset
    assert sim.brokers["broker-a.1"].broker.store.max_log_offset == end

    pause_slave(sim)
    began_s = sim.now_s
    assert sim.wait(ask(sim, message, halves[1])).code == when_late
    assert sim.now_s - began_s == pytest.approx(SLAVE_TIMEOUT_S, abs=0.1)

    sim.brokers["broker-a.1"].host.resume()
    lose_slave(sim)
    began_s = sim.now_s
    assert sim.wait(ask(sim, message, halves[2])).code == when_missing
    assert sim.now_s - began_s < 0.1


Store = Callable[[RunningCluster], None]


def send_delayed(sim: RunningCluster) -> None:
    sim.wait(sim.client.send(TOPIC, b"no sender waits", DELAY="1"))


def send_without_waiting(sim: RunningCluster) -> None:
    sim.client.send(TOPIC, b"no sender waits", WAIT="false")


UNAWAITED: dict[str, tuple[Store, Store | None, float]] = {
    "due after a second": (send_delayed, None, 1.0),
    "sent with WAIT=false": (lambda sim: None, send_without_waiting, 0.0),
}


@pytest.mark.parametrize("name", UNAWAITED)
@pytest.mark.parametrize(("fault", "late_s"), [(pause_slave, SLAVE_TIMEOUT_S), (lose_slave, 0.0)])
def test_a_message_without_a_waiting_sender_becomes_visible_when_its_copies_are_given_up(
    name: str, fault: Store, late_s: float, sim: RunningCluster
) -> None:
    before, after, due_s = UNAWAITED[name]
    before(sim)
    began_s = sim.now_s
    fault(sim)
    if after is not None:
        after(sim)
    pulled = sim.wait(sim.client.pull(TOPIC, wait_s=20.0))
    assert pulled.bodies == [b"no sender waits"]
    seen_s = sim.now_s - began_s
    assert due_s + late_s - 0.1 <= seen_s <= due_s + late_s + WATCHED_S + 0.2


def test_internal_messages_reach_the_slave_within_a_second(
    sim: RunningCluster,
) -> None:
    half = sim.wait(sim.client.send(TOPIC, b"half", TRAN_MSG="true", PGROUP="test"))
    stores = [sim.brokers[name].broker.store for name in ("broker-a", "broker-a.1")]
    before = stores[0].max_log_offset
    roll_back(sim, half)
    sim.until(lambda: stores[0].max_log_offset > before)
    sim.advance(WATCHED_S + 0.1)
    assert stores[1].max_log_offset == stores[0].max_log_offset


def roll_back(sim: RunningCluster, half: MessageSent) -> None:
    """One-way, as producers do: the mark that it has ended is written later."""
    header = EndTransaction(
        producer_group="test",
        tran_state_table_offset=half.queue_offset,
        commit_log_offset=OffsetId.parse(half.msg_id).log_offset,
        commit_or_rollback=TRANSACTION_ROLLBACK,
    )

    async def send() -> None:
        async with wire("producer", sim.clock) as connections:
            await connections.send_oneway(sim.brokers["broker-a"].address, header)

    sim.run(send(), on=sim.host("producer"))
