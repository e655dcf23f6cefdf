"""Spark against either broker: Java's messages as a table and a stream, and a group's progress."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.interop.registry import Outcome, scenario
from tests.interop.scene import Scene

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

JAVA_SENDS = ("java5",)
LARGE = "x" * 20_000
"""Java compresses bodies above 4,096 bytes."""


@scenario(clients=JAVA_SENDS, lane="spark")
def spark_reads_what_java_sent_as_a_table(scene: Scene) -> Outcome:
    topic = _filled(scene)
    spark = _session(scene)
    everything = _load(spark, scene, topic)
    middle = json.dumps({topic: {_broker_of(everything): {"0": 10, "1": 10}}})
    return {
        "rows": sorted(_plain(row) for row in everything.collect()),
        "types": everything.dtypes,
        "from the middle": _bodies(_load(spark, scene, topic, startingOffsets=middle)),
        "odd ones": _bodies(_load(spark, scene, topic, tags="odd")),
        "by SQL": _bodies(_load(spark, scene, topic, sql="n > 35")),
        "split": _bodies(_load(spark, scene, topic, minPartitions="7")),
    }


@scenario(clients=JAVA_SENDS, lane="spark")
def spark_streams_what_java_sends_and_stores_the_progress_of_its_group(scene: Scene) -> Outcome:
    topic = _filled(scene)
    spark = _session(scene)
    first = _stream(spark, scene, topic)
    progress = _progress(scene, topic)
    scene.producer().send(topic, ["late-1", "late-2"])
    second = _stream(spark, scene, topic)
    return {
        "batches": [len(batch) for batch in first],
        "bodies": sorted(body for batch in first for body in batch),
        "progress": progress,
        "after the restart": sorted(body for batch in second for body in batch),
        "progress after the restart": _progress(scene, topic),
    }


def _filled(scene: Scene) -> str:
    topic = scene.topic(queues=2)
    for queue_id in range(2):
        numbers = range(20 * queue_id, 20 * queue_id + 20)
        messages: list[dict[str, Any]] = [
            {
                "body": f"m-{n:02}",
                "tags": "odd" if n % 2 else "even",
                "keys": f"k{n} all",
                "properties": {"n": str(n)},
            }
            for n in numbers
        ]
        scene.producer().send(topic, messages, "send_to_queue", queue_id=queue_id)
    scene.producer().send(topic, [{"body": LARGE}], "send_to_queue", queue_id=0)
    return topic


def _session(scene: Scene) -> "SparkSession":
    from sparrowmq.spark.session import spark_session

    spark = spark_session(
        "interop", master="local[2]", settings={"spark.sql.shuffle.partitions": "2"}
    )
    spark.sparkContext.setLogLevel("ERROR")
    scene.closing(spark.stop)
    return spark


def _load(spark: "SparkSession", scene: Scene, topic: str, **options: str) -> "DataFrame":
    base = {"nameServer": scene.cluster.name_server, "subscribe": topic}
    return spark.read.format("rocketmq").options(**base, **options).load()


def _stream(spark: "SparkSession", scene: Scene, topic: str) -> list[list[str]]:
    batches: list[list[str]] = []
    options = {
        "nameServer": scene.cluster.name_server,
        "subscribe": topic,
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": "15",
        "group": scene.name("spark"),
    }
    frame = spark.readStream.format("rocketmq").options(**options).load()

    def take(batch: "DataFrame", batch_id: int) -> None:
        batches.append(_bodies(batch))

    checkpoint = scene.folder / "checkpoint"
    Path(checkpoint).mkdir(parents=True, exist_ok=True)
    writer = frame.writeStream.foreachBatch(take).trigger(availableNow=True)
    writer.option("checkpointLocation", str(checkpoint)).start().awaitTermination()
    return batches


def _bodies(frame: "DataFrame") -> list[str]:
    return sorted(bytes(row.body).decode()[:40] for row in frame.select("body").collect())


def _broker_of(frame: "DataFrame") -> str:
    (row,) = frame.select("brokerName").distinct().collect()
    return str(row.brokerName)


def _plain(row: Any) -> list[Any]:
    """What is the same at every broker and in every run."""
    body = bytes(row.body).decode()
    own = {name: value for name, value in row.properties.items() if name in ("n", "TAGS", "KEYS")}
    return [
        *(row.queueId, row.queueOffset, row.topic, body[:40], len(body), row.tags or ""),
        *(list(row["keys"]), dict(sorted(own.items())), row.reconsumeTimes),
        row.msgId == row.properties["UNIQ_KEY"],
        row.bornHost.startswith("127.0.0.1:"),
        row.bornTimestamp <= row.storeTimestamp,
    ]


def _progress(scene: Scene, topic: str) -> dict[str, Any]:
    """What Apache's administration client says about the group."""
    from sparrowmq.spark.wire.cluster import RemoteCluster

    with RemoteCluster(scene.cluster.name_server) as cluster:
        group = scene.name("spark")
        stored = {
            str(queue.queue_id): cluster.consumer_offset(group, queue)
            for queue in cluster.queues(topic)
        }
    told = scene.mqadmin("consumerProgress", "-g", scene.name("spark"))
    return {"stored": stored, "mqadmin shows the topic": topic in told}
