"""Jobs that die at a step: tests in this process let them raise, a separate process is killed."""

from collections.abc import Callable

from sparrowmq.spark.jobs.job import JobStep, OnStep


class Died(BaseException):
    """Nothing after the step is done, as if the process had been killed."""


def die_at(name: str, times: int = 1, die: Callable[[], None] | None = None) -> OnStep:
    """Dies when a step of that name comes for the `times`-th time."""
    seen = 0

    def on_step(step: JobStep) -> None:
        nonlocal seen
        if step.name != name:
            return
        seen += 1
        if seen == times:
            if die is not None:
                die()
            raise Died(name)

    return on_step
