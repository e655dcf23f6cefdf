"""The helper process that syncs files for a broker; `syncer` starts it. Imports no other module.

```
request   length 4, id 4, then kind and path, kind and path, … separated by zero bytes
answer    id 4, error number 4 (0: everything is durable), length 4, the path that failed
kinds     L log file    Q queue, index or snapshot (may be gone)    D directory (may be gone)
          A everything on the machine, without a path
```

It ends when its socket closes: with its parent, however that ends.
"""

import contextlib
import errno
import os
import signal
import socket
import struct
import sys
import time

_HEAD = struct.Struct(">II")
_ANSWER = struct.Struct(">III")
_PAUSE_S = 0.1
_fdatasync = getattr(os, "fdatasync", os.fsync)


class Files:
    """Log files stay open: a write error is reported to the descriptors open at the time."""

    def __init__(self) -> None:
        self._open: dict[str, int] = {}

    def sync_log(self, path: str) -> None:
        if path not in self._open:
            self._open[path] = open_when_possible(path)
        _fdatasync(self._open[path])

    def sync_other(self, path: str) -> None:
        try:
            descriptor = open_when_possible(path)
        except FileNotFoundError:
            return
        try:
            _fdatasync(descriptor)
        finally:
            os.close(descriptor)

    def keep_only(self, paths: set[str]) -> None:
        """Close all others: an open file keeps its space after it is deleted."""
        for path in self._open.keys() - paths:
            os.close(self._open.pop(path))


def open_when_possible(path: str) -> int:
    """Open a file, waiting while the machine has no descriptors left: the file itself is fine."""
    while True:
        try:
            return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE):
                raise
        time.sleep(_PAUSE_S)


def sync_all(files: Files, items: list[str]) -> tuple[int, str]:
    """Error number and path of the first failure; 0 if all are durable."""
    for kind, path in zip(items[::2], items[1::2], strict=True):
        try:
            if kind == "A":
                os.sync()
            elif kind == "L":
                files.sync_log(path)
            else:
                files.sync_other(path)
        except OSError as error:
            return error.errno or 5, path
    logs = {path for kind, path in zip(items[::2], items[1::2], strict=True) if kind == "L"}
    if logs:
        files.keep_only(logs)
    return 0, ""


def receive(connection: socket.socket, length: int) -> bytes:
    """Exactly `length` bytes; fewer when the parent is gone."""
    data = b""
    while len(data) < length and (piece := connection.recv(length - len(data))):
        data += piece
    return data


def serve(connection: socket.socket) -> None:
    """Answer requests until the parent is gone."""
    files = Files()
    while len(head := receive(connection, _HEAD.size)) == _HEAD.size:
        length, number = _HEAD.unpack(head)
        body = receive(connection, length)
        if len(body) < length:
            return
        error, path = sync_all(files, os.fsdecode(body).split("\0"))
        failed = os.fsencode(path)
        connection.sendall(_ANSWER.pack(number, error, len(failed)) + failed)


def main() -> None:
    """Serve the socket whose descriptor is the only argument."""
    # The parent decides when to stop: it still needs its last sync after Ctrl-C or SIGTERM.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    connection = socket.socket(fileno=int(sys.argv[1]))
    with connection, contextlib.suppress(BrokenPipeError, ConnectionResetError):
        serve(connection)


if __name__ == "__main__":
    main()
