"""How our errors leave the Python processes of Spark: as their text, without a traceback.

Spark reports an exception of a Python process by its traceback, and the text comes last, after some
thirty lines about files of Spark's and ours. A RocketMQError says by itself what was wrong and what
to do, so nothing but the text is wanted. Any other error is a mistake of ours or of Spark's, and
keeps its traceback.

Spark decides by an environment variable, which it reads when it formats the exception. It is set
when one of our errors passes, and not before; the process ends with the exception, so that no later
error loses its traceback. The setting behind it (spark.sql.execution.pyspark.udf.hideTraceback) is
no alternative: it takes the tracebacks of the user's own functions as well.
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
"""Set in every Python process that Spark starts to plan or to run something, and in no other."""

C = TypeVar("C", bound=type)


def reported_by_text(kind: C) -> C:
    """Decorate a class whose methods Spark calls, so that Spark reports our errors by their text.

    Iterators that a method returns are included: tasks read by them.
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
