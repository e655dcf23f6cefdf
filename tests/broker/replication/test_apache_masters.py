"""A slave of ours follows a master that knows no hello, as Apache's broker.

Ours plays it: it refuses the hello as an unknown request, sends its last file to a slave that asks
for offset 0, and says -1 for the beginning of an empty log. `./dev interop` has the real one.
"""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from sparrowmq.broker.broker import Broker
from sparrowmq.broker.config import ReplicationMode, ReplicationPeer
from sparrowmq.broker.handlers import broker_admin
from sparrowmq.broker.handlers import replication as handlers
from sparrowmq.broker.replication import apache_tables
from sparrowmq.broker.replication.apache_master import ApacheMaster, check_settings
from sparrowmq.broker.replication.apache_tables import ASK_EVERY_S, numbered
from sparrowmq.broker.replication.claims import LogClaim
from sparrowmq.broker.replication.feed import Feed
from sparrowmq.broker.replication.follower import NotFollowing
from sparrowmq.broker.replication.replication import Role
from sparrowmq.broker.replication.slave_link import SlaveLink
from sparrowmq.broker.replication.table_rules import OffsetChange
from sparrowmq.broker.runtime_info import runtime_info
from sparrowmq.net.errors import RequestRefused
from sparrowmq.protocol.broker_stats import MessageRequestMode
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.group_config import SubscriptionGroupConfig
from sparrowmq.protocol.header import RequestHeader
from sparrowmq.protocol.headers.groups import CreateGroup, DeleteGroup, SetMessageRequestMode
from sparrowmq.protocol.headers.offsets import UpdateConsumerOffset
from sparrowmq.protocol.headers.replication import TakeOver
from sparrowmq.protocol.headers.topics import CreateTopic, DeleteTopic
from sparrowmq.protocol.route import MASTER_ID
from sparrowmq.store.store import Store
from sparrowmq.testing.recording_disk import RecordingDisk
from sparrowmq.testing.sim_cluster import RunningCluster, SimCluster
from sparrowmq.testing.sim_nodes import BrokerNode
from sparrowmq.testing.wire import Refused
from tests.sim.replicated import role
from tests.sim.slaves import pulled
from tests.store.stores import message

TOPIC = "orders"
LARGE = bytes(200_000)


def knows_no_hello(*args: object) -> None:
    text = "request type 30001 not supported"
    raise RequestRefused(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, text)


def says_where_an_empty_log_begins(broker: Broker) -> dict[str, str]:
    values = runtime_info(broker)
    if values["commitLogMaxOffset"] == "0":
        values["commitLogMinOffset"] = "-1"
    return values


