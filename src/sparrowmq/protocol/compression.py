"""Compressed bodies: zlib, lz4 and zstd, with bounded output."""

import zlib
from enum import IntEnum
from typing import Self

from sparrowmq.protocol.errors import BodyError, TooLarge
from sparrowmq.protocol.sys_flag import COMPRESSION_MASK, COMPRESSION_SHIFT

MAX_PLAIN_BYTES = 4 * 1024 * 1024 + 64 * 1024
"""Largest decompressed body: RocketMQ's 4 MiB plus some slack. Apache has no limit here."""

DEFAULT_LEVEL = 5

_MAX_ZSTD_WINDOW = 8 * 1024 * 1024
_LZ4_BLOCK_4_MIB = 7  # what Java's LZ4FrameOutputStream uses by default


class CompressionType(IntEnum):
    """Bits 8 to 10 of a message's sysFlag."""

    LZ4 = 1
    ZSTD = 2
    ZLIB = 3

    @property
    def flag(self) -> int:
        """Its bits in sysFlag."""
        return self << COMPRESSION_SHIFT

    @classmethod
    def of(cls, sys_flag: int) -> Self:
        """The type in a sysFlag; none means zlib (before 5.0). Raises BodyError for others."""
        value = (sys_flag & COMPRESSION_MASK) >> COMPRESSION_SHIFT
        if value > cls.ZLIB:
            raise BodyError(f"compression type {value}, known are 1 lz4, 2 zstd, 3 zlib")
        return cls(value or cls.ZLIB)


def compress(data: bytes, kind: CompressionType, level: int = DEFAULT_LEVEL) -> bytes:
    """Compress as Apache's clients do. Lz4 has no levels, as in Java."""
    match kind:
        case CompressionType.ZLIB:
            return zlib.compress(data, level)
        case CompressionType.ZSTD:
            from zstandard import ZstdCompressor

            return ZstdCompressor(level=level).compress(data)
        case CompressionType.LZ4:
            from lz4 import frame

            # Java's LZ4FrameInputStream refuses linked blocks
            packed = frame.compress(
                data, block_size=_LZ4_BLOCK_4_MIB, block_linked=False, store_size=False
            )
            return bytes(packed)


def decompress(data: bytes, kind: CompressionType, limit_bytes: int = MAX_PLAIN_BYTES) -> bytes:
    """Decompress at most `limit_bytes`. Raises TooLarge beyond, BodyError for broken data."""
    match kind:
        case CompressionType.ZLIB:
            return inflate(data, limit_bytes)
        case CompressionType.ZSTD:
            return _decompress_zstd(data, limit_bytes)
        case CompressionType.LZ4:
            return _decompress_lz4(data, limit_bytes)


def inflate(data: bytes, limit_bytes: int) -> bytes:
    """zlib, bounded. Raises TooLarge or BodyError."""
    inflater = zlib.decompressobj()
    try:
        plain = inflater.decompress(data, limit_bytes + 1)
    except zlib.error as error:
        raise BodyError(f"broken zlib data: {error}") from None
    _check_complete("zlib", len(plain), limit_bytes, inflater.eof)
    return plain


def _decompress_lz4(data: bytes, limit_bytes: int) -> bytes:
    from lz4.frame import LZ4FrameDecompressor

    decompressor = LZ4FrameDecompressor()
    try:
        plain = bytes(decompressor.decompress(data, limit_bytes + 1))
    except (RuntimeError, EOFError) as error:
        raise BodyError(f"broken lz4 data: {error}") from None
    _check_complete("lz4", len(plain), limit_bytes, decompressor.eof)
    return plain


def _decompress_zstd(data: bytes, limit_bytes: int) -> bytes:
    from zstandard import CONTENTSIZE_UNKNOWN, ZstdDecompressor, ZstdError, get_frame_parameters

    decompressor = ZstdDecompressor(max_window_size=_MAX_ZSTD_WINDOW)
    try:
        # The library trusts the size in a frame, so it is checked first
        size = get_frame_parameters(data).content_size
        if size != CONTENTSIZE_UNKNOWN and size > limit_bytes:
            raise TooLarge("decompressed zstd body", limit_bytes, size)
        return decompressor.decompress(data, max_output_size=limit_bytes)
    except ZstdError as error:
        reason = error
    # The library raises the same error for too much output and too little input
    try:
        with decompressor.stream_reader(data) as reader:
            size = len(reader.read(limit_bytes + 1))
    except ZstdError:
        size = 0
    if size > limit_bytes:
        raise TooLarge("decompressed zstd body", limit_bytes)
    raise BodyError(f"broken zstd data: {reason}")


def _check_complete(what: str, size: int, limit_bytes: int, eof: bool) -> None:
    if size > limit_bytes:
        raise TooLarge(f"decompressed {what} body", limit_bytes)
    if not eof:
        raise BodyError(f"broken {what} data: it ends early")
