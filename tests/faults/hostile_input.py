"""Scorecard row 13: malicious input, in process and over TCP.

In process the decoders must answer every byte string with frames, requests or one of their own
errors. Over TCP a broker has to stay up and small while a well-behaved connection keeps working.
"""

import socket
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import msgspec

from sparrowmq.broker.server import routes
from sparrowmq.protocol.codes import RequestCode
from sparrowmq.protocol.errors import ProtocolError
from sparrowmq.protocol.frame import FrameDecoder
from sparrowmq.protocol.header import decode_plain
from tests.faults.broker_process import BrokerProcess
from tests.faults.checker import MessageId, body_of, properties_of
from tests.faults.hostile_frames import mutated, patterns, spoilt_request
from tests.faults.raw_wire import SEND_MESSAGE_V2, RawClient, send_fields
from tests.patience import PATIENCE_S

MEMORY_LIMIT = 64 * 1024 * 1024
_FORBIDDEN = (b"Traceback", b'File "', b".py", b"Error(")
_GOODS_EVERY = 500
_IN_FLIGHT = 50


@dataclass
class HostileResult:
    """What came of it."""

    frames: int = 0
    refused: int = 0
    closed: int = 0
    grown_bytes: int = 0
    internal: Counter[str] = field(default_factory=Counter)
    """Exceptions in the broker's log that no handler expected, by their last line."""
    problems: list[str] = field(default_factory=list)

    def __bool__(self) -> bool:
        return not self.problems


Decode = Callable[[bytes], None]


def decode_all(data: bytes) -> None:
    """Everything a connection does with bytes before a handler sees them."""
    decoder = FrameDecoder()
    for binary, header, _ in decoder.feed(data):
        decode_plain(binary, header)
        routes.decoder.decode(binary, header)


def in_process(seed: int, count: int, decode: Decode = decode_all) -> HostileResult:
    """Decode `count` spoilt frames; only the decoders' own errors may come out."""
    rng = Random(seed)
    models = patterns()
    result = HostileResult()
    kinds: Counter[str] = Counter()
    for number in range(count):
        if rng.random() < 0.8:
            data = mutated(rng, rng.choice(models))
        else:
            data = spoilt_request(rng, number)
        result.frames += 1
        try:
            decode(data)
        except (ProtocolError, msgspec.ValidationError, msgspec.DecodeError):
            result.refused += 1
        except Exception as error:
            kinds[repr(error)[:200]] += 1
            if kinds[repr(error)[:200]] == 1:
                result.problems.append(f"seed {seed}, frame {number}: {error!r}: {data[:80]!r}")
    return result


def over_tcp(seed: int, count: int, module: str = "sparrowmq") -> HostileResult:
    """Send `count` corrupt frames to a broker, with good sends between them."""
    result = HostileResult()
    rng = Random(seed)
    with tempfile.TemporaryDirectory() as name:
        options = ("--store-log-file-size", "64MiB")
        broker = BrokerProcess(Path(name) / "data", *options, module=module)
        try:
            with RawClient(broker.port) as good:
                _attack(rng, broker, good, count, result)
        except (OSError, AssertionError) as error:
            result.problems.append(f"the good connection failed: {error!r}")
        finally:
            log = broker.log.read_text(errors="replace")
            if not broker.is_running:
                result.problems.append(f"the broker has ended: {log[-1500:]}")
            broker.stop()
        result.internal = tracebacks(log)
        result.problems += [
            f"{count} times in the log: {t}" for t, count in result.internal.items()
        ]
    return result


def tracebacks(log: str) -> Counter[str]:
    """Exceptions that no handler expected, by their last line."""
    found: Counter[str] = Counter()
    inside = False
    for line in log.splitlines():
        if line.startswith("Traceback"):
            inside = True
        elif inside and line and not line.startswith((" ", "\t")):
            found[line[:200]] += 1
            inside = False
    return found


def _attack(
    rng: Random, broker: BrokerProcess, good: RawClient, count: int, result: HostileResult
) -> None:
    number = 0
    _good_send(good, number)
    for code in RequestCode:
        _exchange(broker.port, [spoilt_request(rng, at, code.value) for at in range(6)], result)
    before = broker.memory_bytes()
    models = patterns()
    while result.frames < count:
        if rng.random() < 0.5:
            frames = [spoilt_request(rng, at) for at in range(_IN_FLIGHT)]
        else:
            frames = [mutated(rng, rng.choice(models))]
        _exchange(broker.port, frames, result)
        if result.frames // _GOODS_EVERY > number:
            number += 1
            _good_send(good, number)
    result.grown_bytes = broker.memory_bytes() - before
    if result.grown_bytes > MEMORY_LIMIT:
        result.problems.append(f"memory grew by {result.grown_bytes} bytes")


def _exchange(port: int, frames: list[bytes], result: HostileResult) -> None:
    """Send frames on a separate connection and read the answers until it is quiet."""
    result.frames += len(frames)
    with socket.create_connection(("127.0.0.1", port), PATIENCE_S) as connection:
        try:
            connection.sendall(b"".join(frames))
            connection.shutdown(socket.SHUT_WR)
            answer = b""
            while data := connection.recv(1 << 16):
                answer += data
        except (ConnectionResetError, BrokenPipeError):
            result.closed += 1
            return
    for text in _FORBIDDEN:
        if text in answer:
            at = answer.index(text)
            result.problems.append(f"on the wire: {answer[max(0, at - 150) : at + 150]!r}")


def _good_send(client: RawClient, number: int) -> None:
    head, _ = client.call(RequestCode.END_DRAIN.value, {})  # a spoilt frame may have begun one
    assert head.code == 0, f"the end of a drain was answered {head.code} {head.remark}"
    message = MessageId("good", number)
    fields = send_fields("good", 0, properties_of(message))
    head, _ = client.call(SEND_MESSAGE_V2, fields, body_of(message))
    assert head.code in (0, 2), f"a good send was answered {head.code} {head.remark}"
