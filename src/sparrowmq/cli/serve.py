"""Running servers until a signal: the ready line, graceful shutdown, exit codes."""

import asyncio
import errno
import gc
import logging
import os
import random
import re
import socket
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

from sparrowmq.broker.config import BrokerConfig
from sparrowmq.broker.monitoring import monitoring
from sparrowmq.broker.registration import BrokerNameTaken
from sparrowmq.broker.replication.returning_master import SlavesHaveMessages
from sparrowmq.broker.restarts import serve_until
from sparrowmq.broker.server import BrokerServer
from sparrowmq.cli.console_child import ConsoleChild
from sparrowmq.cli.descriptors import Config, Descriptors, TooFewDescriptors
from sparrowmq.cli.logs import log_error
from sparrowmq.cli.settings.settings import SettingError
from sparrowmq.cli.stop_signal import stop_signal
from sparrowmq.clock import boot_id, local_zone, system_clock
from sparrowmq.config_fields import ConfigError
from sparrowmq.disk.errors import DiskError
from sparrowmq.disk.real_disk import RealDisk
from sparrowmq.disk.syncer import ProcessSyncer
from sparrowmq.nameserver import monitoring as nameserver_monitoring
from sparrowmq.nameserver.config import NameServerConfig
from sparrowmq.nameserver.server import NameServer
from sparrowmq.net.http_server import page_address
from sparrowmq.net.workers import ThreadWorkers
from sparrowmq.store.errors import StoreError

_COLD_READERS = 2


ConsoleWish: TypeAlias = Callable[[], ConsoleChild | None] | None
"""Opens the console of `up`; None for no console."""

_REMEDIES = {
    errno.EADDRINUSE: "another process listens there: stop it, or choose a port with {ports}",
    errno.EADDRNOTAVAIL: "this machine has no such address: choose one of its own with --listen",
    errno.EACCES: "ports below 1024 need more rights: choose another one with {ports}",
}


_BIND = re.compile(r"error while attempting to bind on address \('([^']+)', (\d+)[^)]*\): ")
"""How asyncio and uvloop begin the text of a socket that cannot listen."""
_NOT_PERMITTED = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})
"""Errors that another owner, mode or mount would fix."""


class CannotServe(Exception):
    """A server cannot start or had to stop; the text says why and what to do."""


_EXPECTED = (
    *(DiskError, StoreError, OSError, BrokerNameTaken, SlavesHaveMessages),
    *(CannotServe, ConfigError, SettingError),
)
"""Errors that are reported in one line and end a server with code 1."""


@asynccontextmanager
async def broker_running(config: BrokerConfig) -> AsyncIterator[BrokerServer]:
    """Run a broker with everything real: disk, clock, threads, syncing process."""
    disk = RealDisk(config.data_dir)
    _make_data_dir(config.data_dir)
    syncer = ProcessSyncer(disk)
    syncer.start()  # now, while descriptors for its socket are left
    workers = ThreadWorkers(_COLD_READERS, "cold-reads")
    server = BrokerServer(
        config,
        disk=disk,
        clock=system_clock,
        zone=local_zone,
        boot=boot_id(),
        rng=random.Random(),
        workers=workers,
        syncer=syncer,
        pid=os.getpid(),
        log=logging.getLogger("sparrowmq.broker"),
    )
    try:
        async with server.running(), monitoring.monitored(server):
            yield server
    finally:
        workers.close()
        syncer.close()


GC_THRESHOLDS = (20_000, 20, 20)
"""After how many new objects, and collections of younger ones, a server collects garbage."""


