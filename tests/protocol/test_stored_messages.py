"""Messages as they are read back: lazily decoded, bounded, with errors for broken bytes."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparrowmq.protocol.batch import encode_batch
from sparrowmq.protocol.compression import MAX_PLAIN_BYTES, CompressionType, compress
from sparrowmq.protocol.errors import BodyError, TooLarge
from sparrowmq.protocol.hosts import encode_host
from sparrowmq.protocol.message import Message, MessageQueue, wire_properties
from sparrowmq.protocol.message_ext import MessageExt, decode_messages, failed_again
from sparrowmq.protocol.properties import encode_properties
from sparrowmq.protocol.record import encode_record, topic_part
from sparrowmq.protocol.sys_flag import COMPRESSED, INNER_BATCH, NEED_UNWRAP
from tests.protocol.java_vectors import case_id, cases


def record(
    body: bytes = b"hello",
    *,
    topic: str = "orders",
    queue_offset: int = 41,
    sys_flag: int = 0,
    flag: int = 0,
    properties: dict[str, str] | None = None,
) -> bytes:
    return encode_record(
        topic=topic_part(topic),
        queue_id=3,
        flag=flag,
        queue_offset=queue_offset,
        log_offset=1_000,
        sys_flag=sys_flag,
        born_timestamp=1,
        born_host=encode_host("10.0.0.1", 50_000),
        store_timestamp=2,
        store_host=encode_host("10.0.0.2", 10_911),
        reconsume_times=0,
        prepared_transaction_offset=0,
        body=body,
        properties=encode_properties(properties or {}),
    )


def decode(data: bytes) -> MessageExt:
    (message,) = decode_messages(data, "broker-a")
    return message


@pytest.mark.parametrize("case", cases("records"), ids=case_id)
def test_java_records_become_messages(case: dict[str, Any]) -> None:
    message = decode(bytes.fromhex(case["record"]))
    same: tuple[str, ...] = ("queue_id", "flag", "queue_offset", "log_offset", "sys_flag", "topic")
    same += ("born_timestamp", "store_timestamp", "reconsume_times", "prepared_transaction_offset")
    assert {name: getattr(message, name) for name in same} == {name: case[name] for name in same}
    assert message.body.hex() == case["body"]
    assert message.offset_msg_id == case["message_id"]
    assert message.msg_id == "7F0000010000123456780000000A0000"
    assert encode_host(*message.born_host) == encode_host(case["born_host"], case["born_port"])
    assert encode_host(*message.store_host) == encode_host(case["store_host"], case["store_port"])
    assert message.keys == ("o-1", "o-2")
    assert message.tags == "paid"
    assert message.store_size == len(case["record"]) // 2


def test_a_sent_message_is_read_back_unchanged() -> None:
    sent = Message("orders", b"x", tags="paid", keys="a b", properties={"region": "eu"})
    message = decode(record(sent.body, properties=wire_properties(sent)))
    assert (message.topic, message.body, message.tags) == ("orders", b"x", "paid")
    assert message.keys == sent.keys
    assert message.user_properties == {"region": "eu"}
    assert message.queue == MessageQueue("orders", "broker-a", 3)


@given(st.lists(st.binary(min_size=1, max_size=40), max_size=5))
def test_a_pulls_body_holds_its_messages_in_order(bodies: list[bytes]) -> None:
    data = b"".join(record(body, queue_offset=at) for at, body in enumerate(bodies))
    messages = decode_messages(data)
    assert [message.body for message in messages] == bodies
    assert [message.queue_offset for message in messages] == list(range(len(bodies)))


@pytest.mark.parametrize("kind", list(CompressionType), ids=lambda kind: str(kind.name))
def test_a_compressed_body_is_read_as_it_was_sent(kind: CompressionType) -> None:
    body = b"hello " * 1_000
    message = decode(record(compress(body, kind), sys_flag=COMPRESSED | kind.flag))
    assert message.body == body
    assert message.body is message.body, "decompressed once"


def test_a_decompression_bomb_is_noticed_when_the_body_is_read() -> None:
    bomb = compress(bytes(MAX_PLAIN_BYTES + 1), CompressionType.ZLIB)
    message = decode(record(bomb, sys_flag=COMPRESSED))
    assert message.queue_offset == 41
    with pytest.raises(TooLarge):
        _ = message.body


def test_without_a_unique_id_the_offset_id_is_the_id() -> None:
    message = decode(record())
    assert message.msg_id == message.offset_msg_id == "0A00000200002A9F00000000000003E8"
    assert message.transaction_id is None


def test_a_retried_message_knows_its_first_topic() -> None:
    message = decode(record(topic="%RETRY%billing", properties={"RETRY_TOPIC": "orders"}))
    assert message.topic == "%RETRY%billing"
    assert message.original_topic == "orders"
    assert decode(record()).original_topic == "orders"


def test_a_further_failure_changes_the_reconsume_count_of_a_copy() -> None:
    message = decode(record())
    failed = failed_again(message)
    assert (message.reconsume_times, failed.reconsume_times) == (0, 1)
    assert failed != message
    assert failed.broker_name == "broker-a"


def test_a_delay_level_that_is_not_a_number_is_ignored() -> None:
    assert decode(record(properties={"DELAY": "3"})).delay_level == 3
    assert decode(record(properties={"DELAY": "x"})).delay_level == 0


def test_messages_batched_in_one_record_are_unpacked() -> None:
    batch = encode_batch([(1, b"a", b"TAGS\x01x\x02"), (2, b"b", b"")])
    wrapped = record(batch, queue_offset=100, sys_flag=INNER_BATCH | NEED_UNWRAP)
    first, second = decode_messages(wrapped)
    assert (first.body, first.flag, first.queue_offset, first.tags) == (b"a", 1, 100, "x")
    assert (second.body, second.flag, second.queue_offset, second.tags) == (b"b", 2, 101, None)


@given(st.data())
def test_a_cut_pull_is_refused(data: st.DataObject) -> None:
    whole = record(b"one") + record(b"two")
    cut = data.draw(st.integers(1, len(whole) - 1).filter(lambda at: at != len(record(b"one"))))
    with pytest.raises(BodyError, match="no valid record at"):
        decode_messages(whole[:cut])


def test_a_flipped_bit_in_a_body_is_found_unless_the_check_is_off() -> None:
    data = bytearray(record(b"hello"))
    data[data.index(b"hello")] ^= 1
    with pytest.raises(BodyError, match="CRC"):
        decode_messages(bytes(data))
    assert decode_messages(bytes(data), check_crc=False)[0].body == b"iello"


def test_equal_messages_are_equal_and_short_in_a_log() -> None:
    one, two = decode(record()), decode(record())
    assert one == two
    assert len({one, two}) == 1
    assert repr(one) == (
        "MessageExt('orders', queue 3, offset 41, id 0A00000200002A9F00000000000003E8, "
        "5 bytes stored)"
    )
