"""`up --brokers N --slaves M`: one name server here, each broker in a separate process.

```
                    ports (p is --port)        metrics    data
broker-a            p, p - 2, p + 1            5557       DATA/broker-a
broker-b            p + 10, …                  5567       DATA/broker-b
broker-a, slave 1   p + 20, …                  5577       DATA/broker-a-slave-1
broker-b, slave 1   p + 30, …                  5587       DATA/broker-b-slave-1
```

A single master keeps its name and stores its data in DATA itself, so that `up --slaves 1` continues
with the messages of `up`. A start with another number of brokers lets the first one continue where
its messages are, and names the directories of the others.
"""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from sparrowmq.broker.config import MASTER_ID, METRICS_PORT, BrokerConfig
from sparrowmq.cli.descriptors import Descriptors
from sparrowmq.cli.serve import (
    CannotServe,
    ConsoleWish,
    console_beside,
    fitted_to,
    nameserver_running,
    say_ready,
)
from sparrowmq.cli.settings.servers import MOST_BROKERS, broker_settings
from sparrowmq.cli.settings.settings import PREFIX
from sparrowmq.cli.stop_signal import stop_signal
from sparrowmq.client.errors import counted
from sparrowmq.nameserver.config import NameServerConfig
from sparrowmq.nameserver.server import NameServer

_PORT_STEP = 10
"""Distance between the ports of two brokers: each also uses port - 2 and the HA port."""
_STOP_S = 10.0
_LOOK_AGAIN_S = 0.05


@dataclass(frozen=True, slots=True)
class ServerProcess:
    """One broker of the cluster."""

    broker_name: str
    broker_id: int
    data_dir: Path
    place: int
    """How many steps its ports are above those of the first broker."""

    @property
    def is_master(self) -> bool:
        """Whether it takes messages."""
        return self.broker_id == MASTER_ID

    @property
    def title(self) -> str:
        """Its name for people."""
        return self.broker_name if self.is_master else f"{self.broker_name} slave {self.broker_id}"


def members(first: BrokerConfig, brokers: int, slaves: int) -> Iterator[ServerProcess]:
    """The members, masters before slaves, which look for their masters."""
    for broker_id in range(slaves + 1):
        for number in range(brokers):
            name = first.broker_name if brokers == 1 else _name(number)
            directory = name if broker_id == MASTER_ID else f"{name}-slave-{broker_id}"
            data_dir = first.data_dir / directory
            if broker_id == MASTER_ID and number == 0:
                data_dir = first_data_dir(first, brokers)
            yield ServerProcess(name, broker_id, data_dir, broker_id * brokers + number)


def first_data_dir(first: BrokerConfig, brokers: int) -> Path:
    """Where the first broker stores its messages: in DATA if it is alone, else in a directory with
    its name, or in the other of the two if only that has a store."""
    name = first.broker_name if brokers == 1 else _name(0)
    alone, beside = first.data_dir, first.data_dir / name
    usual, other = (alone, beside) if brokers == 1 else (beside, alone)
    return other if _has_store(other) and not _has_store(usual) else usual


def not_served(first: BrokerConfig, brokers: int) -> dict[Path, str]:
    """Stores of masters in DATA that this start would not serve, and the command that does."""
    served = {each.data_dir for each in members(first, brokers, 0)}
    found = {first.data_dir: "sparrowmq up"}
    for number in range(MOST_BROKERS):
        command = f"sparrowmq up --brokers {max(2, number + 1)}"
        found[first.data_dir / _name(number)] = command
    return {path: how for path, how in found.items() if path not in served and _has_store(path)}


def _has_store(path: Path) -> bool:
    return (path / "commitlog").is_dir()


def _name(number: int) -> str:
    return f"broker-{chr(ord('a') + number)}" if number < 26 else f"broker-{number}"


