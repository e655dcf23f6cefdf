"""Typed headers: declared once, decoded straight from the wire, formatted from templates.

A request header's type carries its request code. Servers, clients and documentation use this one
declaration; wire names (camelCase, or one letter) exist only in the declaration.
"""

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Generic, TypeVar

import msgspec

from sparrowmq.protocol.binary_header import decode_binary_header
from sparrowmq.protocol.codes import RequestCode
from sparrowmq.protocol.errors import HeaderError

RESPONSE_FLAG = 1
ONEWAY_FLAG = 2


class RequestHeader(msgspec.Struct, frozen=True, kw_only=True, rename="camel", gc=False):
    """Base of all request headers; string values on the wire become typed fields."""

    CODE: ClassVar[RequestCode]


class ResponseHeader(msgspec.Struct, frozen=True, kw_only=True, rename="camel", gc=False):
    """Base of all response headers. A field that is None is not written."""

    CONSTANTS: ClassVar[Mapping[str, str]] = {}
    """Wire fields with the same value in all answers of the type. They are part of the prepared
    text, so they cost nothing per answer; decoding into the type does not show them."""


H = TypeVar("H", bound=RequestHeader, covariant=True)


class Envelope(Generic[H]):
    """The shape of what `RequestDecoder.decode` returns; the real types are built per header."""

    header: H
    opaque: int
    flag: int
    language: str
    version: int


class PlainHeader(msgspec.Struct, rename="camel"):
    """Any frame header, untyped: responses, and requests without a declared type."""

    code: int = 0
    opaque: int = 0
    flag: int = 0
    language: str = "OTHER"
    version: int = 0
    remark: str | None = None
    ext_fields: dict[str, Any] | None = None
    """Strings; clients in other languages also send numbers and nulls, which is not an error."""

    @property
    def is_response(self) -> bool:
        """Whether this answers one of our requests."""
        return bool(self.flag & RESPONSE_FLAG)


class RequestDecoder:
    """Decodes the headers of exactly the requests it was made for, in one pass each.

    The request code is the tag of a tagged union, so one call both picks the type and fills it.
    """

    def __init__(self, headers: Iterable[type[RequestHeader]]) -> None:
        self._union: Any = _union([_envelope_type(header) for header in headers])
        self.decode_json: Any = msgspec.json.Decoder(self._union, strict=False).decode

    def decode(self, binary: bool, header: bytes) -> Any:
        """An Envelope. Raises msgspec.ValidationError for what does not match the declaration
        (including an undeclared code), HeaderError for bytes that are not a header at all."""
        if binary:
            return msgspec.convert(decode_binary_header(header), self._union, strict=False)
        return self.decode_json(header)


class _NoRequest(msgspec.Struct, tag_field="code", tag=-1):
    """A placeholder where nothing is routed: a client that serves no calls."""

    def __post_init__(self) -> None:
        # A peer may send -1 or no code; msgspec turns this into a ValidationError.
        raise ValueError("not a request that is served here")


def _union(types: list[type]) -> Any:
    union: Any = _NoRequest
    for other in types:
        union = union | other
    return union


def _envelope_type(header: type[RequestHeader]) -> type:
    has_required = any(field.required for field in msgspec.structs.fields(header))
    fields: list[tuple[Any, ...]] = [("opaque", int)]
    methods: dict[str, Any] = {}
    if has_required:
        fields.insert(0, ("header", header))
    else:
        empty = header()
        fields.append(("header", header | None, empty))

        def fill(envelope: Any) -> None:
            if envelope.header is None:  # `"extFields":null`, as from clients without a header
                envelope.header = empty

        methods["__post_init__"] = fill
    fields += [("flag", int, 0), ("language", str, "OTHER"), ("version", int, 0)]
    return msgspec.defstruct(
        f"{header.__name__}Envelope",
        fields,
        rename={"header": "extFields"},
        tag_field="code",
        tag=int(header.CODE),
        gc=False,
        namespace=methods,
    )


_plain = msgspec.json.Decoder(PlainHeader, strict=False)


def decode_plain(binary: bool, header: bytes) -> PlainHeader:
    """Decode any header without knowing its type. Raises HeaderError."""
    try:
        if binary:
            return msgspec.convert(decode_binary_header(header), PlainHeader, strict=False)
        return _plain.decode(header)
    except msgspec.MsgspecError as error:
        raise HeaderError(f"header of {len(header)} bytes is not valid: {error}") from error
    except UnicodeDecodeError as error:
        raise HeaderError(f"header of {len(header)} bytes is not UTF-8: {error}") from error


R = TypeVar("R", bound=ResponseHeader)


def decode_ext_fields(ext_fields: Mapping[str, str] | None, header: type[R]) -> R:
    """A typed response header. Raises HeaderError naming the wrong field."""
    try:
        return msgspec.convert(ext_fields or {}, header, strict=False)
    except msgspec.ValidationError as error:
        raise HeaderError(f"response does not fit {header.__name__}: {error}") from error
