"""Settings of a producer, and what they must be."""

from collections.abc import Sequence
from typing import TypedDict

from sparrowmq.client.checks import MAX_LONG, check_kind, check_time, check_whole
from sparrowmq.client.client import Client
from sparrowmq.client.config import ClientConfig
from sparrowmq.client.sending.outgoing import Packing
from sparrowmq.protocol.compression import CompressionType


class SendSettings(TypedDict, total=False):
    """The settings of a Producer, for those that pass them on; see there."""

    name_servers: str | Sequence[str]
    config: ClientConfig | None
    timeout_s: float
    retries: int
    default_queues: int
    max_body_bytes: int
    compress_from_bytes: int
    compression: CompressionType
    retry_unless_ok: bool
    avoid_faults: bool
    trace: bool


class ProducerSettings(SendSettings, total=False):
    """The same with the client that producers and consumers may share."""

    client: Client | None


def check_timeout(timeout_s: float) -> None:
    """Raises ValueError for a time in which nothing can be done."""
    check_time("timeout_s", timeout_s)


def check_settings(timeout_s: float, retries: int, packing: Packing) -> None:
    """Raises ValueError for what cannot be meant."""
    check_timeout(timeout_s)
    check_whole("retries", retries, 0)
    check_whole("default_queues", packing.default_queues, 1)
    check_whole("max_body_bytes", packing.max_body_bytes, 1)
    check_whole("compress_from_bytes", packing.compress_from_bytes, 0, MAX_LONG)
    check_kind("compression", packing.compression, CompressionType)
