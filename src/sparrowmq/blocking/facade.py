"""How plain calls reach the background loop: a facade lists the methods that it passes on.

class Producer(Facade[AsyncProducer]):
    send = awaited(AsyncProducer.send)      # keeps signature and documentation
"""

import inspect
import os
from collections.abc import Callable, Coroutine
from dataclasses import replace
from functools import partial, wraps
from types import TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar

from sparrowmq.client.background_loop import BackgroundLoop, loop_of_process
from sparrowmq.client.errors import NotStarted
from sparrowmq.client.lifecycle import Block

P = ParamSpec("P")
R = TypeVar("R")
A = TypeVar("A")


T = TypeVar("T", bound=Block)


class Facade(Generic[T]):
    """Wraps an asynchronous object for use from any thread. Each call waits for its result on the
    background loop."""

    _survives_fork = False
    """Whether a forked child creates its own copy and continues with that."""

    def __init__(self, make: Callable[[], T]) -> None:
        """Raises ValueError for invalid settings."""
        if isinstance(make, partial) and make.keywords.get("client") is not None:
            raise ValueError(
                f"a client belongs to its event loop, and the blocking {self._name} has another:"
                " leave `client` out, it makes its own, with the settings of `config`"
            )
        make()  # so that invalid settings are rejected here
        self._make = make
        self._inner: T | None = None
        self._loop: BackgroundLoop | None = None

    def __enter__(self) -> Self:
        self._start(self._begin)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end(lambda inner: inner.__aexit__(kind, error, trace))

    async def _begin(self, inner: T) -> None:
        """Start the asynchronous object."""

    def _start(self, begin: Callable[[T], Coroutine[Any, Any, None]]) -> tuple[BackgroundLoop, T]:
        """Start a new object and return it with its loop; by then another thread may have stopped
        it. Raises ValueError if one is already running."""
        with loop_of_process.lock:
            loop = loop_of_process.get()
            if self._inner is not None and self._loop is loop:
                raise ValueError(f"the {self._name} is running already")
            self._inner = inner = loop.run(_begun(self._make, begin))
            self._loop = loop  # set last: a thread that sees it relies on the rest
        return loop, inner

    def stop(self) -> None:
        """Stop what `with` or `start` started."""
        self._end(lambda inner: inner.stop())

    def _end(self, end: Callable[[T], Coroutine[Any, Any, None]]) -> None:
        """The common part of `stop` and the end of a block."""
        with loop_of_process.lock:  # wait for a start in progress, or it would keep running
            inner = self._inner
        try:
            if inner is not None and self._loop is not None and self._loop.pid == os.getpid():
                self._loop.run(end(inner))  # another thread that calls stop also waits for the end
        finally:
            with loop_of_process.lock:
                if self._inner is inner:
                    self._inner = None

    def _running(self) -> tuple[BackgroundLoop, T]:
        """The background loop and the object running on it. In a forked child, a producer starts
        anew. Raises NotStarted."""
        inner, loop = self._inner, self._loop  # read once: another thread may stop it at any time
        if inner is None or loop is None:
            raise NotStarted(f"the {self._name} is not running: use `with`, or start() it")
        if loop.pid == os.getpid():
            return loop, inner
        if not self._survives_fork:
            raise NotStarted(f"the {self._name} runs in another process: start one here")
        with loop_of_process.lock:
            if self._loop is loop:
                self._make = _in_child(self._make)
                return self._start(self._begin)  # forked: its parent's connections are not ours
        return self._running()

    @property
    def _name(self) -> str:
        return type(self).__name__

    def _do(self, name: str, *args: Any, **kwargs: Any) -> Any:
        loop, inner = self._running()
        return loop.run(_called(getattr(inner, name), args, kwargs))


F = TypeVar("F", bound=Facade[Any])


class GroupFacade(Facade[T]):
    """A facade for a member of a group."""

    def __init__(self, group: str, make: Callable[[], T]) -> None:
        super().__init__(make)
        self._group = group

    @property
    def group(self) -> str:
        """The group of producers or consumers."""
        return self._group


def in_front_of(running: T, facade: F) -> F:
    """Let a facade pass its calls to an object that already runs on the background loop."""
    facade._inner, facade._loop = running, loop_of_process.get()
    return facade


def running_inside(facade: Facade[T]) -> tuple[BackgroundLoop, T]:
    """The background loop and the asynchronous object that a facade runs on it: for tests."""
    return facade._running()


async def _begun(make: Callable[[], T], begin: Callable[[T], Coroutine[Any, Any, None]]) -> T:
    inner = make()
    try:
        await begin(inner)
    except BaseException:
        await inner.stop()
        raise
    return inner


def _in_child(make: Callable[[], T]) -> Callable[[], T]:
    """Drop the instance name: with its parent's client id, a child would miss replies, since
    brokers push them by client id."""
    if not isinstance(make, partial) or make.keywords.get("config") is None:
        return make
    config = replace(make.keywords["config"], instance_name="")
    return partial(make.func, *make.args, **{**make.keywords, "config": config})


async def _called(function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """Call on the loop's thread. Plain functions too, since what they touch belongs to the loop."""
    result = function(*args, **kwargs)
    return await result if inspect.isawaitable(result) else result


def awaited(
    method: Callable[Concatenate[A, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[Any, P], R]:
    """Make the facade's method of the same name, which waits for the result."""
    return _passed_on(method)


def called(method: Callable[Concatenate[A, P], R]) -> Callable[Concatenate[Any, P], R]:
    """Like `awaited`, for a plain method."""
    return _passed_on(method)


def _passed_on(method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def blocking(self: Facade[Any], *args: Any, **kwargs: Any) -> Any:
        return self._do(method.__name__, *args, **kwargs)

    return blocking
