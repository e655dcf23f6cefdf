"""Typed headers: every declaration reads what Java wrote and what we write, in both formats."""

import importlib
import json
import pkgutil
import struct
from collections.abc import Mapping
from typing import Any, ClassVar

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparrowmq.protocol import headers
from sparrowmq.protocol.binary_header import decode_binary_header, encode_binary_header
from sparrowmq.protocol.codes import RequestCode
from sparrowmq.protocol.errors import HeaderError
from sparrowmq.protocol.frame import FrameDecoder
from sparrowmq.protocol.header import (
    ONEWAY_FLAG,
    RequestDecoder,
    RequestHeader,
    ResponseHeader,
    decode_ext_fields,
    decode_plain,
)
from sparrowmq.protocol.header_encoding import encode_request, encode_response, ext_fields_of
from sparrowmq.protocol.headers.nameserver import GetClusterInfo, GetTopicRoute, RegisterBroker
from sparrowmq.protocol.headers.offsets import GetMaxOffset, OffsetFound, QueryConsumerOffset
from sparrowmq.protocol.java_numbers import Int, Long
from tests.protocol.java_vectors import cases


def declared(base: type) -> list[Any]:
    """All header types of the package."""
    for module in pkgutil.iter_modules(headers.__path__):
        importlib.import_module(f"{headers.__name__}.{module.name}")
    found: list[Any] = []
    waiting: list[type] = base.__subclasses__()
    while waiting:
        kind = waiting.pop()
        waiting += kind.__subclasses__()
        if kind.__module__.startswith(headers.__name__):
            found.append(kind)
    return sorted(set(found), key=lambda kind: str(kind.__name__))


REQUESTS = [kind for kind in declared(RequestHeader) if hasattr(kind, "CODE")]
RESPONSES = declared(ResponseHeader)
DECODER = RequestDecoder(REQUESTS)

words = st.text(st.characters(codec="utf-8"), max_size=20)
numbers = st.integers(-(2**63), 2**63 - 1)


def any_header(kinds: list[Any]) -> st.SearchStrategy[Any]:
    """Any header of these types, filled with anything that fits."""
    by_type = {str: words, int: numbers, bool: st.booleans(), type(None): st.none()}
    by_type |= {Int: st.integers(-(2**31), 2**31 - 1), Long: numbers}

    def filled(kind: Any) -> st.SearchStrategy[Any]:
        fields = {
            field.name: st.one_of(*(by_type[each] for each in _types(field.type)))
            for field in msgspec.structs.fields(kind)
        }
        return st.builds(kind, **fields)

    return st.sampled_from(kinds).flatmap(filled)


def _types(hint: Any) -> tuple[Any, ...]:
    return (hint,) if hint in (Int, Long) else getattr(hint, "__args__", None) or (hint,)


def the_frame(data: bytes) -> tuple[bool, bytes, bytes]:
    (frame,) = FrameDecoder().feed(data)
    return frame


def test_every_request_code_is_declared_once() -> None:
    codes = [kind.CODE for kind in REQUESTS]
    assert len(codes) == len(set(codes))
    assert len(codes) > 40


@given(any_header(REQUESTS), st.integers(-(2**31), 2**31 - 1), st.binary(max_size=50))
def test_a_request_is_read_as_it_was_written(header: Any, opaque: int, body: bytes) -> None:
    binary, head, received = the_frame(encode_request(header, opaque, body))
    assert (binary, received) == (False, body)
    envelope = DECODER.decode(binary, head)
    assert envelope.header == header
    assert (envelope.opaque, envelope.flag, envelope.language) == (opaque, 0, "PYTHON")


@given(any_header(REQUESTS), st.integers(-(2**31), 2**31 - 1))
def test_both_serialisations_carry_the_same_request(header: Any, opaque: int) -> None:
    code = int(header.CODE)
    if code > 32_767:  # the binary header has two bytes for it
        return
    packed = encode_binary_header(code, 479, opaque, 0, "", ext_fields_of(header))
    envelope = DECODER.decode(True, packed)
    assert envelope.header == header
    assert envelope.opaque == opaque


@given(any_header(RESPONSES), st.booleans(), st.integers(0, 3000), words)
def test_a_response_is_read_as_it_was_written(
    header: Any, binary: bool, code: int, remark: str
) -> None:
    data = encode_response(7, code=code, header=header, remark=remark, body=b"b", binary=binary)
    is_binary, head, body = the_frame(data)
    assert (is_binary, body) == (binary, b"b")
    plain = decode_plain(is_binary, head)
    assert (plain.code, plain.opaque, plain.is_response) == (code, 7, True)
    assert (plain.remark or "") == remark
    assert decode_ext_fields(plain.ext_fields, type(header)) == header


