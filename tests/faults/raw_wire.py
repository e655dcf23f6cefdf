"""Remoting frames by hand: as little as the fault tests need, without the code under test."""

import socket
import struct
from typing import Any

import msgspec

from sparrowmq.protocol.record import decode_record
from tests.faults.checker import ReadBack
from tests.patience import PATIENCE_S

SEND_MESSAGE_V2, PULL_MESSAGE = 310, 11
_HEAD = struct.Struct(">II")
_PULL_SUBSCRIPTION = 4


class AnswerHead(msgspec.Struct):
    """The fields of an answer's header that matter here."""

    code: int
    opaque: int
    flag: int = 0
    remark: str | None = None
    extFields: dict[str, str] | None = None


_decode_head = msgspec.json.Decoder(AnswerHead).decode


def request(code: int, opaque: int, fields: dict[str, str], body: bytes = b"") -> bytes:
    """One request with a JSON header."""
    header = msgspec.json.encode(
        {
            "code": code,
            "language": "PYTHON",
            "version": 477,
            "opaque": opaque,
            "flag": 0,
            "extFields": fields,
            "serializeTypeCurrentRPC": "JSON",
        }
    )
    return _HEAD.pack(4 + len(header) + len(body), len(header)) + header + body


def send_fields(topic: str, queue_id: int, properties: bytes) -> dict[str, str]:
    """The one-letter fields of a send."""
    return {
        "a": "faults",
        "b": topic,
        "c": "TBW102",
        "d": "8",
        "e": str(queue_id),
        "f": "0",
        "g": "1700000000000",
        "h": "0",
        "i": properties.decode(),
        "j": "0",
        "k": "false",
        "m": "false",
    }


def take_frames(buffer: bytearray) -> list[tuple[AnswerHead, bytes]]:
    """Take every whole frame off the front of a buffer."""
    frames = []
    at = 0
    while len(buffer) - at >= _HEAD.size:
        size, header_size = _HEAD.unpack_from(buffer, at)
        end = at + 4 + size
        if len(buffer) < end:
            break
        header_end = at + _HEAD.size + (header_size & 0xFFFFFF)
        head = _decode_head(buffer[at + _HEAD.size : header_end])
        frames.append((head, bytes(buffer[header_end:end])))
        at = end
    del buffer[:at]
    return frames


class RawClient:
    """One blocking connection, one request at a time."""

    def __init__(
        self, port: int, timeout_s: float = PATIENCE_S, *, host: str = "127.0.0.1"
    ) -> None:
        self._socket = socket.create_connection((host, port), timeout_s)
        self._buffer = bytearray()
        self._opaque = 0

    def __enter__(self) -> "RawClient":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the connection."""
        self._socket.close()

    def call(self, code: int, fields: dict[str, str], body: bytes = b"") -> Any:
        """Header and body of the answer. Raises OSError when the connection is lost."""
        self._opaque += 1
        self._socket.sendall(request(code, self._opaque, fields, body))
        while True:
            for head, answer in take_frames(self._buffer):
                if head.flag & 1 and head.opaque == self._opaque:
                    return head, answer
            data = self._socket.recv(1 << 20)
            if not data:
                raise ConnectionResetError("closed by the broker")
            self._buffer += data

    def read_queue(self, topic: str, queue_id: int, offset: int = 0) -> list[ReadBack]:
        """Every message of a queue from `offset` on."""
        found: list[ReadBack] = []
        while True:
            fields = {
                "consumerGroup": "faults-reader",
                "topic": topic,
                "queueId": str(queue_id),
                "queueOffset": str(offset),
                "maxMsgNums": "4096",
                "sysFlag": str(_PULL_SUBSCRIPTION),
                "commitOffset": "0",
                "suspendTimeoutMillis": "0",
                "subVersion": "0",
                "subscription": "*",
                "expressionType": "TAG",
                "maxMsgBytes": str(4 << 20),
            }
            head, body = self.call(PULL_MESSAGE, fields)
            at = 0
            while at < len(body):
                record = decode_record(body, at)
                at += record.size
                found.append(
                    ReadBack(topic, queue_id, record.queue_offset, record.body, record.properties)
                )
            next_offset = int((head.extFields or {}).get("nextBeginOffset", offset))
            if next_offset <= offset:
                return found
            offset = next_offset
