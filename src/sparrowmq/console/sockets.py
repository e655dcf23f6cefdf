"""The socket of a console, opened before anything heavy is imported.

`sparrowmq up` opens it, prints its address in the ready line and passes it to the console's
process: a browser that connects before the process is ready waits in the socket's queue.
"""

import errno
import socket

_TRIED = 20


def open_listener(host: str, port: int, *, or_next: bool = False) -> socket.socket:
    """A listening socket. With `or_next`, a taken port means the next free one. Raises OSError."""
    family, kind, number, _, address = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    tries = _TRIED if or_next and port else 1
    for each in range(port, port + tries):
        listener = socket.socket(family, kind, number)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((address[0], each, *address[2:]))
            listener.listen(128)
        except OSError as error:
            listener.close()
            if error.errno != errno.EADDRINUSE or each == port + tries - 1:
                reason = (error.strerror or str(error)).lower()
                raise OSError(error.errno, f"cannot listen on {host}:{each}: {reason}") from error
        else:
            return listener
    raise AssertionError("the last try has raised")


def url_of(host: str, port: int, *, scheme: str = "http") -> str:
    """The URL to open in a browser."""
    shown = f"[{host}]" if ":" in host else host
    return f"{scheme}://{shown}:{port}/"
