"""Which member gets which queues, by example."""

import pytest

from sparrowmq.client.strategies import (
    AVG,
    AVG_BY_CIRCLE,
    CONSISTENT_HASH,
    STICKY,
    Strategy,
    averagely,
    averagely_by_circle,
    by_configuration,
    by_machine_room,
    consistent_hash,
    machine_room_nearby,
    pinned_machines,
    strategy_named,
)
from sparrowmq.protocol.message import MessageQueue

Shares = list[list[int]]


def queues_of(count: int, broker_name: str = "broker") -> list[MessageQueue]:
    return [MessageQueue("orders", broker_name, queue_id) for queue_id in range(count)]


def members(count: int) -> list[str]:
    return [f"10.0.0.{number}@{number}" for number in range(count)]


def shares(strategy: Strategy, queues: list[MessageQueue], client_ids: list[str]) -> Shares:
    """The positions of each member's queues."""
    return [
        [queues.index(queue) for queue in strategy("group", client_id, queues, client_ids)]
        for client_id in client_ids
    ]


def test_averagely_16_queues_and_3_members() -> None:
    assert shares(AVG, queues_of(16), members(3)) == [
        [0, 1, 2, 3, 4, 5],
        [6, 7, 8, 9, 10],
        [11, 12, 13, 14, 15],
    ]


def test_averagely_by_circle_16_queues_and_3_members() -> None:
    assert shares(AVG_BY_CIRCLE, queues_of(16), members(3)) == [
        [0, 3, 6, 9, 12, 15],
        [1, 4, 7, 10, 13],
        [2, 5, 8, 11, 14],
    ]


def test_averagely_9_queues_on_3_brokers_and_4_members() -> None:
    queues = [*queues_of(3, "a"), *queues_of(3, "b"), *queues_of(3, "c")]
    client_ids = [f"192.168.0.{last}@1595{last}" for last in (6, 7, 8, 9)]
    named = [
        [f"{queue.broker_name}{queue.queue_id}" for queue in AVG("g", each, queues, client_ids)]
        for each in client_ids
    ]
    assert named == [["a0", "a1", "a2"], ["b0", "b1"], ["b2", "c0"], ["c1", "c2"]]


@pytest.mark.parametrize(
    ("queue_count", "sizes"),
    [
        (4, [2, 2]),
        (4, [2, 1, 1]),
        (4, [1, 1, 1, 1]),
        (4, [1, 1, 1, 1, 0]),
        (5, [5]),
        (5, [3, 2]),
    ],
)
@pytest.mark.parametrize("strategy", [AVG, AVG_BY_CIRCLE])
def test_even_shares_of_4_and_5_queues(
    strategy: Strategy, queue_count: int, sizes: list[int]
) -> None:
    owned = shares(strategy, queues_of(queue_count), members(len(sizes)))
    assert [len(each) for each in owned] == sizes


def test_consistent_hash_matches_the_java_strategy() -> None:
    # As AllocateMessageQueueConsistentHash of Apache RocketMQ 5.5.0 answered.
    client_ids = ["10.0.0.1@11", "10.0.0.2@12", "10.0.0.3@13"]
    assert shares(CONSISTENT_HASH, queues_of(12), client_ids) == [
        [9, 10],
        [0, 1, 2, 3, 5, 6, 11],
        [4, 7, 8],
    ]


def test_consistent_hash_gives_a_client_listed_twice_more_points_as_java_does() -> None:
    client_ids = ["10.0.0.1@11", "10.0.0.1@11", "10.0.0.2@12"]
    assert shares(CONSISTENT_HASH, queues_of(12), client_ids)[1:] == [
        [0, 1, 4, 9, 10],
        [2, 3, 5, 6, 7, 8, 11],
    ]


def test_consistent_hash_has_ten_virtual_nodes() -> None:
    queues, client_ids = queues_of(100), members(10)
    default = shares(CONSISTENT_HASH, queues, client_ids)
    assert default == shares(consistent_hash(10), queues, client_ids)
    assert default != shares(consistent_hash(9), queues, client_ids)
    assert default != shares(consistent_hash(11), queues, client_ids)


def test_consistent_hash_without_virtual_nodes_gives_no_member_anything() -> None:
    assert shares(consistent_hash(0), queues_of(3), members(2)) == [[], []]


def test_consistent_hash_refuses_a_negative_number_of_virtual_nodes() -> None:
    with pytest.raises(ValueError, match="virtual_nodes is -1, must be 0 or more"):
        consistent_hash(-1)


def test_by_configuration_assigns_the_configured_queues() -> None:
    queues = queues_of(4)
    strategy = by_configuration([queues[2], queues[0]])
    assert strategy("group", "anybody", queues, []) == [queues[2], queues[0]]


def test_by_machine_room_assigns_the_remaining_queues_from_the_end() -> None:
    queues = [*queues_of(3, "far@b1"), *queues_of(5, "near@b2"), *queues_of(3, "nameless")]
    assert shares(by_machine_room(["near"]), queues, members(2)) == [[3, 4, 7], [5, 6]]


@pytest.mark.parametrize(
    ("broker_name", "is_in_the_room"),
    [("r@b", True), ("r@b@", True), ("r@", False), ("r", False), ("r@b@c", False), ("@r", False)],
)
def test_by_machine_room_reads_broker_names_as_javas_split_does(
    broker_name: str, is_in_the_room: bool
) -> None:
    queues = queues_of(1, broker_name)
    assert shares(by_machine_room(["r"]), queues, members(1)) == [[0] if is_in_the_room else []]


