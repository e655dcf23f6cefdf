"""Kills the process that executes a Spark task with SIGKILL, once, at a chosen step.

    before reading ── while ── after reading            the source's Python worker
    before sending ── while ── before the answer ── after sending        the sink's
    before the commit message          Java, when the file of a task is finished (see dying_commit)
    before the commit                  the sink's commit, on the driver
    written ── committed ── checkpointed        files of the checkpoint (see dying_driver)

`python -m tests.spark.death FOLDER POINT` is how Java calls for it from the driver.
"""

import json
import os
import signal
import sys
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

from tests.spark.processes import parent_of, words_of

WORKER, EXECUTOR, DRIVER = "worker", "executor", "driver"
ROWS_BEFORE = 4
"""In the middle of a task: so many rows went through."""
DIED = "died"
"""The file that says that it happened, and what was wrong at that moment."""
_ORDERS = "death.json"
_SEEN = "seen"
_WORDS = {WORKER: "pyspark.daemon", EXECUTOR: "org.apache.spark.executor.CoarseGrained"}
"""By what processes are known: a number alone may belong to another process by now."""


@dataclass(frozen=True)
class Death:
    """Who has to die where; all processes of a query see the same folder."""

    name_server: str
    topic: str
    folder: str
    target: str
    point: str

    @classmethod
    def of(cls, text: str) -> Self:
        """What `str` of another one said."""
        return cls(**json.loads(text))

    def __str__(self) -> str:
        return json.dumps(asdict(self))

    def order(self) -> None:
        """Let those who know the folder alone find it."""
        (Path(self.folder) / _SEEN).mkdir()
        (Path(self.folder) / _ORDERS).write_text(str(self))

    def seen(self) -> None:
        """This process executes tasks, for the executor that started its daemon."""
        executor = parent_of(os.getppid())
        (Path(self.folder) / _SEEN / f"{os.getpid()} {executor}").touch()

    def in_task(self, point: str) -> None:
        """Die here if this is the point, and no process has died yet."""
        if not self._is_due(point):
            return
        java = parent_of(os.getppid())
        if self.target == DRIVER:  # of a local master, whose Java executes the tasks
            _kill({parent_of(java)}, "tests.spark.killed_write")
        if self.target in (EXECUTOR, DRIVER):
            os.kill(java, signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)

    def from_driver(self, point: str) -> None:
        """Kill all that were seen; they wait for their next task."""
        if not self._is_due(point):
            return
        names = [path.name.split() for path in (Path(self.folder) / _SEEN).iterdir()]
        _kill({int(name[self.target == EXECUTOR]) for name in names}, _WORDS[self.target])

    def _is_due(self, point: str) -> bool:
        if point != self.point:
            return False
        # Linked when it is complete: the second process finds it there, and whole.
        unfinished = Path(self.folder) / f"{DIED}-{os.getpid()}"
        unfinished.write_text("\n".join(self._problems()))
        try:
            (Path(self.folder) / DIED).hardlink_to(unfinished)
        except FileExistsError:
            return False
        return True

    def _problems(self) -> Iterable[str]:
        """The group may not be beyond what Spark has committed at this moment."""
        from tests.spark.killed_query import progress_problems

        folder = Path(self.folder)
        if not (folder / "checkpoint").exists():
            return ()
        return progress_problems(self.name_server, self.topic, folder)


def _kill(pids: set[int], word: str) -> None:
    for pid in pids:
        if any(word in one for one in words_of(pid)):
            os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    Death.of((Path(sys.argv[1]) / _ORDERS).read_text()).from_driver(" ".join(sys.argv[2:]))
