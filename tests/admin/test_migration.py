"""The time up to which a group has consumed a topic, derived from its progress per queue."""

from datetime import UTC, datetime, timedelta

import pytest

from sparrowmq.admin.lag import QueueLag
from sparrowmq.admin.migration import consumed_until
from sparrowmq.protocol.message import MessageQueue

NOON = datetime(2026, 11, 15, 12, tzinfo=UTC)
NOON_MS = round(NOON.timestamp() * 1000)


def queue(*, lag: int, minutes: int | None, offset: int | None = 10) -> QueueLag:
    """A queue with some messages left, the last consumed one stored that long after noon."""
    return QueueLag(
        queue=MessageQueue("orders", "broker-a", 0),
        min_offset=0,
        broker_offset=(offset or 0) + lag,
        consumer_offset=offset,
        last_consumed=None if minutes is None else NOON + timedelta(minutes=minutes),
        owner=None,
    )


CASES = [
    pytest.param([queue(lag=0, minutes=5)], 5, id="everything is consumed"),
    pytest.param(
        [queue(lag=0, minutes=5), queue(lag=0, minutes=9)], 9, id="the newest, if none is behind"
    ),
    pytest.param(
        [queue(lag=3, minutes=5), queue(lag=0, minutes=9)], 5, id="a queue that is behind decides"
    ),
    pytest.param(
        [queue(lag=3, minutes=5), queue(lag=1, minutes=2)], 2, id="the one furthest behind decides"
    ),
    pytest.param(
        [queue(lag=3, minutes=None, offset=0), queue(lag=0, minutes=9)],
        None,
        id="a queue of which nothing is consumed begins with its oldest message",
    ),
    pytest.param(
        [queue(lag=0, minutes=None, offset=0), queue(lag=0, minutes=9)],
        9,
        id="an empty queue says nothing",
    ),
    pytest.param([queue(lag=0, minutes=None, offset=0)], None, id="an empty topic"),
]


@pytest.mark.parametrize(("queues", "minutes"), CASES)
def test_a_group_has_consumed_what_was_stored_until(
    queues: list[QueueLag], minutes: int | None
) -> None:
    expected = None if minutes is None else NOON_MS + minutes * 60_000 + 1
    assert consumed_until(queues) == expected
