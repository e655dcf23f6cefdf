"""`up --brokers N`: one name server here, each broker in a process of its own."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from sparrowmq.broker.config import BrokerConfig
from sparrowmq.cli.descriptors import Descriptors
from sparrowmq.cli.serve import CannotServe, fitted_to, say_ready
from sparrowmq.cli.settings.servers import broker_settings
from sparrowmq.cli.settings.settings import PREFIX
from sparrowmq.cli.stop_signal import stop_signal
from sparrowmq.nameserver.config import NameServerConfig
from sparrowmq.nameserver.server import NameServer

_PORT_STEP = 10
"""Between two brokers: each also uses port - 2 and the HA port."""
_STOP_S = 10.0


def broker_arguments(first: BrokerConfig, number: int, name_server: str) -> list[str]:
    """The command line of one broker: the first one's settings where they may be shared."""
    name = f"broker-{chr(ord('a') + number)}" if number < 26 else f"broker-{number}"
    port = first.port + number * _PORT_STEP if first.port else 0
    ha_port = first.ha_port + number * _PORT_STEP if first.ha_port else 0
    own = {
        "broker-name": name,
        "port": str(port),
        "name-servers": name_server,
        "data": str(first.data_dir / name),
        "ha-port": str(ha_port),
    }
    for setting in broker_settings():
        value = setting.value_in(first)
        if setting.name not in own and value != setting.default:
            own[setting.name] = setting.show(value)
    return [word for name, text in own.items() for word in (f"--{name}", text)]


@asynccontextmanager
async def _child(arguments: list[str]) -> AsyncIterator[asyncio.subprocess.Process]:
    """A broker process that is ready; ended when the block is left."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "sparrowmq", "broker", *arguments),
        # Everything is in its flags: what the environment says was decided here, by precedence.
        env={name: text for name, text in os.environ.items() if not name.startswith(PREFIX)},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        line = await process.stdout.readline()
        if not line.startswith(b"sparrowmq ready"):
            raise CannotServe(f"broker {arguments[1]} did not start; its log is above")
        yield process
    finally:
        if process.returncode is None:
            process.terminate()
            try:
                async with asyncio.timeout(_STOP_S):
                    await process.wait()
            except TimeoutError:
                process.kill()
                await process.wait()


async def serve_several(
    nameserver: NameServerConfig,
    first: BrokerConfig,
    count: int,
    flags: list[str],
) -> None:
    """Serve until a signal comes; `flags` are for each broker besides its settings.

    Raises CannotServe when a broker dies, and all others stop.
    """
    stopping = await stop_signal()
    nameserver = fitted_to(nameserver, Descriptors.raised_for(nameserver))
    async with AsyncExitStack() as stack:
        names = await stack.enter_async_context(NameServer(nameserver).running())
        processes = []
        for number in range(count):
            arguments = broker_arguments(first, number, names.address)
            process = await stack.enter_async_context(_child([*arguments, *flags, "--with-parent"]))
            processes.append((arguments[1], process))
        say_ready(
            f"name server {names.address}, {count} brokers"
            f" ({', '.join(name for name, _ in processes)}), data {Path(first.data_dir)}"
        )
        async with asyncio.TaskGroup() as tasks:
            watches = [tasks.create_task(_watch(name, each)) for name, each in processes]
            await stopping.wait()
            for watch in watches:
                watch.cancel()


async def _watch(name: str, process: asyncio.subprocess.Process) -> None:
    code = await process.wait()
    raise CannotServe(f"broker {name} ended by itself with exit code {code}; stopping the others")
