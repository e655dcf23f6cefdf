"""One JSON command a line in, one JSON answer a line out; the clients live on between them."""

import asyncio
import json
import logging
import sys
from collections.abc import Awaitable, Callable
from typing import Any

from tests.interop.python_peer.consumers import LitePullConsumers, PullConsumers, PushConsumers
from tests.interop.python_peer.producers import Producers, Transactions
from tests.interop.python_peer.values import Command, described

Operation = Callable[[Command], Awaitable[Any]]
_LONGEST_LINE = 64 * 1024 * 1024


def operations() -> list[object]:
    """Who answers; an operation is a method of its name."""
    producers = Producers()
    return [
        producers,
        Transactions(),
        PushConsumers(producers),
        PullConsumers(),
        LitePullConsumers(),
    ]


async def answer(parts: list[object], command: Command) -> Any:
    """Run one command."""
    for part in parts:
        found: Operation | None = getattr(part, str(command["op"]), None)
        if found is not None:
            return {"ok": await found(command)}
    return {"error": {"class": "NotImplementedError", "text": f"no operation {command['op']}"}}


async def serve() -> None:
    """Until standard input ends."""
    parts = operations()
    reader = asyncio.StreamReader(limit=_LONGEST_LINE)
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        try:
            told = await answer(parts, json.loads(line))
        except Exception as error:  # whatever the client raises is the scenario's business
            told = {"error": described(error)}
        sys.stdout.write(json.dumps(told) + "\n")
        sys.stdout.flush()


def main() -> None:
    """The process."""
    logging.basicConfig(level=logging.INFO, stream=sys.stderr)
    asyncio.run(serve())
