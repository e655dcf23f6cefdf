"""A TCP proxy in front of a broker that loses answers to sends, in its own thread.

with LossyProxy("127.0.0.2", broker_port, broker_port) as proxy:
    proxy.lose(Loss.SILENTLY)
    ...                      # the broker stores the next message, its client never hears of it
"""

import asyncio
import contextlib
import threading
from collections import Counter
from concurrent.futures import Future
from enum import Enum, auto
from types import TracebackType
from typing import Self

from sparrowmq.protocol.codes import RequestCode
from sparrowmq.protocol.frame import FrameDecoder, encode_frame
from sparrowmq.protocol.header import decode_plain

BEYOND_PROXY = "127.0.0.2"
"""A broker that listens here and advertises 127.0.0.1 has its clients meet the proxy there."""
_SENDS = (
    RequestCode.SEND_MESSAGE,
    RequestCode.SEND_MESSAGE_V2,
    RequestCode.SEND_BATCH_MESSAGE,
)
_CHUNK = 64 * 1024


class Loss(Enum):
    """What a client notices of an answer that is lost."""

    SILENTLY = auto()
    """Nothing: it waits as long as it waits for any answer."""
    WITH_ITS_CONNECTION = auto()
    """The connection ends."""


class LossyProxy:
    """Forwards connections to one broker, and loses the answer to a send when told to."""

    def __init__(self, host: str, port: int, listen_port: int) -> None:
        self._target = host, port
        self._port = listen_port
        self._loss: Loss | None = None
        self.sends = 0
        """Sends that were passed on since `lose` was called."""
        self.lost = 0
        """Answers that were lost in all."""
        self.requests: Counter[int] = Counter()
        """Requests that were passed on, by their code."""
        self.answers: Counter[int] = Counter()
        """Answers of the broker, by theirs."""
        self._ready: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = Future()
        self._thread = threading.Thread(target=self._run, name="lossy proxy", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._ready.result()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        loop, stopping = self._ready.result()
        loop.call_soon_threadsafe(stopping.set)
        self._thread.join()

    def lose(self, loss: Loss) -> None:
        """The answer to the next send will not arrive."""
        self.sends = 0
        self._loss = loss

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except OSError as error:
            self._ready.set_exception(error)

    async def _serve(self) -> None:
        stopping = asyncio.Event()
        server = await asyncio.start_server(self._accepted, "127.0.0.1", self._port)
        self._ready.set_result((asyncio.get_running_loop(), stopping))
        await stopping.wait()
        server.close()

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        awaited: dict[int, Loss] = {}
        """Sends whose answers will be lost, by their number on this connection."""
        try:
            far_reader, far_writer = await asyncio.open_connection(*self._target)
        except OSError:
            writer.transport.abort()
            return
        both = (writer, far_writer)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._requests(reader, far_writer, awaited))
                tasks.create_task(self._answers(far_reader, both, awaited))
        finally:
            for each in both:
                each.transport.abort()

    async def _requests(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, awaited: dict[int, Loss]
    ) -> None:
        decoder = FrameDecoder()
        with contextlib.suppress(OSError):
            while data := await reader.read(_CHUNK):
                for binary, header, _ in decoder.feed(data):
                    plain = decode_plain(binary, header)
                    if plain.is_response:
                        continue
                    self.requests[plain.code] += 1
                    if plain.code not in _SENDS:
                        continue
                    self.sends += 1
                    if self._loss is not None:
                        awaited[plain.opaque], self._loss = self._loss, None
                writer.write(data)
                await writer.drain()
        writer.transport.abort()

    async def _answers(
        self,
        reader: asyncio.StreamReader,
        both: tuple[asyncio.StreamWriter, asyncio.StreamWriter],
        awaited: dict[int, Loss],
    ) -> None:
        decoder, (writer, _) = FrameDecoder(), both
        with contextlib.suppress(OSError):
            while data := await reader.read(_CHUNK):
                for binary, header, body in decoder.feed(data):
                    plain = decode_plain(binary, header)
                    loss = awaited.pop(plain.opaque, None) if plain.is_response else None
                    self.answers[plain.code] += plain.is_response
                    if loss is None:
                        writer.write(encode_frame(header, body, binary=binary))
                        continue
                    self.lost += 1
                    if loss is Loss.WITH_ITS_CONNECTION:
                        for each in both:
                            each.transport.abort()
                        return
                await writer.drain()
        writer.transport.abort()
