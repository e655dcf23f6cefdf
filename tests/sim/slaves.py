"""A master and its slave in simulation, with a topic that both know, and pulls of either."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.headers.pull import PulledInEpoch, PullMessage
from sparrowmq.protocol.headers.topics import CreateTopic
from sparrowmq.protocol.sys_flag import PULL_SUBSCRIPTION, PULL_SUSPEND
from sparrowmq.testing.sim_cluster import RunningCluster, SimCluster
from sparrowmq.testing.sim_nodes import BrokerNode
from tests.sim.replicated import TOPIC, follows, has_all

MASTER, SLAVE = "broker-a", "broker-a.1"
SLAVE_ID = 1


@contextmanager
def with_slave(queues: int = 1, **settings: Any) -> Iterator[RunningCluster]:
    """The slave follows, and both have the topic."""
    settings.setdefault("seed", 1)
    with SimCluster(slaves=1, **settings).run() as sim:
        sim.until(lambda: follows(sim))
        create_topic(sim, queues)
        yield sim


def create_topic(sim: RunningCluster, queues: int = 1) -> None:
    """At the masters, known to slaves and name servers."""
    header = CreateTopic(topic=TOPIC, read_queue_nums=queues, write_queue_nums=queues, perm=6)
    for node in sim.brokers.values():
        if not node.config.is_slave:
            sim.wait(sim.client.call(header, address=node.address))
    sim.until(lambda: all(TOPIC in node.broker.topics for node in sim.brokers.values()))
    sim.advance(1)


def send(sim: RunningCluster, *bodies: bytes, queue_id: int = 0) -> None:
    """Send to the master, and let the slave have it."""
    for body in bodies:
        sim.wait(sim.client.send(TOPIC, body, queue_id=queue_id))
    sim.until(lambda: has_all(sim))


def pull_header(offset: int, **fields: Any) -> PullMessage:
    """A pull that does not wait unless `wait_s` is given."""
    wait_s = fields.pop("wait_s", 0.0)
    return PullMessage(
        **{
            "consumer_group": "billing",
            "topic": TOPIC,
            "queue_id": 0,
            "queue_offset": offset,
            "max_msg_nums": 32,
            "sys_flag": PULL_SUBSCRIPTION | (PULL_SUSPEND if wait_s else 0),
            "commit_offset": 0,
            "suspend_timeout_millis": int(wait_s * 1000),
            "sub_version": 0,
            "subscription": "*",
            **fields,
        }
    )


def pulled(
    sim: RunningCluster, node: BrokerNode, offset: int, **fields: Any
) -> tuple[ResponseCode, PulledInEpoch]:
    """What a broker answers to a pull: the code and the header."""
    header = pull_header(offset, **fields)
    response = sim.wait(sim.client.call(header, address=node.address, timeout_s=60))
    return ResponseCode(response.code), response.header(PulledInEpoch)
