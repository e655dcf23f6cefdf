"""The sticky strategy: even loads, and the fewest queues moved."""

from collections import Counter
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparrowmq.client.strategies import AVG, STICKY, plan_sticky, sticky
from sparrowmq.client.strategies.sticky import balanced_ring
from sparrowmq.protocol.message import MessageQueue

Owners = dict[MessageQueue, str]

QUEUES = [MessageQueue("orders", "broker", queue_id) for queue_id in range(24)]
NAMES = [f"10.0.0.{number}@{number}" for number in range(9)]

member_sets = st.sets(st.sampled_from(NAMES), min_size=1)
holdings = st.dictionaries(st.sampled_from(QUEUES), st.sampled_from([*NAMES, "10.9.9.9@gone"]))


def kept(before: Owners, after: Owners) -> int:
    return sum(after.get(queue) == owner for queue, owner in before.items())


def most_that_can_be_kept(queues: list[MessageQueue], members: list[str], held: Owners) -> int:
    """By trying every way to hand out the larger shares."""
    share, larger = divmod(len(queues), len(members))
    counts = Counter(held.values())
    return max(
        sum(min(counts[each], share + bonus) for each, bonus in zip(members, way, strict=True))
        for way in product((0, 1), repeat=len(members))
        if sum(way) == larger
    )


@given(size=st.integers(1, len(QUEUES)), members=member_sets, previous=holdings)
def test_no_even_assignment_moves_fewer_queues(
    size: int, members: set[str], previous: Owners
) -> None:
    queues = QUEUES[:size]
    held = {queue: each for queue, each in previous.items() if queue in queues and each in members}
    plan = plan_sticky(queues, members, previous)
    loads = Counter(plan.values())
    assert sorted(plan) == queues
    assert max(loads.values()) - min(loads[each] for each in members) <= 1
    assert kept(held, plan) == most_that_can_be_kept(queues, sorted(members), held)


@given(members=member_sets, previous=holdings, data=st.data())
def test_a_plan_carried_out_in_part_leads_to_the_same_end(
    members: set[str], previous: Owners, data: st.DataObject
) -> None:
    plan = plan_sticky(QUEUES, members, previous)
    moving = [queue for queue in QUEUES if previous.get(queue) != plan[queue]]
    half_way = dict(previous)
    for queue in moving:
        step = data.draw(st.sampled_from(["not yet", "released", "taken"]))
        if step == "taken":
            half_way[queue] = plan[queue]
        elif step == "released":
            half_way.pop(queue, None)
    assert plan_sticky(QUEUES, members, half_way) == plan


@given(size=st.integers(1, len(QUEUES)), members=member_sets)
def test_a_group_without_holdings_gets_the_even_ring(size: int, members: set[str]) -> None:
    ring = balanced_ring(QUEUES[:size], sorted(members))
    loads = Counter(ring.values())
    assert max(loads.values()) - min(loads[each] for each in members) <= 1
    assert plan_sticky(QUEUES[:size], members, {}) == ring


@given(members=member_sets, previous=holdings)
def test_an_even_assignment_stays_as_it_is(members: set[str], previous: Owners) -> None:
    plan = plan_sticky(QUEUES, members, previous)
    assert plan_sticky(QUEUES, members, plan) == plan


@given(members=st.permutations(NAMES), queues=st.permutations(QUEUES), previous=holdings)
def test_the_order_of_the_lists_does_not_matter(
    members: list[str], queues: list[MessageQueue], previous: Owners
) -> None:
    assert plan_sticky(queues, members, previous) == plan_sticky(QUEUES, NAMES, previous)


def test_a_join_moves_only_the_queues_the_new_member_gets() -> None:
    before = plan_sticky(QUEUES, NAMES[:3], {})
    after = plan_sticky(QUEUES, NAMES[:4], before)
    moved = [queue for queue in QUEUES if before[queue] != after[queue]]
    assert len(moved) == 6
    assert {after[queue] for queue in moved} == {NAMES[3]}


def test_a_leave_moves_only_the_queues_the_member_had() -> None:
    before = plan_sticky(QUEUES, NAMES[:4], {})
    after = plan_sticky(QUEUES, NAMES[:3], before)
    moved = [queue for queue in QUEUES if before[queue] != after[queue]]
    assert {before[queue] for queue in moved} == {NAMES[3]}
    assert len(moved) == 6


def test_without_shared_holdings_a_join_moves_far_fewer_queues_than_averagely() -> None:
    queues = [MessageQueue("orders", "broker", queue_id) for queue_id in range(200)]
    members = [f"10.0.1.{number}@{number}" for number in range(11)]

    def moved(strategy_name: str) -> int:
        strategy = {"AVG": AVG, "STICKY": STICKY}[strategy_name]
        first, second = members[1:], members
        before = {q: each for each in first for q in strategy("g", each, queues, first)}
        after = {q: each for each in second for q in strategy("g", each, queues, second)}
        return sum(before[queue] != after[queue] for queue in queues)

    assert moved("STICKY") * 3 < moved("AVG")


def test_no_function_of_queues_and_members_alone_can_always_move_the_fewest() -> None:
    # With two queues and three members one member idles. Its two-member group and the one where it
    # replaces another have different owners, yet the third joining either must move nothing.
    two, (a, b, c) = QUEUES[:2], NAMES[:3]
    idle = next(each for each in (a, b, c) if each not in plan_sticky(two, (a, b, c), {}).values())
    others = [each for each in (a, b, c) if each != idle]
    without_first = plan_sticky(two, [idle, others[1]], {})
    assert plan_sticky(two, (a, b, c), {}) != without_first
    assert plan_sticky(two, (a, b, c), without_first) == without_first


@pytest.mark.parametrize("members", [1, 7, 24, 40])
def test_each_member_sees_its_part_of_the_plan(members: int) -> None:
    client_ids = [f"10.0.2.{number}@{number}" for number in range(members)]
    previous = dict.fromkeys(QUEUES[:10], client_ids[0])
    plan = plan_sticky(QUEUES, client_ids, previous)
    for client_id in client_ids:
        mine = sticky(previous)("g", client_id, QUEUES, client_ids)
        assert mine == [queue for queue in QUEUES if plan[queue] == client_id]


@given(members=member_sets, previous=holdings, later=holdings)
def test_a_strategy_keeps_no_state_between_calls_or_groups(
    members: set[str], previous: Owners, later: Owners
) -> None:
    listed, given_then = sorted(members), dict(previous)
    shared = sticky(previous)
    alone = {each: sticky(given_then)("billing", each, QUEUES, listed) for each in listed}
    previous.update(later)  # what it was made from is not looked at again
    for group in ("billing", "audit", "billing"):
        shared(group, listed[0], QUEUES[:5], listed)
        assert {each: shared(group, each, QUEUES, listed) for each in listed} == alone
