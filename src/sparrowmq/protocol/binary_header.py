"""RocketMQ's binary frame header (serialisation 1), for peers that use it instead of JSON.

2 code | 1 language | 2 version | 4 opaque | 4 flag | 4 + n remark | 4 + n ext fields
ext fields: 2 + n name | 4 + n value, repeated
"""

from collections.abc import Mapping
from struct import Struct
from struct import error as StructError

from sparrowmq.protocol.codes import Language
from sparrowmq.protocol.errors import HeaderError

_FIXED = Struct(">hbhiii")
_LENGTH = Struct(">i")
_NAME_LENGTH = Struct(">h")


def encode_binary_header(
    code: int, version: int, opaque: int, flag: int, remark: str, ext_fields: Mapping[str, str]
) -> bytes:
    """Header bytes; the language is ours."""
    note = remark.encode()
    parts = [_FIXED.pack(code, Language.PYTHON, version, opaque, flag, len(note)), note]
    fields: list[bytes] = []
    for name, value in ext_fields.items():
        key, data = name.encode(), value.encode()
        fields += (_NAME_LENGTH.pack(len(key)), key, _LENGTH.pack(len(data)), data)
    packed = b"".join(fields)
    return b"".join((*parts, _LENGTH.pack(len(packed)), packed))


def decode_binary_header(data: bytes) -> dict[str, object]:
    """The header with the same keys as in JSON. Raises HeaderError if the layout is broken."""
    try:
        return _decode(data)
    except (StructError, UnicodeDecodeError) as error:
        raise HeaderError(f"binary header of {len(data)} bytes is broken: {error}") from error


def _decode(data: bytes) -> dict[str, object]:
    code, language, version, opaque, flag, remark_length = _FIXED.unpack_from(data)
    remark, at = _text(data, _FIXED.size, remark_length)
    (fields_length,) = _LENGTH.unpack_from(data, at)
    at += 4
    end = at + fields_length
    if fields_length < 0 or end > len(data):
        raise HeaderError(f"ext fields of {fields_length} bytes in a header of {len(data)}")
    fields: dict[str, str] = {}
    while at < end:
        (name_length,) = _NAME_LENGTH.unpack_from(data, at)
        name, at = _text(data, at + 2, name_length)
        (value_length,) = _LENGTH.unpack_from(data, at)
        fields[name], at = _text(data, at + 4, value_length)
    known = language in Language.__members__.values()
    return {
        "code": code,
        "language": Language(language).name if known else Language.OTHER.name,
        "version": version,
        "opaque": opaque,
        "flag": flag,
        "remark": remark,
        "extFields": fields,
    }


def _text(data: bytes, at: int, length: int) -> tuple[str, int]:
    if length < 0 or at + length > len(data):
        raise HeaderError(f"text of {length} bytes at {at} in a header of {len(data)} bytes")
    return data[at : at + length].decode(), at + length
