"""Quotas of sends: which pass, which are refused, and which are never counted."""

import asyncio
from typing import Any

import pytest

from sparrowmq.protocol.batch import encode_batch
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.headers.send import SendMessageV2
from sparrowmq.protocol.headers.topics import DeleteTopic
from sparrowmq.protocol.names import TRACE_TOPIC
from sparrowmq.protocol.properties import format_properties
from sparrowmq.testing.sim_cluster import SimCluster
from tests.broker.traffic.limits_world import (
    BYTES,
    CLIENT,
    MESSAGES,
    PRODUCER,
    admitted,
    batch,
    codes,
    limit_broker,
    limit_topic,
    refusal,
    report,
    send_header,
    sending,
)
from tests.broker.world import World


@pytest.fixture
def limited(world: World) -> World:
    """`orders` takes ten messages a second."""
    assert limit_topic(world, {MESSAGES: 10}).code == ResponseCode.SUCCESS
    return world


def test_a_topic_takes_its_quota_and_not_one_message_more(limited: World) -> None:
    assert admitted(limited, 25) == 10
    limited.sim.advance(1)
    assert admitted(limited, 25) == 10
    limited.sim.advance(0.5)
    assert admitted(limited, 25) == 5
    stored = limited.broker.store.max_offset("orders", 0)
    assert stored == 25


def test_a_refusal_names_quota_use_and_when_to_come_back(limited: World) -> None:
    admitted(limited, 10)
    text, wait_ms = refusal(limited)
    assert 90 <= wait_ms <= 100
    assert text == (
        "topic orders takes 10 messages/s on broker-a and 10 of 10 messages are used;"
        f" come back in {wait_ms} ms"
    )
    limited.sim.advance(wait_ms / 1000)
    assert admitted(limited, 2) == 1


def test_bytes_are_counted_as_bodies_travel(world: World) -> None:
    limit_topic(world, {BYTES: 1000})
    assert admitted(world, 30, b"x" * 300) == 4
    text, _ = refusal(world)
    assert "takes 1,000 bytes/s on broker-a and 1," in text
    assert "of 1,000 bytes are used" in text


def test_a_message_larger_than_the_quota_passes_once_and_is_paid_for(world: World) -> None:
    limit_topic(world, {BYTES: 1000})
    assert admitted(world, 3, b"x" * 5000) == 1
    world.sim.advance(3.9)
    assert admitted(world, 1) == 0
    world.sim.advance(0.2)
    assert admitted(world, 1) == 1


def test_a_batch_counts_its_messages_and_may_overdraw_once(limited: World) -> None:
    body = encode_batch([(0, b"body", b"")] * 32)
    assert limited.ask(batch(), body).code == ResponseCode.SUCCESS
    answer = limited.ask(batch(), body)
    assert answer.code == ResponseCode.FLOW_CONTROL
    assert "32 of 10 messages are used" in answer.remark
    limited.sim.advance(2.2)
    assert admitted(limited, 2) == 0
    limited.sim.advance(0.1)
    assert admitted(limited, 2) == 1


@pytest.mark.parametrize(
    ("attributes", "group", "passing"),
    [
        ({PRODUCER.format("shop"): 5}, "shop", 5),
        ({PRODUCER.format("shop"): 5}, "other", 20),
        ({CLIENT: 7}, "shop", 7),
        ({PRODUCER.format("shop"): 5, CLIENT: 3}, "shop", 3),
        ({PRODUCER.format("shop"): 3, CLIENT: 5}, "shop", 3),
    ],
)
def test_quotas_of_producer_groups_and_clients_hold_for_every_topic(
    world: World, attributes: dict[str, object], group: str, passing: int
) -> None:
    world.topic("orders")
    world.topic("payments")
    world.send("orders", b"before")  # the topic is known to have no limits now
    world.send("payments", b"before")
    assert limit_broker(world, attributes).code == ResponseCode.SUCCESS
    assert admitted(world, 20, producer_group=group) == passing
    rest = 0 if passing < 20 else 20
    assert admitted(world, 20, producer_group=group, topic="payments") == rest
    limit_broker(world, dict.fromkeys(attributes))
    assert admitted(world, 20, producer_group=group) == 20
    assert "orders" in world.broker.topics.checked_for_send


def test_every_client_has_its_own_quota(world: World) -> None:
    world.topic("orders")
    limit_broker(world, {CLIENT: 4})
    clients = [world.sim.new_client(name) for name in ("one", "two", "three")]
    tasks = [(client.name, sending(world, 9, client=client)) for client in clients]
    passed = {
        name: [world.sim.wait(task).code for task in each].count(ResponseCode.SUCCESS)
        for name, each in tasks
    }
    assert passed == {"one": 4, "two": 4, "three": 4}


