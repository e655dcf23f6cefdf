"""docs/rebalance.md, docs/store.md, docs/migration.md: examples run as pasted, and print that."""

import re
import shlex
from pathlib import Path
from random import Random

import pytest

from sparrowmq.blocking import Admin, PushConsumer
from sparrowmq.disk.real_disk import RealDisk
from sparrowmq.testing import Cluster, cluster
from tests.cli.in_process import Ran, run
from tests.faults.store_run import LAYOUT, StoreRun

ROOT = Path(__file__).parents[2]
REBALANCE = (ROOT / "docs" / "rebalance.md").read_text("utf-8")
STORE = (ROOT / "docs" / "store.md").read_text("utf-8")
MIGRATION = (ROOT / "docs" / "migration.md").read_text("utf-8")
PICTURE = ROOT / "docs" / "images" / "rebalance.svg"


def commands(text: str, start: str) -> list[list[str]]:
    """The commands of the first block after a text."""
    block = text[text.index(start) :].split("```")[1]
    return [shlex.split(line)[1:] for line in block.splitlines() if line.startswith("sparrowmq ")]


def table_after(text: str, start: str) -> list[list[str]]:
    """The cells of the first block after a text, which has a table for people."""
    block = text[text.index(start) :].split("```")[1]
    return [re.split(r"\s{2,}", line.strip()) for line in block.strip().splitlines()]


def piped(ran: Ran) -> list[list[str]]:
    return [line.split("\t") for line in ran.stdout.splitlines()]


def test_described_groups_are_simulated_as_shown(tmp_path: Path) -> None:
    table, picture, _ = commands(REBALANCE, "## What a change would cost")
    shown = table_after(REBALANCE, "The first command prints")
    numbers = [[cell.removesuffix("s") for cell in row] for row in shown[1:]]
    found = piped(run(*table))
    assert found[0] == shown[0]
    assert [[*row[:3], row[3][:3], *row[4:]] for row in found[1:]] == numbers
    assert run(*picture, cwd=tmp_path).returncode == 0
    drawn = (tmp_path / "rebalance.svg").read_text("utf-8")
    assert drawn == PICTURE.read_text("utf-8"), "draw docs/images/rebalance.svg again"


def test_live_groups_are_explained_and_simulated_as_shown(sparrowmq_cluster: Cluster) -> None:
    at = sparrowmq_cluster.name_server
    sparrowmq_cluster.create_topic("orders", queues=4)
    with (
        PushConsumer("billing", {"orders": "*"}, name_servers=at) as first,
        PushConsumer("billing", {"orders": "*"}, name_servers=at) as second,
    ):
        for each in (first, second):
            each.start(lambda messages: None)
        explain = commands(REBALANCE, "## Who owns what")
        simulate = commands(REBALANCE, "## What a change would cost")[2]
        for command in (explain[0], explain[1][:-1], simulate):
            ran = run(*command, "--name-servers", at)
            assert ran.returncode == 0, ran.stderr
        assert explain[1][-1] == "--watch"


def test_the_python_example_runs() -> None:
    example = re.findall(r"^```python\n(.*?)^```", REBALANCE, re.MULTILINE | re.DOTALL)[0]
    names: dict[str, object] = {}
    exec(compile(example, "docs/rebalance.md", "exec"), names)
    assert str(names["picture"]).startswith("<svg ")


def test_a_damaged_store_is_repaired_as_shown(tmp_path: Path) -> None:
    directory = tmp_path / "sparrowmq-data"
    store = StoreRun(RealDisk(directory), Random(5), sync_flush=False)
    for _ in range(10):
        store.step()
    store.store.close()
    path = directory / "commitlog" / "00000000000000000000"
    data = path.read_bytes()
    path.write_bytes(data[:150] + b"\xee" * 40 + data[190:])
    sizes = ("--index-slots", str(LAYOUT.slots), "--index-entries", str(LAYOUT.entries))
    ran = [run(*each, *sizes, cwd=tmp_path) for each in commands(STORE, "Then look, plan")]
    assert [each.returncode for each in ran] == [1, 1, 0, 0]
    shown, printed = table_after(STORE, "The repair lists"), piped(ran[2])
    assert printed[0] == shown[0]
    for row, example in zip(printed[1:], shown[1:], strict=True):
        assert (row[0], row[4]) == (example[0], example[4])


@pytest.mark.parametrize("verb", ["plan", "run"])
def test_a_cluster_moves_as_shown(sparrowmq_cluster: Cluster, verb: str) -> None:
    source = sparrowmq_cluster.name_server
    with Admin(source) as admin:
        admin.create_topic("orders", queues=3)
        admin.create_group("billing")
        admin.create_topic("%DLQ%billing", queues=1)
        admin.reset_offsets("billing", "orders", "latest")
    command = next(
        each for each in commands(MIGRATION, "back:") if each[1] == verb and "9876" in each[2]
    )
    with cluster() as target:
        places = {"10.0.0.1:9876": source, "127.0.0.1:9876": target.name_server}
        ran = run(*(places.get(word, word) for word in command))
    shown = table_after(MIGRATION, "says the same as `run` would do")
    printed = piped(ran)
    assert printed[0] == shown[0]
    for row, example in zip(printed[1:], shown[1:], strict=True):
        assert row[:2] == example[:2]
        assert row[2] == (example[2] if verb == "plan" else example[2].replace("to do", "done"))
        if row[0] != "progress":
            assert row[3] == example[3]
