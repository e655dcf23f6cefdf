"""Reading each row once although it may have been written twice."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ROW_ID = ("topic", "msgId")
"""What tells messages apart: the sink gives a row the same msgId each time it writes it."""


def deduplicated(frame: "DataFrame", *, within: str = "1 hour") -> "DataFrame":
    """The messages without those that a repeated task or micro-batch sent again.

    For a DataFrame read from the source, batch or stream. A stream remembers the ids of about
    `within`, by storeTimestamp: it has to be longer than the sink's retries and restarts take.
    """
    if not frame.isStreaming:
        return frame.dropDuplicates(list(ROW_ID))
    return frame.withWatermark("storeTimestamp", within).dropDuplicatesWithinWatermark(list(ROW_ID))
