"""Calling the user's handler, async or plain, after the filter functions."""

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from sparrowmq.client.argument_checks import check_number, check_whole
from sparrowmq.client.errors import counted
from sparrowmq.client.failures import ends_caller
from sparrowmq.client.group.running_info import ConsumeRates
from sparrowmq.client.hooks import Handling, HookCalls, now_s
from sparrowmq.client.setting_names import checks_setting_names
from sparrowmq.client.subscriptions import Subscriptions
from sparrowmq.net.tasks import is_asked_to_end
from sparrowmq.net.workers import Workers, WorkersClosed
from sparrowmq.protocol.connections import ConsumeDirectlyResult
from sparrowmq.protocol.delay import MAX_DELAY_LEVEL
from sparrowmq.protocol.message_ext import MessageExt

Handler = Callable[[Sequence[MessageExt]], Awaitable[None] | None]
"""Takes a batch: up to `batch` messages."""
EachHandler = Callable[[MessageExt], Awaitable[None] | None]
"""Takes one message."""


def chosen_handler(handler: Handler | None, each: EachHandler | None, batch: int) -> Handler:
    """The handler of batches that a consumer calls. Raises ValueError unless exactly one of them is
    given, for an unusable handler, and for a `batch` that `each` would not get."""
    if handler is not None and each is None:
        check_handler(handler)
        return handler
    if each is None:
        raise ValueError("handler is None, must be a function that takes messages; or give each=…")
    if handler is not None:
        raise ValueError("handler and each cannot be combined: a message has one handler")
    check_handler(each, "each", "the message")
    if batch != 1:
        raise ValueError(
            f"batch is {batch}, but `each` gets one message at a time: leave batch out, or give a"
            " handler of batches"
        )
    return _one_by_one(each)


def _one_by_one(each: EachHandler) -> Handler:
    if inspect.iscoroutinefunction(each):

        async def handle(messages: Sequence[MessageExt]) -> None:
            await each(messages[0])

        return handle
    return lambda messages: each(messages[0])


def check_handler(handler: object, name: str = "handler", takes: str = "the messages") -> None:
    """Raises ValueError for a handler that would fail for every message, or would do nothing and
    seem to succeed, like a generator function."""
    if not callable(handler):
        raise ValueError(f"{name} is {handler!r}, must be a function that takes {takes[4:]}")
    if inspect.isgeneratorfunction(handler) or inspect.isasyncgenfunction(handler):
        raise ValueError(f"{name} is {handler!r}, a generator, which would never run; do not yield")
    try:
        signature = inspect.signature(handler)
    except ValueError:
        return  # written in C: its arguments are unknown
    try:
        signature.bind(())
    except TypeError:
        text = f"{name} takes {signature}, must take one argument: {takes}"
        raise ValueError(text) from None


DEAD_LETTER = -1
"""The delay level that sends a message to the dead-letter queue at once."""


@checks_setting_names
class RetryLater(Exception):
    """Raised by a handler to choose what is done, and when the rest is delivered again. `reason` is
    logged, at level INFO and for a message that becomes a dead letter."""

    # Set here too, for a subclass that forgets to call this constructor
    done = 0
    delay_level = 0
    suspend_s: float | None = None

    def __init__(
        self,
        reason: str = "",
        *,
        done: int = 0,
        delay_level: int = 0,
        suspend_s: float | None = None,
    ) -> None:
        """The first `done` messages are consumed. `delay_level` 1 to 18 is the delay before the
        next attempt; 0 lets the broker decide by the number of attempts, -1 sends to the
        dead-letter queue at once. An orderly handler retries the rest after `suspend_s` (0.01 to
        30). Raises ValueError for numbers out of range."""
        super().__init__(reason)
        check_whole("done", done, 0)
        check_whole("delay_level", delay_level, DEAD_LETTER, MAX_DELAY_LEVEL)
        if suspend_s is not None:
            check_number("suspend_s", suspend_s, 0)
        self.done = done
        self.delay_level = delay_level
        self.suspend_s = suspend_s


class Result(NamedTuple):
    """The outcome of a batch."""

    failed: list[MessageExt]
    delay_level: int = 0
    suspend_s: float | None = None
    error: BaseException | None = None

    @property
    def reason(self) -> str:
        """Why messages failed, in words, for the log."""
        match self.error:
            case None:
                return "its filter failed"
            case RetryLater():
                return str(self.error) or "RetryLater without a reason"
            case _:
                return repr(self.error)


_AGAIN = "handler of group %s wants %s of %s from offset %d, id %s, again later: %s"
_IGNORED = (
    "the handler of group %s returned %r, which is ignored and counts as success: raise an"
    " exception, such as RetryLater, if the messages are to be delivered again"
)
THREADS_CLOSED = "a worker of %s ends before stop(), for its threads accept no more work: %s"


