"""System flags of clients: an acknowledged message is delivered, whatever bits it carries."""

from collections.abc import Callable
from typing import Any

import pytest

from sparrowmq.net.calls import Response
from sparrowmq.protocol.batch import encode_batch
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.compression import CompressionType, compress
from sparrowmq.protocol.errors import BodyError
from sparrowmq.protocol.headers.reply import SendReplyV2
from sparrowmq.protocol.headers.send import (
    MessageSent,
    SendBack,
    SendBatchMessage,
    SendMessage,
    SendMessageV2,
)
from sparrowmq.protocol.headers.transactions import EndTransaction
from sparrowmq.protocol.ids import OffsetId
from sparrowmq.protocol.names import AUTO_CREATE_TOPIC
from sparrowmq.protocol.sys_flag import (
    BORN_HOST_V6,
    COMPRESSED,
    COMPRESSION_SHIFT,
    INNER_BATCH,
    MULTI_TAGS,
    NEED_UNWRAP,
    STORE_HOST_V6,
    TRANSACTION_COMMIT,
    TRANSACTION_PREPARED,
    TRANSACTION_ROLLBACK,
)
from tests.broker.world import World, subscribes

PLAIN = b"hello " * 20
TYPES = [kind << COMPRESSION_SHIFT for kind in range(1, 8)]
FLAGS = [
    *(1 << bit for bit in range(31)),
    -(2**31),
    *(COMPRESSED | kind for kind in TYPES),
    *(INNER_BATCH | NEED_UNWRAP, BORN_HOST_V6 | STORE_HOST_V6, TRANSACTION_ROLLBACK),
    *(COMPRESSED | TRANSACTION_PREPARED, COMPRESSED | MULTI_TAGS, MULTI_TAGS | 1 << 11),
    -1,
]
"""Every bit alone, every compression type, and pairs that mean something together."""
ILLEGAL = {
    flag
    for flag in FLAGS
    if flag & INNER_BATCH or (flag & COMPRESSED and flag >> COMPRESSION_SHIFT & 7 > 3)
}
HALF = {flag for flag in FLAGS if flag & TRANSACTION_PREPARED}


class Sender:
    """Sends one message with a flag."""

    def __init__(self, world: World, flag: int) -> None:
        self.world = world
        self.flag = flag
        self.topic = f"orders-{flag & 0xFFFFFFFF:x}"
        world.topic(self.topic, 1)

    @property
    def body(self) -> bytes:
        """The body, compressed as the flag says if it names a known type."""
        if not self.flag & COMPRESSED:
            return PLAIN
        try:
            return compress(PLAIN, CompressionType.of(self.flag))
        except BodyError:
            return PLAIN

    def send(self, kind: type = SendMessageV2, body: bytes | None = None, **more: Any) -> Response:
        fields: dict[str, Any] = {
            "producer_group": "shop",
            "topic": self.topic,
            "default_topic": AUTO_CREATE_TOPIC,
            "default_topic_queue_nums": 1,
            "queue_id": 0,
            "sys_flag": self.flag,
            "born_timestamp": 1,
            "flag": 0,
        }
        return self.world.ask(kind(**(fields | more)), self.body if body is None else body)

    def delivered(self) -> list[bytes]:
        pulled = self.world.sim.wait(self.world.sim.client.pull(self.topic))
        return [message.body for message in pulled.messages]


def plainly(sender: Sender) -> Response:
    return sender.send()


def with_long_header(sender: Sender) -> Response:
    return sender.send(SendMessage)


def in_a_batch(sender: Sender) -> Response:
    return sender.send(SendBatchMessage, encode_batch([(0, sender.body, b"")]), batch=True)


def on_a_delay_level(sender: Sender) -> Response:
    answer = sender.send(properties="DELAY\x011\x02")
    sender.world.sim.advance(2)
    return answer


def at_a_time(sender: Sender) -> Response:
    answer = sender.send(properties="TIMER_DELAY_MS\x011000\x02")
    sender.world.sim.advance(3)
    return answer


