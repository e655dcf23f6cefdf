"""JSON as Java writes it: what is forgiven, what is refused, how it is written."""

import contextlib
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparrowmq.protocol.body import Body
from sparrowmq.protocol.errors import BodyError, TooLarge
from sparrowmq.protocol.json_reader import MAX_DEPTH, ObjectKey, parse_json
from sparrowmq.protocol.lenient_json import (
    SLOW_LIMIT_BYTES,
    read_json,
    without_nulls,
    write_json,
)
from sparrowmq.protocol.message import MessageQueue
from sparrowmq.protocol.offsets_body import ConsumeStats, OffsetPair

scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
)
keys = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="{"), max_size=6)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4),
    max_leaves=12,
)


class Pair(Body, frozen=True, kw_only=True):
    first_name: str = "none"
    numbers: dict[int, str] = {}  # noqa: RUF012 - msgspec copies it
    queues: dict[MessageQueue, int] = {}  # noqa: RUF012 - msgspec copies it


@given(values)
def test_standard_json_is_read_as_the_standard_says(value: Any) -> None:
    for text in (json.dumps(value), json.dumps(value, ensure_ascii=False, indent=1)):
        assert parse_json(text.encode()) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{0:"a",-1:"b"}', {"0": "a", "-1": "b"}),
        ("{a:1,b_c:2,$d:3}", {"a": 1, "b_c": 2, "$d": 3}),
        ("{'a':'it\\'s \"x\"'}", {"a": 'it\'s "x"'}),
        ('{"a":1,}', {"a": 1}),
        ("[1,2,]", [1, 2]),
        ("[,1,,2]", [1, 2]),
        ("Set[1,2]", [1, 2]),
        ("TreeSet[]", []),
        ("[5L,1B,2S,1.5F,2.5D]", [5, 1, 2, 1.5, 2.5]),
        ("{a:undefined}", {"a": None}),
        ('"\\x41\\v"', "A\v"),
        ('"\\ud83d\\ude80"', "🚀"),
        ("+5", 5),
        ("-.5", -0.5),
        (" \n\t{ } ", {}),
    ],
)
def test_javas_liberties_are_read(text: str, value: Any) -> None:
    assert parse_json(text.encode()) == value


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", "{", "[", "{a}", '{"a":}', "{:1}", "[1 2]", '{"a":1 "b":2}', "tru", "nul", "x"),
        *('"a', "'a\"", '"\\q"', '"\\u12"', '"\\uzzzz"', "-", "+", ".", "1e", "{} {}", "1 2", "]"),
        *("Set", "Set{}", "{{:1}", "9" * 5_000, "}", ",", "[1,2}", "\x00"),
    ],
)
def test_what_even_java_gives_up_on_is_refused_with_its_place(text: str) -> None:
    with pytest.raises(BodyError, match="JSON at character"):
        parse_json(text.encode())


def test_bytes_that_are_not_text_are_refused() -> None:
    with pytest.raises(BodyError, match="not UTF-8 at byte 1"):
        parse_json(b'"\xff"')
    with pytest.raises(BodyError):
        read_json(b'{"firstName":"\xff"}', Pair)


@given(st.binary(max_size=60))
def test_any_bytes_are_json_or_an_error(data: bytes) -> None:
    with contextlib.suppress(BodyError):
        parse_json(data)


@given(st.text("{}[]:,\"\\'0a1Lu", max_size=40))
def test_any_marks_are_json_or_an_error(text: str) -> None:
    with contextlib.suppress(BodyError):
        parse_json(text.encode())


@pytest.mark.parametrize("opening", ["[", '{"a":', "{a:", "Set["])
def test_nesting_is_limited(opening: str) -> None:
    closing = "]" if opening.endswith("[") else "}"
    deep = opening * MAX_DEPTH + "1" + closing * MAX_DEPTH
    parse_json(deep.encode())
    with pytest.raises(BodyError, match="nested deeper than 32"):
        parse_json((opening + deep + closing).encode())


@pytest.mark.parametrize("opening", [b"[", b'{"a":', b"{a:", b"{"])
def test_a_very_deep_body_is_an_error_and_not_a_crash(opening: bytes) -> None:
    with pytest.raises(BodyError):
        read_json(b'{"unknown":' + opening * 100_000, Pair)


def test_objects_may_be_keys() -> None:
    plain = b'{{"brokerName":"a","queueId":0,"topic":"t"}:7}'
    quoted = json.dumps({'{"brokerName":"a","queueId":0,"topic":"t"}': 7}).encode()
    expected = {ObjectKey(brokerName="a", queueId=0, topic="t"): 7}
    assert parse_json(plain) == parse_json(quoted) == expected
    for table in (plain, quoted):
        pair = read_json(b'{"queues":' + table + b"}", Pair)
        assert pair.queues == {MessageQueue("t", "a", 0): 7}


def test_many_object_keys_do_not_share_one_hash() -> None:
    hashes = {hash(ObjectKey(queueId=queue_id)) for queue_id in range(100)}
    assert len(hashes) > 90


@pytest.mark.parametrize("text", ["a,1:b", "{0:", ",7:", 'x",5:"y', "\\,1:", "{1 :2,3:"])
def test_a_text_that_looks_like_a_numeric_key_is_left_alone(text: str) -> None:
    quoted = json.dumps(text)
    body = f'{{"firstName":{quoted},"numbers":{{0:{quoted}, 1 :{quoted}}}}}'
    assert read_json(body.encode(), Pair) == Pair(first_name=text, numbers={0: text, 1: text})


