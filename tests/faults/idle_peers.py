"""`python -m tests.faults.idle_peers PORT COUNT`: peers that are idle, or slow, until stdin ends.

```
each          says hello, as a producer: a peer that says nothing at all is closed after 10 s
every other   has nothing to send
every fourth  writes a request a few bytes at a time
every fourth  asks for messages and reads the reply a few bytes at a time
```

"ready" is printed when all of them are there.
"""

import contextlib
import select
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.faults.abused_broker import HEARTBEAT, allow_open_files, heartbeat, pull_fields
from tests.faults.raw_wire import PULL_MESSAGE, request
from tests.guard import frames
from tests.patience import PATIENCE_S

_ROOT = Path(__file__).parents[2]
_SLICES = 50
_SLICE_S = 0.02
_WRITTEN, _READ = 5, 512
"""Bytes at a time, once a second."""


@contextlib.contextmanager
def idle_peers(port: int, count: int) -> Iterator[None]:
    """A number of them, in a separate process."""
    command = [sys.executable, "-m", "tests.faults.idle_peers", str(port), str(count)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=_ROOT
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n", "the peers could not connect"
            yield
        finally:
            assert process.stdin is not None
            process.stdin.close()


class SlowWriter:
    """Never gets to the end of its request."""

    def __init__(self, wire: socket.socket) -> None:
        self._wire = wire
        self._left = frames.send(0)[:-1]

    def move(self) -> None:
        """Write a little more."""
        self._wire.send(self._left[:_WRITTEN])
        self._left = self._left[_WRITTEN:]


class SlowReader:
    """Has one reply in flight, which it rarely reads to the end."""

    def __init__(self, wire: socket.socket) -> None:
        self._wire = wire
        wire.sendall(request(PULL_MESSAGE, 1, pull_fields(frames.TOPIC, 0)))

    def move(self) -> None:
        """Read a little more."""
        self._wire.recv(_READ)


def _connect(port: int, number: int) -> socket.socket:
    wire = socket.create_connection(("127.0.0.1", port), PATIENCE_S)
    wire.sendall(request(HEARTBEAT, 0, {}, heartbeat(f"idle-{number}", [])))
    return wire


def main() -> None:
    """Connect, report it, and be slow until stdin ends."""
    port, count = int(sys.argv[1]), int(sys.argv[2])
    allow_open_files(count + 100)
    wires = [_connect(port, number) for number in range(count)]
    slow: list[SlowWriter | SlowReader] = []
    for number, wire in enumerate(wires):
        assert wire.recv(1 << 16), "closed by the broker"
        if number % 2:
            slow.append(SlowReader(wire) if number % 4 == 1 else SlowWriter(wire))
        wire.setblocking(False)
    print("ready", flush=True)
    turn = 0
    while not select.select([sys.stdin], [], [], _SLICE_S)[0]:
        for peer in slow[turn::_SLICES]:
            with contextlib.suppress(OSError):  # closed, or nothing there
                peer.move()
        turn = (turn + 1) % _SLICES


if __name__ == "__main__":
    main()
