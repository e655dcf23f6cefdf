"""Functions on DataFrames of messages: drop repeated rows, or prepare rows for sending again."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ROW_ID = ("topic", "msgId")
"""What identifies a message: the sink gives a row the same msgId each time it writes it."""


def deduplicated(frame: "DataFrame", *, within: str = "1 hour") -> "DataFrame":
    """Drop the messages that a repeated task or micro-batch sent again.

    For a DataFrame read from the source, batch or stream. A stream remembers the ids of about
    `within`, by storeTimestamp: make it longer than the sink's retries and restarts take.
    """
    if not frame.isStreaming:
        return frame.dropDuplicates(list(ROW_ID))
    return frame.withWatermark("storeTimestamp", within).dropDuplicatesWithinWatermark(list(ROW_ID))


_SHARDING_KEY = "__SHARDINGKEY"


def resent(frame: "DataFrame") -> "DataFrame":
    """Body, tag, keys and the application's properties; the sink leaves out RocketMQ's own."""
    return frame.select("body", "tags", "keys", "properties")


def resent_as_it_was(frame: "DataFrame") -> "DataFrame":
    """As `resent`, but under the ids that the messages already have."""
    return frame.selectExpr("body", "tags", "keys", "properties", "msgId AS uniqueId")


def resent_by_key(frame: "DataFrame") -> "DataFrame":
    """As `resent`, plus a sharding key: the message's own, else its first key."""
    from pyspark.sql import functions as F

    own = F.col("properties")[_SHARDING_KEY]
    first = F.get("keys", F.lit(0))
    return frame.select(
        "body", "tags", "keys", "properties", F.coalesce(own, first).alias("shardingKey")
    )


_ORIGINS = ("RETRY_TOPIC", "DLQ_ORIGIN_TOPIC")
"""Properties of a dead letter that name its topic: for a group's retries, and Apache's own."""


def origin_of(properties: Mapping[str, str]) -> str | None:
    """The topic that a dead letter came from, if it names one."""
    return next((properties[name] for name in _ORIGINS if properties.get(name)), None)


def resent_to_origin(frame: "DataFrame") -> "DataFrame":
    """Dead letters under their own ids, each to the topic it came from; those that name no topic
    are left out."""
    from pyspark.sql import functions as F

    properties = F.col("properties")
    topic = F.coalesce(*(properties[name] for name in _ORIGINS))
    sent = frame.select(
        *("body", "tags", "keys", "properties"),
        F.col("msgId").alias("uniqueId"),
        topic.alias("topic"),
    )
    return sent.where(F.col("topic").isNotNull())
