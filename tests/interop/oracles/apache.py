"""Apache's classes behind a Java process that answers JSON lines. Needs Maven and a JDK."""

import json
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

_HERE = Path(__file__).parent
_TARGET = _HERE / "target"
_CLASSPATH = _TARGET / "classpath"
_CLASSES = _TARGET / "classes"


def missing_tool() -> str | None:
    """What is needed and not there, as a text for the reader; None when all is there."""
    for tool in ("mvn", "javac", "java"):
        if shutil.which(tool) is None:
            return f"the oracles need Maven and a JDK: {tool} is not on the path"
    return None


@cache
def build() -> str:
    """Resolve Apache's jars and compile the oracles where needed; returns the class path."""
    _CLASSES.mkdir(parents=True, exist_ok=True)
    if not _CLASSPATH.exists():
        goal = ["dependency:build-classpath", f"-Dmdep.outputFile={_CLASSPATH}"]
        subprocess.run(["mvn", "-B", "-q", "-f", str(_HERE / "pom.xml"), *goal], check=True)
    jars = _CLASSPATH.read_text()
    sources = [str(path) for path in sorted(_HERE.glob("src/main/java/**/*.java"))]
    javac = ["javac", "--release", "11", "-encoding", "UTF-8", "-cp", jars, "-d", str(_CLASSES)]
    subprocess.run([*javac, *sources], check=True)
    return f"{_CLASSES}:{jars}"


def ask(oracle: str, requests: Iterable[dict[str, Any]]) -> Iterator[tuple[dict[str, Any], Any]]:
    """Each request with Apache's answer, from one Java process, in order."""
    # RocketMQ's client logs into the home directory; the flag keeps that inside target.
    java = ["java", "-Xmx512m", "-XX:+UseSerialGC", f"-Duser.home={_TARGET}", "-cp", build()]
    lines = [(request, json.dumps(request)) for request in requests]
    done = subprocess.run(
        [*java, "org.sparrowmq.oracles.Oracle", oracle],
        input="".join(line + "\n" for _, line in lines),
        stdout=subprocess.PIPE,
        check=True,
        encoding="utf-8",
    )
    answers = done.stdout.splitlines()
    if len(answers) != len(lines):
        raise RuntimeError(f"{len(lines)} requests, {len(answers)} answers")
    for (request, _), answer in zip(lines, answers, strict=True):
        yield request, json.loads(answer)
