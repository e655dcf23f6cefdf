"""Calls from the client's host to the server of the world."""

from typing import Any

import pytest

from sparrowmq.net.errors import NetError
from tests.net.world import PORT, Calling, World

SERVER = f"server:{PORT}"


def calling(w: World, work: Any, **options: Any) -> Any:
    """Run `work(peers)` on the client's host."""

    async def run() -> Any:
        async with Calling(**options) as peers:
            return await work(peers)

    return w.run(run())


async def failure(waiting: Any) -> NetError:
    """How a call fails that must."""
    with pytest.raises(NetError) as caught:
        await waiting
    return caught.value
