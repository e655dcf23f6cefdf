"""Frames of the remoting protocol, cut from a byte stream that arrives in any pieces.

4 bytes  length of all that follows
4 bytes  high byte: 0 JSON header, 1 binary header; low 24 bits: length of the header
header
body
"""

from collections.abc import Callable, Sequence
from struct import Struct

from sparrowmq.protocol.errors import FrameError

MAX_FRAME_BYTES = 16 * 1024 * 1024
MAX_HEADER_BYTES = 1024 * 1024

Frame = tuple[bool, bytes, bytes]
"""(header is binary, header, body). A plain tuple: one is made for every request."""

_LENGTHS = Struct(">II")
_BINARY = 1 << 24
_HEADER_LENGTH = 0xFFFFFF


class FrameDecoder:
    """Turns bytes into complete frames. Lengths are checked before anything is collected.

    `watch` is called with the size of an incomplete frame whenever bytes were added, and with 0
    when that frame is complete. For frames that arrive in one piece it is never called.
    """

    __slots__ = (
        "_held",
        "_held_bytes",
        "_max_frame_bytes",
        "_max_header_bytes",
        "_wanted_bytes",
        "_watch",
    )

    def __init__(
        self,
        max_frame_bytes: int = MAX_FRAME_BYTES,
        max_header_bytes: int = MAX_HEADER_BYTES,
        watch: Callable[[int], None] | None = None,
    ) -> None:
        self._max_frame_bytes = max_frame_bytes
        self._max_header_bytes = max_header_bytes
        self._watch = watch
        self._held: list[bytes] = []
        self._held_bytes = 0
        self._wanted_bytes = 8

    def feed(self, data: bytes) -> list[Frame]:
        """The frames that are complete now.

        Raises FrameError for an impossible length; the decoder must not be used afterwards.
        """
        if self._held:
            return self._feed_more(data)
        frames: list[Frame] = []
        at, end = 0, len(data)
        self._wanted_bytes = 8
        while end - at >= 8:
            length, mark = _LENGTHS.unpack_from(data, at)
            header_end = at + 8 + (mark & _HEADER_LENGTH)
            frame_end = at + 4 + length
            if length > self._max_frame_bytes or header_end > frame_end or mark >= _BINARY * 2:
                raise self._refusal(length, mark)
            if header_end - at - 8 > self._max_header_bytes:
                raise self._refusal(length, mark)
            if frame_end > end:
                self._wanted_bytes = 4 + length
                break
            frames.append((mark >= _BINARY, data[at + 8 : header_end], data[header_end:frame_end]))
            at = frame_end
        if at < end:
            self._held.append(data[at:] if at else data)
            self._held_bytes = end - at
            if self._watch is not None:
                self._watch(self._held_bytes)
        return frames

    def _feed_more(self, data: bytes) -> list[Frame]:
        # A large body comes in many pieces: join once, when the frame can be complete.
        self._held.append(data)
        self._held_bytes += len(data)
        if self._held_bytes < self._wanted_bytes:
            if self._watch is not None:
                self._watch(self._held_bytes)
            return []
        data = b"".join(self._held)
        self._held.clear()
        self._held_bytes = 0
        frames = self.feed(data)
        if frames and self._watch is not None:
            self._watch(0)
            if self._held_bytes:  # of the next frame, which begins now
                self._watch(self._held_bytes)
        return frames

    def abandon(self) -> None:
        """Forget an unfinished frame and its watcher: no more bytes will come."""
        self._watch = None
        self._held.clear()
        self._held_bytes = 0

    def _refusal(self, length: int, mark: int) -> FrameError:
        header_length = mark & _HEADER_LENGTH
        if length > self._max_frame_bytes:
            return FrameError(f"frame of {length} bytes, at most {self._max_frame_bytes} allowed")
        if mark >= _BINARY * 2:
            return FrameError(f"header serialisation {mark >> 24}, allowed are 0 JSON and 1 binary")
        if length < 4 or header_length > length - 4:
            return FrameError(f"header of {header_length} bytes in a frame of {length} bytes")
        return FrameError(
            f"header of {header_length} bytes, at most {self._max_header_bytes} allowed"
        )


def encode_frame(header: bytes, body: bytes = b"", *, binary: bool = False) -> bytes:
    """One frame, ready to be written."""
    size = len(header)
    return _LENGTHS.pack(4 + size + len(body), size | _BINARY if binary else size) + header + body


def encode_frame_of(
    header: bytes, chunks: Sequence[bytes | memoryview], body_bytes: int, *, binary: bool = False
) -> bytes:
    """One frame with a body in pieces: a pull's reply is joined exactly once."""
    size = len(header)
    lengths = _LENGTHS.pack(4 + size + body_bytes, size | _BINARY if binary else size)
    return b"".join((lengths, header, *chunks))
