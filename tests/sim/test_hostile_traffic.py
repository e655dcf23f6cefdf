"""Limits among many clients: changed, removed and reached while all of them send."""

import random
from collections.abc import Callable

import pytest

from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.headers.topics import DeleteTopic
from sparrowmq.testing.sim_cluster import SimCluster
from tests.broker.traffic.limits_world import (
    BACKLOG,
    BYTES,
    CLIENT,
    MESSAGES,
    PRODUCER,
    limit_broker,
    limit_topic,
    send_header,
)
from tests.broker.world import World

ANSWERS = {
    ResponseCode.SUCCESS,
    ResponseCode.FLOW_CONTROL,
    ResponseCode.TOPIC_NOT_EXIST,
}


@pytest.mark.slow
def test_every_send_is_answered_whatever_happens_to_the_limits(seed: int) -> None:
    rng = random.Random(seed)
    with SimCluster(seed=seed).run() as sim:
        world = World(sim)
        world.topic("orders")
        world.group("billing")
        clients = [sim.new_client(f"client-{number}") for number in range(40)]
        tasks = []

        def send_all() -> None:
            for client in clients:
                group = rng.choice(["shop", "other"])
                size = rng.choice([0, 10, 5000])
                header = send_header(producer_group=group, queue_id=rng.randrange(2))
                tasks.append(client.call(header, b"x" * size, timeout_s=30))

        changes: list[Callable[[], object]] = [
            lambda: limit_topic(world, {MESSAGES: rng.choice([1, 7, 10**12])}),
            lambda: limit_topic(world, {BYTES: rng.choice([1, 5000, 10**12])}),
            lambda: limit_topic(world, {BACKLOG: rng.choice(["1:refuse:billing", "5s:slow:a"])}),
            lambda: limit_topic(world, {MESSAGES: None}),
            lambda: limit_broker(world, {CLIENT: rng.choice([1, 10**12])}),
            lambda: limit_broker(world, {PRODUCER.format("shop"): rng.choice([1, 50])}),
            lambda: limit_broker(world, {CLIENT: None}),
            lambda: world.done(DeleteTopic(topic="orders")),
            lambda: world.topic("orders"),
            lambda: sim.set_clock(rng.choice([-3_600_000, 3_600_000])),
        ]
        for _ in range(40):
            send_all()
            rng.choice(changes)()
            sim.advance(rng.choice([0.0, 0.3, 1.0]))
        found = {sim.wait(task).code for task in tasks}
        assert found <= ANSWERS, found
        assert ResponseCode.FLOW_CONTROL in found
        limit_broker(world, {CLIENT: 3})
        sim.advance(5)
        quota = sim.broker.traffic.clients
        assert quota is not None and len(quota) == 0
        assert sim.broker.traffic.slowing.held == 0


def test_each_of_hundreds_of_clients_gets_its_one_message_a_second() -> None:
    with SimCluster(seed=1).run() as sim:
        world = World(sim)
        world.topic("orders")
        limit_broker(world, {CLIENT: 1})
        clients = [sim.new_client(f"client-{number}") for number in range(200)]
        for _ in range(3):
            tasks = [client.call(send_header(), b"x") for client in clients for _ in range(2)]
            codes = [sim.wait(task).code for task in tasks]
            assert codes.count(ResponseCode.SUCCESS) == len(clients)
            assert codes.count(ResponseCode.FLOW_CONTROL) == len(clients)
            sim.advance(1)