@given(any_header(REQUESTS))
def test_headers_are_compact_json_with_string_values(header: Any) -> None:
    _, head, _ = the_frame(encode_request(header, 1))
    parsed = json.loads(head)
    assert all(isinstance(value, str) for value in parsed["extFields"].values())
    assert json.dumps(parsed, separators=(",", ":"), ensure_ascii=False).encode() == head


def known(case: dict[str, Any]) -> bool:
    return any(case["code"] == kind.CODE for kind in REQUESTS) and not case["flag"] & 1


@pytest.mark.parametrize(
    "case",
    [case for case in cases("frames") if known(case)],
    ids=lambda case: f"{case['name']}-{case['serialization']}",
)
def test_a_request_of_java_becomes_its_typed_header(case: dict[str, Any]) -> None:
    binary, head, _ = the_frame(bytes.fromhex(case["frame"]))
    envelope = DECODER.decode(binary, head)
    assert int(envelope.header.CODE) == case["code"]
    sent = case["ext_fields"] or {}
    ours = ext_fields_of(envelope.header)
    assert {name: ours[name] for name in sent if name in ours} == {
        name: value for name, value in sent.items() if name in ours
    }
    assert envelope.opaque == case["opaque"]
    assert bool(envelope.flag & ONEWAY_FLAG) == bool(case["flag"] & ONEWAY_FLAG)


def test_a_registration_and_a_route_request_of_java_are_read_in_full() -> None:
    for case in cases("frames", "register_broker"):
        binary, head, _ = the_frame(bytes.fromhex(case["frame"]))
        assert DECODER.decode(binary, head).header == RegisterBroker(
            cluster_name="DefaultCluster",
            broker_name="broker-a",
            broker_id=0,
            broker_addr="127.0.0.1:10911",
            ha_server_addr="127.0.0.1:10912",
            enable_acting_master=False,
            body_crc32=123456,
        )
    for case in cases("frames", "get_route_info_by_topic"):
        binary, head, _ = the_frame(bytes.fromhex(case["frame"]))
        expected = GetTopicRoute(topic="orders", accept_standard_json_only=True)
        assert DECODER.decode(binary, head).header == expected


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"topic": "a"}, "queueId"),
        ({"topic": "a", "queueId": "x"}, "queueId"),
        ({"topic": "a", "queueId": "1", "committed": "maybe"}, "committed"),
        (None, "extFields"),
    ],
)
def test_a_request_that_does_not_match_its_declaration_is_refused_with_the_field(
    fields: dict[str, str] | None, says: str
) -> None:
    header = {"code": int(GetMaxOffset.CODE), "opaque": 1}
    if fields is not None:
        header["extFields"] = fields  # type: ignore[assignment]
    with pytest.raises(msgspec.ValidationError, match=says):
        DECODER.decode(False, json.dumps(header).encode())


@pytest.mark.parametrize("decoder", [DECODER, RequestDecoder([])], ids=["many", "none"])
@pytest.mark.parametrize("code", [-1, 0, 31_000, 2**40, None])
def test_a_request_whose_code_is_not_served_is_refused(
    decoder: RequestDecoder, code: int | None
) -> None:
    header = {"opaque": 1} if code is None else {"opaque": 1, "code": code}
    with pytest.raises(msgspec.ValidationError):
        decoder.decode(False, json.dumps(header).encode())


def test_numbers_may_come_as_numbers_and_unknown_fields_are_ignored() -> None:
    header = {
        "code": int(RequestCode.GET_MAX_OFFSET),
        "opaque": 1,
        "serializeTypeCurrentRPC": "JSON",
        "extFields": {"topic": "a", "queueId": 3, "committed": True, "bname": "broker-a"},
    }
    envelope = DECODER.decode(False, json.dumps(header).encode())
    assert envelope.header == GetMaxOffset(topic="a", queue_id=3)


def test_fields_in_addition_to_the_typed_ones_are_written_too() -> None:
    header = QueryConsumerOffset(consumer_group="g", topic="t", queue_id=0)
    _, head, _ = the_frame(encode_request(header, 1, ext_fields={"bname": 'b"x'}))
    assert json.loads(head)["extFields"]["bname"] == 'b"x'


class Constant(ResponseHeader, frozen=True, kw_only=True):
    """Fields that are the same in every answer, after none, optional and required ones."""

    CONSTANTS: ClassVar[Mapping[str, str]] = {"SHARE": '100 % "sure"', "TRACE_ON": "true"}


class ConstantAndOptional(Constant, frozen=True, kw_only=True):
    note: str | None = None


