"""A push consumer in a client of the test's own, for tests of starts and stops."""

from sparrowmq import Client
from sparrowmq.client.consuming.push_consumer import PushConsumer
from sparrowmq.net.workers import InlineWorkers, Workers
from sparrowmq.protocol.heartbeat import ConsumeFromWhere
from tests.client.members import GROUP, TOPIC


def push_consumer(client: Client, threads: Workers | None = None) -> PushConsumer:
    first = ConsumeFromWhere.FIRST_OFFSET
    threads = threads or InlineWorkers()
    return PushConsumer(GROUP, {TOPIC: "*"}, client=client, threads=threads, from_where=first)
