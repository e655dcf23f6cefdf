"""A peer that speaks bytes: it may send what no client of ours would."""

import asyncio
import json
from collections import deque
from dataclasses import dataclass
from typing import Self

from sparrowmq.protocol.binary_header import encode_binary_header
from sparrowmq.protocol.frame import Frame, FrameDecoder, encode_frame
from sparrowmq.protocol.header import PlainHeader, decode_plain


@dataclass(frozen=True)
class Answer:
    """A frame that came back."""

    header: PlainHeader
    body: bytes
    binary: bool

    @property
    def code(self) -> int:
        return self.header.code

    @property
    def remark(self) -> str:
        return self.header.remark or ""


class Wire:
    """One raw connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self.writer = writer
        self._decoder = FrameDecoder()
        self._frames: deque[Frame] = deque()

    @classmethod
    async def open(cls, host: str, port: int) -> Self:
        return cls(*await asyncio.open_connection(host, port))

    def send(self, *frames: bytes) -> None:
        self.writer.write(b"".join(frames))

    async def answer(self) -> Answer:
        """The next frame. Raises EOFError when the other side has closed."""
        while not self._frames:
            data = await self._reader.read(65536)
            if not data:
                raise EOFError
            self._frames.extend(self._decoder.feed(data))
        binary, header, body = self._frames.popleft()
        return Answer(decode_plain(binary, header), body, binary)

    async def ask(self, frame: bytes) -> Answer:
        self.send(frame)
        return await self.answer()

    async def is_closed(self) -> bool:
        """Wait for the other side to close; False when it sends something instead."""
        try:
            await self.answer()
        except (EOFError, ConnectionError):
            return True
        return False

    def close(self) -> None:
        self.writer.close()


def request(
    code: int,
    fields: dict[str, str] | None = None,
    body: bytes = b"",
    *,
    opaque: int = 1,
    flag: int = 0,
    version: int = 479,
    binary: bool = False,
) -> bytes:
    """A whole request frame with whatever fields."""
    if binary:
        header = encode_binary_header(code, version, opaque, flag, "", fields or {})
    else:
        plain = {"code": code, "opaque": opaque, "flag": flag, "version": version}
        header = json.dumps({**plain, "language": "JAVA", "extFields": fields or {}}).encode()
    return encode_frame(header, body, binary=binary)
