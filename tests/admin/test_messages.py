"""Finding stored messages: by id, by key, by queue and offset."""

import asyncio
from typing import Any

import pytest

from sparrowmq import Admin, Client, Message, MessageQueue, NotFound
from sparrowmq.client.client import core_of
from sparrowmq.testing.sim_cluster import SimCluster
from tests.admin.operator import as_client, numbered, send

FIRST = MessageQueue("orders", "broker-a", 0)


def test_a_message_is_found_by_its_unique_id_and_by_its_offset_id() -> None:
    async def work(client: Client) -> None:
        admin = Admin(client=client)
        await admin.create_topic("orders", queues=2)
        sent = await send(client, *numbered("orders", 6))
        for number, result in enumerate(sent):
            by_unique = await admin.message(result.msg_id, "orders")
            assert by_unique.body == b"%d" % number
            assert by_unique.queue == result.queue
            by_offset = await admin.message(result.offset_msg_id)
            assert by_offset == by_unique
            assert await admin.message(result.offset_msg_id, "orders") == by_unique

    with SimCluster(seed=1, brokers=2).run() as sim:
        as_client(sim, work)


def test_messages_of_a_key_come_newest_first_from_all_brokers_within_a_time_range() -> None:
    async def work(client: Client) -> None:
        admin = Admin(client=client)
        await admin.create_topic("orders", queues=1)
        times_ms = []
        for number in range(6):
            await send(client, Message("orders", b"%d" % number, keys="o-1 other"))
            times_ms.append(core_of(client).clock())
            await asyncio.sleep(10.0)
        found = await admin.find_messages("orders", "o-1")
        assert [each.body for each in found] == [b"5", b"4", b"3", b"2", b"1", b"0"]
        assert {each.broker_name for each in found} == {"broker-a", "broker-b"}
        assert not found.is_cut
        few = await admin.find_messages("orders", "o-1", limit=2)
        assert [each.body for each in few] == [b"5", b"4"]
        assert few.is_cut
        part = await admin.find_messages(
            "orders", "o-1", begin=times_ms[1] - 1000, end=times_ms[3] + 1000
        )
        assert [each.body for each in part] == [b"3", b"2", b"1"]
        assert (await admin.find_messages("orders", "o-2")).items == ()

    with SimCluster(seed=1, brokers=2).run() as sim:
        as_client(sim, work)


def test_messages_are_read_by_their_place_without_progress_of_any_group() -> None:
    async def work(client: Client) -> None:
        admin = Admin(client=client)
        await admin.create_topic("orders", queues=1)
        await send(client, *numbered("orders", 5))
        assert (await admin.read_message(FIRST, 3)).body == b"3"
        part = await admin.read_messages(FIRST, 1, limit=3)
        assert [each.queue_offset for each in part] == [1, 2, 3]
        assert part.is_cut
        rest = await admin.read_messages(FIRST, 4)
        assert [each.queue_offset for each in rest] == [4]
        assert not rest.is_cut
        assert (await admin.read_messages(FIRST, 5)).items == ()
        assert (await admin.group("TOOLS_CONSUMER")).topics == ()

    with SimCluster(seed=1).run() as sim:
        as_client(sim, work)


WRONG: list[tuple[str, dict[str, Any], type[Exception], str]] = [
    ("message", {"message_id": "17"}, ValueError, "'17' is not 32 or 56 hexadecimal digits"),
    ("message", {"message_id": "A" * 32}, NotFound, "give its topic, if this is the unique id"),
    ("message", {"message_id": "A" * 32, "topic": "orders"}, NotFound, "not in topic orders"),
    ("message", {"message_id": "A" * 32, "topic": "nope"}, NotFound, "topic nope does not"),
    ("find_messages", {"topic": "nope", "key": "k"}, NotFound, "topic nope does not exist"),
    ("find_messages", {"topic": "orders", "key": " "}, ValueError, "the key is blank"),
    ("find_messages", {"topic": "orders", "key": "k", "limit": 65}, ValueError, "must be 1 to 64"),
    (
        "find_messages",
        {"topic": "orders", "key": "k", "begin": 2, "end": 1},
        ValueError,
        r"begin \(2\) is later than end \(1\)",
    ),
    ("read_message", {"queue": FIRST, "offset": 2}, NotFound, "broker-a/0/2 .* has 0 to 1"),
    ("read_message", {"queue": FIRST, "offset": -1}, ValueError, "offset is -1, must be 0"),
    (
        "read_message",
        {"queue": MessageQueue("orders", "b", 0), "offset": 0},
        NotFound,
        "broker b does not exist; topic orders is on: broker-a",
    ),
    (
        "read_message",
        {"queue": MessageQueue("empty", "broker-a", 0), "offset": 0},
        NotFound,
        "is empty",
    ),
    ("read_message", {"queue": ("orders", 0), "offset": 0}, ValueError, "must be a MessageQueue"),
    ("read_message", {"queue": FIRST, "offset": "0"}, ValueError, "offset is '0', must be a whole"),
    ("message", {"message_id": None}, ValueError, "message_id is None, must be a str"),
    ("offset_at", {"queue": 0, "when": 0}, ValueError, "queue is 0, must be a MessageQueue"),
    ("read_messages", {"queue": FIRST, "offset": 0, "limit": 0}, ValueError, "must be 1 to 1000"),
]


@pytest.mark.parametrize(("method", "arguments", "kind", "text"), WRONG)
def test_an_invalid_query_is_refused_with_the_reason(
    method: str, arguments: dict[str, Any], kind: type[Exception], text: str
) -> None:
    async def work(client: Client) -> None:
        admin = Admin(client=client)
        await admin.create_topic("orders", queues=1)
        await admin.create_topic("empty", queues=1)
        await send(client, *numbered("orders", 2))
        with pytest.raises(kind, match=text):
            await getattr(admin, method)(**arguments)

    with SimCluster(seed=1).run() as sim:
        as_client(sim, work)
