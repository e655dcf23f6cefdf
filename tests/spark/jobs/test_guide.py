"""docs/spark.md: its code runs as pasted, its tables are those of the code."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from sparrowmq.cli.main import app
from sparrowmq.spark import options, sink_options
from sparrowmq.spark.options import Options
from sparrowmq.spark.schema import READ_COLUMNS, WRITE_COLUMNS, SparkColumn
from sparrowmq.spark.sink_options import SinkOptions
from tests.repo.tree import ROOT
from tests.spark.admin import create_topic
from tests.spark.jobs.backlog import put_group
from tools.demo_spark import run_patiently

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sparrowmq.testing import Cluster

GUIDE = (ROOT / "docs" / "spark.md").read_text(encoding="utf-8")


def rows_after(head: str, title: str) -> list[list[str]]:
    """The cells of the table with this head, in the part with this title."""
    part = GUIDE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    lines = part.partition(f"| {head} |")[2].splitlines()[2:]
    rows = []
    for line in lines:
        if not line.startswith("|"):
            break
        rows.append([cell.strip().strip("`") for cell in re.split(r"(?<!\\)\|", line)[1:-1]])
    return rows


@pytest.mark.parametrize(
    ("title", "columns"), [("Reading", READ_COLUMNS), ("Writing", WRITE_COLUMNS)]
)
def test_the_guide_shows_the_columns_as_they_are_declared(
    title: str, columns: tuple[SparkColumn, ...]
) -> None:
    expected = [[column.name, column.sql_type, column.meaning] for column in columns]
    assert rows_after("column | type | meaning", title) == expected


@pytest.mark.parametrize(
    ("title", "known", "kind"),
    [
        ("Streams", options.SOURCE_OPTIONS, Options),
        ("Writing", sink_options.SINK_OPTIONS, SinkOptions),
    ],
)
def test_the_guide_names_every_option_with_its_default(
    title: str, known: dict[str, tuple[str, Any]], kind: type
) -> None:
    rows = rows_after("option | default | meaning", title)
    assert [row[0] for row in rows] == list(known)
    defaults = {field.name: field.default for field in fields(kind)}
    for name, default, meaning in rows:
        target, read = known[name]
        assert meaning
        if isinstance(value := defaults.get(target), str | int | float | bool):
            assert read(default) == value, name


@pytest.mark.slow
def test_the_guide_runs_as_pasted(
    spark: SparkSession,
    sparrowmq_cluster: Cluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    running = sparrowmq_cluster
    create_topic(running, "orders", 4)
    put_group(running, "billing", "orders")
    monkeypatch.chdir(tmp_path)
    # Spark's session is that of all tests: a second one in the same process is the same.
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv("SPARROWMQ_NAME_SERVERS", running.name_server)
    names: dict[str, Any] = {}
    for language, block in re.findall(r"^```(python|console)\n(.*?)^```", GUIDE, re.M | re.S):
        if language == "python":
            code = block.replace("127.0.0.1:9876", running.name_server)
            # Java's working directory is where its process was started: not this test's.
            for call in ('"path", ', '"checkpointLocation", ', "read.parquet("):
                code = code.replace(f'{call}"', f'{call}"{tmp_path}/')
            with contextlib.redirect_stdout(io.StringIO()):
                run_patiently(partial(exec, code, names))
            continue
        for line in block.splitlines():
            done = CliRunner().invoke(app, shlex.split(line)[1:])
            assert done.exit_code == 0, f"{line}\n{done.output}"
    assert spark.range(1).count() == 1
