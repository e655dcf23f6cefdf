"""A loopback port that stays ours while no one listens on it.

A port that a server gave back a moment ago may be anyone's: the system hands it to the next
connection that goes out, even to a client that knocks at the stopped server. A socket that is bound
and never listens keeps it. Servers allow the address to be bound again (SO_REUSEADDR), so they
listen beside it as often as they like, in this process or in another one.
"""

import secrets
import socket
from collections.abc import Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Self

LOOPBACK = "127.0.0.1"
_BELOW_OUTGOING = range(12_000, 32_000)
"""Systems give outgoing connections higher ones."""


class HeldPort:
    """Taken when made, until `close`. `beside` are distances to ports that are held with it."""

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
        """Leave it to others."""
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
    """Raises OSError where the port is taken."""
    held = socket.socket()
    try:
        held.bind((LOOPBACK, port))
        # Only now: shared before, it would also be given to another `HeldPort`.
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    except BaseException:
        held.close()
        raise
    return held
