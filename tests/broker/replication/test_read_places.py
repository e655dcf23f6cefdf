"""Which broker an answer suggests: tables of the rules, without any broker."""

from typing import Any

import pytest

from sparrowmq.broker.replication.read_places import STAY_S, Visits, is_slow_read, which_broker
from sparrowmq.protocol.group_config import SubscriptionGroupConfig
from sparrowmq.protocol.headers.pull import PullMessage

MASTER = 0


@pytest.mark.parametrize(
    ("own_id", "is_slow", "others", "group", "suggested"),
    [
        # a master: Apache's rule, for slaves that can serve
        (MASTER, False, [1], {}, MASTER),
        (MASTER, True, [1], {}, 1),
        (MASTER, True, [], {}, MASTER),
        (MASTER, True, [1, 2], {"which_broker_when_consume_slowly": 2}, 2),
        (MASTER, True, [1], {"which_broker_when_consume_slowly": 0}, MASTER),
        (MASTER, False, [1], {"broker_id": 1}, 1),
        (MASTER, False, [], {"broker_id": 1}, MASTER),
        # any slave stands for the one that the group names
        (MASTER, True, [3, 2], {}, 2),
        # a slave whose master is there
        (1, False, [MASTER], {}, MASTER),
        (1, True, [MASTER], {}, 1),
        (2, True, [MASTER], {}, 2),
        (1, True, [MASTER], {"which_broker_when_consume_slowly": 0}, MASTER),
        (1, False, [MASTER], {"broker_id": 1}, 1),
        # a slave whose master is away keeps every reader
        (1, False, [], {}, 1),
        (2, False, [], {"broker_id": 1}, 2),
    ],
)
def test_the_settings_of_the_group_decide_among_brokers_that_can_serve(
    own_id: int, is_slow: bool, others: list[int], group: dict[str, Any], suggested: int
) -> None:
    config = SubscriptionGroupConfig(group_name="billing", **group)
    assert which_broker(config, own_id, is_slow=is_slow, others=others) == suggested


@pytest.mark.parametrize(
    ("is_away", "is_cold", "behind_bytes", "is_slow"),
    [
        (False, True, 101, True),
        (False, True, 100, False),
        (False, False, 1_000, False),
        # on a slave it is the distance alone, and half of it
        (True, False, 101, True),
        (True, False, 51, True),
        (True, False, 50, False),
        (True, True, 50, False),
    ],
)
def test_a_reader_leaves_far_from_the_end_and_returns_close_to_it(
    is_away: bool, is_cold: bool, behind_bytes: int, is_slow: bool
) -> None:
    found = is_slow_read(is_away=is_away, is_cold=is_cold, behind_bytes=behind_bytes, gap_bytes=100)
    assert found == is_slow


def test_no_distance_lets_a_reader_go_to_and_fro() -> None:
    for behind_bytes in range(300):
        leaves = is_slow_read(is_away=False, is_cold=True, behind_bytes=behind_bytes, gap_bytes=100)
        stays = is_slow_read(is_away=True, is_cold=True, behind_bytes=behind_bytes, gap_bytes=100)
        assert stays or not leaves, behind_bytes


def pull(queue_id: int = 0) -> PullMessage:
    return PullMessage(
        consumer_group="billing",
        topic="orders",
        queue_id=queue_id,
        queue_offset=0,
        max_msg_nums=32,
        sys_flag=0,
        commit_offset=0,
        suspend_timeout_millis=0,
        sub_version=0,
    )


def test_a_visit_is_young_for_a_while_and_a_new_visit_starts_over() -> None:
    now_ms = 0
    visits = Visits(lambda: now_ms)
    assert visits.is_young(pull())
    now_ms = int(STAY_S * 1000) - 1
    assert visits.is_young(pull())
    assert visits.is_young(pull(queue_id=1)), "each queue has its own reader"
    now_ms += 1
    assert not visits.is_young(pull())
    visits.end(pull())
    assert visits.is_young(pull())
