"""Live updates: one stream of server-sent events for each open page.

The server renders the page again every few seconds and sends the parts that changed. A page marks
its parts with comments, which escaped text cannot contain:

    <div id="live-lag" data-live><!--live:lag-->…<!--end:lag--></div>

A view that several readers have open is rendered once.
"""

import asyncio
import hashlib
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass

PERIOD_S = 5.0
TAIL_S = 1.0
"""The interval of pages that follow the messages of a topic."""
_COMMENT_S = 15.0
MOST_STREAMS = 64
_FRAGMENT = re.compile(r"<!--live:([a-z0-9-]+)-->(.*?)<!--end:\1-->", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Fragment:
    """A part of a page."""

    html: str
    digest: str


def fragments(html: str) -> dict[str, Fragment]:
    """The marked parts of a page by name."""
    return {name: Fragment(part, _digest(part)) for name, part in _FRAGMENT.findall(html)}


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def seen_text(parts: Mapping[str, Fragment]) -> str:
    """The parts that a page reports as shown: `lag:0a1b…,members:…`."""
    return ",".join(f"{name}:{part.digest}" for name, part in parts.items())


def parse_seen(text: str) -> dict[str, str]:
    """Parse what `seen_text` makes; malformed parts are left out, so they are sent again."""
    pairs = (part.partition(":") for part in text.split(",")[:100])
    return {name: digest for name, colon, digest in pairs if colon}


Render = Callable[[], Awaitable[str]]


@dataclass(slots=True)
class _Rendered:
    at: float
    parts: asyncio.Future[dict[str, Fragment]]


class Live:
    """All streams of a console."""

    def __init__(self) -> None:
        self._rendered: dict[str, _Rendered] = {}
        self._open = 0
        self._closing = asyncio.Event()

    @property
    def is_full(self) -> bool:
        """Whether the console refuses one more stream."""
        return self._open >= MOST_STREAMS

    def close(self) -> None:
        """End all streams."""
        self._closing.set()

    async def stream(
        self,
        key: str,
        render: Render,
        seen: Mapping[str, str],
        period_s: float = PERIOD_S,
        is_allowed: Callable[[], bool] = lambda: True,
    ) -> AsyncIterator[bytes]:
        """Events for one reader, until it leaves, loses its permission, or the console ends.
        Readers with the same `key` share what is rendered."""
        if self.is_full:  # many came at the same moment; the browser retries later
            yield b"retry: 10000\n\n"
            return
        self._open += 1
        shown, quiet_s = dict(seen), 0.0
        try:
            yield b"retry: 10000\n\n"
            while not await self._ends_within(period_s) and is_allowed():
                changed = {
                    name: part
                    for name, part in (await self._parts(key, render, period_s)).items()
                    if shown.get(name) != part.digest
                }
                quiet_s = 0.0 if changed else quiet_s + period_s
                for name, part in changed.items():
                    shown[name] = part.digest
                    value = json.dumps({"id": name, "html": part.html})
                    yield f"event: fragment\ndata: {value}\n\n".encode()
                if quiet_s >= _COMMENT_S:
                    quiet_s = 0.0
                    yield b": still here\n\n"
        finally:
            self._open -= 1
            if not self._open:
                self._rendered.clear()

    async def _ends_within(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                await self._closing.wait()
        except TimeoutError:
            return False
        return True

    async def _parts(self, key: str, render: Render, period_s: float) -> dict[str, Fragment]:
        loop = asyncio.get_running_loop()
        known = self._rendered.get(key)
        if known is not None and loop.time() - known.at < period_s * 0.8:
            return await asyncio.shield(known.parts)
        parts: asyncio.Future[dict[str, Fragment]] = loop.create_future()
        self._rendered[key] = _Rendered(loop.time(), parts)
        try:
            parts.set_result(fragments(await render()))
        except BaseException:
            # The readers that wait for this rendering try again in their next round.
            parts.set_result({})
            self._rendered.pop(key, None)
            raise
        return parts.result()
