"""What acknowledgements of slaves allow a master to promise."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparrowmq.broker.replication.replicas import Copies, Replicas

END = 1000


def replicas(
    wanted: int = 2, least: int = 1, max_gap_bytes: int = 100, **acknowledged: int
) -> Replicas:
    """A master whose slaves s1, s2, … have acknowledged so much."""
    made = Replicas(wanted, least, max_gap_bytes)
    for name, offset in acknowledged.items():
        made.acknowledge(int(name[1:]), offset)
    return made


@pytest.mark.parametrize(
    ("wanted", "acknowledged", "copies"),
    [
        (1, {}, Copies.ENOUGH),
        (2, {}, Copies.MISSING),
        (2, {"s1": END}, Copies.ENOUGH),
        (2, {"s1": END - 1}, Copies.TO_COME),
        (2, {"s1": END - 100}, Copies.TO_COME),
        (2, {"s1": END - 101}, Copies.MISSING),
        (3, {"s1": END}, Copies.MISSING),
        (3, {"s1": END, "s2": END - 1}, Copies.TO_COME),
        (3, {"s1": END, "s2": END}, Copies.ENOUGH),
        (2, {"s1": 0, "s2": END}, Copies.ENOUGH),
    ],
)
def test_a_message_waits_only_for_slaves_that_follow_closely(
    wanted: int, acknowledged: dict[str, int], copies: Copies
) -> None:
    assert replicas(wanted, **acknowledged).copies_of(END, END) is copies


@pytest.mark.parametrize(
    ("least", "acknowledged", "accepts"),
    [
        (1, {}, True),
        (2, {}, False),
        (2, {"s1": END - 101}, False),
        (2, {"s1": END - 100}, True),
        (3, {"s1": END}, False),
    ],
)
def test_appends_are_refused_with_fewer_copies_in_sync_than_required(
    least: int, acknowledged: dict[str, int], accepts: bool
) -> None:
    assert replicas(3, least, **acknowledged).accepts(END) is accepts


def test_a_slave_that_connects_twice_is_one_copy() -> None:
    made = replicas(3, s1=END)
    assert not made.acknowledge(1, END)
    assert made.copies_of(END, END) is Copies.MISSING


def test_a_slave_that_returns_with_a_shorter_log_confirms_nothing_more() -> None:
    made = replicas(2, s1=END)
    made.disconnect(1)
    assert made.in_sync(END) == 1
    assert not made.acknowledge(1, END - 50)
    assert made.copies_of(END + 10, END + 10) is Copies.TO_COME
    assert made.visible_end == END


def test_consumers_see_messages_whose_copies_were_given_up() -> None:
    made = replicas(2)
    assert made.visible_end == 0
    made.give_up(END)
    assert made.visible_end == END
    made.give_up(END - 1)
    assert made.visible_end == END


events = st.tuples(st.integers(1, 3), st.integers(0, 50) | st.none())


@given(st.integers(2, 4), st.lists(events))
def test_what_is_confirmed_was_acknowledged_by_enough_slaves_at_once(
    wanted: int, happened: list[tuple[int, int | None]]
) -> None:
    made, confirmed = Replicas(wanted, 1, 100), 0
    for slave_id, offset in happened:
        if offset is None:
            made.disconnect(slave_id)
            continue
        grew = made.acknowledge(slave_id, offset)
        have = [at for at in made.acknowledged.values() if at >= made.visible_end]
        assert grew == (made.visible_end > confirmed)
        if grew:
            assert len(have) >= wanted - 1
        assert made.visible_end >= confirmed
        confirmed = made.visible_end
