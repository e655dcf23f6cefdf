"""Producers and consumers: asyncio inside, against SparrowMQ and Apache's brokers alike."""
