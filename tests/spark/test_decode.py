"""Stored records to Arrow: the vectorised decoder agrees with the protocol's own decoder."""

import zlib
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

pa = pytest.importorskip("pyarrow", reason="needs the spark extra: pip install sparrowmq[spark]")

from sparrowmq.protocol.batch import encode_batch  # noqa: E402  # after the skip
from sparrowmq.protocol.compression import CompressionType, compress  # noqa: E402
from sparrowmq.protocol.hosts import format_address  # noqa: E402
from sparrowmq.protocol.message_ext import MessageExt, decode_messages  # noqa: E402
from sparrowmq.protocol.properties import encode_properties  # noqa: E402
from sparrowmq.protocol.record import topic_part  # noqa: E402
from sparrowmq.protocol.sys_flag import COMPRESSED, INNER_BATCH, NEED_UNWRAP  # noqa: E402
from sparrowmq.spark.decode.decoder import Decoder  # noqa: E402
from sparrowmq.spark.decode.slow_path import messages_at  # noqa: E402
from sparrowmq.spark.errors import Damaged  # noqa: E402
from sparrowmq.spark.schema import READ_NAMES, read_columns  # noqa: E402
from tests.spark.records import V4, V6, record  # noqa: E402


def as_protocol_says(message: MessageExt) -> dict[str, Any]:
    def microseconds(ms: int) -> int:
        return ms * 1000

    return {
        "topic": message.topic,
        "brokerName": message.broker_name,
        "queueId": message.queue_id,
        "queueOffset": message.queue_offset,
        "msgId": message.msg_id,
        "tags": message.tags,
        "keys": list(message.keys),
        "body": message.body,
        "properties": list(message.properties.items()),
        "bornTimestamp": microseconds(message.born_timestamp),
        "storeTimestamp": microseconds(message.store_timestamp),
        "bornHost": format_address(message.born_host),
        "reconsumeTimes": message.reconsume_times,
        "sysFlag": message.sys_flag,
    }


def rows_of(batch: Any) -> list[dict[str, Any]]:
    for name in ("bornTimestamp", "storeTimestamp"):
        if name in batch.schema.names:
            place = batch.schema.names.index(name)
            batch = batch.set_column(place, name, batch.column(place).cast(pa.int64()))
    batch.validate(full=True)
    found: list[dict[str, Any]] = batch.to_pylist()
    return found


def assert_equal(data: bytes) -> None:
    batch = Decoder(broker_name="broker-a").decode(data)
    messages = decode_messages(data, "broker-a", check_crc=False)
    assert rows_of(batch) == [as_protocol_says(message) for message in messages]


texts = st.text(st.characters(codec="utf-8", exclude_characters="\x01\x02"), min_size=1)
key_texts = st.one_of(
    texts, st.sampled_from(["k1", "k1 k2", " k1", "k1  k2", "k1\tk2", "k1\u2003k2", " "])
)
property_maps = st.dictionaries(
    st.one_of(st.sampled_from(["TAGS", "UNIQ_KEY", "CLUSTER", "TAGS2"]), texts), texts, max_size=6
).flatmap(lambda found: st.one_of(st.just(found), key_texts.map(lambda k: {**found, "KEYS": k})))
odd_properties = st.one_of(
    st.binary(max_size=20),
    st.lists(st.sampled_from([b"a", b"TAGS", b"\x01", b"\x02", b"\xff"]), max_size=12).map(
        b"".join
    ),
    st.just(b"TAGS\x01a\x02TAGS\x01b\x02"),
    st.just(b"TAGS\x01a"),
)
properties = st.one_of(property_maps.map(encode_properties), odd_properties)
times = st.integers(0, 10**15)


@st.composite
def plain_records(draw: st.DrawFn) -> bytes:
    return record(
        topic=topic_part(draw(st.sampled_from(["orders", "o", "%RETRY%billing"]))),
        queue_id=draw(st.integers(0, 2**31 - 1)),
        queue_offset=draw(st.integers(0, 2**63 - 2)),
        log_offset=draw(st.integers(0, 2**63 - 1)),
        sys_flag=draw(st.sampled_from([0, 2, 8, INNER_BATCH, NEED_UNWRAP])),
        born_timestamp=draw(times),
        store_timestamp=draw(times),
        born_host=draw(st.sampled_from([V4, b"\x0a\x00\x00\x02\x00\x00\xff\xff"])),
        reconsume_times=draw(st.integers(0, 16)),
        body=draw(st.binary(max_size=40)),
        properties=draw(properties),
    )


@st.composite
def odd_records(draw: st.DrawFn) -> bytes:
    body = draw(st.binary(min_size=1, max_size=40))
    sys_flag = 0
    if draw(st.booleans()):
        messages = st.lists(st.tuples(st.integers(0, 9), st.binary(max_size=9), properties))
        body = encode_batch(draw(messages))
        sys_flag |= INNER_BATCH | NEED_UNWRAP
    kind = draw(st.sampled_from([None, *CompressionType]))
    if kind is not None:
        body = compress(body, kind)
        sys_flag |= COMPRESSED | kind.flag
    return record(
        topic=topic_part(draw(st.sampled_from(["orders", "t" * 200]))),
        queue_offset=draw(st.integers(0, 1000)),
        sys_flag=sys_flag,
        born_host=draw(st.sampled_from([V4, V6])),
        store_host=draw(st.sampled_from([V4, V6])),
        body=body,
        properties=draw(properties),
    )


@given(st.lists(st.one_of(plain_records(), odd_records()), max_size=12))
def test_any_mixture_of_records_is_decoded_as_the_protocol_does(records: list[bytes]) -> None:
    assert_equal(b"".join(records))


