"""The archive as DataFrames: converts messages to stored rows, and finds the rows of a question."""

from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any

from sparrowmq.spark.schema import struct_type

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

PARTITIONS = ("topic", "date")
_MICROS_A_DAY = 86_400_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """Which messages are wanted; None means any."""

    topic: str | None = None
    key: str | None = None
    msg_id: str | None = None
    tag: str | None = None
    since: datetime | None = None
    """Stored at this time or later."""
    until: datetime | None = None
    """Stored before this time."""

    def wants(self, topic: str, day: date) -> bool:
        """Whether a partition can contain wanted messages."""
        return (
            (self.topic is None or self.topic == topic)
            and (self.since is None or day >= self.since.astimezone(UTC).date())
            and (self.until is None or day <= self.until.astimezone(UTC).date())
        )


def dated(frame: "DataFrame") -> "DataFrame":
    """Messages with the day, in UTC whatever the session's zone, on which they were stored."""
    from pyspark.sql import functions as F

    days = F.expr(f"cast(unix_micros(storeTimestamp) div {_MICROS_A_DAY} as int)")
    return frame.withColumn("date", F.date_from_unix_date(days))


def answering(frame: "DataFrame", question: Question) -> "DataFrame":
    """The messages that a question asks for, oldest first."""
    from pyspark.sql import functions as F

    conditions: dict[str, Any] = {
        "topic": F.col("topic") == question.topic,
        "key": F.array_contains("keys", question.key),
        "msg_id": F.col("msgId") == question.msg_id,
        "tag": F.col("tags") == question.tag,
        "since": F.col("storeTimestamp") >= F.lit(question.since),
        "until": F.col("storeTimestamp") < F.lit(question.until),
    }
    for name, condition in conditions.items():
        if getattr(question, name) is not None:
            frame = frame.where(condition)
    return frame.orderBy("storeTimestamp", "topic", "brokerName", "queueId", "queueOffset")


def stored_schema() -> "StructType":
    """The schema of the files, plus the two columns that come from the folder names."""
    from pyspark.sql.types import DateType, StructField, StructType

    columns = [field for field in struct_type() if field.name not in PARTITIONS]
    (topic,) = (field for field in struct_type() if field.name == "topic")
    return StructType([*columns, topic, StructField("date", DateType())])
