"""Stored messages are found by offset id, key and unique id."""

from typing import Any

from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.headers.messages import MessagesFound, QueryMessage, ViewMessage
from sparrowmq.protocol.message_ext import decode_messages
from tests.broker.world import World

ALWAYS: dict[str, Any] = {"begin_timestamp": 0, "end_timestamp": 2**62}


def find(world: World, key: str, most: int = 32, **changes: object) -> list[bytes]:
    header = QueryMessage(topic="orders", key=key, max_num=most, **(ALWAYS | changes))
    answer = world.ask(header)
    if answer.code == ResponseCode.QUERY_NOT_FOUND:
        return []
    return [message.body for message in decode_messages(answer.body)]


def test_a_message_is_viewed_by_its_place_in_the_log(world: World) -> None:
    sent = world.sim.wait(world.sim.client.send("orders", b"hello"))
    at = int(sent.msg_id[-16:], 16)
    (message,) = decode_messages(world.done(ViewMessage(offset=at)).body)
    assert message.body == b"hello"


def test_a_place_where_no_message_starts_is_refused(world: World) -> None:
    world.send("orders", b"hello")
    for at in (1, -1, 10**12):
        assert world.ask(ViewMessage(offset=at)).code == ResponseCode.SYSTEM_ERROR


def test_messages_are_found_by_key_newest_first(world: World) -> None:
    for number in range(3):
        world.send("orders", str(number).encode(), KEYS=f"o-{number} all")
    assert find(world, "o-1") == [b"1"]
    assert find(world, "all") == [b"2", b"1", b"0"]
    assert find(world, "missing") == []
    assert find(world, "all", most=2) == [b"2", b"1"]


def test_a_truncated_answer_is_marked_as_such(world: World) -> None:
    for number in range(3):
        world.send("orders", str(number).encode(), KEYS="all")
    header = QueryMessage(topic="orders", key="all", max_num=2, **ALWAYS)
    assert world.done(header).header(MessagesFound).cut
    header = QueryMessage(topic="orders", key="all", max_num=3, **ALWAYS)
    assert not world.done(header).header(MessagesFound).cut


def test_messages_are_found_within_a_time_range_only(world: World) -> None:
    world.send("orders", b"early", KEYS="k")
    world.sim.advance(60)
    between = world.sim.clock() - 30_000
    world.send("orders", b"late", KEYS="k")
    assert find(world, "k", begin_timestamp=between) == [b"late"]
    assert find(world, "k", end_timestamp=between) == [b"early"]


def test_messages_are_found_by_unique_id_also_after_a_crash(world: World) -> None:
    sent = world.sim.wait(world.sim.client.send("orders", b"hello"))
    assert find(world, sent.transaction_id, is_unique="true") == [b"hello"]
    world.sim.brokers["broker-a"].restart()
    world.sim.client.disconnect()
    assert find(world, sent.transaction_id, is_unique="true") == [b"hello"]


def test_a_query_by_tag_is_not_answered_with_the_messages_of_a_key(world: World) -> None:
    world.send("orders", b"hello", KEYS="paid", TAGS="paid")
    assert find(world, "paid", index_type="K") == [b"hello"]
    assert find(world, "paid", index_type="T") == []
