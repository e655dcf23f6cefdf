"""A console on a real port, in its own thread, for browsers."""

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

from sparrowmq.console.config import ConsoleConfig
from sparrowmq.console.server import serve
from sparrowmq.console.sockets import open_listener


@contextmanager
def serving(name_server: str, **settings: Any) -> Iterator[str]:
    """Its address without the last slash."""
    config = ConsoleConfig(name_servers=(name_server,), port=0, **settings)
    address: Future[tuple[str, asyncio.AbstractEventLoop, asyncio.Event]] = Future()

    async def run() -> None:
        stopping = asyncio.Event()
        loop = asyncio.get_running_loop()
        listener = open_listener(config.listen, 0)
        await serve(
            config, listener, stopping, lambda url: address.set_result((url, loop, stopping))
        )

    thread = threading.Thread(target=lambda: asyncio.run(run()), name="console", daemon=True)
    thread.start()
    url, loop, stopping = address.result()
    try:
        yield url.rstrip("/")
    finally:
        loop.call_soon_threadsafe(stopping.set)
        thread.join()
