"""How a console runs: where it listens, who may use it, and what it may do."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path

DEFAULT_PORT = 9880
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class ConsoleError(Exception):
    """The console cannot start as configured; the text says why and what to do."""


def is_loopback(address: str) -> bool:
    """Whether only this machine can reach a server that listens there."""
    if address == "localhost":
        return True
    try:
        return ip_address(address).is_loopback
    except ValueError:
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleConfig:
    """The configuration of a console. Raises ConsoleError for unsafe settings."""

    name_servers: tuple[str, ...]
    name: str = ""
    """The name of the cluster, if it was chosen by name."""
    others: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Name servers of further clusters that the console shows, by name."""
    listen: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    hosts: tuple[str, ...] = ()
    """Further names that browsers may use for it, such as that of a proxy."""
    users: Path | None = None
    """The users file; without one, everyone who reaches the console is an operator."""
    tls_cert: Path | None = None
    tls_key: Path | None = None
    read_only: bool = False
    insecure: bool = False
    """Whether it may listen beyond loopback without TLS."""
    state_dir: Path | None = None
    """Where the audit log and the history are kept; without it they end with the process."""
    resets_dir: Path | None = None
    """The journal of resets, shared with the command line; without it no reset can be undone."""

    def __post_init__(self) -> None:
        for name in (self.name, *self.others):
            if name and not _NAME.fullmatch(name):
                raise ConsoleError(
                    f"{name!r} cannot be the name of a cluster: it is a part of addresses, and has"
                    " up to 64 letters, digits, '.', '_' and '-', a letter or digit first"
                )
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ConsoleError("--tls-cert and --tls-key belong together: give both or neither")
        if self.is_loopback:
            return
        if self.users is None:
            raise ConsoleError(
                f"{self.listen} can be reached by others, who would be operators: give a users"
                " file with --users (sparrowmq console --users FILE --add-user NAME makes one),"
                " or listen on 127.0.0.1"
            )
        if self.tls_cert is None and not self.insecure:
            raise ConsoleError(
                f"{self.listen} can be reached by others, and passwords would cross the network"
                " unencrypted: give --tls-cert and --tls-key, or --insecure if something else"
                " encrypts"
            )

    @property
    def origin(self) -> str:
        """Where the addresses of its name servers come from, for errors about them."""
        return f"context {self.name}" if self.name else "the settings of the console"

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it."""
        return is_loopback(self.listen)

    @property
    def scheme(self) -> str:
        """`https` with TLS."""
        return "http" if self.tls_cert is None else "https"
