"""The broker allocates queues for members that leave the arithmetic to it."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from sparrowmq.broker.handlers.assignment import allocate
from sparrowmq.client.strategies.classic import averagely, averagely_by_circle
from sparrowmq.net.calls import Response
from sparrowmq.protocol.broker_stats import MessageRequestMode, MessageRequestModeTable
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.connections import QueryAssignmentRequest, QueryAssignmentResponse
from sparrowmq.protocol.headers.groups import (
    GetAllMessageRequestModes,
    QueryAssignment,
    SetMessageRequestMode,
)
from sparrowmq.protocol.heartbeat import MessageModel
from sparrowmq.protocol.message import MessageQueue
from sparrowmq.testing.sim_cluster import SimCluster
from tests.broker.world import World, subscribes, world_with


def ask(
    world: World,
    client_id: str,
    topic: str = "orders",
    strategy: str = "AVG",
    model: MessageModel = MessageModel.CLUSTERING,
) -> Response:
    question = QueryAssignmentRequest(
        topic=topic,
        consumer_group="billing",
        client_id=client_id,
        strategy_name=strategy,
        message_model=model,
    )
    return world.ask(QueryAssignment(), question.to_json())


def share(world: World, client_id: str, **more: Any) -> list[MessageQueue]:
    answer = ask(world, client_id, **more)
    assert answer.code == ResponseCode.SUCCESS
    assigned = QueryAssignmentResponse.from_json(answer.body).message_queue_assignments
    assert {one.mode for one in assigned} <= {"PULL"}
    return [one.message_queue for one in assigned]


def topic_with_members(world: World, queues: int, *members: str) -> None:
    world.topic("orders", queues)
    for name in members:
        world.client(name).beat(subscribes("billing"))
    world.sim.advance(1)


@given(queues=st.integers(0, 30), members=st.integers(1, 12), asking=st.integers(0, 12))
def test_the_broker_allocates_as_the_clients_do(queues: int, members: int, asking: int) -> None:
    all_queues = [MessageQueue("orders", "broker-a", number) for number in range(queues)]
    names = sorted(f"member-{number}" for number in range(members))
    me = f"member-{asking}"
    if all_queues:
        expected = averagely("billing", me, all_queues, names)
        assert allocate("AVG", me, all_queues, names) == expected
        expected = averagely_by_circle("billing", me, all_queues, names)
        assert allocate("AVG_BY_CIRCLE", me, all_queues, list(reversed(names))) == expected
    else:
        assert allocate("AVG", me, all_queues, names) == []


def test_members_share_the_queues_of_a_topic(world: World) -> None:
    topic_with_members(world, 5, "a", "b")
    assert [one.queue_id for one in share(world, "a")] == [0, 1, 2]
    assert [one.queue_id for one in share(world, "b")] == [3, 4]
    assert [one.queue_id for one in share(world, "b", strategy="AVG_BY_CIRCLE")] == [1, 3]


def test_queues_of_all_brokers_are_shared() -> None:
    with SimCluster(seed=1, brokers=2).run() as sim:
        world = World(sim)
        for broker in sim.brokers.values():
            sim.wait(sim.client.send("orders", b"x", address=broker.address))
        sim.advance(1)
        world.client("a").beat(subscribes("billing"))
        assert {(one.broker_name, one.queue_id) for one in share(world, "a")} == {
            (broker, queue_id) for broker in sim.brokers for queue_id in range(4)
        }


def test_a_broadcasting_member_gets_everything(world: World) -> None:
    topic_with_members(world, 3, "a", "b")
    answer = ask(world, "a", model=MessageModel.BROADCASTING)
    assigned = QueryAssignmentResponse.from_json(answer.body).message_queue_assignments
    assert len(assigned) == 3


def test_a_stranger_gets_an_empty_list(world: World) -> None:
    topic_with_members(world, 3, "a")
    answer = ask(world, "stranger")
    assert answer.body == b'{"messageQueueAssignments":[]}'


def test_a_member_that_cannot_be_answered_keeps_its_queues(world: World) -> None:
    topic_with_members(world, 3, "a")
    assert ask(world, "a", topic="missing").body == b"{}"
    assert ask(world, "a", strategy="MACHINE_ROOM").body == b"{}"
    world.topic("refunds")
    world.sim.advance(1)
    assert ask(world, "a", topic="refunds").code == ResponseCode.SUCCESS


def test_the_last_known_route_is_used_while_no_name_server_answers(world: World) -> None:
    topic_with_members(world, 3, "a")
    assert len(share(world, "a")) == 3
    world.sim.name_servers["name-server-1"].kill()
    world.sim.advance(60)
    world.client("again").beat(subscribes("billing"), client_id="a")
    assert len(share(world, "a")) == 3
    assert ask(world, "a", topic="never-asked").body == b"{}"


def test_a_broker_without_name_server_shares_its_own_queues() -> None:
    with world_with(name_servers=0) as world:
        topic_with_members(world, 3, "a")
        assert len(share(world, "a")) == 3
        assert ask(world, "a", topic="missing").body == b"{}"


def test_a_question_that_cannot_be_read_is_refused(world: World) -> None:
    assert world.ask(QueryAssignment(), b"?").code == ResponseCode.SYSTEM_ERROR


# ---- request modes


def set_mode(world: World, topic: str = "orders", mode: str = "PULL", group: str = "g") -> int:
    body = MessageRequestMode(topic=topic, consumer_group=group, mode=mode).to_json()
    return world.ask(SetMessageRequestMode(), body).code


def test_a_mode_is_kept_over_a_crash(world: World) -> None:
    world.topic("orders")
    assert set_mode(world) == ResponseCode.SUCCESS
    world.sim.brokers["broker-a"].restart()
    world.sim.client.disconnect()
    table = world.read(GetAllMessageRequestModes(), MessageRequestModeTable)
    assert table.message_request_mode_map["orders"]["g"].mode == "PULL"


def test_a_mode_that_is_not_served_or_makes_no_sense_is_refused(world: World) -> None:
    world.topic("orders")
    assert set_mode(world, mode="POP") == ResponseCode.INVALID_PARAMETER
    assert set_mode(world, topic="missing") == ResponseCode.TOPIC_NOT_EXIST
    assert set_mode(world, topic="%RETRY%g") == ResponseCode.NO_PERMISSION
    assert world.ask(SetMessageRequestMode(), b"?").code == ResponseCode.SYSTEM_ERROR
    assert world.read(GetAllMessageRequestModes(), MessageRequestModeTable) == (
        MessageRequestModeTable()
    )
