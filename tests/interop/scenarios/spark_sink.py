"""Spark writes to either broker, Java consumes it, and Spark reads the broker's own files."""

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from tests.interop.cluster import Settings
from tests.interop.registry import Outcome, scenario
from tests.interop.scene import Scene

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

JAVA_CONSUMES = ("java5",)
ROWS = 20
LATER_S = 5


@scenario(clients=JAVA_CONSUMES, lane="spark")
def java_consumes_what_spark_wrote(scene: Scene) -> Outcome:
    topic = scene.topic(queues=4)
    spark = _session(scene)
    later = datetime.now(UTC) + timedelta(seconds=LATER_S)
    rows = spark.range(0, ROWS, 1, 2).selectExpr(
        "format_string('m-%02d', id) as body",
        "if(id % 2 = 0, 'even', 'odd') as tags",
        "array(concat('k', id), 'all') as keys",
        "map('n', cast(id as string)) as properties",
        "concat('customer-', id % 5) as shardingKey",
        "if(id = 7, 1, null) as delayLevel",
        f"if(id = 8, timestamp '{later.isoformat()}', null) as deliverTime",
    )
    for _ in range(2):
        _write(rows, scene, topic, jobId="once")
    got = scene.push_consumer(topic).received(2 * ROWS)
    queues: dict[str, set[int]] = {}
    for message in got:
        queues.setdefault(message["properties"]["__SHARDINGKEY"], set()).add(message["queue_id"])
    ids = {message["body"]: message["properties"]["UNIQ_KEY"] for message in got}
    return {
        "messages": sorted(_plain(message) for message in got),
        "queues": {key: sorted(found) for key, found in sorted(queues.items())},
        "ids": len(set(ids.values())),
        "every repeated row kept its id": all(
            message["properties"]["UNIQ_KEY"] == ids[message["body"]] for message in got
        ),
    }


@scenario(clients=JAVA_CONSUMES, lane="spark")
def spark_reads_the_log_files_of_a_running_broker(scene: Scene) -> Outcome:
    # Of its own: a task for each 4 KiB of what all other scenarios left takes minutes.
    own = scene.own_cluster(Settings())
    topic = own.topic(queues=2)
    bodies = [f"m-{number:02}" for number in range(ROWS)]
    own.producer().send(topic, bodies)
    spark = _session(scene)
    reader = spark.read.format("rocketmq-log").option("topic", topic)
    reader = reader.option("onDamage", "column").option("maxBytesPerPartition", "4KiB")
    rows = reader.load(str(own.cluster.store)).collect()
    offsets = [row.logOffset for row in rows]
    return {
        "bodies": sorted(bytes(row.body).decode() for row in rows if row.body),
        "damage": [row.damage for row in rows if row.damage is not None],
        "in the order of the log": offsets == sorted(offsets),
    }


def _session(scene: Scene) -> "SparkSession":
    from sparrowmq.spark.session import spark_session

    spark = spark_session("interop", master="local[2]")
    spark.sparkContext.setLogLevel("ERROR")
    scene.closing(spark.stop)
    return spark


def _write(rows: "DataFrame", scene: Scene, topic: str, **options: str) -> None:
    base = {"nameServer": scene.cluster.name_server, "topic": topic}
    rows.write.format("rocketmq").options(**base, **options).mode("append").save()


def _plain(message: dict[str, Any]) -> list[Any]:
    """What is the same at every broker and in every run."""
    own = message["properties"]
    return [message["body"], own["TAGS"], own["KEYS"], own["n"], own["__SHARDINGKEY"]]
