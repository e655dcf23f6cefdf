"""Frames that no client would send: valid ones that are then corrupted."""

import struct
from collections.abc import Callable
from random import Random
from typing import Any

import msgspec

from sparrowmq.broker.server import routes
from sparrowmq.protocol.codes import RequestCode
from sparrowmq.protocol.header import RequestHeader
from tests.protocol.java_vectors import cases


def _fields_of(header: type[RequestHeader]) -> list[str]:
    return [field.encode_name for field in msgspec.structs.fields(header)]


_FIELDS = {header.CODE.value: _fields_of(header) for header in routes.handlers}
_ALL_FIELDS = sorted({name for names in _FIELDS.values() for name in names} | {"bname", "x" * 200})
_VALUES = (
    "",
    "0",
    "-1",
    "1",
    "2147483648",
    "-9223372036854775809",
    "99999999999999999999999999",
    "1e308",
    "NaN",
    "true",
    "null",
    "TBW102",
    "faults",
    "../../../etc/passwd",
    "%RETRY%g",
    "SCHEDULE_TOPIC_XXXX",
    "日本語 ☃ 😀",
    "\x00\x01\x02",
    "a" * 300,
    "x" * 40_000,
    "KEYS\x01k\x02UNIQ_KEY\x01u\x02DELAY\x01-5\x02",
    "((((((((a > 1",
    "*",
)
_BODIES = (
    b"",
    b"{}",
    b"[]",
    b"null",
    b'{"clientID":"c","consumerDataSet":[{}],"producerDataSet":null}',
    b"{" * 50_000,
    b"[" * 200_000,
    b'{"a":' * 31 + b"1" + b"}" * 31,
    b"\xff\xfe\x00" * 100,
    b'{"offsetTable":{"t@g":{0:-5,99999999999999999999:1}}}',
    bytes(70_000),
    b'{"x":"' + b"\\u0000" * 10_000 + b'"}',
)


def patterns() -> list[bytes]:
    """Valid frames, as Java's classes write them."""
    return [bytes.fromhex(case["frame"]) for case in cases("frames")]


def mutated(rng: Random, pattern: bytes) -> bytes:
    """A frame with some bytes changed, moved, doubled or gone."""
    data = bytearray(pattern)
    for _ in range(rng.choice((1, 1, 2, 5))):
        _MUTATIONS[rng.randrange(len(_MUTATIONS))](rng, data)
    return bytes(data)


def _flip(rng: Random, data: bytearray) -> None:
    if data:
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def _replace(rng: Random, data: bytearray) -> None:
    if data:
        data[rng.randrange(len(data))] = rng.randrange(256)


def _cut(rng: Random, data: bytearray) -> None:
    del data[rng.randint(0, len(data)) :]


def _remove(rng: Random, data: bytearray) -> None:
    at = rng.randint(0, len(data))
    del data[at : at + rng.randint(1, 20)]


def _double(rng: Random, data: bytearray) -> None:
    at = rng.randint(0, len(data))
    data[at:at] = data[at : at + rng.randint(1, 20)]


def _lie(rng: Random, data: bytearray) -> None:
    lengths = (0, 1, 7, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 16 << 20, (16 << 20) + 1)
    if len(data) >= 8:
        struct.pack_into(">I", data, rng.choice((0, 4)), rng.choice(lengths))


def _insert(rng: Random, data: bytearray) -> None:
    at = rng.randint(0, len(data))
    data[at:at] = rng.choice((b'"', b"{", b"}", b"\x00", b"\\u", b",", b"-", b"9" * 30, b"\xf0"))


_MUTATIONS: tuple[Callable[[Random, bytearray], None], ...] = (
    _flip,
    _replace,
    _cut,
    _remove,
    _double,
    _lie,
    _insert,
)


def spoilt_request(rng: Random, opaque: int, code: int | None = None) -> bytes:
    """A well-formed frame whose fields and body make no sense."""
    number = code if code is not None else rng.choice(list(RequestCode)).value
    own = _FIELDS.get(number, _ALL_FIELDS)
    fields = {name: rng.choice(_VALUES) for name in own if rng.random() < 0.9}
    fields |= {rng.choice(_ALL_FIELDS): rng.choice(_VALUES) for _ in range(rng.choice((0, 0, 3)))}
    header: dict[str, Any] = {
        "code": number,
        "language": rng.choice(("JAVA", "GO", "X" * 50)),
        "version": rng.choice((0, 477, -1, 1 << 31)),
        "opaque": opaque,
        "flag": rng.choice((0, 0, 0, 2, 1, 255)),
        "extFields": fields,
    }
    packed = msgspec.json.encode(header)
    body = rng.choice(_BODIES) if rng.random() < 0.6 else b""
    return struct.pack(">II", 4 + len(packed) + len(body), len(packed)) + packed + body
