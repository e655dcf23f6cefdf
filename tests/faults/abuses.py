"""Ways to abuse a broker without breaking its protocol. Each lasts until its block ends."""

import selectors
import socket
import struct
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Protocol

from tests.faults.abused_broker import HEARTBEAT, Abused, heartbeat, pull_fields
from tests.faults.raw_wire import (
    PULL_MESSAGE,
    SEND_MESSAGE_V2,
    RawClient,
    request,
    send_fields,
    take_frames,
)
from tests.patience import PATIENCE_S

_HALF_BYTES = 15_900_000
_FRAME = struct.Struct(">II")
_LARGE = 1 << 20
MANY = 1_000_000
"""More requests than a broker answers in the seconds in which it does what is waited for."""
_TOGETHER = 100
"""Names in flight at a time, so that they share saves of the tables."""
_RESET = struct.pack("ii", 1, 0)


def _connected(stack: ExitStack, port: int) -> socket.socket:
    return stack.enter_context(socket.create_connection(("127.0.0.1", port), PATIENCE_S))


class Target(Protocol):
    """A server of either kind, and how much abuse it gets."""

    @property
    def port(self) -> int: ...
    @property
    def size(self) -> int: ...
    def limit_open_files(self, soft: int) -> None: ...
    def refusal(self) -> str:
        """With what words it refuses what needs a file; empty if it does that."""
        ...

    def meet_it(self) -> None:
        """Return when the broker's background work has failed to open a file."""
        ...


@contextmanager
def silent_connections(abused: Target) -> Iterator[None]:
    """Connect and say nothing."""
    with ExitStack() as stack:
        for _ in range(abused.size):
            _connected(stack, abused.port)
        yield


@contextmanager
def abandoned_connections(abused: Target) -> Iterator[None]:
    """Connect, say nothing, and stay until all of them have been closed together."""
    with ExitStack() as stack, selectors.DefaultSelector() as selector:
        for _ in range(abused.size):
            selector.register(_connected(stack, abused.port), selectors.EVENT_READ)
        yield
        while selector.get_map():
            closed = selector.select(PATIENCE_S)
            assert closed, f"{len(selector.get_map())} silent connections are still open"
            for key, _ in closed:
                selector.unregister(key.fileobj)


@contextmanager
def used_up_descriptors(abused: Target) -> Iterator[None]:
    """Let a server open nothing, neither files nor connections, until its loops have met it."""
    abused.limit_open_files(3)
    assert abused.refusal(), "what needs a file was done without one"
    abused.meet_it()
    yield
    abused.limit_open_files(abused.size)
    assert any(not abused.refusal() for _ in range(MANY)), "refused for ever"


@contextmanager
def half_frames(abused: Target) -> Iterator[None]:
    """Begin frames of 16 MiB and never end them."""
    head = _FRAME.pack((16 << 20) - 4, 100)
    with ExitStack() as stack:
        for _ in range(abused.size):
            one = _connected(stack, abused.port)
            try:
                one.sendall(head + bytes(_HALF_BYTES))
            except OSError:  # closed before it was through
                continue
        yield


@contextmanager
def trickling_frames(abused: Abused) -> Iterator[None]:
    """Frames that get a byte a moment until the broker has closed all of them."""
    with ExitStack() as stack, selectors.DefaultSelector() as selector:
        for _ in range(abused.size):
            one = _connected(stack, abused.port)
            one.sendall(_FRAME.pack(1 << 20, 100))
            selector.register(one, selectors.EVENT_READ)
        yield
        for _ in range(int(PATIENCE_S / 0.2)):
            for key, _ in selector.select(0.2):
                selector.unregister(key.fileobj)  # nothing is ever answered: it was closed
            if not selector.get_map():
                return
            for key in tuple(selector.get_map().values()):
                assert isinstance(key.fileobj, socket.socket)
                try:
                    key.fileobj.send(b"x")
                except OSError:
                    selector.unregister(key.fileobj)
        raise AssertionError(f"{len(selector.get_map())} trickling frames are still open")