def test_two_connections_of_one_client_share_its_quota(world: World) -> None:
    world.topic("orders")
    limit_broker(world, {CLIENT: 4})
    one, two = world.client("one"), world.client("two")
    for each in (one, two):
        each.beat(producers=("shop",), client_id="10.0.0.1@7")
    found = [
        world.sim.wait(each.asking(send_header(), b"x")).code
        for each in (one, two, one, two, one, two)
    ]
    assert found.count(ResponseCode.SUCCESS) == 4


def test_a_connection_uses_the_quota_of_its_client_from_the_heartbeat_on(world: World) -> None:
    world.topic("orders")
    limit_broker(world, {CLIENT: 4})
    client = world.client("one")

    def taken() -> int:
        found = [world.sim.wait(client.asking(send_header(), b"x")).code for _ in range(6)]
        return found.count(ResponseCode.SUCCESS)

    assert taken() == 4
    client.beat(producers=("shop",), client_id="10.0.0.1@7")
    assert taken() == 4
    client.beat(producers=("shop",), client_id="10.0.0.1@8")
    assert taken() == 4


def test_clients_are_forgotten_when_they_have_all_of_their_quota_left(world: World) -> None:
    world.topic("orders")
    limit_broker(world, {CLIENT: 4})
    clients = world.broker.traffic.clients
    for _ in range(2):  # one that comes back is known again
        assert admitted(world, 4) == 4
        assert clients is not None and len(clients) == 1
        world.sim.advance(3)
        assert len(clients) == 0


def test_the_quota_that_has_to_be_waited_for_longest_is_named(limited: World) -> None:
    limit_broker(limited, {PRODUCER.format("shop"): 2, CLIENT: 5})
    admitted(limited, 20)
    text, wait_ms = refusal(limited)
    assert text.startswith("producer group shop may send 2 messages/s on broker-a and 2 of 2")
    assert 400 < wait_ms <= 500


def test_a_refused_send_uses_no_quota(limited: World) -> None:
    """Neither of a quota that was not reached, nor for a send that fails otherwise."""
    limit_broker(limited, {PRODUCER.format("shop"): 2})
    assert admitted(limited, 20) == 2
    assert (
        codes(limited, 20, producer_group="other", queue_id=99)
        == [ResponseCode.INVALID_PARAMETER] * 20
    )
    assert admitted(limited, 20, producer_group="other") == 8


@pytest.mark.parametrize(
    "header",
    [
        send_header(topic="%RETRY%billing", reconsume_times=1),
        send_header(topic="%DLQ%billing"),
        send_header(topic=TRACE_TOPIC),
    ],
    ids=lambda header: header.topic,
)
def test_retries_dead_letters_and_system_topics_are_never_counted(
    world: World, header: SendMessageV2
) -> None:
    world.group("billing")
    limit_broker(world, {CLIENT: 1, PRODUCER.format("shop"): 1})
    for _ in range(3):
        assert world.ask(header, b"x").code == ResponseCode.SUCCESS
    assert header.topic in world.broker.topics.checked_for_send  # it costs them nothing either


def test_a_half_message_counts_when_it_is_prepared(limited: World) -> None:
    half = format_properties({"TRAN_MSG": "true", "PGROUP": "shop", "UNIQ_KEY": "k"})
    found = codes(limited, 15, properties=half, sys_flag=4)
    assert found.count(ResponseCode.SUCCESS) == 10


def test_a_due_delayed_message_is_delivered_even_if_the_quota_is_used_up(limited: World) -> None:
    delayed = format_properties({"DELAY": "1"})
    assert admitted(limited, 10, properties=delayed) == 10
    limited.sim.advance(1)
    admitted(limited, 1, body=b"x" * 10)
    limited.sim.advance(0.2)
    admitted(limited, 100)
    limited.sim.advance(2)
    assert limited.broker.store.max_offset("orders", 0) >= 20


def test_one_way_sends_over_the_quota_are_dropped_and_counted(limited: World) -> None:
    client = limited.client("sender")

    async def send() -> None:
        for _ in range(25):
            await client.send_oneway(send_header(), b"x")
        await asyncio.sleep(0.01)

    limited.sim.wait(client.host.start(send()))
    limited.sim.until_idle()
    assert limited.broker.store.max_offset("orders", 0) == 10
    found = report(limited)["topic", "orders"]
    assert (found.refused, found.dropped, found.refused_last_minute) == (15, 15, 15)


def test_a_report_shows_usage_and_since_when_sends_are_refused(limited: World) -> None:
    for _ in range(20):
        limited.sim.advance(1)
        admitted(limited, 14)
    found = report(limited)["topic", "orders"]
    assert (found.messages, found.bytes) == (10, None)
    assert 9 <= found.used_messages <= 11
    assert found.refused == found.refused_last_minute == 80
    assert found.lasting_ms is not None and 18_900 <= found.lasting_ms <= 19_500
    limited.sim.advance(61)
    quiet = report(limited)["topic", "orders"]
    assert (quiet.used_messages, quiet.refused_last_minute, quiet.lasting_ms) == (0, 0, None)
    assert quiet.refused == 80