@pytest.fixture
def sim(monkeypatch: pytest.MonkeyPatch) -> Iterator[RunningCluster]:
    """A master that behaves as Apache's, and a slave; sends want two copies."""
    join = Feed.join

    def join_at_last_file(feed: Feed, link: SlaveLink, log_offset: int) -> None:
        store = master_of(running).broker.store
        size = store.config.log_file_size
        join(feed, link, log_offset or store.max_log_offset // size * size)

    monkeypatch.setattr(handlers, "judge", knows_no_hello)
    monkeypatch.setattr(broker_admin, "runtime_info", says_where_an_empty_log_begins)
    monkeypatch.setattr(Feed, "join", join_at_last_file)
    cluster = SimCluster(
        slaves=1,
        replication=ReplicationMode.SYNC,
        replication_peer=ReplicationPeer.APACHE,
        flush_interval_s=600.0,
    )
    with cluster.run() as running:
        running.until(lambda: is_followed(running))
        yield running


def master_of(sim: RunningCluster) -> BrokerNode:
    return sim.brokers["broker-a"]


def slave_of(sim: RunningCluster) -> BrokerNode:
    return sim.brokers["broker-a.1"]


def is_followed(sim: RunningCluster) -> bool:
    server = master_of(sim).server
    return hasattr(server, "broker") and bool(server.broker.replication.feed.links)


def has_all(sim: RunningCluster) -> bool:
    ends = {node.broker.store.max_log_offset for node in sim.brokers.values()}
    return len(ends) == 1


def send_alone(sim: RunningCluster, body: bytes) -> None:
    """Store a message that no slave gets yet."""
    with pytest.raises(Refused) as refused:
        sim.wait(sim.client.send(TOPIC, body))
    assert refused.value.code == ResponseCode.SLAVE_NOT_AVAILABLE


def records(node: BrokerNode) -> list[bytes]:
    """Every stored record of a broker's queue."""
    store = node.broker.store
    found = [store.read_message(at) for at, _, _ in store.units(TOPIC, 0, 0, 10_000)]
    return [record for record in found if record is not None]


def serves_nothing(sim: RunningCluster) -> bool:
    """Whether the slave holds readers back: they would skip what the master has instead."""
    code, answer = pulled(sim, slave_of(sim), 0)
    is_sent_to_master = answer.suggest_which_broker_id == MASTER_ID
    return code == ResponseCode.PULL_NOT_FOUND and is_sent_to_master


def test_a_slave_has_what_was_acknowledged(sim: RunningCluster) -> None:
    for number in range(50):
        sim.wait(sim.client.send(TOPIC, b"message %d" % number))
    assert records(slave_of(sim)) == records(master_of(sim))
    assert len(records(slave_of(sim))) == 50


def send_over_several_files(sim: RunningCluster) -> None:
    slave_of(sim).kill()
    sim.until(lambda: not is_followed(sim))
    for _ in range(12):
        send_alone(sim, LARGE)
    assert master_of(sim).broker.store.max_log_offset > 2 * 1024 * 1024


def test_an_empty_slave_gets_more_than_the_masters_last_file(sim: RunningCluster) -> None:
    send_over_several_files(sim)
    slave_of(sim).start()
    sim.until(lambda: is_followed(sim) and has_all(sim))
    assert records(slave_of(sim)) == records(master_of(sim))


def test_planted_asking_for_offset_0_is_noticed(
    sim: RunningCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def take_nothing(master: ApacheMaster, store: Store, end: int) -> int:
        return 0

    send_over_several_files(sim)
    monkeypatch.setattr(ApacheMaster, "take_first_record", take_nothing)
    slave_of(sim).start()
    sim.advance(30.0)
    assert records(slave_of(sim)) == []


@pytest.mark.parametrize("killed", ["broker-a", "broker-a.1"])
def test_a_slave_resumes_at_its_log_end_after_either_is_killed(
    killed: str, sim: RunningCluster
) -> None:
    sim.wait(sim.client.send(TOPIC, b"before"))
    sim.brokers[killed].kill()
    sim.client.disconnect()
    sim.advance(1.0)
    sim.brokers[killed].start()
    sim.until(lambda: is_followed(sim))
    sim.wait(sim.client.send(TOPIC, b"after"))
    assert records(slave_of(sim)) == records(master_of(sim))
    assert len(records(slave_of(sim))) == 2


def test_a_slave_whose_log_diverged_does_not_follow(
    sim: RunningCluster, caplog: pytest.LogCaptureFixture
) -> None:
    master, slave = master_of(sim), slave_of(sim)
    sim.wait(sim.client.send(TOPIC, b"common"))
    master.stop()
    slave.stop()
    as_slave = slave.config
    slave.config = replace(slave.config, broker_id=0, replication=ReplicationMode.ASYNC)
    slave.start()
    slave.broker.store.append(message(1), sim.clock())
    slave.stop()
    slave.config = as_slave
    sim.client.disconnect()
    master.start()
    send_alone(sim, LARGE)
    slave.start()
    sim.until(lambda: "the logs have diverged" in caplog.text)
    assert not is_followed(sim)
    assert serves_nothing(sim)


def test_a_slave_that_is_longer_than_its_master_does_not_follow(
    sim: RunningCluster, caplog: pytest.LogCaptureFixture
) -> None:
    master = master_of(sim)
    for _ in range(16):  # so many that not all of them happen to be on the disk
        sim.wait(sim.client.send(TOPIC, b"lost by the master" * 64))
    master.lose_power()
    sim.client.disconnect()
    # Apache's master serves an empty log without asking any other broker.
    master.config = replace(master.config, accept_loss="broker-a")
    master.start()
    sim.until(lambda: "it has messages that the master lost" in caplog.text)
    assert not is_followed(sim)
    assert serves_nothing(sim)


def test_a_master_that_lost_its_disk_is_not_followed_even_when_it_has_grown_past_the_slave(
    sim: RunningCluster, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(3):
        sim.wait(sim.client.send(TOPIC, b"on the slave only"))
    sim.advance(2.0)
    master = master_of(sim)
    master.kill()
    sim.client.disconnect()
    master.disk = RecordingDisk()
    master.config = replace(master.config, accept_loss="broker-a")
    master.start()
    sim.until(lambda: "it has messages that the master lost" in caplog.text)
    assert TOPIC in slave_of(sim).broker.topics, "an empty master's tables are not taken over"
    for _ in range(10):
        send_alone(sim, b"something else" * 100)
    sim.until(lambda: "the logs have diverged" in caplog.text)
    assert len(records(slave_of(sim))) == 3
    assert serves_nothing(sim)


def test_an_empty_slave_does_not_follow_a_master_with_files_of_another_size(
    sim: RunningCluster, caplog: pytest.LogCaptureFixture
) -> None:
    sim.wait(sim.client.send(TOPIC, b"cut into other files"))
    slave = slave_of(sim)
    slave.kill()
    slave.disk = RecordingDisk()
    store = slave.config.store
    slave.config = replace(
        slave.config, store=replace(store, log_file_size=2 * store.log_file_size)
    )
    slave.start()
    sim.until(lambda: "mappedFileSizeCommitLog" in caplog.text)
    assert "they must be equal" in caplog.text
    assert records(slave) == []


def call(sim: RunningCluster, header: RequestHeader, body: bytes = b"") -> None:
    """Change something at the master."""
    answer = sim.wait(sim.client.call(header, body))
    assert answer.code == ResponseCode.SUCCESS, answer.remark


def commit(sim: RunningCluster, offset: int, queue_id: int = 0) -> None:
    call(
        sim,
        UpdateConsumerOffset(
            consumer_group="billing", topic=TOPIC, queue_id=queue_id, commit_offset=offset
        ),
    )


@pytest.mark.parametrize("page_rows", [2, 2_000])
def test_topics_groups_progress_and_modes_arrive_within_seconds(
    page_rows: int, sim: RunningCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(apache_tables, "PAGE_ROWS", page_rows)
    call(sim, CreateTopic(topic=TOPIC, read_queue_nums=4, write_queue_nums=4, perm=6))
    group = SubscriptionGroupConfig(group_name="billing", retry_max_times=3)
    call(sim, CreateGroup(), group.to_json())
    mode = MessageRequestMode(topic=TOPIC, consumer_group="billing")
    call(sim, SetMessageRequestMode(), mode.to_json())
    for number in range(9):
        sim.wait(sim.client.send(TOPIC, b"message %d" % number))
    commit(sim, 7)
    sim.advance(2 * ASK_EVERY_S)
    one, other = master_of(sim).broker, slave_of(sim).broker
    assert other.topics.table() == one.topics.table()
    assert other.groups.get("billing") == group
    assert other.groups.table() == one.groups.table()
    assert other.request_modes.table() == one.request_modes.table()
    assert other.offsets.queues("billing", TOPIC) == {0: 7}


def test_progress_that_the_master_moves_back_or_removes_is_followed(sim: RunningCluster) -> None:
    call(sim, CreateGroup(), SubscriptionGroupConfig(group_name="billing").to_json())
    for number in range(9):
        sim.wait(sim.client.send(TOPIC, b"message %d" % number))
    offsets = slave_of(sim).broker.offsets
    for offset in (7, 2, 5):
        commit(sim, offset)
        sim.advance(2 * ASK_EVERY_S)
        assert offsets.queues("billing", TOPIC) == {0: offset}
    call(sim, DeleteGroup(group_name="billing", clean_offset=True))
    sim.advance(2 * ASK_EVERY_S)
    assert offsets.queues("billing", TOPIC) == {}
    assert "billing" not in slave_of(sim).broker.groups


def test_a_deletion_reaches_the_slave_which_keeps_messages_of_the_recreated_topic(
    sim: RunningCluster,
) -> None:
    for number in range(9):
        sim.wait(sim.client.send(TOPIC, b"message %d" % number))
    sim.advance(2 * ASK_EVERY_S)
    call(sim, DeleteTopic(topic=TOPIC))
    sim.advance(2 * ASK_EVERY_S)
    assert TOPIC not in slave_of(sim).broker.topics
    assert records(slave_of(sim)) == []
    sim.wait(sim.client.send(TOPIC, b"again"))
    sim.advance(2 * ASK_EVERY_S)
    assert records(slave_of(sim)) == records(master_of(sim))
    assert len(records(slave_of(sim))) == 1


def test_delayed_messages_are_delivered_once_by_a_promoted_slave(sim: RunningCluster) -> None:
    master, slave = master_of(sim), slave_of(sim)
    due_ms = sim.clock() + 60_000
    sim.wait(sim.client.send(TOPIC, b"soon", DELAY="1"))
    sim.wait(sim.client.send(TOPIC, b"later", DELAY="5"))
    sim.wait(sim.client.send(TOPIC, b"timer", TIMER_DELIVER_MS=str(due_ms)))
    sim.advance(4 * ASK_EVERY_S)
    assert len(records(slave)) == 1
    master.stop()
    slave.stop()
    slave.config = replace(slave.config, broker_id=0, replication=ReplicationMode.ASYNC)
    slave.start()
    sim.advance(80.0)
    assert len(records(slave)) == 3


def take_over(sim: RunningCluster) -> None:
    """`sparrowmq broker promote --accept-loss`, when the slave has noticed the loss."""
    slave = slave_of(sim)
    follower = slave.broker.replication.follower
    assert follower is not None
    sim.until(lambda: not follower.master_address)
    taking = TakeOver(accept_loss="broker-a")
    answer = sim.wait(sim.client.call(taking, address=slave.address))
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    sim.until(lambda: hasattr(slave.server, "broker") and role(slave) is Role.MASTER)
    sim.client.disconnect()


def test_a_slave_takes_over_by_command_when_its_master_was_stopped(sim: RunningCluster) -> None:
    """It continues with what the master had, and delivers once what becomes due then."""
    master, slave = master_of(sim), slave_of(sim)
    due_ms = sim.clock() + 60_000
    call(sim, CreateTopic(topic=TOPIC, read_queue_nums=4, write_queue_nums=4, perm=6))
    call(sim, CreateGroup(), SubscriptionGroupConfig(group_name="billing").to_json())
    for number in range(9):
        sim.wait(sim.client.send(TOPIC, b"message %d" % number))
    sim.wait(sim.client.send(TOPIC, b"later", DELAY="5"))
    sim.wait(sim.client.send(TOPIC, b"timer", TIMER_DELIVER_MS=str(due_ms)))
    commit(sim, 7)
    sim.advance(4 * ASK_EVERY_S)
    topics = master.broker.topics.table()
    master.stop()
    take_over(sim)
    broker = slave.broker
    assert broker.topics.table() == topics
    assert "billing" in broker.groups
    assert broker.offsets.queues("billing", TOPIC) == {0: 7}
    sim.advance(80.0)
    assert len(records(slave)) == 11
    assert broker.config.broker_id == MASTER_ID


def test_a_slave_takes_the_place_of_a_retired_master(
    sim: RunningCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new master knows the hello, as the next slave does, which begins with an empty log."""
    master, slave = master_of(sim), slave_of(sim)
    sim.wait(sim.client.send(TOPIC, b"before"))
    master.stop()
    take_over(sim)
    monkeypatch.undo()
    master.disk = RecordingDisk()
    master.config = replace(master.config, broker_id=1)
    master.start()
    sim.until(lambda: bool(slave.broker.replication.feed.links) and has_all(sim))
    sim.wait(sim.client.send(TOPIC, b"after", address=slave.address))
    assert records(master) == records(slave)
    assert len(records(slave)) == 2


def test_progress_of_a_master_without_rewinds_is_numbered() -> None:
    own = [
        OffsetChange("orders@billing", 0, 5),
        OffsetChange("orders@billing", 1, 5, rewind=3),
        OffsetChange("orders@billing", 2, 5),
        OffsetChange("orders@gone", 0, 5),
        OffsetChange("orders@removed", 0, -1, rewind=2),
    ]
    progress = {"orders@billing": {0: 5, 1: 6, 2: 4}, "orders@new": {0: 1}}
    assert numbered(own, progress) == [
        OffsetChange("orders@billing", 1, 6, rewind=3),
        OffsetChange("orders@billing", 2, 4, rewind=4),
        OffsetChange("orders@new", 0, 1),
        OffsetChange("orders@gone", 0, -1, rewind=4),
    ]


OWN = LogClaim(
    cluster="DefaultCluster",
    broker_name="broker-a",
    broker_id=1,
    address="10.0.0.2:10911",
    file_size=1024**3,
    begin=0,
    end=0,
)
SETTINGS = {
    "brokerClusterName": "DefaultCluster",
    "brokerName": "broker-a",
    "brokerRole": "ASYNC_MASTER",
    "brokerIP2": "10.0.0.1",
    "haListenPort": "10912",
    "mappedFileSizeCommitLog": str(1024**3),
    "enableControllerMode": "false",
}


def test_a_master_reports_the_address_to_copy_from() -> None:
    assert check_settings("10.0.0.1:10911", SETTINGS, OWN) == "10.0.0.1:10912"


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("brokerClusterName", "Other", "brokerClusterName of 10.0.0.1:10911 is Other"),
        ("brokerName", "broker-b", "brokerName of 10.0.0.1:10911 is broker-b"),
        ("mappedFileSizeCommitLog", "1024", "here it is 1073741824; they must be equal"),
        ("mappedFileSizeCommitLog", "", "does not report its mappedFileSizeCommitLog"),
        ("haListenPort", "", "does not report its haListenPort"),
        ("brokerRole", "SLAVE", "is a slave itself"),
        ("enableControllerMode", "true", "enableControllerMode=true"),
        ("enableDLegerCommitLog", "true", "enableDLegerCommitLog=true"),
    ],
)
def test_a_master_that_cannot_be_followed_is_named_with_the_reason(
    name: str, value: str, text: str
) -> None:
    with pytest.raises(NotFollowing, match=text):
        check_settings("10.0.0.1:10911", SETTINGS | {name: value}, OWN)
