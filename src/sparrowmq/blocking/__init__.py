"""Producers, consumers and Admin for programs without asyncio: the same code, plain functions.

    from sparrowmq.blocking import Producer
    with Producer("orders-svc") as producer:
        producer.send(Message("orders", b"…"))

Usable from several threads, and after a fork (gunicorn, multiprocessing): a child process that
keeps using its parent's producer gets its own connections and client id. Consumers do not survive a
fork: the child has to start its own.
"""

from sparrowmq.blocking.admin import Admin
from sparrowmq.blocking.consumers import (
    LitePullConsumer,
    PullConsumer,
    PushConsumer,
    ScheduledPull,
    Turn,
)
from sparrowmq.blocking.producer import Producer, TransactionalProducer
from sparrowmq.protocol.message import Message

__all__ = [
    "Admin",
    "LitePullConsumer",
    "Message",
    "Producer",
    "PullConsumer",
    "PushConsumer",
    "ScheduledPull",
    "TransactionalProducer",
    "Turn",
]
