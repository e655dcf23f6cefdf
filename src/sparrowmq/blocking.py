"""Producers and consumers for programs without asyncio."""

from sparrowmq.client.blocking import (
    LitePullConsumer,
    Message,
    Producer,
    PullConsumer,
    PushConsumer,
    ScheduledPull,
    TransactionalProducer,
    Turn,
)

__all__ = [
    "LitePullConsumer",
    "Message",
    "Producer",
    "PullConsumer",
    "PushConsumer",
    "ScheduledPull",
    "TransactionalProducer",
    "Turn",
]
