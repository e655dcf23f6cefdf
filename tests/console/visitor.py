"""A browser in miniature: asks a console's application directly, and keeps its cookie and token."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from html import unescape
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote, urlencode, urlsplit

from starlette.types import ASGIApp

from sparrowmq import Admin, Client
from sparrowmq.clock import Clock
from sparrowmq.console.app import Application
from sparrowmq.console.config import ConsoleConfig
from sparrowmq.console.console import Console
from sparrowmq.testing.sim_cluster import RunningCluster
from tests.admin.operator import as_client

T = TypeVar("T")
PORT = 9880
HOST = f"127.0.0.1:{PORT}"
TOKEN = re.compile(r'name="token" value="([0-9a-f]+)"')


@dataclass(frozen=True)
class Got:
    """An answer."""

    status: int
    headers: Mapping[str, str]
    html: str

    @property
    def text(self) -> str:
        """What a reader sees, roughly: without tags, with one space where there is any."""
        words = re.sub(r"<[^>]*>", " ", self.html)
        return " ".join(unescape(words).split())


class Visitor:
    """Someone with a browser. Follows redirects unless asked not to."""

    def __init__(self, app: ASGIApp, *, host: str = HOST, address: str = "127.0.0.1") -> None:
        self._app = app
        self._host = host
        self._address = address
        self.cookies: dict[str, str] = {}
        self.token = ""
        self.last: Got | None = None
        """The last answer, also where the application failed after it."""

    async def get(self, path: str, *, follow: bool = True, **headers: str) -> Got:
        """A page."""
        got = await self.ask("GET", path, b"", headers)
        if follow and got.status == 303:
            return await self.get(got.headers["location"])
        if found := TOKEN.search(got.html):
            self.token = found[1]
        return got

    async def post(
        self,
        path: str,
        fields: Mapping[str, str] | None = None,
        *,
        follow: bool = True,
        headers: Mapping[str, str] | None = None,
    ) -> Got:
        """A form, with the token of the last page."""
        body = urlencode({"token": self.token, **(fields or {})}).encode()
        sent = {
            "content-type": "application/x-www-form-urlencoded",
            "origin": f"http://{self._host}",
            **(headers or {}),
        }
        got = await self.ask("POST", path, body, sent)
        if follow and got.status == 303:
            return await self.get(got.headers["location"])
        return got

    async def ask(
        self,
        method: str,
        path: str,
        body: bytes,
        headers: Mapping[str, str],
        *,
        is_endless: bool = False,
    ) -> Got:
        split = urlsplit(path)
        cookies = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        sent = {"host": self._host, "cookie": cookies, **headers}
        scope: dict[str, Any] = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": unquote(split.path),
            "raw_path": split.path.encode(),
            "query_string": split.query.encode(),
            "root_path": "",
            "headers": [(k.encode(), v.encode()) for k, v in sent.items() if v],
            "client": (self._address, 50000),
            "server": ("127.0.0.1", PORT),
        }
        parts: list[bytes] = []
        asked: list[bool] = []
        start: dict[str, Any] = {}

        async def receive() -> dict[str, Any]:
            if asked:
                await asyncio.Event().wait()  # the visitor stays
            asked.append(True)
            return {"type": "http.request", "body": body, "more_body": is_endless}

        async def send(message: Any) -> None:
            if message["type"] == "http.response.start":
                start.update(message)
            else:
                parts.append(message.get("body", b""))

        try:
            await self._app(scope, receive, send)
        finally:
            pairs = [(key.decode(), value.decode()) for key, value in start.get("headers", ())]
            self.last = Got(start.get("status", 0), dict(pairs), b"".join(parts).decode())
        for key, value in pairs:
            if key == "set-cookie":
                name, _, rest = value.partition("=")
                self.cookies[name] = rest.partition(";")[0].strip('"')
        return self.last


def config(**settings: Any) -> ConsoleConfig:
    """Of a console on loopback."""
    return ConsoleConfig(**{"name_servers": ("127.0.0.1:9876",), **settings})


def offline(clock: Clock, **settings: Any) -> tuple[Console, Visitor]:
    """A console whose cluster cannot be reached, for what needs none."""
    console = Console(config(**settings), Client(), clock=clock)
    return console, Visitor(Application(console).asgi(port=PORT))


def as_visitor(
    sim: RunningCluster,
    work: Callable[[Client, Console, Visitor], Awaitable[T]],
    *,
    admin: Callable[[Client], Admin] | None = None,
    state_dir: Path | None = None,
    **settings: Any,
) -> T:
    """What someone gets who looks at a simulated cluster, in virtual time."""

    async def run(client: Client) -> T:
        given = config(state_dir=state_dir, **settings)
        own = admin(client) if admin is not None else None
        console = Console(given, client, clock=sim.clock, admin=own)
        return await work(client, console, Visitor(Application(console).asgi(port=PORT)))

    return as_client(sim, run)