def broker_arguments(first: BrokerConfig, member: ServerProcess, name_server: str) -> list[str]:
    """The command line of one broker: those settings of the first broker that can be shared."""
    port, ha_port = (
        each + member.place * _PORT_STEP if each else 0 for each in (first.port, first.ha_port)
    )
    metrics_port = first.metrics_port
    if metrics_port > 0:
        metrics_port += member.place * _PORT_STEP
    if first.port == 0 and first.metrics_port == METRICS_PORT:
        metrics_port = 0
    own = {
        "broker-name": member.broker_name,
        "broker-id": str(member.broker_id),
        "port": str(port),
        "name-servers": name_server,
        "data": str(member.data_dir),
        "ha-port": str(ha_port),
        "metrics-port": str(metrics_port),
    }
    for setting in broker_settings():
        value = setting.value_in(first)
        if setting.name not in own and value != setting.default:
            own[setting.name] = setting.show(value)
    return [word for name, text in own.items() for word in (f"--{name}", text)]


_Child = tuple[asyncio.subprocess.Process, str]


@asynccontextmanager
async def _child(title: str, arguments: list[str]) -> AsyncIterator[_Child]:
    """Start a broker, wait until it is ready, and yield its process and the address of its metrics.
    It ends when the block is left."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "sparrowmq", "broker", *arguments),
        # The flags hold everything: the precedence of the environment was already applied here.
        env={name: text for name, text in os.environ.items() if not name.startswith(PREFIX)},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        line = await process.stdout.readline()
        if not line.startswith(b"sparrowmq ready"):
            raise CannotServe(f"{title} did not start; its log is above")
        yield process, line.decode().strip().partition(", metrics ")[2]
    finally:
        await _end(process)


async def _end(process: asyncio.subprocess.Process) -> None:
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
    brokers: int,
    slaves: int,
    flags: list[str],
    *,
    console: ConsoleWish = None,
) -> None:
    """Serve until a signal arrives; `flags` are given to each broker besides its settings.

    If a broker dies, all others stop, and this raises CannotServe.
    """
    stopping = await stop_signal()
    nameserver = fitted_to(nameserver, Descriptors.raised_for(nameserver))
    async with AsyncExitStack() as stack:
        names = await stack.enter_async_context(nameserver_running(nameserver))
        beside = console_beside(console, names.address, first.data_dir)
        web = await stack.enter_async_context(beside)
        started, pages = [], []
        for member in members(first, brokers, slaves):
            arguments = broker_arguments(first, member, names.address)
            child = _child(member.title, [*arguments, *flags, "--with-parent"])
            process, page = await stack.enter_async_context(child)
            started.append((member, process))
            pages += [page] if page else []
        async with asyncio.TaskGroup() as tasks:
            watches = [tasks.create_task(_watch(*each)) for each in started]
            await _until_registered(names, brokers * (slaves + 1), stopping)
            titles = [member.title for member, _ in started]
            line = _ready_line(names.address, brokers, titles, first.data_dir, pages)
            say_ready(line + (web.text if web else ""))
            if web:
                web.start.set()
            await stopping.wait()
            for watch in watches:
                watch.cancel()
        # Masters first, so that their slaves have what they acknowledge until the end. The stack
        # ends the slaves.
        masters = (process for member, process in started if member.is_master)
        await asyncio.gather(*(_end(process) for process in masters))


async def _until_registered(names: NameServer, count: int, stopping: asyncio.Event) -> None:
    """Return when this many brokers are registered, or at a signal. A slave registers after its
    master has accepted it."""
    while len(names.table.live) < count and not stopping.is_set():
        with suppress(TimeoutError):
            async with asyncio.timeout(_LOOK_AGAIN_S):
                await stopping.wait()


def _ready_line(
    name_server: str, brokers: int, titles: Sequence[str], data: Path, pages: Sequence[str]
) -> str:
    count = counted(brokers, "broker")
    metrics = f", metrics {', '.join(pages)}" if pages else ""
    return f"name server {name_server}, {count} ({', '.join(titles)}), data {data}{metrics}"


async def _watch(member: ServerProcess, process: asyncio.subprocess.Process) -> None:
    code = await process.wait()
    raise CannotServe(
        f"broker {member.title} ended by itself with exit code {code}; stopping the others"
    )
