"""How long requests take to be answered, measured on a sample.

Handlers are looked up in a table for every request. While requests are timed, a second table with
the same handlers wrapped in timers replaces it; after 100 requests the first one is put back, until
the next second begins:

    a second   ▕█ timed ▏ as if nothing were measured                ▕█ timed ▏ …
    quiet one  ▕█ all of them ─────────────────────────────────────────────────▏

So a busy server only pays for one request in hundreds, and a quiet one times every request.
Requests that wait for messages (long polls) are not timed: they last until a message arrives.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from sparrowmq.metrics.families import RPC_LATENCY, Family
from sparrowmq.metrics.text import Histogram
from sparrowmq.protocol.codes import RequestCode, ResponseCode

_PERIOD_S = 1.0
_MOST_PER_PERIOD = 100
_MOST_KINDS = 2_000
"""How many combinations of request and result are kept."""

Handlers = dict[Any, Callable[..., Any]]


class Answered(NamedTuple):
    """The result of a request: labels of `rocketmq_rpc_latency`."""

    request_code: str
    response_code: str
    result: str

    @property
    def is_success(self) -> bool:
        """Whether the server did what the request asked for."""
        return self.response_code == "success"


class RequestTimes:
    """Times the requests of one server. `table` has the attribute `handlers`."""

    def __init__(self, table: Any, creations: Mapping[str, Family] | None = None) -> None:
        """`creations`: requests that also have a separate metric, by `request_code`."""
        self.histograms: dict[Answered, Histogram] = {}
        self.created: dict[tuple[Family, bool], Histogram] = {}
        """Histograms of these requests, by whether they succeeded."""
        self._table = table
        self._creations = creations or {}
        self._loop = asyncio.get_running_loop()
        self._plain: Handlers = table.handlers
        self._timing: Handlers = {
            kind: partial(self._call, handler) for kind, handler in self._plain.items()
        }
        self._left = 0

    async def run(self) -> None:
        """Time requests until cancelled, which restores the original table."""
        try:
            while True:
                self._left = _MOST_PER_PERIOD
                self._table.handlers = self._timing
                await asyncio.sleep(_PERIOD_S)
        finally:
            self._table.handlers = self._plain

    def _call(self, handler: Callable[..., Any], context: Any, request: Any) -> Any:
        self._left -= 1
        if self._left <= 0:
            self._table.handlers = self._plain
        began_s = self._loop.time()
        try:
            handled = handler(context, request)
        except Exception as error:
            self._note(request, error, began_s)
            raise
        if handled is None:
            return None
        if hasattr(handled, "__await__"):
            return self._wait(handled, request, began_s)
        self._note(request, handled, began_s)
        return handled

    async def _wait(self, waiting: Awaitable[Any], request: Any, began_s: float) -> Any:
        try:
            reply = await waiting
        except Exception as error:
            self._note(request, error, began_s)
            raise
        if reply is not None:
            self._note(request, reply, began_s)
        return reply

    def _note(self, request: Any, outcome: object, began_s: float) -> None:
        elapsed_ms = (self._loop.time() - began_s) * 1000
        kind = _answered(request, outcome)
        family = self._creations.get(kind.request_code)
        if family is not None:
            own = self.created.setdefault((family, kind.is_success), Histogram(family.buckets))
            own.observe(elapsed_ms)
        histogram = self.histograms.get(kind)
        if histogram is None:
            if len(self.histograms) >= _MOST_KINDS:
                return
            histogram = self.histograms[kind] = Histogram(RPC_LATENCY.buckets)
        histogram.observe(elapsed_ms)

    def rows(self) -> list[tuple[Sequence[str], Histogram]]:
        """Labels and histogram of each row, for the page."""
        return [
            (("false", "remoting", kind.request_code, kind.response_code, kind.result), histogram)
            for kind, histogram in self.histograms.items()
        ]


def _answered(request: Any, outcome: object) -> Answered:
    """The labels in Apache's terms; `outcome` is the reply or the exception raised instead."""
    code = getattr(outcome, "code", ResponseCode.SYSTEM_ERROR)
    return Answered(
        RequestCode(type(request.header).CODE).name.lower(),
        ResponseCode(code).name.lower(),
        "oneway" if request.is_oneway else "success",
    )
