"""How a console runs: where it listens, who may use it, and what it may do."""

from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

DEFAULT_PORT = 9880


class ConsoleError(Exception):
    """The console cannot start as it was asked to; the text says why and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleConfig:
    """Everything that a console is given at its start. Raises ConsoleError for what is unsafe."""

    name_servers: tuple[str, ...]
    listen: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    hosts: tuple[str, ...] = ()
    """Further names that browsers may use for it, such as that of a proxy."""
    users: Path | None = None
    """The file with users; without one, everybody who reaches the console is an operator."""
    tls_cert: Path | None = None
    tls_key: Path | None = None
    read_only: bool = False
    insecure: bool = False
    """Whether it may listen beyond loopback without TLS."""
    state_dir: Path | None = None
    """Where the audit log and the history are kept; without one they end with the process."""
    resets_dir: Path | None = None
    """The journal of resets, which the command line shares; without one none can be undone."""

    def __post_init__(self) -> None:
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
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it."""
        if self.listen == "localhost":
            return True
        try:
            return ip_address(self.listen).is_loopback
        except ValueError:
            return False

    @property
    def scheme(self) -> str:
        """`https` with TLS."""
        return "http" if self.tls_cert is None else "https"
