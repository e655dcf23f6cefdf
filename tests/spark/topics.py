"""Topics for the tests: each with messages that can be distinguished."""

from collections.abc import Iterable

from sparrowmq.blocking import Message, Producer
from sparrowmq.store.config import StoreConfig
from sparrowmq.testing import Cluster

SHORT_LOG = StoreConfig(log_file_size=64 * 1024 * 1024)
"""For clusters whose files a test reads: a reader searches what is left of the file for more
records, and a gibibyte of zeros takes it seconds."""


def send(running: Cluster, messages: Iterable[Message]) -> None:
    """Send them in order, spread over the topic's queues."""
    with Producer("tests", name_servers=running.name_server) as producer:
        for message in messages:
            producer.send(message)


def fill(running: Cluster, topic: str, count: int, *, first: int = 0) -> list[bytes]:
    """Send `count` small messages; their bodies, sorted."""
    bodies = [b"%06d" % number for number in range(first, first + count)]
    send(running, [Message(topic, body, keys=f"k{body.decode()}") for body in bodies])
    return bodies