def as_a_half_message(sender: Sender) -> Response:
    answer = sender.send(properties="TRAN_MSG\x01true\x02PGROUP\x01shop\x02")
    if answer.code == ResponseCode.SUCCESS:
        sent = answer.header(MessageSent)
        commit = EndTransaction(
            producer_group="shop",
            tran_state_table_offset=sent.queue_offset,
            commit_log_offset=OffsetId.parse(sent.msg_id).log_offset,
            commit_or_rollback=TRANSACTION_COMMIT,
        )
        sender.world.done(commit)
    return answer


def as_no_half_message(sender: Sender) -> Response:
    return sender.send(properties="TRAN_MSG\x01false\x02PGROUP\x01shop\x02")


def as_a_reply(sender: Sender) -> Response:
    asking = sender.world.client(f"asking {sender.flag}")
    asking.beat(producers=("shop",))
    return sender.send(SendReplyV2, properties=f"REPLY_TO_CLIENT\x01{asking.name}\x02")


def to_a_retry_topic(sender: Sender) -> Response:
    group = f"billing-{sender.flag & 0xFFFFFFFF:x}"
    sender.world.client(group).beat(subscribes(group))
    sender.topic = f"%RETRY%{group}"
    return sender.send(properties="TRAN_MSG\x01true\x02", reconsume_times=1)


def place_retry(sender: Sender) -> Response:
    group = f"billing-{sender.flag & 0xFFFFFFFF:x}"
    sender.world.client(group).beat(subscribes(group))
    answer = sender.send()
    if answer.code == ResponseCode.SUCCESS:
        at = OffsetId.parse(answer.header(MessageSent).msg_id).log_offset
        sender.world.done(SendBack(offset=at, group=group, delay_level=1))
        sender.world.sim.advance(3)
        sender.topic = f"%RETRY%{group}"
    return answer


WAYS: dict[Callable[[Sender], Response], set[int]] = {
    plainly: ILLEGAL | HALF,
    with_long_header: ILLEGAL | HALF,
    in_a_batch: ILLEGAL | HALF,
    on_a_delay_level: ILLEGAL | HALF,
    at_a_time: ILLEGAL | HALF,
    as_a_half_message: ILLEGAL,
    as_no_half_message: ILLEGAL | HALF,
    as_a_reply: ILLEGAL | HALF,
    to_a_retry_topic: ILLEGAL,
    place_retry: ILLEGAL | HALF,
}
"""Each with the flags that are refused there."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("way", "refused"), WAYS.items(), ids=[way.__name__.replace("_", "-") for way in WAYS]
)
def test_an_acknowledged_message_is_delivered_whatever_its_flag(
    world: World, way: Callable[[Sender], Response], refused: set[int]
) -> None:
    outcomes, expected = {}, {}
    for flag in FLAGS:
        sender = Sender(world, flag)
        answer = way(sender)
        try:
            outcomes[hex(flag)] = (answer.code, sender.delivered())
        except BodyError as error:
            outcomes[hex(flag)] = (answer.code, [str(error).encode()])
        is_refused = flag in refused
        expected[hex(flag)] = (
            (ResponseCode.MESSAGE_ILLEGAL, []) if is_refused else (ResponseCode.SUCCESS, [PLAIN])
        )
    assert outcomes == expected


@pytest.mark.parametrize(
    ("flag", "words"),
    [
        (TRANSACTION_PREPARED, ["half message", "TRAN_MSG"]),
        (TRANSACTION_ROLLBACK, ["half message", "TRAN_MSG"]),
        (INNER_BATCH, ["inner batch", "0x80"]),
        (COMPRESSED | 5 << COMPRESSION_SHIFT, ["compression type 5", "lz4"]),
    ],
)
def test_a_refused_flag_is_explained(world: World, flag: int, words: list[str]) -> None:
    answer = Sender(world, flag).send()
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL
    assert all(word in answer.remark for word in words), answer.remark
