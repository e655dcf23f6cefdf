"""What every command of `sparrowmq pipeline` prints: its sentences, and its JSON as listed in
docs/operate.md."""

from __future__ import annotations

import re
import shlex
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from sparrowmq.cli.main import app
from tests.cli.test_json_shapes import shape, shapes
from tests.spark.admin import create_topic
from tests.spark.jobs.backlog import fill_topic, put_group
from tests.spark.jobs.test_dead_letters import bury

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sparrowmq.testing import Cluster

pytestmark = pytest.mark.slow  # each of some 20 runs of Spark takes half a second or more

NEAR = "the cluster"
SHOWN = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d+)?(\+00:00)?")


class Desk:
    """Where an operator runs jobs on the topics of one test, which begin with `prefix`."""

    def __init__(self, running: Cluster, folder: Path, prefix: str) -> None:
        self._running = running
        self._folder = folder
        self.prefix = prefix

    def run(self, words: str, *more: str, code: int = 0) -> tuple[str, str]:
        """Standard output and error; names without the prefix, and no times."""
        until = (datetime.now(UTC) + timedelta(milliseconds=1)).isoformat()
        known = {name: f"{self.prefix}{name}" for name in ("orders", "again", "billing")}
        known |= {"NOW": until, "archive": str(self._folder / "archive")}
        program, verb, *rest = shlex.split(words)
        given = [program, verb, *(known.get(word, word) for word in rest)]
        at = ["--name-servers", self._running.name_server, "--state", str(self._folder / "state")]
        if verb == "archive":
            at = at[:2] if "--topics" in rest else []
        ended = CliRunner().invoke(app, [*given, *at, *more])
        assert ended.exit_code == code, ended.output
        texts = (self.plain(ended.stdout), self.plain(ended.stderr))
        return texts[0], texts[1]

    def plain(self, text: str) -> str:
        for name, word in (
            (self.prefix, ""),
            (f"{self._folder}/", ""),
            (f"name servers {self._running.name_server}", NEAR),
        ):
            text = text.replace(name, word)
        return SHOWN.sub("TIME", text)

    def has_shape(self, words: str, *, code: int = 0) -> None:
        """The keys of its JSON are those that are listed."""
        printed, _ = self.run(words, "--json", code=code)
        assert shape(words, printed) == shapes()[words], words


@pytest.fixture
def desk(spark: SparkSession, running: Cluster, tmp_path: Path) -> Desk:
    assert spark.range(1).count() == 1
    made = Desk(running, tmp_path, f"shown-{tmp_path.name.replace('_', '-')}-")
    fill_topic(running, f"{made.prefix}orders", 4, queues=1)
    return made


CHANGED = f"changed: {NEAR}\n"


def test_archive(desk: Desk, running: Cluster) -> None:
    archive = "pipeline archive --topics orders --to archive --once"
    printed, said = desk.run(archive)
    assert printed == "4 messages archived now, 4 in all, in 1 file: archive\n"
    assert said == "archive: planned 4 rows, 0 done\narchive: committed 4 rows, 4 done\n"
    fill_topic(running, f"{desk.prefix}orders", 4, first=4)
    desk.has_shape(archive)
    query = "pipeline archive query archive --key k1"
    printed, said = desk.run(query)
    assert printed == "TIME orders/broker-a/0/1 [t1] k1: 000001\n"
    assert said == "1 message\n"
    desk.has_shape(query)
    compact = "pipeline archive compact archive"
    desk.has_shape(compact)
    assert desk.run(compact) == ("nothing to merge: 1 file\n", "")
    fill_topic(running, f"{desk.prefix}orders", 4, first=8)
    desk.run(archive)
    assert desk.run(compact) == ("2 files became 1\n", "compact: merged 2 files\n")


def test_drain(desk: Desk, running: Cluster) -> None:
    put_group(running, f"{desk.prefix}billing", f"{desk.prefix}orders")
    dry = "pipeline drain orders --group billing --dry-run"
    printed, said = desk.run(dry)
    assert printed.splitlines()[-2:] == [
        "4 messages of orders would be copied to orders-drain (queues: 10 on broker-a)",
        "group billing would go on after them",
    ]
    assert said == "nothing was changed: a dry run\n"
    desk.has_shape(dry)
    printed, said = desk.run("pipeline drain orders --group billing")
    assert said.endswith(CHANGED)
    assert printed.splitlines()[-2:] == [
        "4 of 4 messages of orders copied to orders-drain: 10 queues with 0 to 1 each",
        "next: consume orders-drain, then --hand-back --worked-by its group",
    ]
    desk.has_shape("pipeline drain orders --group billing --hand-back", code=1)
    put_group(running, f"{desk.prefix}fast", f"{desk.prefix}orders-drain", offset=1)
    hand_back = "pipeline drain orders --group billing --hand-back --cleanup"
    printed, said = desk.run(hand_back, "--worked-by", f"{desk.prefix}fast")
    assert said == CHANGED
    assert printed.splitlines()[-3:] == [
        "0 of them are not handled yet by group fast",
        "drain complete: group billing continues with topic orders only",
        "topic orders-drain deleted",
    ]


def test_replay(desk: Desk, running: Cluster) -> None:
    create_topic(running, f"{desk.prefix}again", 2)
    ranges = "--since 2026-01-01 --until NOW"
    dry = f"pipeline replay orders --to again {ranges} --dry-run"
    printed, said = desk.run(dry)
    assert printed.splitlines()[-1] == "4 messages of orders would be sent to again"
    assert said == "nothing was sent: a dry run\n"
    desk.has_shape(dry)
    replay = f"pipeline replay orders --to again {ranges}"
    printed, said = desk.run(replay)
    assert printed == "4 messages of orders sent to again now, 4 in all\n"
    assert said.endswith(CHANGED)
    desk.has_shape(replay)


def test_dead_letters(desk: Desk, running: Cluster) -> None:
    create_topic(running, f"%DLQ%{desk.prefix}billing", 1)
    bury(running, f"{desk.prefix}billing", f"{desk.prefix}orders", 1, 2)
    shown = "pipeline dead-letters billing"
    printed, said = desk.run(shown)
    assert printed.splitlines() == [
        f"TIME %DLQ%billing/broker-a/0/{number - 1} from orders k{number}: 00000{number}"
        for number in (1, 2)
    ]
    assert said == "2 dead letters\n"
    desk.has_shape(shown)
    printed, said = desk.run(f"{shown} --send-back")
    assert printed == "2 dead letters of billing sent back\n"
    assert said.endswith(CHANGED)
    desk.has_shape(f"{shown} --send-back")
