"""Rows become messages: whole Arrow batches at once, and the same as from a producer."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

pa = pytest.importorskip("pyarrow", reason="needs the spark extra: pip install sparrowmq[spark]")

from sparrowmq.protocol.batch import decode_batch  # noqa: E402 - after the skip
from sparrowmq.protocol.message import Message, wire_properties  # noqa: E402
from sparrowmq.protocol.properties import decode_properties  # noqa: E402
from sparrowmq.spark.encode.row_encoder import (  # noqa: E402
    UNSHARDED,
    EncodedRows,
    RowEncoder,
    RowKeys,
)
from sparrowmq.spark.encode.row_properties import values_of  # noqa: E402
from sparrowmq.spark.schema import ColumnError  # noqa: E402

TYPES = {
    "body": pa.binary(),
    "topic": pa.string(),
    "tags": pa.string(),
    "keys": pa.list_(pa.string()),
    "properties": pa.map_(pa.string(), pa.string()),
    "shardingKey": pa.string(),
    "delayLevel": pa.int32(),
    "deliverTime": pa.timestamp("us", tz="UTC"),
    "uniqueId": pa.string(),
}
Row = dict[str, Any]


def batch_of(rows: list[Row], *names: str) -> Any:
    chosen = names or tuple(TYPES)
    columns = {name: pa.array([row.get(name) for row in rows], TYPES[name]) for name in chosen}
    return pa.record_batch(columns)


def encoded(
    batch: Any,
    *,
    topic: str | None = "orders",
    write: str = "job 1",
    partition: int = 0,
    by_property: bool = True,
) -> EncodedRows:
    positions = {name: at for at, name in enumerate(batch.schema.names)}
    keys = RowKeys(write, partition)
    return RowEncoder(positions, topic, keys, 1000, shard_by_property=by_property).encode(batch)


def sent(rows: EncodedRows) -> list[tuple[bytes, dict[str, str]]]:
    """Body and properties of every row, decoded from the batch body as a broker does."""
    data, ends = values_of(rows.messages)
    messages = decode_batch(bytes(data[ends[0] : ends[-1]]))
    return [(body, decode_properties(properties)) for _, body, properties in messages]


def unique_ids(rows: EncodedRows) -> list[str]:
    return [properties["UNIQ_KEY"] for _, properties in sent(rows)]


words = st.text(st.characters(exclude_categories=["Cs", "C", "Z"]), min_size=1, max_size=8)
own_names = words.map(lambda name: f"x-{name}")
rows_strategy = st.lists(
    st.fixed_dictionaries(
        {"body": st.binary(min_size=1, max_size=40)},
        optional={
            "tags": words.filter(lambda tag: "||" not in tag and tag != "*"),
            "keys": st.lists(words, max_size=3),
            "properties": st.dictionaries(own_names, words, max_size=3),
            "shardingKey": words,
        },
    ),
    min_size=1,
    max_size=12,
)


@given(rows_strategy, st.integers(0, 3))
def test_a_row_is_sent_with_what_a_producer_would_send(rows: list[Row], skipped: int) -> None:
    batch = batch_of(rows, "body", "tags", "keys", "properties", "shardingKey")
    found = sent(encoded(batch.slice(skipped)))
    for row, (body, properties) in zip(rows[skipped:], found, strict=True):
        message = Message(
            "orders",
            body,
            tags=row.get("tags"),
            keys=row.get("keys") or (),
            properties=row.get("properties") or {},
            sharding_key=row.get("shardingKey"),
        )
        wanted = wire_properties(message) | {"UNIQ_KEY": properties["UNIQ_KEY"]}
        wanted.pop("WAIT")  # true is what its absence means
        assert body == row["body"]
        assert properties == wanted


def test_a_row_gets_the_same_id_each_time_it_is_written_and_no_other_row_has_it() -> None:
    batch = batch_of([{"body": b"a"}, {"body": b"a"}, {"body": b"b"}], "body")
    first = unique_ids(encoded(batch))
    assert unique_ids(encoded(batch)) == first
    assert unique_ids(encoded(batch, partition=1)) != first
    assert unique_ids(encoded(batch, write="job 2")) != first
    assert len({*first, *unique_ids(encoded(batch, partition=1))}) == 6
    assert all(len(bytes.fromhex(one)) == 16 and one == one.upper() for one in first)


def test_ids_continue_from_one_arrow_batch_to_the_next() -> None:
    rows = [{"body": bytes([at + 1])} for at in range(6)]
    whole = unique_ids(encoded(batch_of(rows, "body")))
    encoder = RowEncoder({"body": 0}, "orders", RowKeys("job 1", 0), 1000)
    parts = [
        one
        for part in (rows[:2], rows[2:])
        for one in unique_ids(encoder.encode(batch_of(part, "body")))
    ]
    assert parts == whole


def test_rows_in_another_order_never_reuse_an_id_of_another_row() -> None:
    rows = [{"body": b"a", "tags": "x"}, {"body": b"a", "tags": "y"}]
    first = unique_ids(encoded(batch_of(rows, "body", "tags")))
    again = unique_ids(encoded(batch_of(rows[::-1], "body", "tags")))
    assert not set(first) & set(again)


def test_system_properties_are_left_out_when_rows_read_are_written() -> None:
    read = {"UNIQ_KEY": "A1", "TAGS": "old", "CLUSTER": "c", "shop": "7", "__SHARDINGKEY": "k"}
    row = {"body": b"a", "properties": read, "tags": "new", "shardingKey": "other"}
    [(_, properties)] = sent(encoded(batch_of([row])))
    properties.pop("UNIQ_KEY")
    assert properties == {"TAGS": "new", "shop": "7", "__SHARDINGKEY": "other"}
    [(_, properties)] = sent(encoded(batch_of([row], "body", "properties")))
    assert properties["__SHARDINGKEY"] == "k"


def test_rows_as_they_were_read_go_by_the_sharding_key_in_their_properties() -> None:
    """So a copy keeps the order of each key."""
    keys: list[str | None] = ["a", "b", None, "a", None]
    own = [{"__SHARDINGKEY": key, "shop": "7"} if key else {"shop": "7"} for key in keys]
    rows: list[Row] = [{"body": b"x", "properties": each} for each in [*own, {}, None]]
    rows += [{"body": b"x", "shardingKey": key} for key in [*keys, None, None]]
    copied = encoded(batch_of(rows[:7], "body", "properties"))
    by_column = encoded(batch_of(rows[7:], "body", "shardingKey"))
    assert copied.hashes.tolist() == by_column.hashes.tolist()
    assert [each.get("__SHARDINGKEY") for _, each in sent(copied)] == [*keys, None, None]
    sliced = encoded(batch_of(rows[:7], "body", "properties").slice(1, 4))
    assert sliced.hashes.tolist() == by_column.hashes.tolist()[1:5]
    in_turn = encoded(batch_of(rows[:7], "body", "properties"), by_property=False)
    assert in_turn.hashes.tolist() == [UNSHARDED] * 7
    assert sent(in_turn) == sent(copied)


def test_a_column_with_sharding_keys_counts_instead_of_those_in_the_properties() -> None:
    row = {"body": b"x", "properties": {"__SHARDINGKEY": "a"}, "shardingKey": None}
    assert encoded(batch_of([row])).hashes.tolist() == [UNSHARDED]


def test_lists_and_maps_without_nulls_are_accepted_in_sparks_types() -> None:
    keys = pa.array([["a", "b"]], pa.list_(pa.field("element", pa.string(), nullable=False)))
    items = pa.field("value", pa.string(), nullable=False)
    own = pa.array([{"shop": "7"}], pa.map_(pa.string(), items))
    batch = pa.record_batch({"body": pa.array([b"a"]), "keys": keys, "properties": own})
    [(_, properties)] = sent(encoded(batch))
    assert (properties["KEYS"], properties["shop"]) == ("a b", "7")


def test_a_text_body_is_utf_8() -> None:
    batch = pa.record_batch({"body": pa.array(["grüße"])})
    assert sent(encoded(batch))[0][0] == "grüße".encode()


def test_each_row_goes_to_its_own_topic_unless_the_option_overrides_it() -> None:
    rows: list[Row] = [
        {"body": b"a", "topic": "x"},
        {"body": b"b", "topic": "y"},
        {"body": b"c", "topic": "x"},
    ]
    found = encoded(batch_of(rows, "body", "topic"), topic=None)
    assert [found.topics[at] for at in found.topic_of] == ["x", "y", "x"]
    assert encoded(batch_of(rows, "body", "topic")).topics == ["orders"]


def test_delayed_rows_and_those_of_retry_topics_go_alone() -> None:
    from datetime import UTC, datetime

    rows: list[Row] = [
        {"body": b"a", "topic": "x"},
        {"body": b"b", "topic": "x", "delayLevel": 3},
        {"body": b"c", "topic": "x", "deliverTime": datetime(2030, 1, 1, tzinfo=UTC)},
        {"body": b"d", "topic": "%RETRY%g"},
        {"body": b"e", "topic": "x", "delayLevel": 0},
    ]
    found = encoded(batch_of(rows), topic=None)
    assert found.alone.tolist() == [False, True, True, True, False]
    properties = [properties for _, properties in sent(found)]
    assert properties[1]["DELAY"] == "3"
    assert properties[2]["TIMER_DELIVER_MS"] == "1893456000000"
    assert "DELAY" not in properties[4]


@pytest.mark.parametrize(
    ("row", "text"),
    [
        ({"body": None}, "column body: is null in 1 row, must have a value"),
        ({"body": b""}, "column body: is empty in a row, must have at least 1 byte"),
        ({"body": bytes(1001)}, "column body: 1001 bytes in a row, at most 1000"),
        ({"topic": None}, "column topic: is null in 1 row; fill it or set the option topic"),
        ({"topic": "a b"}, r"column topic: topic 'a b' has characters that are not allowed"),
        ({"tags": "a||b"}, r"column tags: 'a\|\|b' is not a tag"),
        ({"tags": "a\x01b"}, r"column tags: a value holds \\x01 or \\x02"),
        ({"keys": ["a", None]}, "column keys: an element is null"),
        ({"keys": ["a b"]}, "column keys: an element is empty or holds a blank"),
        ({"properties": {"a": None}}, "column properties: the value of 'a' is null"),
        ({"properties": {"a": ""}}, "column properties: a name or value is empty"),
        ({"properties": {"a": "\x02"}}, r"column properties: a value holds \\x01 or \\x02"),
        ({"properties": {"a": "v" * 33_000}}, "column properties: 3.* at most 32767 are allowed"),
        ({"shardingKey": "\x02"}, r"column shardingKey: a value holds"),
        ({"delayLevel": -1}, "column delayLevel: is -1 in a row, must be 0 to 18"),
        ({"delayLevel": 19}, r"delayLevel: is 19 in a row, must be 0 to 18 \(1 s to 2 h\), or use"),
        ({"delayLevel": 1, "deliverTime": 1}, "column deliverTime: is set in a row that has a"),
        ({"deliverTime": -1}, "column deliverTime: is before 1970"),
    ],
)
def test_an_invalid_row_is_refused_with_the_name_of_its_column(row: Row, text: str) -> None:
    good = {"body": b"a", "topic": "x"}
    with pytest.raises(ColumnError, match=text):
        encoded(batch_of([good, good | row]), topic=None)


def test_a_row_keeps_the_id_that_it_has() -> None:
    rows: list[Row] = [{"body": b"a", "uniqueId": "7F01"}, {"body": b"b"}]
    first, second = unique_ids(encoded(batch_of(rows, "body", "uniqueId")))
    assert first == "7F01"
    assert second == unique_ids(encoded(batch_of(rows, "body")))[1]
    for wrong in ("", "a b", "x" * 256):
        with pytest.raises(ColumnError, match="uniqueId"):
            encoded(batch_of([{"body": b"a", "uniqueId": wrong}], "body", "uniqueId"))
