"""Requests over one blocking socket, for Spark's drivers and executors.

    with Remoting("127.0.0.1:10911", timeout_s=3) as broker:
        answer = broker.call(RequestCode.GET_MAX_OFFSET, {"topic": "orders", "queueId": "0"})

Standard library only: executors have nothing else (docs/decisions/0029). One request at a time is
under way; `start` and `finish` let a reader decode one answer while the broker prepares the next.
"""

import json
import logging
import socket
import struct
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self, TypeVar

from sparrowmq.backoff import Backoff
from sparrowmq.net.errors import CLOSED_BY_PEER, in_words
from sparrowmq.protocol.codes import MQ_VERSION, RequestCode, ResponseCode
from sparrowmq.protocol.errors import BodyError, FrameError
from sparrowmq.protocol.frame import encode_frame
from sparrowmq.protocol.hosts import parse_address
from sparrowmq.protocol.json_reader import parse_json
from sparrowmq.spark.errors import (
    BrokerAway,
    ClusterUnreachable,
    NotTaken,
    RocketMQError,
    ServerRefused,
)

_log = logging.getLogger(__name__)

MAX_FRAME_BYTES = 64 * 1024 * 1024
"""Far above any answer: Apache's brokers cut pulls at 256 KiB, ours at 4 MiB and one message."""

_LENGTHS = struct.Struct(">II")

_HEADER_LENGTH = 0xFFFFFF

_RESPONSE_FLAG = 1

_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Answer:
    """A server's answer; `code` 0 is success."""

    code: int
    fields: dict[str, str] = field(default_factory=dict)
    body_parts: tuple[bytes, ...] = ()
    """The body in the pieces it came in: a reader that collects several answers joins them once."""
    remark: str = ""

    @property
    def body(self) -> bytes:
        """The whole body."""
        return b"".join(self.body_parts)


class Remoting:
    """A connection to one server, opened on first use and reopened after a failure.

    A failed call closes the connection, so the next call starts with a new one. Raises
    ClusterUnreachable when there is no answer within `timeout_s`.
    """

    def __init__(self, address: str, timeout_s: float = 3.0) -> None:
        self.address = address
        self.timeout_s = timeout_s
        self._host, self._port = parse_address(address)
        self._socket: socket.socket | None = None
        self._opaque = 0
        self._request = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection; a later call opens another."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def call(self, code: int, fields: Mapping[str, str], body: bytes = b"") -> Answer:
        """The answer to one request, whatever its code.

        The server may have closed an idle connection meanwhile: then the request is sent once more
        on a new one.
        """
        was_idle = self._socket is not None
        try:
            self.start(code, fields, body)
            return self.finish()
        except ClusterUnreachable as error:
            if not was_idle or isinstance(error.__cause__, TimeoutError):
                raise
        self.start(code, fields, body)
        return self.finish()

    def ask(self, code: int, fields: Mapping[str, str], body: bytes = b"") -> Answer:
        """The answer to a request that has to succeed. Raises ServerRefused for any other code."""
        answer = self.call(code, fields, body)
        if answer.code != ResponseCode.SUCCESS:
            raise ServerRefused(self.address, self._request, answer.code, answer.remark)
        return answer

    def start(self, code: int, fields: Mapping[str, str], body: bytes = b"") -> None:
        """Send a request; `finish` gets its answer."""
        self._request = _name(code)
        self._opaque = self._opaque + 1 & 0x7FFFFFFF
        header = {
            "code": int(code),
            "extFields": dict(fields),
            "flag": 0,
            "language": "PYTHON",
            "opaque": self._opaque,
            "serializeTypeCurrentRPC": "JSON",
            "version": MQ_VERSION,
        }
        # Compact and ASCII: Apache's brokers and ours read that without a slow branch.
        frame = encode_frame(json.dumps(header, separators=(",", ":")).encode(), body)
        try:
            self._connected().sendall(frame)
        except OSError as error:
            raise self._failed(error) from error

    def finish(self) -> Answer:
        """The answer to the request that was sent last."""
        try:
            while True:
                opaque, answer = self._receive()
                if opaque == self._opaque:
                    return answer
        except (OSError, FrameError, BodyError) as error:
            raise self._failed(error) from error

    def _connected(self) -> socket.socket:
        if self._socket is None:
            made = socket.create_connection((self._host, self._port), self.timeout_s)
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._socket = made
        return self._socket

    def _receive(self) -> tuple[int, Answer]:
        """One frame: its opaque (-1 for a request from the server) and the answer in it."""
        length, mark = _LENGTHS.unpack(self._read(8))
        header_length = mark & _HEADER_LENGTH
        if length > MAX_FRAME_BYTES or header_length > length - 4:
            raise FrameError(f"frame of {length} bytes with a header of {header_length}")
        header = _read_header(self._read(header_length))
        body = tuple(self._parts(length - 4 - header_length))
        is_answer = int(header.get("flag") or 0) & _RESPONSE_FLAG
        fields = {str(name): str(value) for name, value in (header.get("extFields") or {}).items()}
        return (
            int(header.get("opaque") or 0) if is_answer else -1,
            Answer(int(header.get("code") or 0), fields, body, str(header.get("remark") or "")),
        )

    def _read(self, size: int) -> bytes:
        return b"".join(self._parts(size))

    def _parts(self, size: int) -> Iterator[bytes]:
        assert self._socket is not None
        while size:
            part = self._socket.recv(min(size, _CHUNK_BYTES))
            if not part:
                raise ConnectionResetError(CLOSED_BY_PEER)
            yield part
            size -= len(part)

    def _failed(self, error: Exception) -> ClusterUnreachable:
        self.close()
        if isinstance(error, TimeoutError):
            return ClusterUnreachable(
                self.address, self._request, f"no answer in {self.timeout_s:g} s"
            )
        reason = in_words(error) or type(error).__name__
        if isinstance(error, FrameError):
            reason = f"it does not speak RocketMQ's protocol ({reason})"
        return ClusterUnreachable(self.address, self._request, reason)


