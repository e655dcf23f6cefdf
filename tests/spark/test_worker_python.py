"""A plain SparkSession finds the formats: with the right Python, by registration, and in SQL."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sparrowmq.spark.worker_python import prefer_this_python, set_python_for
from sparrowmq.testing import Cluster
from tests.repo.tree import ROOT
from tests.spark.bare_python import bare_python
from tests.spark.topics import fill

pytest.importorskip("pyspark", reason="needs the spark extra: pip install sparrowmq[spark]")

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RUN_TIMEOUT_S = 600.0
HERE = str(Path(sys.executable).parent)
PLAIN_SCRIPT = """
import sys
import sparrowmq.spark
from pyspark.sql import SparkSession

settings = {"spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1"}
spark = SparkSession.builder.master("local[1]").config(map=settings).getOrCreate()
reader = spark.read.format("rocketmq").option("nameServer", sys.argv[1])
print("rows:", reader.option("subscribe", sys.argv[2]).load().count())
spark.stop()
"""


@pytest.mark.parametrize(
    ("environ", "chosen"),
    [
        ({"PATH": "/nowhere"}, sys.executable),
        ({}, sys.executable),
        ({"PATH": HERE}, None),
        ({"PATH": "/nowhere", "PYSPARK_PYTHON": "/any/python"}, "/any/python"),
        ({"PATH": "/nowhere", "PYSPARK_DRIVER_PYTHON": "/any/python"}, None),
        ({"PATH": "/nowhere", "PYSPARK_GATEWAY_PORT": "25333"}, None),
    ],
    ids=[
        "another python3 on PATH",
        "no PATH",
        "an activated environment",
        "the user's choice",
        "the user's choice for the driver",
        "spark-submit",
    ],
)
def test_importing_chooses_this_python_unless_another_is_configured(
    environ: dict[str, str], chosen: str | None
) -> None:
    prefer_this_python(environ)
    assert environ.get("PYSPARK_PYTHON") == chosen


def test_importing_any_part_of_the_package_makes_the_choice() -> None:
    code = "import os, sparrowmq.spark.frames; print(os.environ['PYSPARK_PYTHON'])"
    ran = subprocess.run(
        [sys.executable, "-c", code],
        env={"PATH": "/nowhere", "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout.strip() == sys.executable


@pytest.mark.parametrize(
    ("master", "environ", "is_ours", "expected"),
    [
        ("local[2]", {}, False, sys.executable),
        ("local[2]", {"PYSPARK_PYTHON": "/any/python"}, False, "/any/python"),
        ("spark://host:7077", {"PYSPARK_PYTHON": sys.executable}, True, None),
        ("spark://host:7077", {"PYSPARK_PYTHON": sys.executable}, False, sys.executable),
        ("yarn", {"PYSPARK_PYTHON": "/any/python"}, True, "/any/python"),
    ],
)
def test_a_session_of_ours_leaves_the_python_of_a_cluster_to_the_user(
    master: str, environ: dict[str, str], is_ours: bool, expected: str | None
) -> None:
    set_python_for(master, environ, is_our_choice=is_ours)
    assert environ.get("PYSPARK_PYTHON") == expected


@pytest.mark.slow
def test_a_plain_session_finds_the_format_in_an_environment_that_is_not_activated(
    running: Cluster, tmp_path: Path
) -> None:
    fill(running, "plain-session", 7)
    bare_python(tmp_path).rename(tmp_path / "python3")
    script = tmp_path / "script.py"
    script.write_text(PLAIN_SCRIPT)
    tools = {str(Path(found).parent) for name in ("java", "sh") if (found := shutil.which(name))}
    kept = {name: os.environ[name] for name in ("JAVA_HOME", "HOME") if name in os.environ}
    ran = subprocess.run(
        [sys.executable, script, running.name_server, "plain-session"],
        env={"PATH": os.pathsep.join([str(tmp_path), *sorted(tools)]), **kept},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=RUN_TIMEOUT_S,
    )
    assert "rows: 7" in ran.stdout, ran.stderr


@pytest.mark.slow
def test_the_format_can_be_registered(spark: SparkSession, running: Cluster, topic: str) -> None:
    from sparrowmq.spark.source import RocketMQSource

    fill(running, topic, 3)
    spark.dataSource.register(RocketMQSource)
    reader = spark.read.format("rocketmq").option("nameServer", running.name_server)
    assert reader.option("subscribe", topic).load().count() == 3


def test_a_temporary_view_is_made_in_sql(spark: SparkSession, running: Cluster, topic: str) -> None:
    fill(running, topic, 3)
    spark.sql(
        "CREATE OR REPLACE TEMPORARY VIEW made_in_sql USING rocketmq"
        f" OPTIONS (nameServer '{running.name_server}', subscribe '{topic}')"
    )
    assert spark.table("made_in_sql").count() == 3