@given(st.dictionaries(st.integers(0, 9), st.text('{},:"\\ 012ab', max_size=8), min_size=1))
def test_numeric_keys_are_read_next_to_any_texts(numbers: dict[int, str]) -> None:
    members = ",".join(f"{key}:{json.dumps(value)}" for key, value in numbers.items())
    assert read_json(f'{{"numbers":{{{members}}}}}'.encode(), Pair) == Pair(numbers=numbers)


def test_a_null_takes_the_default() -> None:
    assert read_json(b'{"firstName":null,"numbers":null}', Pair) == Pair()
    assert without_nulls({"a": None, "b": [{"c": None}]}) == {"b": [{}]}


def test_unknown_fields_are_ignored_and_strings_become_numbers() -> None:
    read = read_json(b'{"firstName":"x","more":{"a":[1]},"numbers":{"3":"y"}}', Pair)
    assert read == Pair(first_name="x", numbers={3: "y"})


def test_a_wrong_type_names_the_field() -> None:
    with pytest.raises(BodyError, match=r"not a Pair: .*\$\.firstName"):
        read_json(b'{"firstName":[1]}', Pair)


def test_fields_are_written_sorted_compact_and_without_none() -> None:
    class Mixed(Body, frozen=True, kw_only=True):
        zebra: int
        apple_pie: str | None = None
        middle: frozenset[str] = frozenset()
        addresses: dict[int, str] = {}  # noqa: RUF012 - msgspec copies it

    written = Mixed(zebra=1, middle=frozenset("cba"), addresses={1: "y", 0: "x"}).to_json()
    assert written == b'{"addresses":{"1":"y","0":"x"},"middle":["a","b","c"],"zebra":1}'


def test_structs_as_keys_are_written_as_fastjson_does() -> None:
    written = write_json({MessageQueue("t", "a", 0): 1, MessageQueue("t", "a", 1): 2})
    assert written == (
        b'{{"brokerName":"a","queueId":0,"topic":"t"}:1,{"brokerName":"a","queueId":1,"topic":"t"}:2}'
    )


@pytest.mark.parametrize(
    "text",
    [
        '{"queues":{{"brokerName":"a","queueId":0,"topic":"t {"}:7}}',
        '{"queues":{{"topic":"t {","queueId":"0","brokerName":"a"}:7},"firstName":null}',
        '{"numbers":{0:"y"},"queues":{{"brokerName":"a","queueId":0,"topic":"t {"}:7}}',
        '{"queues":{"{\\"brokerName\\":\\"a\\",\\"queueId\\":0,\\"topic\\":\\"t {\\"}":7}}',
    ],
)
def test_tables_keyed_by_queues_do_not_need_the_slow_reader(text: str) -> None:
    """An answer about 1,000 groups has 2.4 MB, and a console's loop reads it every 30 s."""
    read = read_json(text.encode(), Pair, slow_limit_bytes=0)
    assert read.queues == {MessageQueue("t {", "a", 0): 7}


@pytest.mark.parametrize("text", ['{{"a":1}:2', ',{"a":1}:', 'x,{":":1}:', '{"a":1}', "{a}"])
def test_a_text_that_looks_like_an_object_key_is_left_alone(text: str) -> None:
    quoted = json.dumps(text)
    body = (
        f'{{"firstName":{quoted},"queues":{{{{"brokerName":{quoted},"queueId":0,"topic":"t"}}:1}}}}'
    )
    read = read_json(body.encode(), Pair)
    assert read == Pair(first_name=text, queues={MessageQueue("t", text, 0): 1})


names = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
queues = st.builds(MessageQueue, names, names, st.integers(0, 2**31 - 1))


@given(
    st.builds(
        Pair,
        first_name=names,
        numbers=st.dictionaries(st.integers(-(2**63), 2**63 - 1), names, max_size=4),
        queues=st.dictionaries(queues, st.integers(-(2**63), 2**63 - 1), max_size=4),
    )
)
def test_what_is_written_is_read_back(pair: Pair) -> None:
    assert Pair.from_json(pair.to_json()) == pair


def test_a_body_of_exactly_the_slow_limit_is_read() -> None:
    data = b"{'firstName':'x'}"
    assert read_json(data, Pair, len(data)) == Pair(first_name="x")
    with pytest.raises(TooLarge):
        read_json(data, Pair, len(data) - 1)


def test_input_for_the_slow_reader_has_its_own_size_limit() -> None:
    assert SLOW_LIMIT_BYTES == 262_144
    text = "x" * SLOW_LIMIT_BYTES
    assert read_json(f'{{"firstName":"{text}","numbers":{{0:"y"}}}}'.encode(), Pair).numbers
    with pytest.raises(
        TooLarge, match=f"irregular JSON for Pair .* at most {SLOW_LIMIT_BYTES} allowed"
    ):
        read_json(f"{{'firstName':'{text}'}}".encode(), Pair)
    told = read_json(f"{{'firstName':'{text}'}}".encode(), Pair, 2 * SLOW_LIMIT_BYTES)
    assert told == Pair(first_name=text)


def test_statistics_may_be_larger_because_only_java_can_write_them() -> None:
    queue = MessageQueue("t" * 100, "broker-a", 0)
    table = {msgspec.structs.replace(queue, queue_id=at): OffsetPair() for at in range(2_000)}
    written = ConsumeStats(offset_table=table).to_json()
    assert len(written) > SLOW_LIMIT_BYTES
    assert ConsumeStats.from_json(written).offset_table == table