class HandlerCalls:
    """Calls one handler. An exception of a user's function leaves this class only if it ends the
    worker (`ends_caller`)."""

    def __init__(
        self,
        group: str,
        handler: Handler,
        workers: Workers,
        subscriptions: Subscriptions,
        rates: ConsumeRates,
        log: logging.Logger,
        hooks: HookCalls | None = None,
    ) -> None:
        self._group = group
        self._handler = handler
        self._is_async = inspect.iscoroutinefunction(handler)
        self._workers = workers
        self._subscriptions = subscriptions
        self._rates = rates
        self._log = log
        self._hooks = hooks
        self._has_warned = False
        self._call = self._call_handler if hooks is None else self._call_hooked

    async def try_out(self, message: MessageExt, *, is_orderly: bool) -> ConsumeDirectlyResult:
        """Hand over one message that an operator chose. Returns the outcome."""
        started_s = self._rates.now_s()
        result = await self.handle([message])
        outcome = "CR_SUCCESS"
        if result.failed:
            outcome = "CR_LATER" if isinstance(result.error, RetryLater) else "CR_THROW_EXCEPTION"
        return ConsumeDirectlyResult(
            order=is_orderly,
            consume_result=outcome,
            remark=None if result.error is None else repr(result.error),
            spent_time_mills=round((self._rates.now_s() - started_s) * 1000),
        )

    async def handle(self, messages: list[MessageExt]) -> Result:
        """Hand a batch over. Raises WorkersClosed if the interpreter is exiting: no handler has
        seen the batch then, so it has not failed, and stays for the next owner of its queue."""
        topic = messages[0].topic
        started_s = self._rates.now_s()
        chosen, unclear = messages, list[MessageExt]()
        if self._subscriptions.has_functions:
            chosen, unclear = await self._workers.run(self._choose, messages)
        result = await self._call(chosen) if chosen else Result([])
        if unclear:
            result = result._replace(failed=[*unclear, *result.failed])
        done = len(messages) - len(result.failed)
        self._rates.consumed(topic, done, len(result.failed), started_s)
        return result

    def _choose(self, messages: list[MessageExt]) -> tuple[list[MessageExt], list[MessageExt]]:
        """The messages that the filter functions accept, and those for which they raise."""
        chosen, unclear = [], []
        for message in messages:
            accepts = self._subscriptions.function(message.original_topic)
            try:
                if accepts is None or accepts(message):
                    chosen.append(message)
            except BaseException as error:  # in a thread, it ends no task
                self._report("filter", [message], error)
                unclear.append(message)
        return chosen, unclear

    async def _call_handler(self, messages: list[MessageExt]) -> Result:
        try:
            answer: object  # users' code may return anything, whatever its type says
            if self._is_async:
                answer = self._handler(messages)
            else:
                answer = await self._workers.run(self._handler, messages)
            if inspect.isawaitable(answer):
                answer = await answer
            if answer is not None and not self._has_warned:
                self._has_warned = True
                self._log.error(_IGNORED, self._group, answer)
        except RetryLater as later:
            failed = messages[later.done :]
            result = Result(failed, later.delay_level, later.suspend_s, later)
            if failed and later.delay_level != DEAD_LETTER:  # dead letters get their own warning
                first = failed[0]
                place = (first.queue, first.queue_offset, first.msg_id)
                self._log.info(
                    _AGAIN, self._group, counted(len(failed), "message"), *place, result.reason
                )
            return result
        except WorkersClosed:
            raise
        except BaseException as error:
            if ends_caller(error):
                raise
            self._report("handler", messages, error)
            if (
                is_asked_to_end()
            ):  # end even if the handler turns the cancellation into another error
                raise asyncio.CancelledError from error
            return Result(messages, error=error)
        return Result([])

    async def _call_hooked(self, messages: list[MessageExt]) -> Result:
        hooks = self._hooks
        assert hooks is not None, "else the handler is called directly"
        handling = Handling(self._group, tuple(messages))
        began_s = now_s()
        hooks.before_handling(handling)
        try:
            result = await self._call_handler(messages)
            handling.failed, handling.error = tuple(result.failed), result.error
        except BaseException as error:
            handling.failed, handling.error = tuple(messages), error
            raise
        finally:
            hooks.after_handling(handling, began_s)
        return result

    def _report(self, what: str, messages: list[MessageExt], error: BaseException) -> None:
        first = messages[0]
        self._log.error(
            "%s of group %s failed for %s of %s from offset %d, id %s: %r",
            what,
            self._group,
            counted(len(messages), "message"),
            first.queue,
            first.queue_offset,
            first.msg_id,
            error,
            exc_info=error,
        )
