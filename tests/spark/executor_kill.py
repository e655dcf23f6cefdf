"""Which process is killed at which step of a query, and which rows may be repeated."""

from collections.abc import Iterator
from typing import NamedTuple, Self

from tests.spark.death import EXECUTOR, ROWS_BEFORE, WORKER
from tests.spark.executed import BATCH, FILES, QUEUES, ROWS_A_BATCH, ROWS_A_QUEUE, TOPIC

MESSAGES = QUEUES * ROWS_A_QUEUE
CLUSTER = "local-cluster[2,1,512]"
LONE = "lone worker"
"""A Python worker on a local master, which does no task again."""
MASTERS = {WORKER: CLUSTER, EXECUTOR: CLUSTER, LONE: "local[2]"}
COMMIT_MESSAGE = "before the commit message"
READING = ("before reading", "while reading", "after reading")
SENDING = ("before sending", "while sending", "before the answer", "after sending")
STEPS = {
    FILES: (*READING, COMMIT_MESSAGE, "written", "committed", "checkpointed"),
    TOPIC: (*READING, *SENDING, "before the commit", "committed", "checkpointed"),
    BATCH: (*READING, *SENDING, "before the commit"),
}


class Kill(NamedTuple):
    """Who is killed, of what, where."""

    who: str
    kind: str
    point: str

    def __str__(self) -> str:
        return f"{self.who} of {self.kind} {self.point}"

    @classmethod
    def of(cls, text: str) -> Self:
        """What `str` of another one said."""
        who, _, rest = text.partition(" of ")
        return cls(who, *rest.split(" ", 1))


def _kills() -> Iterator[Kill]:
    for kind, points in STEPS.items():
        for point in points:
            yield Kill(WORKER, kind, point)
            yield Kill(EXECUTOR, kind, point)
            # A worker that dies between tasks does not repeat one.
            if point in READING + SENDING:
                yield Kill(LONE, kind, point)


KILLS = tuple(_kills())


def repeated(kill: Kill) -> tuple[int, int]:
    """How many rows may come twice: those that a task had sent before it was done again."""
    of_task = ROWS_A_QUEUE if kill.kind == BATCH else ROWS_A_BATCH // QUEUES
    least, most = {
        "while reading": (0, of_task),
        "after reading": (0, of_task),
        # One send at a time is under way, and what became of the last one is unknown.
        "while sending": (ROWS_BEFORE - 1, ROWS_BEFORE),
        "before the answer": (of_task - 1, of_task),
        "after sending": (of_task, of_task),
    }.get(kill.point, (0, 0))
    # Where no task is done again the whole is, with what the task of the other queue had sent.
    return least, most + (of_task if kill.who == LONE else 0)
