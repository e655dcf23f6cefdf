"""Simulated rebalances: shares by the client's own code, pauses and repeats by its own rules."""

import re
from xml.etree import ElementTree

import pytest

from sparrowmq.admin.rebalance_picture import draw
from sparrowmq.admin.rebalance_simulation import (
    JAVA_SILENCE_S,
    ROUND_S,
    ROUTE_POLL_S,
    SESSION_S,
    RebalanceSimulation,
    SimulatedGroup,
    described_group,
    read_event,
    simulate,
)
from sparrowmq.broker.config import BrokerConfig
from sparrowmq.client.group.queue_handover import HAND_OVER_S
from sparrowmq.client.group.rebalance_signal import AT_ONCE_S, MERGE_S
from sparrowmq.client.strategies import AVG, NAMED, plan_sticky
from sparrowmq.protocol.message import MessageQueue

SVG = "{http://www.w3.org/2000/svg}"


def simulated(group: SimulatedGroup, *events: str, strategy: str = "STICKY") -> RebalanceSimulation:
    return simulate(group, [read_event(event) for event in events], [strategy])[0]


def shares(simulation: RebalanceSimulation, members: int) -> list[list[int]]:
    owners = simulation.owners
    return [
        [queue.queue_id for queue, owner in owners.items() if owner == f"member-{number}"]
        for number in range(1, members + 1)
    ]


def test_shares_are_those_that_members_compute() -> None:
    found = simulated(described_group(16, 3), strategy="AVG")
    assert shares(found, 3) == [[*range(6)], [*range(6, 11)], [*range(11, 16)]]
    members = ("member-1", "member-2", "member-3", "member-4")
    after = simulated(described_group(16, 3), "join", strategy="AVG").steps[0].owners
    for member in members:
        queues = [MessageQueue("topic", "broker-a", number) for number in range(16)]
        mine = AVG("simulated", member, queues, members)
        assert [queue for queue, owner in after.items() if owner == member] == mine


def test_sticky_members_start_from_the_current_owners() -> None:
    group = described_group(7, 2)
    held = dict.fromkeys(group.queues, "member-2")
    live = SimulatedGroup(
        queues=group.queues, members=group.members, owners=held, strategy="STICKY"
    )
    found = simulated(live, "join")
    assert found.is_in_use
    assert found.owners == held
    assert found.steps[0].owners == plan_sticky(group.queues, [*group.members, "member-3"], held)
    assert not simulated(live, "join", strategy="AVG").is_in_use


@pytest.mark.parametrize(
    ("events", "strategy", "moves"),
    [
        (["join"], "AVG", 9),
        (["join"], "STICKY", 4),
        (["leave"], "STICKY", 5),
        (["queues=16"], "AVG", 0),
        (["queues=24"], "AVG", 7),
        (["queues=24"], "STICKY", 0),
        (["join", "leave"], "STICKY", 8),
    ],
)
def test_moves_count_queues_that_change_owner(events: list[str], strategy: str, moves: int) -> None:
    assert simulated(described_group(16, 3), *events, strategy=strategy).moves == moves


def test_the_skew_is_the_difference_of_the_largest_and_the_smallest_share() -> None:
    assert simulated(described_group(16, 4), strategy="AVG").skew == 0
    assert simulated(described_group(16, 3), strategy="AVG").skew == 1
    assert simulated(described_group(16, 3), strategy="CONSISTENT_HASH").skew > 1


HANDLER_S = 0.5
PAUSES = [
    ("join", False, HANDLER_S + AT_ONCE_S, HAND_OVER_S + MERGE_S),
    ("leave", False, HANDLER_S + AT_ONCE_S, HAND_OVER_S + MERGE_S),
    ("kill", False, AT_ONCE_S, MERGE_S),
    ("vanish", False, SESSION_S + AT_ONCE_S, SESSION_S + MERGE_S),
    ("queues=24", False, ROUTE_POLL_S / 2, ROUTE_POLL_S + MERGE_S),
    ("join", True, MERGE_S, ROUND_S),
    ("kill", True, MERGE_S, ROUND_S),
    ("vanish", True, JAVA_SILENCE_S + MERGE_S, JAVA_SILENCE_S + ROUND_S),
    ("queues=24", True, (ROUTE_POLL_S + ROUND_S) / 2, ROUTE_POLL_S + ROUND_S + MERGE_S),
]


@pytest.mark.parametrize(("event", "java", "pause_s", "longest_s"), PAUSES)
def test_pauses_follow_the_times_that_clients_and_brokers_wait(
    event: str, java: bool, pause_s: float, longest_s: float
) -> None:
    described = described_group(16, 3, java=java)
    group = SimulatedGroup(
        queues=described.queues,
        members=described.members,
        others=described.others,
        joins_as_other=java,
        handler_s=HANDLER_S,
    )
    found = simulated(group, event)
    assert (found.pause_s, found.longest_s) == pytest.approx((pause_s, longest_s))


def test_a_vanished_host_is_noticed_when_the_broker_s_setting_says() -> None:
    default = BrokerConfig.__dataclass_fields__["session_timeout_s"].default
    assert default == SESSION_S


