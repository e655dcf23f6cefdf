"""Encoding headers: for every header type one function is generated, which formats with one `%`.

The function is generated from the type's declaration, as dataclasses generate their `__init__`:
iterating over fields and their types for every frame costs three times as much.
"""

from collections.abc import Callable, Mapping, Sequence
from struct import Struct
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import msgspec

from sparrowmq.protocol.binary_header import encode_binary_header
from sparrowmq.protocol.codes import MQ_VERSION, ResponseCode
from sparrowmq.protocol.frame import encode_frame, encode_frame_of
from sparrowmq.protocol.header import ONEWAY_FLAG, RESPONSE_FLAG, RequestHeader, ResponseHeader

# Compact on purpose: the Go client splits strings and fails on `": "`.
_TAIL = b'},"flag":%d,"language":"PYTHON","opaque":%d,"serializeTypeCurrentRPC":"JSON","version":%d'
_SUCCESS = '{"code":0,"extFields":{'
_SUCCESS_TAIL = (_TAIL % (RESPONSE_FLAG, -1, MQ_VERSION)).decode().replace(":-1", ":%d") + "}"
_text = msgspec.json.Encoder().encode
_pack_lengths = Struct(">II").pack
"""Packs the lengths of a frame with a JSON header."""

FieldsEncoder = Callable[[Any], bytes]
SuccessEncoder = Callable[[Any, int], bytes]
_encoders: dict[type, FieldsEncoder] = {}
_success_encoders: dict[type, SuccessEncoder] = {}


def encode_request(
    header: RequestHeader,
    opaque: int,
    body: bytes = b"",
    *,
    oneway: bool = False,
    ext_fields: Mapping[str, str] | None = None,
) -> bytes:
    """A complete request frame with a JSON header, which every RocketMQ peer reads.

    `ext_fields` are added to the typed ones, for fields that a peer adds to any request.
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
    """A complete response frame in the serialisation that the request used.

    The body is either `body` or `chunks`, whose lengths add up to `body_bytes`.
    """
    if binary:
        fields = ext_fields_of(header) if header is not None else {}
        head = encode_binary_header(code, MQ_VERSION, opaque, RESPONSE_FLAG, remark, fields)
    elif code == 0 and not remark:
        head = _success_of(header, opaque)
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


def encode_success(
    opaque: int,
    header: ResponseHeader | None,
    body: bytes,
    chunks: Sequence[bytes | memoryview],
    body_bytes: int,
) -> bytes:
    """`encode_response` for nearly every answer: a success with a JSON header."""
    # Inlined, not composed of smaller functions: this runs for every request.
    try:
        head = _success_encoders[type(header)](header, opaque)
    except KeyError:
        head = _success_of(header, opaque)
    size = len(head)
    if chunks:
        return b"".join((_pack_lengths(4 + size + body_bytes, size), head, *chunks))
    return _pack_lengths(4 + size + len(body), size) + head + body


def ext_fields_of(header: RequestHeader | ResponseHeader) -> dict[str, str]:
    """Wire names and values as strings, as both serialisations carry them."""
    kind = type(header)
    values = ((name, getattr(header, field)) for field, name in _wire_names(kind))
    fields = {name: _string(value) for name, value in values if value is not None}
    return fields | _constants(kind)


def _fields_of(header: RequestHeader | ResponseHeader) -> bytes:
    kind = type(header)
    encoder = _encoders.get(kind)
    if encoder is None:
        encoder = _encoders[kind] = _compile(kind, "", "", "header")
    return encoder(header)


def _success_of(header: ResponseHeader | None, opaque: int) -> bytes:
    kind = type(header)
    encoder = _success_encoders.get(kind)
    if encoder is None:
        encoder = _compile(kind, _SUCCESS, _SUCCESS_TAIL, "header, opaque")
        _success_encoders[kind] = encoder
    return encoder(header, opaque)


def _compile(kind: type, start: str, end: str, parameters: str) -> Callable[..., bytes]:
    """Generate a function of these parameters that formats start, the header's fields and end."""
    template, values = _fields_code(kind)
    values += parameters.split(", ")[1:]
    constant = (start + template + end).encode()
    tuple_code = f"({', '.join(values)},)" if values else "()"
    code = f"lambda {parameters}: {constant!r} % {tuple_code}"
    names = {"text": _text, "string": _string, "present": _encode_present}
    encoder: Callable[..., bytes] = eval(code, names)
    return encoder


def _fields_code(kind: type) -> tuple[str, list[str]]:
    """The template of a type's fields and the expressions that fill it."""
    if kind is type(None):
        return "", []
    hints = get_type_hints(kind)
    names = _wire_names(kind)
    required = [(field, name) for field, name in names if not _is_optional(hints[field])]
    if names and not required:
        return "%b", ["present(header)"]
    pieces = [_field_code(field, name, hints[field]) for field, name in required]
    template = ",".join([piece for piece, _ in pieces] + _constant_pieces(kind))
    values = [value for _, value in pieces]
    for field, name in names:
        if _is_optional(hints[field]):
            # After the required ones, so that each adds its own comma.
            hint = next(one for one in get_args(hints[field]) if one is not type(None))
            piece, value = _field_code(field, name, hint)
            template += "%b"
            code = f"{(',' + piece).encode()!r} % ({value},)"
            values.append(f'b"" if header.{field} is None else {code}')
    return template, values


def _field_code(field: str, name: str, hint: object) -> tuple[str, str]:
    if hint is int:
        return f'"{name}":"%d"', f"header.{field}"
    value = f"header.{field}" if hint is str else f"string(header.{field})"
    return f'"{name}":%b', f"text({value})"


def _constant_pieces(kind: type) -> list[str]:
    """The constant fields as parts of a template, with percent signs doubled."""
    pieces = (_text(name) + b":" + _text(value) for name, value in _constants(kind).items())
    return [piece.decode().replace("%", "%%") for piece in pieces]


def _constants(kind: type) -> dict[str, str]:
    return dict(kind.CONSTANTS) if issubclass(kind, ResponseHeader) else {}


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