def _read_header(data: bytes) -> dict[str, Any]:
    try:
        header = json.loads(data)
    except ValueError:
        header = parse_json(data)  # Java writes invalid JSON
    if not isinstance(header, dict):
        raise BodyError("a header that is not a JSON object")
    return header


def _name(code: int) -> str:
    try:
        return RequestCode(code).name
    except ValueError:
        return f"request {code}"


# ---- patience with servers that are away

T = TypeVar("T")

_BUSY = frozenset(
    {ResponseCode.SYSTEM_BUSY, ResponseCode.SERVICE_NOT_AVAILABLE, ResponseCode.FLOW_CONTROL}
)

_PAUSES = Backoff(first_s=0.05, longest_s=1.0)


class Patience:
    """Repeats calls while a server is away or busy, for at most `retry_timeout_s`.

    A restarting broker is away for seconds; that must not end a query that has run for weeks.
    """

    def __init__(
        self,
        retry_timeout_s: float,
        *,
        now: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._retry_timeout_s = retry_timeout_s
        self._now = now
        self._pause = pause

    def call(self, what: str, attempt: Callable[[], T]) -> T:
        """The result of the first attempt that gets through.

        Logs when a server goes away and when it is back. Raises BrokerAway, which says how long it
        tried, when no attempt gets through; raises every other error at once.
        """
        started = self._now()
        failures = 0
        was_away = False
        while True:
            try:
                result = attempt()
            except RocketMQError as error:
                if not _may_pass(error):
                    raise
                failures += 1
                pause_s = max(_PAUSES.wait_s(failures), _wanted_pause_s(error))
                self._check_time(what, error, self._now() - started, pause_s)
                if not was_away and (away := _away(error)):
                    _log.warning("%s: %s trying again for %g s", what, away, self._retry_timeout_s)
                    was_away = True
            else:
                if was_away:
                    waited_s = self._now() - started
                    _log.warning("%s: continues after %.1f s, the server is back", what, waited_s)
                return result
            self._pause(pause_s)

    def _check_time(self, what: str, error: RocketMQError, waited_s: float, pause_s: float) -> None:
        """Raise BrokerAway unless there is time for another attempt."""
        if waited_s + pause_s > self._retry_timeout_s:
            raise BrokerAway(
                f"{what}: given up after {waited_s:.1f} s (option retryTimeout"
                f" {self._retry_timeout_s:g}s): {error}. Nothing was skipped: start the"
                f" query again {_remedy(error)}"
            ) from error


def _away(error: RocketMQError) -> str:
    """The log text for a server that is away; empty for a busy one, which is normal under load."""
    match error:
        case ClusterUnreachable():
            return f"{error.address} cannot be reached ({error.reason}),"
        case BrokerAway() | NotTaken():
            return f"{error};"
    return ""


def _wanted_pause_s(error: RocketMQError) -> float:
    """How long the server asks us to wait; 0 if it does not say."""
    return (error.retry_after_s if isinstance(error, ServerRefused) else None) or 0.0


def _remedy(error: RocketMQError) -> str:
    if not isinstance(error, ServerRefused):
        return "when the server is back"
    if error.code == ResponseCode.FLOW_CONTROL:
        return (
            "with maxRowsPerSecond below the limit or a longer retryTimeout, or raise the limit"
            " (sparrowmq quota list)"
        )
    if isinstance(error, NotTaken):
        return "when the topic can be written to (sparrowmq topic route shows where)"
    return "when the server is less busy"


def _may_pass(error: RocketMQError) -> bool:
    if isinstance(error, ServerRefused):
        return error.code in _BUSY or isinstance(error, NotTaken)
    return isinstance(error, ClusterUnreachable | BrokerAway)
