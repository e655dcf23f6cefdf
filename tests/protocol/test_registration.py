"""A broker's registration: JSON, compressed, and broken."""

import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparrowmq.protocol.body import DataVersion
from sparrowmq.protocol.errors import BodyError, TooLarge
from sparrowmq.protocol.registration import MAX_PLAIN_BYTES, RegisterBrokerBody, body_checksum
from sparrowmq.protocol.route import TopicQueueMappingInfo
from sparrowmq.protocol.topic_config import RegisteredTopics, TopicConfig
from tests.protocol.java_vectors import cases

names = st.text("abcXYZ019_-%|", min_size=1, max_size=20)
counts = st.integers(0, 4_096)
topics = st.builds(
    TopicConfig,
    topic_name=names,
    read_queue_nums=counts,
    write_queue_nums=counts,
    perm=st.integers(0, 7),
    attributes=st.dictionaries(names, names, max_size=2),
)
versions = st.builds(
    DataVersion, state_version=counts, timestamp=st.integers(0, 2**62), counter=counts
)
mappings = st.builds(
    TopicQueueMappingInfo,
    topic=names,
    total_queues=counts,
    bname=names,
    epoch=counts,
    curr_id_map=st.dictionaries(counts, counts, max_size=3),
)


@st.composite
def bodies(draw: st.DrawFn) -> RegisterBrokerBody:
    table = {topic.topic_name: topic for topic in draw(st.lists(topics, max_size=5))}
    mapped = {mapping.topic or "": mapping for mapping in draw(st.lists(mappings, max_size=2))}
    return RegisterBrokerBody(
        topics=RegisteredTopics(
            topic_config_table=table,
            data_version=draw(versions),
            topic_queue_mapping_info_map=mapped,
        ),
        filter_server_list=tuple(draw(st.lists(names, max_size=2))),
    )


@given(bodies(), st.booleans())
def test_a_registration_survives_both_forms(body: RegisterBrokerBody, compressed: bool) -> None:
    assert (
        RegisterBrokerBody.decode(body.encode(compressed=compressed), compressed=compressed) == body
    )


def test_the_compressed_form_is_javas() -> None:
    (plain,) = cases("bodies", "register_broker")
    (packed,) = cases("bodies", "register_broker_compressed")
    data = bytes.fromhex(packed["bytes"])
    body = RegisterBrokerBody.decode(data, compressed=True)
    written = RegisterBrokerBody.from_json(plain["text"].encode())
    assert body.topics.topic_config_table == written.topics.topic_config_table
    assert body.topics.data_version == written.topics.data_version
    again = body.encode(compressed=True)
    assert zlib.decompress(again) == zlib.decompress(data)


def test_a_broker_before_5_0_sends_no_mappings() -> None:
    modern = RegisterBrokerBody(topics=RegisteredTopics(topic_config_table={}))
    plain = zlib.decompress(modern.encode(compressed=True))
    assert plain.endswith(b"[]\x00\x00\x00\x00")
    old = zlib.compress(plain[:-4])
    assert RegisterBrokerBody.decode(old, compressed=True) == modern


def test_topic_lines_before_5_0_have_no_attributes() -> None:
    topic = TopicConfig(topic_name="t", read_queue_nums=1, write_queue_nums=2, perm=6)
    assert TopicConfig.from_line("t 1 2 6 SINGLE_TAG") == topic
    assert TopicConfig.from_line("t 1 2 6 SINGLE_TAG ") == topic


@pytest.mark.parametrize("line", ["", "t", "t 1 2 6", "t x 2 6 SINGLE_TAG", "t 1 2 6 SINGLE_TAG {"])
def test_a_broken_topic_line_is_refused(line: str) -> None:
    with pytest.raises(BodyError):
        TopicConfig.from_line(line)


def test_the_checksum_covers_the_body_as_sent_without_its_highest_bit() -> None:
    assert body_checksum(b"123456789") == 0xCBF43926 & 0x7FFFFFFF


@given(st.data())
def test_a_cut_or_lying_registration_is_refused(data: st.DataObject) -> None:
    body = RegisterBrokerBody(
        topics=RegisteredTopics(topic_config_table={"t": TopicConfig(topic_name="t")})
    )
    plain = zlib.decompress(body.encode(compressed=True))
    cut = data.draw(st.integers(0, len(plain) - 1).filter(lambda at: at != len(plain) - 4))
    with pytest.raises(BodyError):
        RegisterBrokerBody.decode(zlib.compress(plain[:cut]), compressed=True)


def test_an_empty_topic_line_is_refused_as_one() -> None:
    data = zlib.compress(struct.pack(">i2sii", 2, b"{}", 1, 0))
    with pytest.raises(BodyError, match="not a topic configuration: ''"):
        RegisterBrokerBody.decode(data, compressed=True)


@pytest.mark.parametrize("size", [-1, 1_000, 2**31 - 1])
def test_a_part_with_a_wrong_size_is_refused(size: int) -> None:
    data = zlib.compress(struct.pack(">i", size) + b"{}")
    with pytest.raises(BodyError, match=f"part of {size} bytes"):
        RegisterBrokerBody.decode(data, compressed=True)


def test_a_count_that_is_too_high_ends_with_the_data() -> None:
    data = zlib.compress(struct.pack(">i2si", 2, b"{}", 2**31 - 1))
    with pytest.raises(BodyError, match="a length is missing"):
        RegisterBrokerBody.decode(data, compressed=True)


def test_a_compressed_bomb_stops_at_the_limit() -> None:
    assert MAX_PLAIN_BYTES == 67_108_864
    with pytest.raises(TooLarge, match=f"at most {MAX_PLAIN_BYTES}"):
        RegisterBrokerBody.decode(zlib.compress(bytes(MAX_PLAIN_BYTES + 1)), compressed=True)


def test_a_change_counts_the_version_up_and_dates_it() -> None:
    old = DataVersion(state_version=1, counter=5, timestamp=100)
    assert old.next(200) == DataVersion(state_version=0, counter=6, timestamp=200)
