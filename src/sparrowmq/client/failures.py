"""What a failure may end: its call, message or round, but never a consumer.

raised                                             by the user's code            by a loop of ours
CancelledError, and the task was asked to end      passes                        passes
KeyboardInterrupt, SystemExit in the main thread   passes                        passes
everything else, BaseExceptions too                the call has failed           it begins again

A loop that ended silently would leave a member that holds its queues and consumes nothing.
"""

import asyncio
import logging
import threading
from collections.abc import Callable, Coroutine
from typing import Any

from sparrowmq.backoff import Backoff
from sparrowmq.net.tasks import is_asked_to_end

Loop = Callable[[], Coroutine[Any, Any, None]]
"""Makes a coroutine that runs until it is cancelled, or until there is nothing left to do."""


def ends_caller(error: BaseException) -> bool:
    """Whether an exception raised in a user's function, and caught by its caller, is meant for that
    caller. Otherwise the function has failed."""
    match error:
        case asyncio.CancelledError():
            return is_asked_to_end()
        case KeyboardInterrupt() | SystemExit():
            # In other threads they would end a loop that more than this consumer runs on, while the
            # program continued without noticing.
            return threading.current_thread() is threading.main_thread()
        case GeneratorExit():
            return _is_closed(error)
    return False


def _is_closed(error: GeneratorExit) -> bool:
    """Whether the coroutine that caught it is being closed, as pending tasks are when their loop is
    gone: then the exception was not raised below it."""
    trace = error.__traceback__
    return trace is None or trace.tb_next is None


async def keep_running(
    loop: Loop,
    name: str,
    *,
    log: logging.Logger,
    backoff: Backoff,
    may_end: Callable[[], bool] = lambda: True,
) -> None:
    """Run a loop until it returns or its task is cancelled. Whatever else ends it is logged, and it
    restarts after a pause that grows while it keeps failing.

    A handler can cancel the task it runs in: if `may_end` returns false, only a handler can have
    done so, and the cancellation is a failure like any other.
    """
    now_s = asyncio.get_running_loop().time
    failures = 0
    while True:
        began_s = now_s()
        try:
            await loop()
            return
        except BaseException as error:
            is_cancelled = isinstance(error, asyncio.CancelledError)
            if ends_caller(error) and (may_end() or not is_cancelled):
                raise
            _take_back_cancellation()
            lasted_s = now_s() - began_s
            failures = 1 if lasted_s > backoff.longest_s else failures + 1
            pause_s = backoff.wait_s(failures)
            text = "%s ended unexpectedly and begins again after %.3g s"
            log.error(text, name, pause_s, exc_info=error)
        await asyncio.sleep(pause_s)


def _take_back_cancellation() -> None:
    task = asyncio.current_task()
    assert task is not None, "a loop runs in a task"
    while task.cancelling():
        task.uncancel()
