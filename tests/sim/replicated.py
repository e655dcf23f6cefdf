"""Helpers for simulations of a master and its slaves."""

from sparrowmq.broker.replication.replication import Role
from sparrowmq.protocol.message_ext import decode_messages
from sparrowmq.testing.sim_cluster import RunningCluster
from sparrowmq.testing.sim_nodes import BrokerNode

TOPIC = "orders"


def bodies(node: BrokerNode, queue_id: int = 0, topic: str = TOPIC) -> list[bytes]:
    """What a broker's own store has of a queue."""
    store = node.broker.store
    found = []
    for log_offset, _, _ in store.units(topic, queue_id, 0, 100_000):
        record = store.read_message(log_offset)
        assert record is not None
        found += [message.body for message in decode_messages(record)]
    return found


def follows(sim: RunningCluster, broker_id: int = 1, master: str = "broker-a") -> bool:
    """Whether a master feeds that slave."""
    server = sim.brokers[master].server
    return hasattr(server, "broker") and broker_id in server.broker.replication.feed.links


def role(node: BrokerNode) -> Role:
    """What a broker is."""
    return node.broker.replication.role


def has_all(sim: RunningCluster, slave: str = "broker-a.1", master: str = "broker-a") -> bool:
    """Whether a slave's log ends where its master's does."""
    return (
        sim.brokers[slave].broker.store.max_log_offset
        == sim.brokers[master].broker.store.max_log_offset
    )
