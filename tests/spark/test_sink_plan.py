"""Which rows go together, and to which queue."""

import pytest

pa = pytest.importorskip("pyarrow", reason="needs the spark extra: pip install sparrowmq[spark]")

from sparrowmq.protocol.batch import decode_batch  # noqa: E402 - after the skip
from sparrowmq.protocol.java import java_hash  # noqa: E402
from sparrowmq.spark.encode.row_encoder import (  # noqa: E402
    EncodedRows,
    RowEncoder,
    RowKeys,
)
from sparrowmq.spark.encode.row_properties import values_of  # noqa: E402
from sparrowmq.spark.wire.sender import Send  # noqa: E402
from sparrowmq.spark.write_task import SendLimits, SendPlan  # noqa: E402

QUEUES = 4
WIDE = SendLimits(max_bytes=1_000_000, max_rows=1_000)


def plan(limits: SendLimits = WIDE, first_turn: int = 0) -> SendPlan:
    return SendPlan(lambda topic: QUEUES, limits, first_turn)


def rows(*bodies: bytes, keys: tuple[str | None, ...] = (), topic: str = "orders") -> EncodedRows:
    sharding = pa.array([*keys, *[None] * (len(bodies) - len(keys))], pa.string())
    batch = pa.record_batch({"body": pa.array(bodies, pa.binary()), "shardingKey": sharding})
    positions = {"body": 0, "shardingKey": 1}
    return RowEncoder(positions, topic, RowKeys("job", 0), 100_000).encode(batch)


def bodies(send: Send) -> list[bytes]:
    if send.properties is not None:
        return [send.body]
    return [body for _, body, _ in decode_batch(send.body)]


def by_queue(sends: list[Send]) -> dict[int, list[bytes]]:
    found: dict[int, list[bytes]] = {}
    for send in sends:
        found.setdefault(send.queue, []).extend(bodies(send))
    return found


def queue_of(key: str) -> int:
    return abs(java_hash(key)) % QUEUES


def test_rows_use_queues_in_turn_and_the_next_batch_continues_there() -> None:
    found = plan(first_turn=2)
    assert by_queue(list(found.sends(rows(b"a", b"b", b"c")))) == {2: [b"a"], 3: [b"b"], 0: [b"c"]}
    assert by_queue(list(found.sends(rows(b"d", b"e")))) == {1: [b"d"], 2: [b"e"]}


def test_every_topic_has_its_own_rotation() -> None:
    found = plan()
    assert by_queue(list(found.sends(rows(b"a")))) == {0: [b"a"]}
    assert by_queue(list(found.sends(rows(b"b", topic="bills")))) == {0: [b"b"]}
    assert by_queue(list(found.sends(rows(b"c")))) == {1: [b"c"]}


def test_rows_with_a_key_keep_to_its_queue_and_use_up_no_turn() -> None:
    key = next(key for key in map(str, range(100)) if queue_of(key) != 0)
    sends = list(plan().sends(rows(b"a", b"b", b"c", b"d", keys=(key, None, key, None))))
    assert [(send.queue, bodies(send), send.is_bound) for send in sends if send.queue == 0] == [
        (0, [b"b"], False)
    ]
    bound = {send.queue: bodies(send) for send in sends if send.is_bound}
    assert bound[queue_of(key)][:2] == [b"a", b"c"]
    assert sorted(body for send in sends for body in bodies(send)) == [b"a", b"b", b"c", b"d"]


def test_a_send_is_filled_to_the_last_byte_and_not_beyond() -> None:
    encoded = rows(*[b"x" * 50] * 3, keys=("k",) * 3)
    _, ends = values_of(encoded.messages)
    two = int(ends[2] - ends[0])
    for limit, expected in ((two, [2, 1]), (two - 1, [1, 1, 1]), (two + 1, [2, 1])):
        sends = list(plan(SendLimits(max_bytes=limit, max_rows=100)).sends(encoded))
        assert [send.rows for send in sends] == expected
        assert all(send.properties is None for send in sends)
    one = int(ends[1] - ends[0])
    just = list(plan(SendLimits(max_bytes=one, max_rows=100)).sends(encoded))
    assert [(send.rows, send.properties) for send in just] == [(1, None)] * 3


def test_a_send_has_no_more_rows_than_are_allowed() -> None:
    encoded = rows(*[b"x"] * 5, keys=("k",) * 5)
    sends = list(plan(SendLimits(max_bytes=100_000, max_rows=2)).sends(encoded))
    assert [send.rows for send in sends] == [2, 2, 1]


def test_a_row_that_is_too_large_for_a_batch_goes_alone_in_its_place() -> None:
    encoded = rows(b"a", b"b", b"large" * 100, b"c", keys=("k",) * 4)
    sends = list(plan(SendLimits(max_bytes=300, max_rows=100)).sends(encoded))
    assert [bodies(send) for send in sends] == [[b"a", b"b"], [b"large" * 100], [b"c"]]
    assert [send.properties is not None for send in sends] == [False, True, False]
    assert [send.rows for send in sends] == [2, 1, 1]