@contextmanager
def slow_readers(abused: Abused) -> Iterator[None]:
    """Ask for replies of 4 MiB, over and over, and read none of them."""
    for _ in range(4):
        abused.honest.send("large", bytes(_LARGE))
    pulls = b"".join(request(PULL_MESSAGE, at, pull_fields("large", 0)) for at in range(100))
    with ExitStack() as stack:
        for _ in range(abused.size):
            _connected(stack, abused.port).sendall(pulls)
        yield


@contextmanager
def deaf_waiters(abused: Abused) -> Iterator[None]:
    """Wait for messages with many pulls, and do not read them when they come."""
    abused.honest.send("awaited", b"first")
    with ExitStack() as stack:
        one = _connected(stack, abused.port)
        one.sendall(request(HEARTBEAT, 0, {}, heartbeat("deaf", ["deaf"], "awaited")))
        one.recv(1 << 16)
        for at in range(abused.size):
            one.sendall(request(PULL_MESSAGE, at, pull_fields("awaited", 1, wait_ms=20_000)))
        abused.honest.turn()  # what was sent before has been read by now
        abused.honest.send("awaited", bytes(_LARGE))
        yield


@contextmanager
def huge_heartbeat(abused: Abused) -> Iterator[None]:
    """One heartbeat that names many unknown groups."""
    with RawClient(abused.port) as wire:
        groups = [f"group-{number}" for number in range(abused.size)]
        head, _ = wire.call(HEARTBEAT, {}, heartbeat("huge", groups))
        assert head.code == 0, head.remark
        yield


@contextmanager
def full_tables(abused: Abused) -> Iterator[None]:
    """Name topics and groups until no more are created, and some more."""
    with ExitStack() as stack:
        one = _connected(stack, abused.port)
        codes = set()
        for at in range(0, abused.size, _TOGETHER):
            numbers = range(at, min(at + _TOGETHER, abused.size))
            fields = {number: send_fields(f"topic-{number}", 0, b"") for number in numbers}
            one.sendall(
                b"".join(request(SEND_MESSAGE_V2, at, each, b"x") for at, each in fields.items())
            )
            codes |= _take_answers(one, len(fields))
        assert codes != {0}, "topics are created without end"
        wire = stack.enter_context(RawClient(abused.port))
        groups = [f"group-{number}" for number in range(abused.size)]
        for at in range(0, len(groups), _TOGETHER):
            wire.call(HEARTBEAT, {}, heartbeat(f"full-{at}", groups[at : at + _TOGETHER]))
        yield


@contextmanager
def parked_pulls(abused: Abused) -> Iterator[None]:
    """More waiting pulls than are allowed, all for one queue, and a message for all of them."""
    abused.honest.send("awaited", b"first")
    each = 1_000
    with ExitStack() as stack:
        wires = []
        for _ in range(0, abused.size, each):
            one = _connected(stack, abused.port)
            one.sendall(
                b"".join(
                    request(PULL_MESSAGE, at, pull_fields("awaited", 1, wait_ms=20_000))
                    for at in range(each)
                )
            )
            wires.append(one)
        abused.honest.turn()
        yield
        abused.honest.send("awaited", b"second")
        for wire in wires:
            _take_answers(wire, each)


def _take_answers(wire: socket.socket, count: int) -> set[int]:
    """Their codes."""
    buffer = bytearray()
    codes: list[int] = []
    while len(codes) < count:
        data = wire.recv(1 << 20)
        assert data, f"closed after {len(codes)} of {count} answers"
        buffer += data
        codes += [head.code for head, _ in take_frames(buffer)]
    return {*codes}


@contextmanager
def connection_churn(abused: Abused) -> Iterator[None]:
    """Connections that come and go at once: in order, in the middle of a frame, with a reset."""
    for number in range(abused.size):
        if number % 1_000 == 0:
            abused.honest.turn()  # a peer that is silent for two minutes is closed, rightly
        with socket.create_connection(("127.0.0.1", abused.port), PATIENCE_S) as one:
            if number % 3 == 1:
                one.sendall(request(HEARTBEAT, number, {})[:50])
            elif number % 3 == 2:
                one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    yield
