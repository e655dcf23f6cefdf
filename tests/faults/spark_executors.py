"""Executors and their Python workers, killed at every step of source and sink queries."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from tests.repo.tree import ROOT
from tests.spark.executor_kill import MASTERS, Kill
from tests.spark.standalone import LOOPBACK


class Judged(NamedTuple):
    """A kill and what came of it."""

    kill: str
    problems: list[str]
    twice: int


def judged_kills(name_server: str, kills: Sequence[Kill], folder: Path) -> Iterator[Judged]:
    """One after the other, those of one master in one session; it has to outlive them all."""
    of_master = sorted(kills, key=lambda kill: MASTERS[kill.who])
    for number, (master, group) in enumerate(groupby(of_master, lambda kill: MASTERS[kill.who])):
        here = folder / f"executors-{number}"
        here.mkdir()
        yield from _session(name_server, master, list(group), here)


def _session(name_server: str, master: str, kills: list[Kill], folder: Path) -> Iterator[Judged]:
    command = [sys.executable, "-m", "tests.spark.killed_executors", name_server, str(folder)]
    with (
        (folder / "log").open("w+") as log,
        subprocess.Popen(
            [*command, master, *map(str, kills)],
            cwd=ROOT,
            env={**os.environ, **_environ(folder)},
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        ) as session,
    ):
        assert session.stdout is not None
        left = list(map(str, kills))
        for line in session.stdout:
            judged = Judged(*json.loads(line))
            left.remove(judged.kill)
            yield judged
        if session.wait() or left:
            log.seek(0)
            text = f"the session ended with {session.returncode}: {log.read()[-2000:]}"
            yield from (Judged(kill, [text], 0) for kill in left)


def _environ(folder: Path) -> dict[str, str]:
    """For a cluster inside the driver: executors get working directories in Spark's home, which
    is not to be that of the installed package, and have to find the dying source from there."""
    import pyspark

    home = folder / "home"
    home.mkdir()
    for path in Path(pyspark.__file__).parent.iterdir():
        (home / path.name).symlink_to(path)
    return {"PYTHONPATH": str(ROOT), "SPARK_HOME": str(home), "SPARK_LOCAL_IP": LOOPBACK}