@given(st.lists(property_maps.map(lambda p: record(properties=encode_properties(p))), max_size=30))
@example([record(properties=b""), record(), record(properties=b"")])
@example([record(properties=encode_properties({"KEYS": "a b"})), record(properties=b"")])
@example([record(properties=b"KEYS\x01\x02TAGS\x01x\x02"), record(properties=b"KEYS\x01a\x02")])
def test_any_properties_are_decoded_as_the_protocol_does(records: list[bytes]) -> None:
    assert_equal(b"".join(records))


ODD_PROPERTIES = (
    b"a\x01\x02",
    b"\x01b\x02",
    b"a\x02",
    b"a\x01b",
    b"a\x01b\x01c\x02",
    b"a\x01b\x02\x02",
    b"\x02a\x01b\x02",
    b"a\x01b\x02a\x01c\x02",
    b"a\x01\xff\x02",
)


@pytest.mark.parametrize("odd", ODD_PROPERTIES)
def test_properties_that_java_would_not_write_are_read_as_the_protocol_does(odd: bytes) -> None:
    assert_equal(record() + record(properties=odd) + record(properties=b"") + record())
    assert_equal(record(properties=odd))


def test_a_hundred_different_names_are_distinguished() -> None:
    many = encode_properties({f"name{i}": str(i) for i in range(100)})
    assert_equal(record(properties=many) + record() + record(properties=many + b"name7\x01x\x02"))


def test_plain_records_never_take_the_slow_branch(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("slow")

    monkeypatch.setattr("sparrowmq.spark.decode.decoder.messages_at", refuse)
    data = record() + record(properties=b"") + record(properties=encode_properties({"A": "ü"}))
    assert Decoder().decode(data).num_rows == 3


def test_one_odd_record_leaves_the_others_on_the_fast_branch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slow: list[int] = []

    def counting(data: bytes, at: int, **rest: bool) -> Any:
        slow.append(at)
        return messages_at(data, at, **rest)

    monkeypatch.setattr("sparrowmq.spark.decode.decoder.messages_at", counting)
    packed = record(body=zlib.compress(b"x" * 99), sys_flag=COMPRESSED)
    data = record() + packed + record(properties=b"TAGS\x01a") + record()
    assert Decoder().decode(data).num_rows == 4
    assert slow == [len(record()), len(record()) + len(packed)]


def test_empty_bytes_decode_to_no_rows() -> None:
    batch = Decoder().decode(b"")
    assert batch.num_rows == 0
    assert batch.schema.names == list(READ_NAMES)


@pytest.mark.parametrize("name", READ_NAMES)
def test_each_column_can_be_selected_alone(name: str) -> None:
    data = record() + record(born_host=V6, properties=b"\x02") + record(properties=b"")
    batch = Decoder(read_columns([name]), "broker-a").decode(data)
    expected = [as_protocol_says(message)[name] for message in decode_messages(data, "broker-a")]
    assert [row[name] for row in rows_of(batch)] == expected
    assert batch.schema.names == [name]


def test_only_the_wanted_offsets_are_kept() -> None:
    batched = encode_batch([(0, b"x", b""), (0, b"y", b""), (0, b"z", b"")])
    wrapped = record(queue_offset=8, body=batched, sys_flag=INNER_BATCH | NEED_UNWRAP)
    data = record(queue_offset=6) + record(queue_offset=7) + wrapped + record(queue_offset=11)
    batch = Decoder(read_columns(["queueOffset"])).decode(data, 7, 10)
    assert batch.column(0).to_pylist() == [7, 8, 9]


def _with(data: bytes, at: int, new: bytes) -> bytes:
    return data[:at] + new + data[at + len(new) :]


@pytest.mark.parametrize(
    ("damage", "text"),
    [
        (lambda data: data[:-1], "bytes left"),
        (lambda data: data + b"\0" * 20, "20 bytes left"),
        (lambda data: _with(data, 0, bytes(4)), "total size 0"),
        (lambda data: _with(data, 4, b"\xff"), "magic 0xFFA320A7"),
        (lambda data: _with(data, 84, b"\x7f"), "body of"),
        (lambda data: _with(data, 84, b"\xff"), "body of -"),
        (lambda data: _with(data, 93, b"\xff"), "topic reaches beyond"),
        (lambda data: _with(data, 94, b"\xff"), "topic is not UTF-8"),
        (lambda data: _with(data, 100, b"\x00\x00"), "its parts fill"),
    ],
)
def test_bytes_that_are_not_a_record_are_refused_with_their_position(
    damage: Callable[[bytes], bytes], text: str
) -> None:
    good = record()
    with pytest.raises(Damaged, match=text) as caught:
        Decoder().decode(good + damage(record()))
    assert caught.value.position in (len(good), 2 * len(good))


def test_a_damaged_body_is_found_if_the_check_is_on() -> None:
    data = record() + _with(record(), 90, b"X")
    assert Decoder().decode(data).num_rows == 2
    with pytest.raises(Damaged, match="body CRC"):
        Decoder(check_crc=True).decode(data)
    assert Decoder(check_crc=True).decode(record() * 2).num_rows == 2


def test_a_body_that_cannot_be_inflated_is_damage() -> None:
    with pytest.raises(Damaged, match="broken zlib data"):
        Decoder().decode(record(body=b"no zlib", sys_flag=COMPRESSED))


def test_impossible_times_are_brought_into_the_range_of_spark() -> None:
    data = record(born_timestamp=2**63 - 1) + record(born_timestamp=2**63 - 1, born_host=V6)
    batch = Decoder(read_columns(["bornTimestamp"])).decode(data)
    latest = (2**63 - 1) // 1000 * 1000
    assert batch.column(0).cast(pa.int64()).to_pylist() == [latest, latest]