class ConstantAndRequired(ConstantAndOptional, frozen=True, kw_only=True):
    queue_id: int


@pytest.mark.parametrize(
    ("header", "fields"),
    [
        (Constant(), {}),
        (ConstantAndOptional(), {}),
        (ConstantAndOptional(note="x"), {"note": "x"}),
        (ConstantAndRequired(queue_id=7), {"queueId": "7"}),
        (ConstantAndRequired(queue_id=7, note="x"), {"queueId": "7", "note": "x"}),
    ],
)
@pytest.mark.parametrize("binary", [False, True])
@pytest.mark.parametrize("code", [0, 14])
def test_constant_fields_are_in_every_answer(
    header: Constant, fields: dict[str, str], binary: bool, code: int
) -> None:
    frame = encode_response(1, code=code, header=header, binary=binary)
    is_binary, head, _ = the_frame(frame)
    plain = decode_plain(is_binary, head)
    assert plain.ext_fields == {**fields, **Constant.CONSTANTS}
    assert decode_ext_fields(plain.ext_fields, type(header)) == header


def test_an_absent_value_is_not_written() -> None:
    assert "acceptStandardJsonOnly" not in ext_fields_of(GetTopicRoute(topic="a"))


def test_a_response_that_lacks_a_field_is_refused_with_its_name() -> None:
    with pytest.raises(HeaderError, match=r"OffsetFound.*offset"):
        decode_ext_fields({}, OffsetFound)
    with pytest.raises(HeaderError, match=r"OffsetFound.*int"):
        decode_ext_fields({"offset": "many"}, OffsetFound)


@given(st.binary(max_size=120))
def test_noise_is_either_refused_or_a_complete_binary_header(noise: bytes) -> None:
    try:
        decoded = decode_binary_header(noise)
    except HeaderError:
        return
    assert set(decoded) >= {"code", "opaque", "flag", "extFields"}


def binary_header(fields: bytes, fields_length: int, remark_length: int = 0) -> bytes:
    fixed = struct.pack(">hBhiii", 10, 0, 479, 1, 0, remark_length)
    return fixed + struct.pack(">i", fields_length) + fields


FIELD = b"\x00\x01a"
NAMED = struct.Struct(">3si")


@pytest.mark.parametrize(
    "broken",
    [
        binary_header(b"", -1),
        binary_header(b"", -4),
        binary_header(b"", 0, remark_length=-4),
        binary_header(NAMED.pack(FIELD, -1), 7),
        binary_header(NAMED.pack(FIELD, -7), 7),
        binary_header(NAMED.pack(FIELD, 9), 7),
        binary_header(NAMED.pack(FIELD, 0), 8),
    ],
    ids=[
        "fields of -1 byte",
        "fields of -4 bytes",
        "a remark of -4 bytes",
        "a value of -1 byte",
        "a value that leads back to its name",
        "a value longer than the header",
        "fields longer than the header",
    ],
)
def test_a_length_that_cannot_be_is_refused(broken: bytes) -> None:
    assert decode_binary_header(binary_header(NAMED.pack(FIELD, 0), 7))["extFields"] == {"a": ""}
    with pytest.raises(HeaderError):
        decode_binary_header(broken)


@given(any_header(REQUESTS), st.data())
def test_a_damaged_binary_header_never_raises_anything_else(header: Any, data: Any) -> None:
    packed = bytearray(encode_binary_header(10, 479, 1, 0, "r", ext_fields_of(header)))
    at = data.draw(st.integers(0, len(packed) - 1))
    packed[at] ^= data.draw(st.integers(1, 255))
    cut = data.draw(st.integers(0, len(packed)))
    for damaged in (bytes(packed), bytes(packed[:cut])):
        try:
            decode_plain(True, damaged)
        except HeaderError:
            continue


@given(st.binary(max_size=80) | st.text(max_size=80).map(str.encode))
def test_noise_is_either_refused_or_a_json_header(noise: bytes) -> None:
    try:
        decode_plain(False, noise)
    except HeaderError:
        return
    assert isinstance(json.loads(noise), dict)


def test_null_counts_as_no_fields_if_none_is_required() -> None:
    header = {"code": int(RequestCode.GET_BROKER_CLUSTER_INFO), "opaque": 7, "extFields": None}
    envelope = RequestDecoder([GetClusterInfo]).decode(False, json.dumps(header).encode())
    assert (envelope.header, envelope.opaque) == (GetClusterInfo(), 7)
    header["code"] = int(RequestCode.GET_MAX_OFFSET)
    with pytest.raises(msgspec.ValidationError, match="extFields"):
        DECODER.decode(False, json.dumps(header).encode())
