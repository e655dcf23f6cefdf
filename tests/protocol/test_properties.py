"""Message properties: the text form, what Java reads from it, what is refused."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparrowmq.protocol import properties as names
from sparrowmq.protocol.properties import (
    MAX_PROPERTIES_BYTES,
    SYSTEM_PROPERTIES,
    decode_properties,
    encode_properties,
    find_property,
    format_properties,
    parse_properties,
)
from tests.protocol.java_vectors import case_id, cases

text = st.text(st.characters(exclude_characters="\x01\x02", exclude_categories=["Cs"]), min_size=1)
property_maps = st.dictionaries(text, text, max_size=8)
raw_texts = st.text(st.sampled_from("ab\x01\x02é"), max_size=20)


def as_java_reads(raw: str) -> dict[str, str]:
    """MessageDecoder.string2messageProperties, step by step."""
    found = {}
    index = 0
    while index < len(raw):
        end = raw.find("\x02", index)
        end = len(raw) if end < 0 else end
        middle = raw.find("\x01", index)
        if end - index >= 3 and index < middle < end - 1:
            found[raw[index:middle]] = raw[middle + 1 : end]
        index = end + 1
    return found


@given(property_maps)
def test_properties_survive_the_round_trip(properties: dict[str, str]) -> None:
    assert decode_properties(encode_properties(properties)) == properties


@given(raw_texts)
def test_any_text_is_read_as_java_reads_it(raw: str) -> None:
    assert parse_properties(raw) == as_java_reads(raw)


@given(property_maps, text)
def test_one_property_is_found_without_decoding_the_rest(
    properties: dict[str, str], absent: str
) -> None:
    formatted = format_properties(properties)
    for name, value in properties.items():
        assert find_property(formatted, name) == value
    assert find_property(formatted, absent) == properties.get(absent)


def test_a_name_is_found_only_where_it_begins_a_property() -> None:
    assert find_property("XTAGS\x01a\x02TAGS\x01b", "TAGS") == "b"
    assert find_property("\x02TAGS\x01b", "TAGS") == "b"
    assert find_property("a\x01TAGS\x02", "TAGS") is None
    assert find_property("TAGS\x01\x02", "TAGS") is None


@pytest.mark.parametrize("case", cases("properties"), ids=case_id)
def test_java_vectors_decode_alike(case: dict[str, Any]) -> None:
    assert parse_properties(case["encoded"]) == case["decoded"]


def test_what_java_encodes_is_what_we_encode() -> None:
    (case,) = cases("properties", "encoded_by_java")
    pairs = [pair.split("\x01") for pair in case["encoded"].split("\x02")[:-1]]
    assert format_properties(dict(pairs)) == case["encoded"]


@pytest.mark.parametrize(
    "properties", [{"a\x01": "b"}, {"a": "b\x02"}, {"a\x02b": "c"}, {"a": "\x01"}]
)
def test_a_separator_inside_a_property_is_refused(properties: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=r"\\x01 or \\x02, which separate properties"):
        encode_properties(properties)


def test_properties_are_limited_in_bytes_not_characters() -> None:
    overhead = 3
    assert len(encode_properties({"a": "b" * (MAX_PROPERTIES_BYTES - overhead)})) == 32_767
    with pytest.raises(ValueError, match="32768 bytes, at most 32767 allowed"):
        encode_properties({"a": "b" * (MAX_PROPERTIES_BYTES - overhead + 1)})
    with pytest.raises(ValueError, match="at most 32767 allowed"):
        encode_properties({"a": "é" * 20_000})


def test_invalid_utf8_is_replaced_and_the_rest_kept() -> None:
    assert decode_properties(b"a\x01\xff\x02b\x01c\x02") == {"a": "�", "b": "c"}


def test_the_names_are_those_of_apaches_message_const() -> None:
    reserved = """
        KEYS TAGS WAIT DELAY RETRY_TOPIC REAL_TOPIC REAL_QID TRAN_MSG PGROUP MIN_OFFSET MAX_OFFSET
        BUYER_ID ORIGIN_MESSAGE_ID TRANSFER_FLAG CORRECTION_FLAG MQ2_FLAG RECONSUME_TIME MSG_REGION
        TRACE_ON UNIQ_KEY EXTEND_UNIQ_INFO MAX_RECONSUME_TIMES CONSUME_START_TIME DUP_INFO
        TRAN_PREPARED_QUEUE_OFFSET INSTANCE_ID CORRELATION_ID REPLY_TO_CLIENT TTL ARRIVE_TIME
        PUSH_REPLY_TIME CLUSTER MSG_TYPE POP_CK POP_CK_OFFSET 1ST_POP_TIME INNER_MULTI_QUEUE_OFFSET
        TIMER_DELAY_SEC TIMER_DELAY_MS TIMER_DELIVER_MS TIMER_ENQUEUE_MS TIMER_DEQUEUE_MS
        TIMER_ROLL_TIMES TIMER_OUT_MS TIMER_DEL_UNIQKEY TIMER_DELAY_LEVEL __BORNHOST BORN_TIMESTAMP
        DLQ_ORIGIN_TOPIC DLQ_ORIGIN_MESSAGE_ID __CRC32#
    """
    free = """
        INNER_NUM INNER_BASE CHECK_IMMUNITY_TIME_IN_SECONDS __transactionId__ __SHARDINGKEY
        TRANSACTION_CHECK_TIMES TRACE_CONTEXT INNER_MULTI_DISPATCH
    """
    ours = {"DIVERTED_FROM"}
    assert set(reserved.split()) == SYSTEM_PROPERTIES
    known = {
        value
        for name, value in vars(names).items()
        if name.isupper() and name[0] != "_" and isinstance(value, str)
    }
    assert (
        set(reserved.split()) | set(free.split()) == known - {"\x01", "\x02", " ", "reply"} - ours
    )
