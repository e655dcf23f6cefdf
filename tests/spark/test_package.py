"""The zip for executors: everything that runs there, without further dependencies."""

import json
import os
import subprocess
import zipfile
from pathlib import Path

import pytest
from click.testing import CliRunner

from sparrowmq.cli.main import app
from sparrowmq.spark.package import cached_package, package_bytes, write_package
from tests.cli.test_json_shapes import shape, shapes
from tests.spark.bare_python import bare_python

pytest.importorskip("pyspark", reason="needs the spark extra: pip install sparrowmq[spark]")

RUN_TIMEOUT_S = 300
ON_EXECUTORS = """
import sys
sys.path.insert(0, sys.argv[1])
import pyspark_rocketmq, pyspark_rocketmq_log
import sparrowmq.spark.write_task, sparrowmq.spark.wire.puller, sparrowmq.spark.stream
import sparrowmq.spark.decode.slow_path, sparrowmq.spark.log_files.rows
print(pyspark_rocketmq.DefaultSource.name(), pyspark_rocketmq_log.DefaultSource.name())
print(sparrowmq.__file__)
print(sorted({"msgspec", "uvloop", "lark", "click", "rich"} & set(sys.modules)))
"""


def test_the_zip_is_enough_for_a_python_with_pyspark_numpy_and_pyarrow(tmp_path: Path) -> None:
    package = write_package(tmp_path)
    ran = subprocess.run(
        [bare_python(tmp_path), "-c", ON_EXECUTORS, package],
        env={"PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        timeout=RUN_TIMEOUT_S,
    )
    assert ran.returncode == 0, ran.stderr
    names, home, loaded = ran.stdout.splitlines()
    assert names == "rocketmq rocketmq-log"
    assert home.startswith(str(package))
    assert loaded == "[]"


def test_that_python_sees_no_installed_package(tmp_path: Path) -> None:
    ran = subprocess.run(
        [bare_python(tmp_path), "-c", "import numpy, pyarrow, sparrowmq"],
        capture_output=True,
        text=True,
        timeout=RUN_TIMEOUT_S,
    )
    assert "No module named 'sparrowmq'" in ran.stderr


def test_the_same_files_make_the_same_zip(tmp_path: Path) -> None:
    assert package_bytes() == package_bytes()
    environ = {"XDG_CACHE_HOME": str(tmp_path)}
    first = cached_package(environ)
    written = first.stat().st_mtime_ns
    assert cached_package(environ) == first
    assert first.stat().st_mtime_ns == written


def test_the_command_writes_it_and_prints_the_line_to_submit_with(tmp_path: Path) -> None:
    out = tmp_path / "deep" / "package.zip"
    ran = CliRunner().invoke(app, ["spark", "package", "--out", str(out)])
    assert ran.exit_code == 0, ran.output
    line = ran.output.splitlines()[1]
    assert line.startswith("spark-submit --master spark://")
    assert f"--py-files {out}" in line
    with zipfile.ZipFile(out) as archive:
        names = set(archive.namelist())
    assert {"pyspark_rocketmq/__init__.py", "sparrowmq/spark/sink.py"} <= names
    assert not [name for name in names if "/broker/" in name or not name.endswith(".py")]


def test_its_json_has_the_listed_keys(tmp_path: Path) -> None:
    ran = CliRunner().invoke(app, ["spark", "package", "--out", str(tmp_path), "--json"])
    assert ran.exit_code == 0, ran.output
    command = "spark package --out dist"
    assert shape(command, ran.stdout) == shapes()[command]
    found = json.loads(ran.stdout)
    assert Path(found["file"]).stat().st_size == found["bytes"]
    assert found["submit"].startswith("spark-submit --master spark://")


def test_a_name_without_zip_is_a_directory_that_is_made_if_missing(tmp_path: Path) -> None:
    out = tmp_path / "dist"
    written = []
    for _ in range(2):  # first it is missing, then it is there
        ran = CliRunner().invoke(app, ["spark", "package", "--out", str(out)])
        assert ran.exit_code == 0, ran.output
        written.append(Path(ran.output.partition(" (")[0]))
    assert list(out.iterdir()) == [written[0]]
    assert written[0] == written[1]
    assert written[0].suffix == ".zip"


def test_a_place_that_cannot_be_written_to_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    ran = CliRunner().invoke(app, ["spark", "package", "--out", str(tmp_path / "file" / "x.zip")])
    assert ran.exit_code == 1
    assert "file" in ran.output
    assert "Traceback" not in ran.output
