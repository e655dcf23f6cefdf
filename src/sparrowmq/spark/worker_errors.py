"""How our errors leave the Python processes of Spark: as their text, without a traceback.

Spark reports an exception of a Python process by its traceback, with the text at the end, after
some thirty lines about Spark's files and ours. A RocketMQError already says what was wrong and what
to do, so users need nothing but the text. Any other error is a bug in our code or in Spark, and
keeps its traceback.

Spark decides by an environment variable, which it reads when it formats the exception. We set it
only when one of our errors passes; the process ends with the exception, so no later error loses its
traceback. The setting for it (spark.sql.execution.pyspark.udf.hideTraceback) is not an alternative:
it also hides the tracebacks of the user's own functions.
"""

import functools
import inspect
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from sparrowmq.spark.errors import RocketMQError

HIDE_TRACEBACK = "SPARK_HIDE_TRACEBACK"
IN_WORKER = "SPARK_BUFFER_SIZE"
"""Set in every Python process that Spark starts to plan or run something, and in no other."""

C = TypeVar("C", bound=type)


def reported_by_text(kind: C) -> C:
    """Decorate a class whose methods Spark calls, so that Spark reports our errors by their text.

    Covers iterators that a method returns, too: tasks read through them.
    """
    for name, member in list(vars(kind).items()):
        if inspect.isfunction(member) and (name == "__init__" or not name.startswith("_")):
            setattr(kind, name, _by_text(member))
    return kind


def _by_text(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)  # Spark looks at the signatures
    def call(*args: Any, **named: Any) -> Any:
        with _without_traceback():
            found = method(*args, **named)
        return _iterated(found) if isinstance(found, Iterator) else found

    return call


def _iterated(found: Iterator[Any]) -> Iterator[Any]:
    with _without_traceback():
        yield from found


@contextmanager
def _without_traceback() -> Iterator[None]:
    try:
        yield
    except RocketMQError:
        if IN_WORKER in os.environ:
            os.environ[HIDE_TRACEBACK] = "1"
        raise
