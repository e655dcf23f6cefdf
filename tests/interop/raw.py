"""Single remoting requests written by hand, for answers that no client shows unchanged."""

import json
import socket
import struct
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class RawReply:
    """One answer: its code, its header fields and its body as bytes."""

    code: int
    remark: str | None
    fields: dict[str, str] = field(default_factory=dict)
    body: bytes = b""

    def json(self) -> Any:
        """The body as strict JSON."""
        return json.loads(self.body)


class RawConnection:
    """A plain blocking connection that speaks JSON headers."""

    def __init__(self, address: str, timeout_s: float = 60.0) -> None:
        host, port = address.rsplit(":", 1)
        self._socket = socket.create_connection((host, int(port)), timeout_s)
        self._opaque = 0

    def __enter__(self) -> "RawConnection":
        return self

    def __exit__(self, *error: object) -> None:
        self._socket.close()

    def call(self, code: int, fields: dict[str, str] | None = None, body: bytes = b"") -> RawReply:
        """Send one request and return its answer; requests from the other side are skipped."""
        self._opaque += 1
        header = {
            "code": code,
            "language": "PYTHON",
            "version": 477,
            "opaque": self._opaque,
            "flag": 0,
        }
        header |= {"serializeTypeCurrentRPC": "JSON", "extFields": fields or {}}
        packed = json.dumps(header, separators=(",", ":")).encode()
        size = 4 + len(packed) + len(body)
        self._socket.sendall(struct.pack(">ii", size, len(packed)) + packed + body)
        while True:
            head, answer_body = self._frame()
            if head["flag"] & 1 and head["opaque"] == self._opaque:
                remark, answered = head.get("remark"), head.get("extFields") or {}
                return RawReply(head["code"], remark, answered, answer_body)

    def _frame(self) -> tuple[dict[str, Any], bytes]:
        size = struct.unpack(">i", self._exactly(4))[0]
        data = self._exactly(size)
        header_size = struct.unpack(">i", data[:4])[0] & 0xFFFFFF
        return json.loads(data[4 : 4 + header_size]), data[4 + header_size :]

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            chunk = self._socket.recv(size - len(data))
            if not chunk:
                raise ConnectionError(f"closed after {len(data)} of {size} bytes")
            data += chunk
        return data


def call(
    address: str, code: int, fields: dict[str, str] | None = None, body: bytes = b""
) -> RawReply:
    """One request on a separate connection."""
    with RawConnection(address) as connection:
        return connection.call(code, fields, body)
