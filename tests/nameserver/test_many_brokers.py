"""Many brokers with many topics: routes become whole, answers are kept within bounds."""

from collections.abc import Iterator

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from sparrowmq.nameserver.brokers import Registration
from sparrowmq.nameserver.route_encoding import RouteAnswers
from sparrowmq.nameserver.routing_table import RoutingTable
from sparrowmq.protocol.body import DataVersion
from tests.nameserver.world import Broker, World, topic, world

TOPICS = [f"topic-{number}" for number in range(200)]


def brokers(w: World, count: int) -> Iterator[Broker]:
    for number in range(count):
        yield w.broker(f"broker-{number:02d}")


def test_routes_are_whole_as_soon_as_every_broker_has_registered_again() -> None:
    with world() as w:
        everybody = list(brokers(w, 20))
        for broker in everybody:
            broker.register(TOPICS)
        w.restart()
        restarted_s = w.sim.now_s
        for broker in everybody:
            broker.register(TOPICS)
        assert all(len(w.client.route(name).queue_datas) == 20 for name in TOPICS)
        assert w.sim.now_s - restarted_s < 5


def test_topics_of_one_broker_that_look_alike_share_one_value() -> None:
    with world() as w:
        w.broker().register(TOPICS)
        table = w.server.table.topics
        assert (
            len({id(queues) for name in TOPICS for queues in table.queues_of(name).values()}) == 1
        )


def queues_by_broker(w: World, name: str) -> dict[str, int]:
    return {data.broker_name: data.read_queue_nums for data in w.client.route(name).queue_datas}


def test_a_topic_that_was_like_others_changes_alone() -> None:
    with world() as w:
        first, second = brokers(w, 2)
        for broker in (first, second):
            broker.register(TOPICS)
        first.update([topic(TOPICS[0], queues=9)])
        assert queues_by_broker(w, TOPICS[0]) == {"broker-00": 9, "broker-01": 4}
        assert queues_by_broker(w, TOPICS[1]) == {"broker-00": 4, "broker-01": 4}
        second.unregister()
        assert queues_by_broker(w, TOPICS[0]) == {"broker-00": 9}
        assert queues_by_broker(w, TOPICS[1]) == {"broker-00": 4}


@pytest.mark.parametrize("count", [3, 1_500])
def test_kept_answers_of_few_and_of_many_topics_end_when_these_change(count: int) -> None:
    names = [f"topic-{number}" for number in range(count)]
    with world() as w:
        broker = w.broker()
        broker.register(names)
        assert [queues_by_broker(w, name) for name in names[:3]] == [{"broker-a": 4}] * 3
        broker.update([topic(name, queues=5) for name in names])
        assert [queues_by_broker(w, name) for name in names[:3]] == [{"broker-a": 5}] * 3


def test_an_answer_is_encoded_once_until_something_changes() -> None:
    with world() as w:
        broker = w.broker()
        broker.register(["orders"])
        w.client.route("orders")
        kept = w.server.table.encoded.get("orders", True)
        assert kept is not None
        w.client.route("orders")
        broker.register(["orders"])
        assert w.server.table.encoded.get("orders", True) is kept
        broker.update([topic("orders", queues=5)])
        assert w.server.table.encoded.get("orders", True) is None


@pytest.mark.parametrize("max_bytes", [0, 4_000])
def test_kept_answers_stay_within_their_limit_and_routes_stay_right(max_bytes: int) -> None:
    with world(route_cache_bytes=max_bytes) as w:
        for broker in brokers(w, 3):
            broker.register(TOPICS)
        for _ in range(2):
            for name in TOPICS:
                assert len(w.client.route(name).queue_datas) == 3
                assert w.server.table.encoded.size_bytes <= max_bytes


def test_the_oldest_answers_make_room_for_new_ones() -> None:
    kept = RouteAnswers(max_bytes=10)
    kept.put("a", True, b"12345")
    kept.put("b", True, b"12345")
    kept.put("c", False, b"123")
    assert (kept.get("a", True), kept.get("b", True)) == (None, b"12345")
    kept.put("huge", True, b"x" * 11)
    assert kept.get("huge", True) is None
    assert kept.size_bytes == 8
    kept.clear()
    assert (kept.size_bytes, kept.get("b", True)) == (0, None)


class ComingAndGoing(RuleBasedStateMachine):
    """Whatever brokers do, all tables agree and nothing is left over."""

    names = st.sampled_from(["a", "b", "c"])
    ids = st.integers(0, 2)
    addresses = st.sampled_from([f"10.0.0.{number}:1" for number in range(4)])
    topics = st.sets(st.sampled_from(["t1", "t2", "t3", "t4"]), min_size=2)

    def __init__(self) -> None:
        super().__init__()
        self.table = RoutingTable(route_cache_bytes=1000)

    @rule(
        name=names,
        number=ids,
        address=addresses,
        topics=topics,
        session=ids,
        counter=st.integers(0, 3),
        acting=st.sampled_from([None, True, False]),
        forget=st.booleans(),
    )
    def register(
        self,
        name: str,
        number: int,
        address: str,
        topics: set[str],
        session: int,
        counter: int,
        acting: bool | None,
        forget: bool,
    ) -> None:
        registration = Registration(
            cluster="east" if name == "a" else "west",
            broker_name=name,
            broker_id=number,
            address=address,
            ha_address="",
            timeout_ms=100,
            acting_master=acting,
            topics=[topic(each) for each in sorted(topics)],
            data_version=DataVersion(counter=counter),
        )
        self.table.register(registration, session, now_ms=0, forget_missing=forget)
        assert self.table.holder(name, number) is self.table.live[address]
        if number == 0:
            assert topics <= self.table.topics.of_broker(name)
        if number == 0 and forget:
            assert topics == self.table.topics.of_broker(name)

    @rule(name=names, address=addresses)
    def unregister(self, name: str, address: str) -> None:
        broker = self.table.live.get(address)
        if broker is not None and broker.broker_name == name:
            self.table.drop(broker)
        assert address not in self.table.live or self.table.live[address].broker_name != name

    @rule(session=ids)
    def disconnect(self, session: int) -> None:
        for broker in self.table.of_session(session):
            self.table.drop(broker)
        assert self.table.of_session(session) == []

    @rule(name=st.sampled_from(["t1", "t2"]), cluster=st.sampled_from([None, "east"]))
    def delete_topic(self, name: str, cluster: str | None) -> None:
        self.table.delete_topic(name, cluster)

    @invariant()
    def members_are_the_live_brokers(self) -> None:
        members = {
            (group.name, number, broker.address)
            for group in self.table.groups.values()
            for number, broker in group.members.items()
        }
        live = {
            (broker.broker_name, broker.broker_id, address)
            for address, broker in self.table.live.items()
        }
        assert members == live
        assert all(group.members for group in self.table.groups.values())

    @invariant()
    def topics_are_on_live_brokers_only(self) -> None:
        table = self.table.topics
        pairs = {(name, broker) for name in table.names() for broker in table.queues_of(name)}
        assert pairs == {
            (name, broker) for broker in self.table.groups for name in table.of_broker(broker)
        }
        assert all(table.queues_of(name) for name in table.names())


TestComingAndGoing = ComingAndGoing.TestCase
