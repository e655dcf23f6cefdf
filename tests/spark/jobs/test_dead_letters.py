"""Dead letters as a table, and the way back."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from sparrowmq import Resend
from sparrowmq.blocking import Admin
from sparrowmq.spark.jobs.dead_letters import DeadLetters, send_back
from sparrowmq.spark.jobs.journal import JobJournal
from sparrowmq.spark.wire.cluster import RemoteCluster
from sparrowmq.spark.wire.sender import RowSender, Send
from tests.patience import PATIENCE_S
from tests.spark.admin import create_topic
from tests.spark.jobs.backlog import bodies, fill_topic, table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sparrowmq.testing import Cluster


def bury(running: Cluster, group: str, topic: str, first: int, count: int) -> None:
    """Dead letters as a broker leaves them: they tell the topic they came from."""
    with RemoteCluster(running.name_server) as wire:
        sender = RowSender(wire, group="tests", retry_timeout_s=60)
        sender.queue_count(f"%DLQ%{group}")
        for number in range(first, first + count):
            properties = f"RETRY_TOPIC\x01{topic}\x02KEYS\x01k{number}\x02"
            letter = b"%06d" % number
            sender.send(Send(f"%DLQ%{group}", 0, True, 1, letter, properties))


def test_dead_letters_are_selected_and_each_sent_back_once(
    spark: SparkSession, running: Cluster, tmp_path: Path
) -> None:
    create_topic(running, "%DLQ%failing", 1)
    fill_topic(running, "came-from", 1)
    bury(running, "failing", "came-from", 1, 6)
    letters = DeadLetters(
        name_server=running.name_server, group="failing", where="keys[0] in ('k2', 'k5', 'k8')"
    )
    assert bodies(letters.frame(spark)) == [b"000002", b"000005"]

    def sent_back() -> int:
        with RemoteCluster(running.name_server) as wire:
            folder = letters.journal_folder(tmp_path, wire)
        with JobJournal(folder) as journal:
            return send_back(spark, letters, journal)[0]

    assert sent_back() == 2
    assert sent_back() == 0
    bury(running, "failing", "came-from", 7, 3)
    assert sent_back() == 1
    found = table(spark, running, "came-from").where("body != X'303030303030'")
    assert bodies(found) == [b"000002", b"000005", b"000008"]


def test_the_pipeline_and_dlq_resend_see_each_others_messages(
    spark: SparkSession, running: Cluster, tmp_path: Path
) -> None:
    create_topic(running, "%DLQ%shared", 1)
    create_topic(running, "shared-from", 1)
    bury(running, "shared", "shared-from", 1, 3)
    letters = DeadLetters(name_server=running.name_server, group="shared")
    with Admin(running.name_server, timeout_s=PATIENCE_S) as admin:
        first = admin.dead_letters("shared", newest=False).messages[0]
        admin.resend_dead_letters("shared", ids=[first.msg_id], to="topic")
        with JobJournal(tmp_path) as journal:
            assert send_back(spark, letters, journal)[0] == 2
        results = admin.resend_dead_letters("shared")
    assert {each.result for each in results} == {Resend.SENT_BEFORE}
    assert bodies(table(spark, running, "shared-from")) == [b"000001", b"000002", b"000003"]