@pytest.mark.parametrize(
    ("event", "java", "handler_s", "repeated"),
    [
        ("leave", False, 0.1, 0),
        ("leave", True, 0.1, 10),  # each of five queues has 20 messages a second
        ("leave", False, HAND_OVER_S + 1, 5 * 220),
        ("kill", False, 0.1, 5 * (2 + 100)),
    ],
)
def test_only_queues_lost_without_a_handover_repeat_messages(
    event: str, java: bool, handler_s: float, repeated: int
) -> None:
    described = described_group(15, 3, java=java)
    group = SimulatedGroup(
        queues=described.queues,
        members=described.members,
        others=described.others,
        per_s=300,
        handler_s=handler_s,
    )
    assert simulated(group, event).repeated == repeated


def test_a_kill_repeats_only_messages_of_the_killed_member() -> None:
    step = simulated(described_group(16, 4), "kill=member-1", strategy="AVG").steps[0]
    for move in step.moves:
        assert (move.repeated > 0) == (move.giver == "member-1")
        was_killed = move.why == "member-1 was killed"
        assert was_killed == (move.giver == "member-1")


def test_messages_that_members_have_fetched_count_where_they_are_known() -> None:
    described = described_group(4, 2, java=True)
    in_flight = dict.fromkeys(described.queues, 7)
    group = SimulatedGroup(
        queues=described.queues,
        members=described.members,
        others=described.others,
        in_flight=in_flight,
        per_s=0,
    )
    found = simulated(group, "leave")
    assert (found.repeated, found.spike) == (14, 14)


@pytest.mark.parametrize("text", ["join", "kill=member-2", "queues=24", "broker=c"])
def test_events_are_read_as_they_are_written(text: str) -> None:
    assert str(read_event(text)) == text


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("fly", "'fly' is not an event; there are join, leave, kill, vanish"),
        ("kill=", "nothing after '='"),
        ("queues=0", "write queues=N with 1 to 4096"),
        ("queues", "write queues=N with 1 to 4096"),
        ("broker", "write broker=NAME"),
    ],
)
def test_an_unknown_event_is_refused_with_the_allowed_ones(text: str, told: str) -> None:
    with pytest.raises(ValueError, match=re.escape(told)):
        read_event(text)


@pytest.mark.parametrize(
    ("events", "told"),
    [
        (["leave", "leave"], "member-1 is the last member"),
        (["kill=member-9"], "there is no member member-9 to kill; there are member-1, member-2"),
        (["join=member-1"], "member member-1 cannot join: it is one already"),
        (["broker=a"], "broker broker-a has queues already"),
    ],
)
def test_an_event_that_is_not_possible_is_refused(events: list[str], told: str) -> None:
    with pytest.raises(ValueError, match=re.escape(told)):
        simulated(described_group(4, 2), *events)


@pytest.mark.parametrize(("queues", "members"), [(0, 1), (4097, 1), (1, 0), (1, 1001)])
def test_groups_have_bounds(queues: int, members: int) -> None:
    with pytest.raises(ValueError, match="must be 1 to"):
        described_group(queues, members)


# ---- the picture


@pytest.mark.parametrize(("queues", "members"), [(1, 1), (4, 2), (16, 3), (64, 9), (300, 40)])
def test_a_picture_has_no_styles_and_no_scripts(queues: int, members: int) -> None:
    found = simulate(described_group(queues, members), [read_event("join"), read_event("kill")])
    svg = draw(found, "queues & <members>")
    root = ElementTree.fromstring(svg)
    for element in root.iter():
        assert element.tag.rpartition("}")[2] not in ("style", "script", "foreignObject", "image")
        assert not [name for name in element.attrib if name == "style" or name.startswith("on")]
        assert not any("url(" in value for value in element.attrib.values())
    assert root.findtext("{*}title") == "queues & <members>"


def test_a_picture_shows_every_strategy_queue_and_pause() -> None:
    found = simulate(described_group(16, 3), [read_event("join")])
    root = ElementTree.fromstring(draw(found, "16 queues, 3 members"))
    texts = {element.text for element in root.iter(f"{SVG}text")}
    assert {*NAMED, "join=member-4", "broker-a/15", "4 member-4"} <= texts
    gaps = [element for element in root.iter() if element.get("class") == "rb-gap"]
    assert len(gaps) == sum(each.moves for each in found)
    taken = [element for element in root.iter() if element.get("class") == "rb-taken"]
    assert len(taken) == len(gaps)


def test_all_shapes_lie_within_the_picture() -> None:
    for queues, members in ((4, 2), (64, 9), (300, 40)):
        found = simulate(described_group(queues, members), [read_event("leave")], ["STICKY"])
        root = ElementTree.fromstring(draw(found, "a picture"))
        width, height = float(root.attrib["width"]), float(root.attrib["height"])
        for element in root.iter(f"{SVG}rect"):
            if "x" in element.attrib:
                assert float(element.attrib["x"]) + float(element.attrib["width"]) <= width
                assert float(element.attrib["y"]) <= height