def room_of_queue(queue: MessageQueue) -> str:
    return queue.broker_name.partition("-")[0]


def room_of_client(client_id: str) -> str:
    return client_id.partition("-")[0]


def test_machine_room_nearby_prefers_the_own_room_and_shares_rooms_without_members() -> None:
    queues = [*queues_of(4, "r1-a"), *queues_of(2, "r2-a"), *queues_of(3, "r3-a")]
    strategy = machine_room_nearby(AVG, room_of_queue, room_of_client)
    client_ids = ["r1-x@1", "r1-y@2", "r2-z@3"]
    assert shares(strategy, queues, client_ids) == [[0, 1, 6], [2, 3, 7], [4, 5, 8]]


def test_machine_room_nearby_refuses_a_queue_without_a_room() -> None:
    strategy = machine_room_nearby(AVG, lambda queue: "", room_of_client)
    with pytest.raises(ValueError, match="no machine room is known for MessageQueue"):
        strategy("group", "r1-x@1", queues_of(1), ["r1-x@1"])


def test_pinned_machines_share_all_queues_and_the_others_get_none() -> None:
    strategy = pinned_machines(["10.0.0.0", "10.0.0.2"])
    assert shares(strategy, queues_of(5), members(4)) == [[0, 1, 2], [], [3, 4], []]
    assert strategy.why_idle("group", members(4)) is None


def test_with_no_pinned_machine_alive_no_member_consumes_and_the_reason_is_reported() -> None:
    strategy = pinned_machines(["10.9.9.9"])
    assert shares(strategy, queues_of(5), members(2)) == [[], []]
    assert strategy.why_idle("billing", members(2)) == (
        "group billing: none of its 2 members runs on a pinned machine (10.9.9.9), "
        "so no member consumes"
    )


@pytest.mark.parametrize("addresses", [[], [""], ["10.0.0.1@7"]])
def test_pinned_machines_need_addresses(addresses: list[str]) -> None:
    with pytest.raises(ValueError, match="give addresses such as"):
        pinned_machines(addresses)


CHECKED = [
    AVG,
    AVG_BY_CIRCLE,
    CONSISTENT_HASH,
    STICKY,
    by_machine_room(["r"]),
    machine_room_nearby(AVG, room_of_queue, room_of_client),
    pinned_machines(["10.0.0.0"]),
]


@pytest.mark.parametrize("strategy", CHECKED, ids=lambda strategy: strategy.name)
def test_lists_that_cannot_be_are_refused(strategy: Strategy) -> None:
    queues, client_ids = queues_of(2), members(2)
    with pytest.raises(ValueError, match="group g: the client id is empty"):
        strategy("g", "", queues, client_ids)
    with pytest.raises(ValueError, match="group g: there are no queues to share"):
        strategy("g", client_ids[0], [], client_ids)
    with pytest.raises(ValueError, match="group g: there are no members to share the queues"):
        strategy("g", client_ids[0], queues, [])


@pytest.mark.parametrize("strategy", CHECKED, ids=lambda strategy: strategy.name)
def test_a_client_that_is_not_listed_gets_nothing(strategy: Strategy) -> None:
    assert strategy("g", "10.0.0.0@99", queues_of(4), members(2)) == []


def test_the_names_are_rocketmqs() -> None:
    strategies = [
        AVG,
        AVG_BY_CIRCLE,
        CONSISTENT_HASH,
        by_configuration([]),
        by_machine_room([]),
        machine_room_nearby(AVG_BY_CIRCLE, room_of_queue, room_of_client),
    ]
    assert [strategy.name for strategy in strategies] == [
        "AVG",
        "AVG_BY_CIRCLE",
        "CONSISTENT_HASH",
        "CONFIG",
        "MACHINE_ROOM",
        "MACHINE_ROOM_NEARBY-AVG_BY_CIRCLE",
    ]


def test_a_strategy_is_found_by_its_name() -> None:
    assert strategy_named("AVG") is AVG
    assert strategy_named("STICKY") is STICKY


def test_the_error_for_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(ValueError, match="there are AVG, AVG_BY_CIRCLE, CONSISTENT_HASH, STICKY"):
        strategy_named("AVERAGE")


@pytest.mark.parametrize("name", ["CONFIG", "MACHINE_ROOM", "MACHINE_ROOM_NEARBY-AVG"])
def test_the_error_for_a_strategy_that_needs_settings_shows_how_to_build_it(name: str) -> None:
    with pytest.raises(ValueError, match="build it with"):
        strategy_named(name)


def test_your_own_strategy_is_a_function_with_a_name() -> None:
    def everything_for_the_first(
        _group: str, client_id: str, queues: object, client_ids: object
    ) -> list[MessageQueue]:
        return queues_of(2) if client_id == members(1)[0] else []

    own = Strategy("MINE", everything_for_the_first)
    assert shares(own, queues_of(2), members(2)) == [[0, 1], []]


def test_the_functions_of_the_named_strategies_are_public() -> None:
    queues, client_ids = queues_of(3), members(2)
    assert averagely("g", client_ids[1], queues, client_ids) == [queues[2]]
    assert averagely_by_circle("g", client_ids[1], queues, client_ids) == [queues[1]]
