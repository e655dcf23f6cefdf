"""Restarts within the process: the broker starts again on the same ports.

A role lasts as long as a broker runs (`replication/replication.py`). Exiting the process instead
would rely on a supervisor, which many set-ups do not have, and which waits longer after every
restart.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import replace

from sparrowmq.broker.config import BrokerConfig
from sparrowmq.broker.replication.replication import StartAgain
from sparrowmq.broker.server import BrokerServer


async def serve_until(
    stopping: asyncio.Event,
    config: BrokerConfig,
    running: Callable[[BrokerConfig], AbstractAsyncContextManager[BrokerServer]],
    *,
    ready: Callable[[BrokerServer], None],
    log: logging.Logger,
) -> None:
    """Serve until `stopping` is set; `ready` is called after each start.

    Raises the errors that keep the broker from serving, as `BrokerServer.running` does.
    """
    is_wanted = True
    while is_wanted:
        is_wanted = False
        try:
            async with running(config) as server:
                config = _on_its_ports(config, server)
                ready(server)
                await stopping.wait()
        except* StartAgain as reasons:
            is_wanted = not stopping.is_set()
            log.info("%s", _first(reasons))


def _on_its_ports(config: BrokerConfig, server: BrokerServer) -> BrokerConfig:
    """The same ports, even those that the system chose: name servers and clients know them."""
    return replace(
        config,
        port=server.port,
        ha_port=server.broker.replication.ha_port,
        vip_alias=config.vip_alias and config.port != 0,
        metrics_port=server.metrics_port or config.metrics_port,
    )


def _first(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
