"""Queries whose executors, or the Python workers of them, are killed at a step of the second batch.

`python -m tests.spark.killed_executors NAME-SERVER FOLDER MASTER KILL...`

Where Spark repeats a task the query has to continue by itself; where it does not (local masters) it
has to fail, and to resume exactly there after a restart. The output is compared with
what the same query gives where no process dies.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from sparrowmq.spark.frames import deduplicated
from sparrowmq.spark.session import spark_session
from tests.spark.admin import create_topic_at
from tests.spark.death import DIED, EXECUTOR, WORKER, Death
from tests.spark.dying_commit import SETTING as COMMIT_SETTING
from tests.spark.dying_commit import compile_into, die_at_task_commit
from tests.spark.dying_driver import SETTING as CHECKPOINT_SETTING
from tests.spark.dying_driver import call_before
from tests.spark.dying_source import OPTION, DyingSource
from tests.spark.executed import COPIED, FILES, QUEUES, Executed, fill, order_problems, rows_of
from tests.spark.executor_kill import COMMIT_MESSAGE, LONE, MESSAGES, Kill, repeated
from tests.spark.killed_query import FILES as CHECKPOINT_FILES
from tests.spark.killed_query import copy_of, differences
from tests.spark.standalone import SMALL_JAVA

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class ExecutorKills:
    """Queries over one topic, each with its own folder; the first of a kind runs without faults."""

    def __init__(self, name_server: str, spark: SparkSession, folder: Path) -> None:
        self._name_server = name_server
        self._spark = spark
        self._folder = folder
        self._topic = f"executed-{folder.name}"
        self._queries = Executed(spark, name_server, self._topic)
        self._calm: dict[str, Counter[str]] = {}
        self.twice = 0
        """Rows of the last query that came twice."""
        fill(name_server, self._topic)
        spark.dataSource.register(DyingSource)

    def judged(self, kill: Kill) -> Iterator[str]:
        """What is wrong after a kill."""
        self.twice = 0
        if kill.kind not in self._calm:
            calm = self._prepared(f"calm-{kill.kind}")
            self._queries.run(kill.kind, calm, "rocketmq", {})
            rows = self._rows(kill.kind, self._queries.result(kill.kind, calm))
            self._calm[kill.kind] = rows
            if len(rows) != MESSAGES:
                yield f"without a kill there are {len(rows)} of {MESSAGES} rows"
        folder = self._prepared(str(kill).replace(" ", "-"))
        yield from self._killed(kill, folder)
        if not (folder / DIED).exists():
            yield "nothing was killed"
            return
        yield from (folder / DIED).read_text().splitlines()
        found = self._queries.result(kill.kind, folder)
        yield from differences(self._calm[kill.kind], self._rows(kill.kind, found))
        if kill.kind != FILES:
            yield from self._repeated(kill, found)
            yield from order_problems(found)

    def _killed(self, kill: Kill, folder: Path) -> Iterator[str]:
        from py4j.protocol import Py4JJavaError
        from pyspark.errors import PySparkException

        target = EXECUTOR if kill.who == EXECUTOR else WORKER
        death = Death(self._name_server, self._topic, str(folder), target, kill.point)
        death.order()
        self._arm(death)
        try:
            self._queries.run(kill.kind, folder, DyingSource.name(), {OPTION: str(death)})
        except (PySparkException, Py4JJavaError) as error:
            if kill.who != LONE:
                yield f"Spark did not go on: {str(error)[:2000]}"
                return
            if "exited unexpectedly" not in str(error):
                yield f"failed for another reason: {str(error)[:2000]}"
            self._queries.run(kill.kind, folder, "rocketmq", {})
        else:
            if kill.who == LONE:
                yield "went on, although no task is repeated"
        finally:
            self._spark.conf.unset(CHECKPOINT_SETTING)
            self._spark.conf.unset(COMMIT_SETTING)

    def _arm(self, death: Death) -> None:
        if death.point in CHECKPOINT_FILES:
            command = [sys.executable, "-m", "tests.spark.death", death.folder, death.point]
            call_before(self._spark, CHECKPOINT_FILES[death.point], " ".join(command))
        elif death.point == COMMIT_MESSAGE:
            die_at_task_commit(self._spark, Path(death.folder), death.target)

    def _rows(self, kind: str, found: DataFrame) -> Counter[str]:
        """Files hold each row once; of a topic readers drop what came twice."""
        return rows_of(found if kind == FILES else deduplicated(found).select(*COPIED))

    def _repeated(self, kill: Kill, found: DataFrame) -> Iterator[str]:
        self.twice = found.count() - MESSAGES
        least, most = repeated(kill)
        if not least <= self.twice <= most:
            yield f"{self.twice} rows came twice, {least} to {most} were expected"

    def _prepared(self, name: str) -> Path:
        folder = self._folder / name
        folder.mkdir()
        create_topic_at(self._name_server, copy_of(self._topic, folder), QUEUES)
        return folder


def main(name_server: str, folder: Path, master: str, kills: list[str]) -> None:
    """Print what is wrong after each kill, and how many rows came twice, as lines of JSON."""
    classes = folder / "classes"
    classes.mkdir()
    settings = {
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": SMALL_JAVA,
        "spark.driver.extraClassPath": str(classes),
        "spark.executor.memory": "512m",
        "spark.executor.extraJavaOptions": SMALL_JAVA,
        "spark.executor.extraClassPath": str(classes),
        # Executors die here as often as there are kills.
        "spark.deploy.maxExecutorRetries": "-1",
        "spark.sql.shuffle.partitions": "2",
        "spark.local.dir": str(folder / "local"),
    }
    spark = spark_session("killed executors", master=master, settings=settings)
    compile_into(spark, classes)
    judge = ExecutorKills(name_server, spark, folder)
    for kill in kills:
        try:
            problems = list(judge.judged(Kill.of(kill)))
        except Exception as error:  # the others are judged anyway
            problems = [f"could not be judged: {error!r}"[:2000]]
        print(json.dumps([kill, problems, judge.twice]), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3], sys.argv[4:])
