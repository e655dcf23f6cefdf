"""Settings of a producer, and what they must be."""

from collections.abc import Sequence
from typing import TypedDict

from sparrowmq.client.client import Client
from sparrowmq.protocol.compression import CompressionType


class SendSettings(TypedDict, total=False):
    """The settings of a Producer, for those that pass them on; see there."""

    name_servers: str | Sequence[str]
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
    if timeout_s <= 0:
        raise ValueError(f"timeout_s is {timeout_s}, must be more than 0")


def check_settings(
    timeout_s: float, retries: int, default_queues: int, max_body_bytes: int
) -> None:
    """Raises ValueError for what cannot be meant."""
    check_timeout(timeout_s)
    if retries < 0:
        raise ValueError(f"retries is {retries}, must be 0 or more")
    if default_queues < 1:
        raise ValueError(f"default_queues is {default_queues}, must be 1 or more")
    if max_body_bytes < 1:
        raise ValueError(f"max_body_bytes is {max_body_bytes}, must be 1 or more")
