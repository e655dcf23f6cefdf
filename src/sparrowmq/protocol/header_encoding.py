"""Headers to bytes: every header type gets a bytes template once, then one `%` per frame."""

from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import msgspec

from sparrowmq.protocol.binary_header import encode_binary_header
from sparrowmq.protocol.codes import MQ_VERSION, ResponseCode
from sparrowmq.protocol.frame import encode_frame, encode_frame_of
from sparrowmq.protocol.header import ONEWAY_FLAG, RESPONSE_FLAG, RequestHeader, ResponseHeader

# Compact on purpose: the Go client splits strings and stumbles over `": "`.
_TAIL = b'},"flag":%d,"language":"PYTHON","opaque":%d,"serializeTypeCurrentRPC":"JSON","version":%d'
_SUCCESS = b'{"code":0,"extFields":{'
_SUCCESS_TAIL = _TAIL % (RESPONSE_FLAG, -1, MQ_VERSION)
_SUCCESS_TAIL = _SUCCESS_TAIL.replace(b'"opaque":-1', b'"opaque":%d')
_text = msgspec.json.Encoder().encode

ExtFieldsEncoder = Callable[[Any], bytes]
_encoders: dict[type, ExtFieldsEncoder] = {}


def encode_request(
    header: RequestHeader,
    opaque: int,
    body: bytes = b"",
    *,
    oneway: bool = False,
    ext_fields: Mapping[str, str] | None = None,
) -> bytes:
    """A whole request frame with a JSON header, which every RocketMQ peer reads.

    `ext_fields` go beside the typed ones, for fields a peer adds to any request.
    """
    fields = _fields_of(header)
    if ext_fields:
        more = b",".join(_text(name) + b":" + _text(value) for name, value in ext_fields.items())
        fields = fields + b"," + more if fields else more
    flag = ONEWAY_FLAG if oneway else 0
    tail = _TAIL % (flag, opaque, MQ_VERSION)
    return encode_frame(b'{"code":%d,"extFields":{%b%b}' % (header.CODE, fields, tail), body)


def encode_response(
    opaque: int,
    *,
    code: int = ResponseCode.SUCCESS,
    header: ResponseHeader | None = None,
    remark: str = "",
    body: bytes = b"",
    chunks: Sequence[bytes | memoryview] = (),
    body_bytes: int = 0,
    binary: bool = False,
) -> bytes:
    """A whole response frame in the serialisation that the request used.

    The body is either `body` or `chunks`, whose lengths add up to `body_bytes`.
    """
    if binary:
        fields = ext_fields_of(header) if header is not None else {}
        head = encode_binary_header(code, MQ_VERSION, opaque, RESPONSE_FLAG, remark, fields)
    elif code == 0 and not remark:
        fields_json = _fields_of(header) if header is not None else b""
        head = b"%b%b%b}" % (_SUCCESS, fields_json, _SUCCESS_TAIL % opaque)
    else:
        fields_json = _fields_of(header) if header is not None else b""
        tail = _TAIL % (RESPONSE_FLAG, opaque, MQ_VERSION)
        head = b'{"code":%d,"extFields":{%b%b,"remark":%b}' % (
            code,
            fields_json,
            tail,
            _text(remark),
        )
    if chunks:
        return encode_frame_of(head, chunks, body_bytes, binary=binary)
    return encode_frame(head, body, binary=binary)


def ext_fields_of(header: RequestHeader | ResponseHeader) -> dict[str, str]:
    """Wire names and values as strings, as both serialisations carry them."""
    values = ((name, getattr(header, field)) for field, name in _wire_names(type(header)))
    return {name: _string(value) for name, value in values if value is not None}


def _fields_of(header: RequestHeader | ResponseHeader) -> bytes:
    kind = type(header)
    encoder = _encoders.get(kind)
    if encoder is None:
        encoder = _encoders[kind] = _compile(kind)
    return encoder(header)


def _compile(kind: type[msgspec.Struct]) -> ExtFieldsEncoder:
    names = _wire_names(kind)
    hints = get_type_hints(kind)
    if not names:
        return lambda header: b""
    if any(_is_optional(hints[field]) for field, _ in names) or len(names) == 1:
        return _encode_present
    template = ",".join(
        f'"{name}":"%d"' if hints[field] is int else f'"{name}":%b' for field, name in names
    ).encode()
    values = attrgetter(*(field for field, _ in names))
    texts = [index for index, (field, _) in enumerate(names) if hints[field] is not int]
    if not texts:
        return lambda header: template % values(header)

    def encode(header: Any) -> bytes:
        row = list(values(header))
        for index in texts:
            row[index] = _text(_string(row[index]))
        return template % tuple(row)

    return encode


def _encode_present(header: Any) -> bytes:
    return b",".join(
        b"%b:%b" % (_text(name), _text(value)) for name, value in ext_fields_of(header).items()
    )


def _wire_names(kind: type[msgspec.Struct]) -> list[tuple[str, str]]:
    return list(zip(kind.__struct_fields__, kind.__struct_encode_fields__, strict=True))


def _is_optional(hint: object) -> bool:
    return get_origin(hint) in (Union, UnionType) and type(None) in get_args(hint)


def _string(value: object) -> str:
    if value is True:
        return "true"
    if value is False:
        return "false"
    return str(value)
