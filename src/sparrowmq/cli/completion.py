"""Names of topics, groups, brokers and contexts for shell completion.

A key press must not wait for a cluster: names are cached for 30 s in the user's cache folder, a
cluster that does not answer within a second has no names, and nothing is ever printed.
"""

import asyncio
import hashlib
import json
import logging
import os
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path

import click
from click.shell_completion import CompletionItem

from sparrowmq.admin.admin import Admin
from sparrowmq.admin.errors import AdminError
from sparrowmq.cli.contexts import known_contexts
from sparrowmq.client.errors import ClientError
from sparrowmq.clock import Clock, system_clock
from sparrowmq.errors import SparrowMQError
from sparrowmq.net.errors import NetError
from sparrowmq.protocol.names import is_dlq_topic, is_retry_topic, is_system_group, is_system_topic

FRESH_MS = 30_000
_WAIT_S = 1.0

Ask = Callable[[Admin], Awaitable[list[str]]]


def complete_topics(
    ctx: click.Context, _: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Complete topics of the cluster that the command line selects."""
    return _items(ctx, "topics", _topics, incomplete)


def complete_groups(
    ctx: click.Context, _: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Complete its consumer groups."""
    return _items(ctx, "groups", _groups, incomplete)


def complete_dead_letter_groups(
    ctx: click.Context, _: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Complete its groups that have dead letters."""
    return _items(ctx, "dead-letters", lambda admin: admin.dead_letter_groups(), incomplete)


def complete_brokers(
    ctx: click.Context, _: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Complete its brokers."""
    return _items(ctx, "brokers", _brokers, incomplete)


def complete_contexts(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
    """Complete the user's contexts."""
    try:
        names = known_contexts().clusters
    except (OSError, ValueError):  # the file is broken; the command itself reports it
        return []
    return [name for name in sorted(names) if name.startswith(incomplete)]


async def _brokers(admin: Admin) -> list[str]:
    return sorted({name for names in (await admin.clusters()).values() for name in names})


async def _topics(admin: Admin) -> list[str]:
    return [
        name
        for name in await admin.topics()
        if not (is_system_topic(name) or is_retry_topic(name) or is_dlq_topic(name))
    ]


async def _groups(admin: Admin) -> list[str]:
    return [name for name in await admin.groups() if not is_system_group(name)]


def _items(ctx: click.Context, kind: str, ask: Ask, incomplete: str) -> list[CompletionItem]:
    servers: str | None = ctx.params.get("name_servers") or ctx.params.get("name_server")
    if servers is None:  # not found; the command itself reports why
        return []
    names = CachedNames(cache_folder(os.environ), system_clock).get(servers, kind, ask)
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


def cache_folder(environment: Mapping[str, str]) -> Path:
    """The folder in which names of clusters are cached."""
    home = environment.get("XDG_CACHE_HOME") or Path(environment.get("HOME", "~"), ".cache")
    return Path(home, "sparrowmq").expanduser()


class CachedNames:
    """Cached names of a cluster."""

    def __init__(self, folder: Path, clock: Clock) -> None:
        self._folder = folder
        self._clock = clock

    def get(self, servers: str, kind: str, ask: Ask) -> list[str]:
        """The names from the last 30 s, or fetched now; none if that fails."""
        digest = hashlib.sha256(servers.encode()).hexdigest()[:16]
        path = self._folder / f"{kind}-{digest}.json"
        known = self._read(path)
        if known is not None:
            return known
        names = _asked(servers, ask)
        # Cache an empty list too: the next key press need not wait for a silent cluster again.
        with suppress(OSError):
            self._write(path, names)
        return names

    def _read(self, path: Path) -> list[str] | None:
        try:
            document = json.loads(path.read_text("utf-8"))
            age_ms = self._clock() - int(document["at"])
            return list(map(str, document["names"])) if 0 <= age_ms < FRESH_MS else None
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def _write(self, path: Path, names: list[str]) -> None:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle, draft = tempfile.mkstemp(dir=path.parent, prefix=".names-")
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump({"at": self._clock(), "names": names}, file)
        Path(draft).replace(path)  # not synced: a cache that is lost or damaged is asked for again


def _asked(servers: str, ask: Ask) -> list[str]:
    async def run() -> list[str]:
        async with asyncio.timeout(_WAIT_S), Admin(servers, timeout_s=_WAIT_S) as admin:
            return await ask(admin)

    logging.disable(logging.CRITICAL)  # this process only prints the names and ends
    try:
        return asyncio.run(run())
    except (AdminError, ClientError, NetError, SparrowMQError, TimeoutError, OSError, ValueError):
        return []
    finally:
        logging.disable(logging.NOTSET)
