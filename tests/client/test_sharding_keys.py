"""Which queue a sharding key goes to while brokers leave a topic's route and come back."""

import re
from pathlib import Path
from typing import Any

import pytest

from sparrowmq import ClientError, Message, MessageQueue, Producer
from sparrowmq.client.sending.queue_choice import Selector
from sparrowmq.protocol.headers.nameserver import PutKvConfig
from sparrowmq.protocol.java import java_hash
from sparrowmq.testing.sim_cluster import RunningCluster, SimCluster
from tests.client.members import TOPIC, create_topic

QUEUES = 4
KEYS = [f"order-{number}" for number in range(60)]
POLLED_S = 40
"""After this long a producer has the route that the name server has."""
DOCUMENT = Path(__file__).parents[2] / "docs" / "client-producer.md"

Places = dict[str, MessageQueue | None]
"""Where each key went; None: its send failed."""


def selector_of_the_document() -> Selector:
    """The recipe that users are given for keys that stay."""
    blocks = re.findall(r"^```python\n(.*?)^```", DOCUMENT.read_text("utf-8"), re.M | re.S)
    (recipe,) = (block for block in blocks if "def stable" in block)
    names: dict[str, Any] = {}
    exec(recipe.partition("async def main")[0], names)
    stable: Selector = names["stable"]
    return stable


async def send_all(producer: Producer, selector: Selector | None) -> Places:
    places: Places = {}
    for key in KEYS:
        message = Message(TOPIC, b"x", sharding_key=key)
        try:
            places[key] = (await producer.send(message, selector=selector)).queue
        except ClientError:
            places[key] = None
    return places


def around_an_outage(
    sim: RunningCluster, gone: str, selector: Selector | None = None
) -> tuple[Places, Places, Places]:
    """Where keys go before a broker leaves, while it is away, and when it is back."""
    host, client = sim.host("producer"), sim.client_on("producer")
    producer = Producer("orders-svc", client=client)

    async def start() -> None:
        await client.start()
        await producer.start()

    async def stop() -> None:
        await producer.stop()
        await client.stop()

    sim.run(start(), on=host)
    before = sim.run(send_all(producer, selector), on=host)
    sim.brokers[gone].kill()
    sim.advance(POLLED_S)
    without = sim.run(send_all(producer, selector), on=host)
    sim.brokers[gone].start()
    sim.advance(POLLED_S)
    after = sim.run(send_all(producer, selector), on=host)
    sim.run(stop(), on=host)
    return before, without, after


def by_hash(queues: list[MessageQueue], key: str) -> MessageQueue:
    """SelectMessageQueueByHash: the remainder by the number of queues, without its sign."""
    return queues[abs(java_hash(key)) % len(queues)]


def queues_of(*brokers: str) -> list[MessageQueue]:
    return [MessageQueue(TOPIC, broker, number) for broker in brokers for number in range(QUEUES)]


def test_a_broker_that_leaves_the_route_moves_keys_of_the_others_too_as_in_java() -> None:
    """The key's hash is taken modulo the number of queues, and that number has changed."""
    with SimCluster(seed=1, brokers=3).run() as sim:
        create_topic(sim, QUEUES)
        before, without, after = around_an_outage(sim, "broker-c")
        three, two = (
            queues_of("broker-a", "broker-b", "broker-c"),
            queues_of("broker-a", "broker-b"),
        )
        assert before == {key: by_hash(three, key) for key in KEYS}
        assert without == {key: by_hash(two, key) for key in KEYS}
        assert after == before
        moved = [key for key in KEYS if before[key] != without[key]]
        assert {queue.broker_name for key in moved if (queue := before[key])} == set(sim.brokers)


def test_with_an_order_configuration_no_key_moves_and_those_of_the_dead_broker_fail() -> None:
    settings = {"order_message_enable": True}
    with SimCluster(seed=1, brokers=2, name_server_settings=settings).run() as sim:
        create_topic(sim, QUEUES)
        order = ";".join(f"{name}:{QUEUES}" for name in sim.brokers)
        put = PutKvConfig(namespace="ORDER_TOPIC_CONFIG", key=TOPIC, value=order)
        (name_server,) = sim.name_server_addresses
        sim.wait(sim.client.call(put, address=name_server))
        before, without, after = around_an_outage(sim, "broker-b")
        for key, queue in before.items():
            assert queue is not None
            assert without[key] == (None if queue.broker_name == "broker-b" else queue)
        assert None in without.values()
        assert after == before


def test_on_one_broker_no_key_moves() -> None:
    with SimCluster(seed=1).run() as sim:
        create_topic(sim, QUEUES)
        before, without, after = around_an_outage(sim, "broker-a")
        assert set(without.values()) == {None}
        assert after == before


def test_the_selector_of_the_document_moves_only_the_keys_of_the_broker_that_left() -> None:
    with SimCluster(seed=1, brokers=3).run() as sim:
        create_topic(sim, QUEUES)
        before, without, after = around_an_outage(sim, "broker-c", selector_of_the_document())
        moved = [key for key in KEYS if before[key] != without[key]]
        assert {queue.broker_name for key in moved if (queue := before[key])} == {"broker-c"}
        assert None not in without.values()
        assert after == before


@pytest.mark.parametrize("queues", [1, 7, 12])
def test_the_selector_of_the_document_uses_every_queue(queues: int) -> None:
    stable = selector_of_the_document()
    choice = queues_of("broker-a", "broker-b", "broker-c")[:queues]
    chosen = [stable(choice, Message(TOPIC, b"x", sharding_key=f"k{n}")) for n in range(2000)]
    shares = [chosen.count(queue) for queue in choice]
    assert min(shares) > 0.7 * 2000 / queues