def _make_data_dir(path: Path) -> None:
    """Create the data directory. Raises CannotServe for an unusable one, before anything starts."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CannotServe(
            f"{path} cannot be made a directory for messages: {error.strerror};"
            " choose another one with --data"
        ) from error
    if not os.access(path, os.R_OK | os.W_OK | os.X_OK):
        raise CannotServe(not_permitted(path))


async def serve_nameserver(config: NameServerConfig) -> None:
    """Run a name server until a signal arrives."""
    stopping = await stop_signal()
    config = fitted_to(config, Descriptors.raised_for(config))
    async with nameserver_running(config) as server:
        say_ready(f"name server {server.address}{_metrics(server)}")
        await stopping.wait()


@asynccontextmanager
async def nameserver_running(config: NameServerConfig) -> AsyncIterator[NameServer]:
    """Run a name server with its monitoring pages."""
    async with NameServer(config).running() as server, nameserver_monitoring.monitored(server):
        yield server


async def serve_broker(config: BrokerConfig, *, with_parent: bool = False) -> None:
    """Run a broker until a signal arrives or, if it belongs to a parent, standard input closes."""
    stopping = await stop_signal(with_parent=with_parent)
    config = fitted_to(config, Descriptors.raised_for(config))
    await _serve(config, stopping)


async def _serve(
    config: BrokerConfig,
    stopping: asyncio.Event,
    beside: str = "",
    console: ConsoleChild | None = None,
) -> None:
    """Run one broker; the ready line names what runs `beside` it. The line is printed once: a
    broker that restarts itself keeps its addresses."""
    was_ready = asyncio.Event() if console is None else console.start

    def ready(server: BrokerServer) -> None:
        if not was_ready.is_set():
            text = f"{beside}{_name(config)} {server.address}, data {config.data_dir}"
            say_ready(text + _metrics(server) + (console.text if console else ""))
            was_ready.set()

    log = logging.getLogger("sparrowmq.broker")
    await serve_until(stopping, config, broker_running, ready=ready, log=log)


def _metrics(server: BrokerServer | NameServer) -> str:
    """The address of the metrics, for the end of a ready line."""
    host, port = server.config.metrics_listen_host, server.metrics_port
    return f", metrics {page_address(host, port, '/metrics')}" if port else ""


def _name(config: BrokerConfig) -> str:
    name = f"broker {config.broker_name}"
    return f"{name} slave {config.broker_id}" if config.is_slave else name


async def serve_up(
    nameserver: NameServerConfig, broker: BrokerConfig, data: Path, *, console: ConsoleWish = None
) -> None:
    """Run a name server and a broker, which registers only with that name server, in one process;
    the console, if requested, runs in another and keeps its files in `data`."""
    stopping = await stop_signal()
    _make_data_dir(data)  # the name server keeps a file there, too
    descriptors = Descriptors.raised_for(nameserver, broker)
    nameserver, broker = fitted_to(nameserver, descriptors), fitted_to(broker, descriptors)
    async with nameserver_running(nameserver) as names:
        config = replace(broker, name_servers=(names.address,))
        beside = f"name server {names.address}, "
        async with console_beside(console, names.address, data) as child:
            await _serve(config, stopping, beside, child)


@asynccontextmanager
async def console_beside(
    wish: ConsoleWish, name_server: str, data: Path
) -> AsyncIterator[ConsoleChild | None]:
    """The console, if requested; None if it is not, or cannot start."""
    child = wish() if wish is not None else None
    if child is None:
        yield None
        return
    async with child.beside(name_server, data / "console"):
        yield child


def fitted_to(config: Config, descriptors: Descriptors) -> Config:
    """The configuration cut down to the open-file limit; logs a large cut. Raises CannotServe."""
    try:
        fitted = descriptors.fit(config)
    except TooFewDescriptors as error:
        raise CannotServe(str(error)) from error
    before, after = config.limits.max_connections, fitted.limits.max_connections
    if after < before / 2:  # `config show` shows smaller cuts
        logging.getLogger("sparrowmq").warning(
            "at most %d connections instead of %d: this process may open %d files, and %d are"
            " wanted; raise the hard limit with `ulimit -n`, or LimitNOFILE= of systemd",
            after,
            before,
            descriptors.limit,
            descriptors.wanted,
        )
    return fitted


def say_ready(text: str) -> None:
    """Print the line that scripts wait for: sends succeed from now on."""
    print(f"sparrowmq ready: {text}", flush=True)


def run(work: Coroutine[Any, Any, None], *, as_json: bool, ports: str = "--port") -> int:
    """Run a server to its end and return the exit code. Each failure is reported in one line.

    `ports` names the flags that choose a port.
    """
    code = 0
    try:
        _run_loop(work)
    except* _EXPECTED as group:
        for error in _leaves(group):
            _report(_explain(error).replace("{ports}", ports), as_json=as_json)
        code = 1
    except* KeyboardInterrupt:
        code = 130
    return code


def _report(text: str, *, as_json: bool) -> None:
    if as_json:
        log_error(text)
    else:
        print(f"sparrowmq: {text}", file=sys.stderr)


def _run_loop(work: Coroutine[Any, Any, None]) -> None:
    # Objects that exist now live as long as the process, and messages leave no cycles: collecting
    # after every 700 objects, the default, costs 2 % of the time.
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    _runner()(work)


def _runner() -> Callable[[Coroutine[Any, Any, None]], None]:
    # Only choose the loop here: an error in a loop that runs inside `except` would look chained.
    try:
        import uvloop
    except ImportError:
        return asyncio.run
    return uvloop.run


def _leaves(error: BaseException) -> list[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        return [leaf for inner in error.exceptions for leaf in _leaves(inner)]
    return [error]


def _explain(error: BaseException) -> str:
    if isinstance(error, OSError) and error.errno in _NOT_PERMITTED and error.filename:
        return not_permitted(Path(os.fsdecode(error.filename)))
    if isinstance(error, OSError):
        text = _BIND.sub(r"cannot listen on \1:\2: ", error.strerror or str(error))
        remedy = _REMEDIES.get(error.errno or 0)
        if isinstance(error, socket.gaierror):
            remedy = "the host to listen on has no address: choose another with --listen"
        if remedy is not None:
            return f"{text}; {remedy}"
    return str(error)


def not_permitted(path: Path) -> str:
    """Why a server cannot use a file, and what to do: its error names only the path."""
    me = _user(os.geteuid())
    nearest = next(each for each in (path, *path.parents) if _exists(each))
    if _is_read_only(nearest):
        return (
            f"{path} cannot be written: it is on a file system that is mounted read-only; mount it"
            " for writing, or choose another directory with --data"
        )
    status = nearest.stat()
    return (
        f"{path} cannot be used by user {me}: {nearest} belongs to user {_user(status.st_uid)},"
        f" with mode {status.st_mode & 0o7777:04o}; give the whole directory to the user that runs"
        f" the server (chown -R {me} …), run the server as another user, or choose another"
        " directory with --data"
    )


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # one of its parents cannot be searched
        return False


def _is_read_only(path: Path) -> bool:
    return bool(os.statvfs(path).f_flag & getattr(os, "ST_RDONLY", 1))


def _user(number: int) -> str:
    try:
        import pwd

        return pwd.getpwuid(number).pw_name
    except (ImportError, KeyError):
        return str(number)
