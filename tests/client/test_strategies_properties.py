"""What holds for any group: every queue has one owner, shares are even, all members agree."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparrowmq.client.strategies import (
    AVG,
    AVG_BY_CIRCLE,
    CONSISTENT_HASH,
    STICKY,
    Strategy,
    by_machine_room,
    machine_room_nearby,
    pinned_machines,
    sticky,
)
from sparrowmq.protocol.message import MessageQueue

queue_lists = st.lists(
    st.builds(
        MessageQueue,
        st.just("orders"),
        st.sampled_from(["r1@a", "r1@b", "r2@a", "r3@a"]),
        st.integers(0, 40),
    ),
    min_size=1,
    max_size=60,
    unique=True,
).map(sorted)
member_lists = st.lists(
    st.builds(
        lambda room, number: f"{room}@{number}",
        st.sampled_from(["r1", "r2", "r9"]),
        st.integers(0, 99),
    ),
    min_size=1,
    max_size=40,
    unique=True,
).map(sorted)

NEARBY = machine_room_nearby(
    AVG,
    lambda queue: queue.broker_name.partition("@")[0],
    lambda client_id: client_id.partition("@")[0],
)
COMPLETE = [
    AVG,
    AVG_BY_CIRCLE,
    CONSISTENT_HASH,
    STICKY,
    NEARBY,
    by_machine_room(["r1", "r2", "r3"]),
]
EVEN = [AVG, AVG_BY_CIRCLE, STICKY, by_machine_room(["r1", "r2", "r3"])]


def name_of(strategy: Strategy) -> str:
    return strategy.name


def allocated(
    strategy: Strategy, queues: Sequence[MessageQueue], client_ids: Sequence[str]
) -> list[list[MessageQueue]]:
    return [strategy("group", client_id, queues, client_ids) for client_id in client_ids]


@pytest.mark.parametrize("strategy", COMPLETE, ids=name_of)
@given(queues=queue_lists, client_ids=member_lists)
def test_every_queue_has_exactly_one_owner(
    strategy: Strategy, queues: list[MessageQueue], client_ids: list[str]
) -> None:
    owned = [queue for share in allocated(strategy, queues, client_ids) for queue in share]
    assert sorted(owned) == queues


@pytest.mark.parametrize("strategy", EVEN, ids=name_of)
@given(queues=queue_lists, client_ids=member_lists)
def test_shares_differ_by_one_queue_at_most(
    strategy: Strategy, queues: list[MessageQueue], client_ids: list[str]
) -> None:
    sizes = [len(share) for share in allocated(strategy, queues, client_ids)]
    assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize("strategy", COMPLETE, ids=name_of)
@given(queues=queue_lists, client_ids=member_lists)
def test_asking_again_gives_the_same_queues(
    strategy: Strategy, queues: list[MessageQueue], client_ids: list[str]
) -> None:
    first = allocated(strategy, queues, client_ids)
    assert allocated(strategy, tuple(queues), tuple(client_ids)) == first


@given(queues=queue_lists, client_ids=member_lists)
def test_pinned_machines_own_every_queue_between_them(
    queues: list[MessageQueue], client_ids: list[str]
) -> None:
    strategy = pinned_machines(["r1"])
    owned = [queue for share in allocated(strategy, queues, client_ids) for queue in share]
    assert sorted(owned) == (queues if strategy.why_idle("g", client_ids) is None else [])


@given(queues=queue_lists, client_ids=member_lists, data=st.data())
def test_sticky_shares_every_queue_evenly_from_any_owners(
    queues: list[MessageQueue], client_ids: list[str], data: st.DataObject
) -> None:
    holders = st.sampled_from([*client_ids, "r1@gone"])
    previous = data.draw(st.dictionaries(st.sampled_from(queues), holders))
    shares = allocated(sticky(previous), queues, client_ids)
    assert sorted(queue for share in shares for queue in share) == queues
    sizes = [len(share) for share in shares]
    assert max(sizes) - min(sizes) <= 1
