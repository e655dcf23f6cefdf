"""Open files: the limit is raised at the start, and divided between files and connections.

```
limit of the process │ own needs │ queue files kept open │ connections
```

A server that runs out of descriptors could not save what it has acknowledged. So connections get
what files leave, never the other way round (decision 18).
"""

import sys
from dataclasses import replace
from typing import NamedTuple, Self, TypeVar

from sparrowmq.broker.config import BrokerConfig
from sparrowmq.broker.replication.slave_link import MOST_HA_CONNECTIONS
from sparrowmq.nameserver.config import NameServerConfig

Config = TypeVar("Config", bound=BrokerConfig | NameServerConfig)

_BROKER_FILES = 192
"""Standard streams, loop, listeners, lock, log and index files (64 of which may be open for
reading), journals, tables, the sync helper, connections to name servers, and connections that must
be accepted before they can be refused."""
BROKER_NEEDS = _BROKER_FILES + MOST_HA_CONNECTIONS
"""Slaves copy from a separate port, which has a separate share: whatever else connects there takes
nothing from files and clients."""
NAMESERVER_NEEDS = 64
_LEAST_REST = 32
_FILES_PART = 4
"""If not everything fits, files get one part in this many: reopening a file costs microseconds,
refusing a connection costs the client its service."""


class Shares(NamedTuple):
    """How a limit is divided."""

    connections: int
    files: int


class TooFewDescriptors(Exception):
    """The limit of open files is too low for a server to work at all."""

    def __init__(self, limit: int, needed: int) -> None:
        super().__init__(
            f"a server may open {limit} files here and needs {needed} at least; raise the"
            " limit with `ulimit -n`, or LimitNOFILE= of systemd"
        )
        self.limit = limit
        self.needed = needed


def share_out(limit: int, needs: int, *, connections: int, files: int = 0) -> Shares:
    """How many of each are possible within a limit. Raises TooFewDescriptors."""
    rest = limit - needs
    if rest < _LEAST_REST:
        raise TooFewDescriptors(limit, needs + _LEAST_REST)
    if connections + files > rest:
        files = min(files, rest // _FILES_PART)
    return Shares(min(connections, rest - files), files)


class Descriptors:
    """A limit of open files, for one server or for two in one process."""

    def __init__(self, limit: int, wanted: int) -> None:
        self.limit = limit
        self.wanted = wanted
        """With this many descriptors, nothing has to be cut."""

    @classmethod
    def raised_for(cls, *servers: BrokerConfig | NameServerConfig) -> Self:
        """Let this process open as many files as these servers want, as far as it is allowed to."""
        wanted = sum(map(_wanted, servers))
        return cls(_raise_limit(wanted), wanted)

    @classmethod
    def possible_for(cls, *servers: BrokerConfig | NameServerConfig) -> Self:
        """The limit that `raised_for` would reach; changes nothing."""
        wanted = sum(map(_wanted, servers))
        return cls(_possible_limit(wanted), wanted)

    def fit(self, config: Config) -> Config:
        """The configuration, with fewer connections and queue files if not all of them fit.

        Raises TooFewDescriptors.
        """
        if self.limit >= self.wanted:
            return config
        own = self.limit * _wanted(config) // self.wanted
        connections = config.limits.max_connections
        if isinstance(config, NameServerConfig):
            shares = share_out(own, NAMESERVER_NEEDS, connections=connections)
        else:
            files = config.store.open_queue_files
            shares = share_out(own, BROKER_NEEDS, connections=connections, files=files)
            store = replace(config.store, open_queue_files=shares.files)
            config = replace(config, store=store)
        return replace(config, limits=replace(config.limits, max_connections=shares.connections))


def _wanted(config: BrokerConfig | NameServerConfig) -> int:
    connections = config.limits.max_connections
    if isinstance(config, NameServerConfig):
        return NAMESERVER_NEEDS + connections
    return BROKER_NEEDS + connections + config.store.open_queue_files


def _possible_limit(wanted: int) -> int:
    soft, hard = _limits()
    return min(wanted, max(soft, hard))


def _raise_limit(wanted: int) -> int:
    import resource

    soft, hard = _limits()
    if soft >= wanted:
        return wanted
    possible = min(wanted, hard)
    try:
        _, exact = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (possible, exact))
    except (OSError, ValueError):  # macOS has a limit of its own below an unlimited one
        return soft
    return possible


def _limits() -> tuple[int, int]:
    """The soft and the hard limit."""
    try:
        import resource
    except ImportError:  # on Windows, which can show settings but run no server
        return sys.maxsize, sys.maxsize
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    unlimited = resource.RLIM_INFINITY
    return (
        sys.maxsize if soft == unlimited else soft,
        sys.maxsize if hard == unlimited else hard,
    )