def test_a_limit_is_listed_before_anything_is_sent(world: World) -> None:
    limit_topic(world, {MESSAGES: 10, BYTES: 5000})
    limit_broker(world, {CLIENT: 3, PRODUCER.format("shop"): 4})
    found = report(world)
    assert found["topic", "orders"].bytes == 5000
    assert found["client", ""].messages == 3
    assert found["producer-group", "shop"].messages == 4


def test_a_quota_is_changed_and_removed_while_messages_are_sent(limited: World) -> None:
    assert admitted(limited, 20) == 10
    limit_topic(limited, {MESSAGES: 100})
    limited.sim.advance(0.1)
    assert 10 <= admitted(limited, 50) <= 11
    limit_topic(limited, {MESSAGES: None})
    assert admitted(limited, 50) == 50


def test_a_topic_that_is_deleted_takes_its_quota_along(limited: World) -> None:
    admitted(limited, 20)
    limited.done(DeleteTopic(topic="orders"))
    limited.topic("orders")
    assert admitted(limited, 50) == 50
    limited.sim.advance(2)
    assert not limited.broker.traffic.topics


def test_quotas_survive_a_restart() -> None:
    with SimCluster(seed=1).run() as sim:
        world = World(sim)
        limit_topic(world, {MESSAGES: 10})
        limit_broker(world, {PRODUCER.format("other"): 3})
        sim.brokers["broker-a"].restart()
        assert admitted(world, 25) == 10
        assert admitted(world, 25, producer_group="other", topic="fresh") == 3


@pytest.mark.parametrize("by_ms", [-3_600_000, 3_600_000])
def test_setting_the_clock_changes_no_quota(limited: World, by_ms: int) -> None:
    assert admitted(limited, 20) == 10
    limited.sim.set_clock(by_ms)
    assert admitted(limited, 20) == 0
    limited.sim.advance(1)
    assert admitted(limited, 20) == 10


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        ({MESSAGES: 0}, "'0' is not a number from 1 to 1000000000000"),
        ({MESSAGES: -5}, "'-5' is not a number from 1 to"),
        ({MESSAGES: 10**13}, "is not a number from 1 to"),
        ({BYTES: "1k"}, "'1k' is not a number from 1 to"),
        ({BYTES: "٣"}, "is not a number from 1 to"),
        ({CLIENT: 5}, "is unknown, allowed:"),
        ({PRODUCER.format("shop"): 5}, "is unknown, allowed:"),
        ({"sparrowmq.backlog": "5"}, "is not a backlog limit; expected LIMIT:ACTION:GROUP"),
        ({"sparrowmq.backlog": "0:refuse:billing"}, "is not a backlog limit; expected"),
        ({"sparrowmq.backlog": "5:stop:billing"}, "an action (refuse, slow)"),
        ({"sparrowmq.backlog": "5:refuse:"}, "is not a backlog limit; expected"),
        ({"sparrowmq.backlog": "5:refuse:a b"}, "names a group that cannot exist"),
        ({"sparrowmq.backlog": "5:refuse:a:a"}, "names group a more than once"),
        ({"sparrowmq.backlog": "5:refuse" + ":a" * 17}, "names 17 groups; it must name 1 to 16"),
        ({"sparrowmq.backlog": "999999999999s:refuse:a"}, "; it must be 1 to 315360000"),
    ],
)
def test_impossible_limits_are_refused_with_what_is_allowed(
    world: World, attributes: dict[str, Any], expected: str
) -> None:
    world.topic("orders")
    answer = limit_topic(world, attributes)
    assert answer.code == ResponseCode.INVALID_PARAMETER
    assert expected in answer.remark


@pytest.mark.parametrize(
    "attributes",
    [{MESSAGES: 5}, {PRODUCER.format("a b"): 5}, {CLIENT: 0}, {"message.type": "FIFO"}],
)
def test_the_brokers_own_topic_takes_quotas_of_producers_and_clients_only(
    world: World, attributes: dict[str, object]
) -> None:
    assert limit_broker(world, attributes).code == ResponseCode.INVALID_PARAMETER


def test_the_brokers_own_topic_stays_as_it_is_otherwise(world: World) -> None:
    own = world.broker.topics.get("broker-a")
    limit_broker(world, {CLIENT: 5})
    changed = world.broker.topics.get("broker-a")
    assert own is not None and changed is not None
    assert (changed.perm, changed.write_queue_nums) == (own.perm, own.write_queue_nums)


def test_a_topic_without_limits_stays_on_the_fast_path(world: World) -> None:
    limit_topic(world, {MESSAGES: 10})
    world.topic("payments")
    world.send("payments", b"x")
    world.send("orders", b"x")
    assert "payments" in world.broker.topics.checked_for_send
    assert "orders" not in world.broker.topics.checked_for_send
