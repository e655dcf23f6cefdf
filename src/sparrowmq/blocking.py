"""Producers and consumers for programs without asyncio."""

from sparrowmq.client.blocking import Producer, PushConsumer, TransactionalProducer
from sparrowmq.protocol.message import Message

__all__ = ["Message", "Producer", "PushConsumer", "TransactionalProducer"]
