"""A batch write with a jobId whose driver is killed while its tasks send.

`python -m tests.spark.killed_write NAME-SERVER TOPIC FOLDER POINT`
"""

import sys
from pathlib import Path

from sparrowmq.spark.session import spark_session
from tests.spark.death import DRIVER, Death
from tests.spark.dying_source import OPTION, DyingSource
from tests.spark.executed import BATCH, Executed
from tests.spark.standalone import QUICK_JAVA


def main(name_server: str, topic: str, folder: Path, point: str) -> None:
    """Write until the kill; the folder's name is the jobId."""
    death = Death(name_server, topic, str(folder), DRIVER, point)
    death.order()
    settings = {
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": QUICK_JAVA,
        "spark.local.dir": str(folder / "local"),
    }
    spark = spark_session("killed write", master="local[2]", settings=settings)
    spark.dataSource.register(DyingSource)
    queries = Executed(spark, name_server, topic)
    queries.run(BATCH, folder, DyingSource.name(), {OPTION: str(death)})


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), sys.argv[4])
