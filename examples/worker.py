"""Background jobs in the manner of Celery: functions whose calls are messages.

    sparrowmq up                                     # in another terminal
    python -m examples.worker                        # does jobs until Ctrl-C or SIGTERM
    python -m examples.worker welcome Ada            # in a third one: enqueues a job

A job that raises is tried again after 10 s, 30 s, 1 min … 2 h, and lands in the dead-letter queue
after sixteen attempts. A job may run twice, as in Celery: write jobs that can bear it.
"""

import logging
import signal
import sys
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Generic, ParamSpec

from sparrowmq import MessageExt, RetryLater
from sparrowmq.blocking import Message, Producer, PushConsumer

P = ParamSpec("P")


class Job(Generic[P]):
    """A function that can be called now, as always, or later, by a worker."""

    def __init__(self, queue: "JobQueue", function: Callable[P, None]) -> None:
        self._queue = queue
        self._function = function

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> None:
        self._function(*args, **kwargs)

    def delay(self, *args: P.args, **kwargs: P.kwargs) -> str:
        """Enqueue a call whose arguments are plain values (JSON); its message id."""
        return self._queue.enqueue(self._function.__name__, args, kwargs, after=None)

    def delay_by(self, after: timedelta, *args: P.args, **kwargs: P.kwargs) -> str:
        """The same, done after a time of up to three days."""
        return self._queue.enqueue(self._function.__name__, args, kwargs, after=after)


class JobQueue:
    """Jobs of one topic. Producers of its calls and workers share the module that defines them."""

    def __init__(self, topic: str) -> None:
        self._topic = topic
        self._jobs: dict[str, Job[Any]] = {}
        self._producer = Producer(f"{topic}-callers")

    def job(self, function: Callable[P, None]) -> Job[P]:
        """Decorates a function."""
        job = self._jobs[function.__name__] = Job(self, function)
        return job

    def enqueue(
        self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], *, after: timedelta | None
    ) -> str:
        """Inside of `with`. Raises ClientError when no broker stores the call."""
        call = {"args": args, "kwargs": kwargs}
        return self._producer.send(Message.json(self._topic, call, tags=name, delay=after)).msg_id

    def __enter__(self) -> "JobQueue":
        self._producer.start()
        return self

    def __exit__(self, *ignored: object) -> None:
        self._producer.stop()

    def work(self, threads: int = 4) -> None:
        """Do jobs until Ctrl-C or SIGTERM, which let those that run finish."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: sys.exit())
        with PushConsumer(
            f"{self._topic}-workers",
            {self._topic: "*"},
            workers=threads,
            from_where="FIRST_OFFSET",
        ) as consumer:
            consumer.run(each=self._do)

    def _do(self, message: MessageExt) -> None:
        job = self._jobs.get(message.tags or "")
        if job is None:
            # While a new version is rolled out, the worker that gets it next may know it
            raise RetryLater(f"no job is named {message.tags}")
        call = message.json()
        job(*call["args"], **call["kwargs"])


jobs = JobQueue("jobs")


@jobs.job
def welcome(name: str, language: str = "en") -> None:
    """What a program would do here takes long: send a letter, render a report."""
    greeting = {"en": "welcome", "de": "willkommen"}[language]
    print(f"{greeting} {name}", flush=True)


def main(arguments: list[str]) -> None:
    with jobs:
        if arguments:
            _, name, *language = arguments
            print(welcome.delay(name, *language))
        else:
            jobs.work()


if __name__ == "__main__":
    logging.basicConfig()
    main(sys.argv[1:])
