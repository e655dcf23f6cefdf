"""A loopback port that stays ours while no one listens on it.

A port that a server has just released may be taken: the system may give it to the next outgoing
connection, even of a client that tries to reach the stopped server. A socket that is bound but
never listens keeps it. Servers allow the address to be bound again (SO_REUSEADDR), so they can
listen on it as often as they like, in this process or another one.
"""

import secrets
import socket
from collections.abc import Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Self

LOOPBACK = "127.0.0.1"
_BELOW_OUTGOING = range(12_000, 32_000)
"""Systems give outgoing connections higher ports."""


class HeldPort:
    """Held from creation until `close`. `beside` lists distances to ports that are held with it."""

    def __init__(self, beside: Sequence[int] = ()) -> None:
        self._held = ExitStack()
        while True:
            self.port = secrets.choice(_BELOW_OUTGOING)
            try:
                with ExitStack() as tried:
                    for step in (0, *beside):
                        tried.enter_context(_bound(self.port + step))
                    self._held = tried.pop_all()
                return
            except OSError:
                continue  # one of them is taken

    @property
    def address(self) -> str:
        """host:port."""
        return f"{LOOPBACK}:{self.port}"

    def close(self) -> None:
        """Release the port."""
        self._held.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def _bound(port: int) -> socket.socket:
    """A bound socket. Raises OSError if the port is taken."""
    held = socket.socket()
    try:
        held.bind((LOOPBACK, port))
        # Only now: if shared before binding, it could also be given to another `HeldPort`.
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    except BaseException:
        held.close()
        raise
    return held
