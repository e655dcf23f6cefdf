"""The jobs of `sparrowmq pipeline` on either broker, in one Spark session."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from sparrowmq.spark.group_progress import GroupProgress
from sparrowmq.spark.jobs.archive import ArchiveJob, archive_once, opened_archive, read_archive
from sparrowmq.spark.jobs.archive_query import Question
from sparrowmq.spark.jobs.dead_letters import DeadLetters, send_back
from sparrowmq.spark.jobs.drain import DrainJob, DrainRun, drain_report
from sparrowmq.spark.jobs.job import AdminOperator
from sparrowmq.spark.jobs.journal import JobJournal
from sparrowmq.spark.jobs.replay import ReplayJob, ReplayRun
from sparrowmq.spark.positions import Positions
from sparrowmq.spark.wire.cluster import QueuePosition, RemoteCluster
from tests.interop.registry import Outcome, scenario
from tests.interop.scene import Scene

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MESSAGES = 40
BATCH = 30
LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)
LATER = datetime(2100, 1, 1, tzinfo=UTC)


@scenario(clients=("java5",), needs="retry", lane="spark")
def spark_jobs_archive_drain_replay_and_send_dead_letters_back(scene: Scene) -> Outcome:
    topic = scene.topic(queues=2)
    for queue_id in range(2):
        numbers = range(20 * queue_id, 20 * queue_id + 20)
        sent: list[dict[str, Any]] = [
            {"body": f"m-{n:02}", "tags": f"t{n % 2}", "keys": f"k{n}", "properties": {"n": str(n)}}
            for n in numbers
        ]
        scene.producer().send(topic, sent, "send_to_queue", queue_id=queue_id)
    _bury(scene)
    work = _Jobs(scene, topic)
    return {
        "archive": work.archive(),
        "drain": work.drain(),
        "replay": work.replay(),
        "dead letters": work.dead_letters(),
    }


def _bury(scene: Scene) -> None:
    """Three letters that Java's consumer could not handle, and will not be given again."""
    topic = scene.topic("failing", queues=1)
    fails = dict.fromkeys(("d-1", "d-2", "d-3"), 99)
    consumer = scene.push_consumer(topic, fails=fails, retry_level=-1)
    scene.producer().send(topic, [{"body": body, "keys": f"k-{body}"} for body in sorted(fails)])
    consumer.received(3)
    dead = f"%DLQ%{scene.name('billing')}"
    scene.wait_for_route(dead)
    scene.push_consumer(dead, "undertaker").received(3)
    consumer.stop()


class _Jobs:
    """The jobs, one after the other."""

    def __init__(self, scene: Scene, topic: str) -> None:
        self._scene = scene
        self._topic = topic
        self._name_server = scene.cluster.name_server
        self._spark = _session(scene)
        scene.folder.mkdir(parents=True, exist_ok=True)

    def archive(self) -> Outcome:
        """Each message once, run twice; the group is at the end."""
        job = ArchiveJob(
            name_server=self._name_server,
            to=str(self._scene.folder / "archive"),
            topics=(self._topic,),
            group=self._scene.name("archive"),
            batch_rows=BATCH,
        )
        for _ in range(2):
            with opened_archive(self._spark, job) as archiver:
                archive_once(archiver)
        rows = read_archive(self._spark, job.to)
        one = read_archive(self._spark, job.to, Question(key="k7"))
        return {
            "rows": sorted(_plain(row) for row in rows.collect()),
            "by key": _bodies(one),
            "progress": self._progress(job.group, self._topic),
        }

    def drain(self) -> Outcome:
        """To a topic with twenty queues, which is deleted once it has been consumed."""
        job = DrainJob(
            name_server=self._name_server,
            topic=self._topic,
            group=self._scene.name("slow"),
            to=self._scene.name("wide"),
            state=self._scene.folder / "drain",
            batch_rows=BATCH,
        )
        self._put(job.group, self._topic, 0)
        with RemoteCluster(self._name_server) as cluster, JobJournal(job.state) as journal:
            work = DrainRun(job, cluster, AdminOperator(self._name_server), journal)
            work.run(self._spark)
            report = drain_report(work, self._scene.name("fast"))
            outcome = {
                "copies": _bodies(self._table(job.to)),
                "queues": len(report.there),
                "spread": report.spread,
                "twice": report.twice,
                "before the hand-back": report.open_points(),
                "the slow group": self._progress(job.group, self._topic),
            }
            self._put(self._scene.name("fast"), job.to, 2)
            outcome["at the hand-back"] = drain_report(work, self._scene.name("fast")).open_points()
            work.forget()
            outcome["is there afterwards"] = job.to in cluster.topics()
        return outcome

    def replay(self) -> Outcome:
        """A part of the topic, once although it is asked for twice."""
        job = ReplayJob(
            name_server=self._name_server,
            topic=self._topic,
            to=self._scene.topic("again", queues=3),
            since=LONG_AGO,
            until=LATER,
            where="tags = 't1'",
            batch_rows=BATCH,
        )
        sent = []
        for _ in range(2):
            with JobJournal(self._scene.folder / "replay") as journal:
                work = ReplayRun(self._spark, job, journal, lambda: int(LATER.timestamp() * 1000))
                sent.append(work.run().sent)
        return {"sent": sent, "copies": _bodies(self._table(job.to))}

    def dead_letters(self) -> Outcome:
        """Looked at, chosen, and each sent back once."""
        letters = DeadLetters(
            name_server=self._name_server,
            group=self._scene.name("billing"),
            where="keys[0] != 'k-d-2'",
        )
        sent = []
        for _ in range(2):
            with JobJournal(self._scene.folder / "letters") as journal:
                sent.append(send_back(self._spark, letters, journal)[0])
        found = _bodies(self._table(self._scene.name("failing")))
        return {"chosen": _bodies(letters.frame(self._spark)), "sent": sent, "origin": found}

    def _table(self, topic: str) -> "DataFrame":
        reader = self._spark.read.format("rocketmq").option("nameServer", self._name_server)
        return reader.option("subscribe", topic).load()

    def _put(self, group: str, topic: str, offset: int) -> None:
        """A group without members that has handled so many messages of every queue."""
        with RemoteCluster(self._name_server) as cluster:
            there: Positions = dict.fromkeys(cluster.queues(topic), QueuePosition(offset))
            GroupProgress(cluster, group).commit(there)

    def _progress(self, group: str, topic: str) -> list[int | None]:
        with RemoteCluster(self._name_server) as cluster:
            return [cluster.consumer_offset(group, queue) for queue in cluster.queues(topic)]


def _session(scene: Scene) -> "SparkSession":
    from sparrowmq.spark.session import spark_session

    settings = {"spark.sql.shuffle.partitions": "2"}
    spark = spark_session("interop", master="local[2]", settings=settings)
    spark.sparkContext.setLogLevel("ERROR")
    scene.closing(spark.stop)
    return spark


def _bodies(frame: "DataFrame") -> list[str]:
    return sorted(bytes(row.body).decode() for row in frame.select("body").collect())


def _plain(row: Any) -> list[Any]:
    own = {name: value for name, value in row.properties.items() if name in ("n", "TAGS", "KEYS")}
    return [
        *(row.queueId, row.queueOffset, row.topic, bytes(row.body).decode(), row.tags),
        *(list(row["keys"]), dict(sorted(own.items())), row.msgId == row.properties["UNIQ_KEY"]),
    ]
