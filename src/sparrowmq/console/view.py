"""What a page is made from: the visitor's request, panels of answers, and the page itself."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from starlette.responses import Response

from sparrowmq.admin.errors import AdminError
from sparrowmq.client.errors import ClientError
from sparrowmq.console.history import HOUR, SPANS, ChartSpan
from sparrowmq.console.security import Form
from sparrowmq.console.users import User
from sparrowmq.errors import SparrowMQError
from sparrowmq.net.errors import NetError
from sparrowmq.protocol.errors import ProtocolError

if TYPE_CHECKING:
    from sparrowmq.console.console import Console

T = TypeVar("T")
K = TypeVar("K")

PANEL_S = 2.0
"""How long a panel waits for its brokers."""
_SPARE_S = 0.5
"""A silent broker is detected after PANEL_S; this is the time to merge the others' answers."""
AT_ONCE = 8
_MOST_NOTES = 5

EXPECTED = (AdminError, ClientError, NetError, ProtocolError, SparrowMQError)
"""Errors that a panel or an action reports in words."""


class FieldError(ValueError):
    """A form has a wrong value in its field `name`."""

    def __init__(self, name: str, text: str) -> None:
        super().__init__(text)
        self.name = name


@contextmanager
def entering(name: str) -> Iterator[None]:
    """A ValueError in this block is about this field of the form."""
    try:
        yield
    except FieldError:
        raise
    except ValueError as error:
        raise FieldError(name, str(error)) from error


@dataclass(frozen=True, slots=True)
class Panel(Generic[T]):
    """The answer to one query, or why there is none."""

    value: T | None
    problem: str = ""
    """Why there is no answer at all."""
    notes: tuple[str, ...] = ()
    """Brokers whose part is missing, and why."""
    missing: tuple[str, ...] = ()
    """The same in fewer words, for the figures that lack their parts."""

    def sum(self, value: float | None) -> "Sum":
        """A figure that is the sum of all brokers' answers."""
        return Sum(value, self.missing)


@dataclass(frozen=True, slots=True)
class Sum:
    """A figure and its missing parts. With a part missing it is a lower bound, and unknown if the
    other parts add up to 0."""

    value: float | None
    missing: tuple[str, ...] = ()

    @property
    def is_known(self) -> bool:
        """Whether there is a figure to show."""
        return self.value is not None and not (self.missing and not self.value)


async def panel(ask: Awaitable[T]) -> Panel[T]:
    """Ask; a failure shows up on the page and never breaks it."""
    try:
        async with asyncio.timeout(PANEL_S + _SPARE_S):
            value = await ask
    except TimeoutError:
        return Panel(None, f"no answer within {PANEL_S:g} s")
    except EXPECTED as error:
        return Panel(None, str(error))
    return panel_of(value)


def panel_of(value: T) -> Panel[T]:
    """An answer, with the brokers that have no part in it."""
    errors: Iterable[Any] = getattr(value, "errors", ())
    silent = dict.fromkeys(f"{each.broker} did not answer" for each in errors)
    return Panel(value, notes=tuple(str(each) for each in errors), missing=tuple(silent))


async def panels(
    names: Iterable[K], ask: Callable[[K], Awaitable[T]], *, at_once: int = AT_ONCE
) -> dict[K, Panel[T]]:
    """Ask the same about several things within one time limit; those that are not done by then have
    no answer."""
    limit = asyncio.Semaphore(at_once)
    end = asyncio.get_running_loop().time() + PANEL_S + _SPARE_S

    async def one(name: K) -> Panel[T]:
        try:
            async with asyncio.timeout_at(end), limit:
                return await panel(ask(name))
        except TimeoutError:
            return Panel(None, f"no answer within {PANEL_S:g} s")

    async with asyncio.TaskGroup() as tasks:
        running = {name: tasks.create_task(one(name)) for name in names}
    return {name: task.result() for name, task in running.items()}


def missing_parts(answers: Iterable[Panel[T]]) -> list[str]:
    """The missing answers of brokers, each reported once."""
    found = {note for answer in answers for note in answer.notes}
    return sorted(found)[:_MOST_NOTES]


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """One request to the console, with what its page needs."""

    console: "Console"
    path: str
    query: Mapping[str, str]
    names: Mapping[str, str]
    """The parts of the path that name a topic, a group, …"""
    user: User | None
    may_change: bool
    address: str
    visitor: str = ""
    cookie: str = ""
    """The name of the visitor's cookie."""
    token: str = ""
    form: Form = field(default_factory=dict)

    @property
    def span(self) -> ChartSpan:
        """The time span that charts show."""
        return SPANS.get(self.query.get("span", ""), HOUR)

    @property
    def now_ms(self) -> int:
        """The current time."""
        return self.console.clock()

    def entered(self, name: str) -> str:
        """A field of the form, stripped of spaces; empty if it is missing."""
        return (self.form.get(name) or ("",))[0].strip()

    def asked(self, name: str) -> str:
        """A field of the query string, stripped of spaces; empty if it is missing."""
        return self.query.get(name, "").strip()

    def record(self, action: str, target: str, before: str, after: str, result: str) -> None:
        """Write a line to the audit log."""
        self.console.desk.audit.record(
            cluster=self.console.label,
            user=self.user.name if self.user else "",
            address=self.address,
            action=action,
            target=target,
            before=before,
            after=after,
            result=result,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A page to render."""

    template: str
    title: str
    values: Mapping[str, Any] = field(default_factory=dict)
    area: str = ""
    """The entry of the navigation that it belongs to."""
    command: str = ""
    """The equivalent terminal command."""
    status: int = 200
    is_live: bool = True


@dataclass(frozen=True, slots=True)
class Done:
    """The end of an action: where the visitor goes next, and the notice shown there."""

    to: str
    notice: str = ""


Answer = Page | Done | Response
Handler = Callable[[View], Awaitable[Answer]]


@dataclass(frozen=True, slots=True)
class PageRoute:
    """An address, its page, and what the page's forms do."""

    path: str
    show: Handler | None = None
    act: Handler | None = None


async def changing(
    view: View, action: str, target: str, before: str, after: str, work: Awaitable[T]
) -> T:
    """Make a change and write its audit line, even if it fails. Raises what the change raises."""
    try:
        result = await work
    except BaseException as error:  # a part of it may have been made, whatever went wrong
        view.record(action, target, before, after, f"failed: {str(error) or type(error).__name__}")
        raise
    view.record(action, target, before, after, "done")
    return result
