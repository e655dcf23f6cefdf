"""The clusters of one console: the first one, and others that a menu in the header switches to.

The cluster is part of the address, so that an address can be shared, two tabs can show two
clusters, and a form never reaches another cluster than the one that its page showed:

```
/topics/orders              the first cluster
/@staging/topics/orders     the one named staging
```

The console connects to another cluster when a page of it is first opened, and stays connected.
"""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

from starlette.types import ASGIApp, Receive, Scope, Send

from sparrowmq.client.client import Client
from sparrowmq.client.config import ClientConfig
from sparrowmq.console.console import Console

_ADDRESS = re.compile(r"/@([^/]*)(/.*)?", re.DOTALL)
_OWN = re.compile(r'(\s(?:href|action|src)=")/(?!static/|theme"|login"|logout"|@|/)')


def split_path(path: str) -> tuple[str, str]:
    """The name of the cluster, empty for the first one, and the path of the page."""
    found = _ADDRESS.fullmatch(path)
    return ("", path) if found is None else (found[1], found[2] or "/")


def with_base(html: str, base: str) -> str:
    """Rewrite a page so that its links stay in its cluster. Text on it cannot be mistaken for a
    link, because its quotes are escaped."""
    return _OWN.sub(rf"\1{base}/", html) if base else html


class ClusterPaths:
    """Takes the cluster out of an address before the address is routed to a page."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            cluster, path = split_path(scope["path"])
            scope = {**scope, "path": path, "raw_path": path.encode()}
            scope.setdefault("state", {})["cluster"] = cluster
        await self._app(scope, receive, send)


class Clusters:
    """Finds the console of a cluster."""

    def __init__(self, first: Console) -> None:
        self.first = first
        self._ready: dict[str, asyncio.Future[Console]] = {}
        self._tasks: asyncio.TaskGroup | None = None
        self._closing = asyncio.Event()

    @property
    def names(self) -> list[tuple[str, str]]:
        """The name of each cluster and the prefix of its pages, the first cluster first."""
        others = ((name, f"/@{name}/") for name in sorted(self.first.config.others))
        return [(self.first.label, "/@/"), *others]

    async def find(self, name: str) -> Console | None:
        """The console of a cluster; None if this console does not show it."""
        if name in ("", self.first.config.name):
            return self.first
        if name not in self.first.config.others or self._tasks is None:
            return None
        ready = self._ready.get(name)
        if ready is None:
            ready = self._ready[name] = asyncio.get_running_loop().create_future()
            self._tasks.create_task(self._run(name, ready))
        return await asyncio.shield(ready)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """While the block runs, sample all clusters in use."""
        async with self.first.running(), asyncio.TaskGroup() as self._tasks:
            try:
                yield
            finally:
                self.first.desk.live.close()
                self._closing.set()

    async def _run(self, name: str, ready: asyncio.Future[Console]) -> None:
        first = self.first.config
        config = replace(first, name=name, name_servers=first.others[name], others={})
        settings = ClientConfig(name_servers=config.name_servers).from_origin(config.origin)
        async with Client(settings) as client:
            console = Console(config, client, clock=self.first.clock, desk=self.first.desk)
            async with console.running():
                ready.set_result(console)
                await self._closing.wait()
