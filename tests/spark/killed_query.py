"""A query in a process of its own that kills its driver in its second batch.

`python -m tests.spark.killed_query NAME-SERVER FOLDER after-write|never`
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from sparrowmq.spark.session import spark_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def main(name_server: str, folder: str, when: str) -> None:
    root = Path(folder)
    rows = root / "rows"
    rows.mkdir(exist_ok=True)

    def write(frame: DataFrame, batch_id: int) -> None:
        found = b"\n".join(bytes(row.body) for row in frame.select("body").collect())
        (rows / str(batch_id)).write_bytes(found)  # a batch again replaces what it wrote
        if batch_id == 1 and when == "after-write":
            os.kill(os.getpid(), signal.SIGKILL)

    spark = spark_session("killed", master="local[2]", settings={"spark.driver.memory": "1g"})
    options = {
        "nameServer": name_server,
        "subscribe": "killed",
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": "10",
        "group": "killed",
    }
    frame = spark.readStream.format("rocketmq").options(**options).load()
    writer = frame.writeStream.foreachBatch(write).trigger(availableNow=True)
    writer.option("checkpointLocation", str(root / "checkpoint")).start().awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:4])
