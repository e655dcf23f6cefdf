"""A window remembers identities for its time and up to its number, and never for less."""

from collections.abc import Iterator

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from sparrowmq.broker.traffic.dedup_window import TopicWindow
from sparrowmq.protocol.dedup import DedupRule, identity_of, parse_dedup


@pytest.mark.parametrize(
    ("text", "time_ms", "ids"),
    [
        ("on", 600_000, 100_000),
        ("1s", 1_000, 100_000),
        ("90s/1", 90_000, 1),
        ("24h/300000", 86_400_000, 300_000),
        ("1500ms/7", 1_500, 7),
    ],
)
def test_a_value_sets_the_time_and_the_number(text: str, time_ms: int, ids: int) -> None:
    assert parse_dedup(text) == DedupRule(time_ms, ids)
    assert parse_dedup(str(parse_dedup(text))) == DedupRule(time_ms, ids)


@pytest.mark.parametrize(
    "text",
    [
        *("", "off", "true", "10", "10 m", "-1m", "0s", "999ms", "25h", "10m/0", "10m/300001"),
        *("10m/", "10m/many", "10m/1/1", "\u0661m", "1.5m", "9999999999s", "10M", "10m/-1", "on/5"),
    ],
)
def test_any_other_value_is_refused_with_what_is_allowed(text: str) -> None:
    with pytest.raises(ValueError, match="allowed: on, a time as 10m, or a time and a number"):
        parse_dedup(text)


@pytest.mark.parametrize(
    ("properties", "identity"),
    [
        ("", ""),
        ("KEYS\x01k\x02", ""),
        ("UNIQ_KEY\x01U1\x02", "U1"),
        ("UNIQ_KEY\x01U1", "U1"),
        ("UNIQ_KEY\x01\x02", ""),
        ("DEDUP_KEY\x01o-1\x02UNIQ_KEY\x01U1\x02", "\x01o-1"),
        ("UNIQ_KEY\x01U1\x02DEDUP_KEY\x01o-1", "\x01o-1"),
        ("DEDUP_KEY\x01\x02UNIQ_KEY\x01U1\x02", "U1"),
        ("MY_DEDUP_KEY\x01o-1\x02UNIQ_KEY\x01U1\x02", "U1"),
        ("X\x01DEDUP_KEY\x02UNIQ_KEY\x01U1\x02", "U1"),
    ],
)
def test_a_message_is_identified_by_its_key_or_else_by_its_unique_id(
    properties: str, identity: str
) -> None:
    assert identity_of(properties) == identity


def test_long_identities_take_little_room_and_stay_different() -> None:
    keys = [f"DEDUP_KEY\x01{'x' * 30_000}{number}\x02" for number in range(3)]
    keys += [f"UNIQ_KEY\x01{'x' * 30_000}{number}\x02" for number in range(3)]
    found = {identity_of(key) for key in keys}
    assert len(found) == 6
    assert max(map(len, found)) <= 64
    assert identity_of(f"UNIQ_KEY\x01{identity_of(keys[0])}\x02") != identity_of(keys[0])


# ---- time and number


@pytest.mark.parametrize(
    ("rule", "added", "asked_ms", "known", "cut"),
    [
        # one message, its whole time and no more than a five-hundredth longer
        (DedupRule(1_000, 10), [("a", 0)], 999, {"a"}, 0),
        (DedupRule(1_000, 10), [("a", 0)], 1_000, set(), 0),
        (DedupRule(600_000, 10), [("a", 0), ("b", 1_200)], 600_000, {"a", "b"}, 0),
        (DedupRule(600_000, 10), [("a", 0), ("b", 1_200)], 601_200, set(), 0),
        (DedupRule(600_000, 10), [("a", 0), ("b", 1_201)], 600_000, {"b"}, 0),
        # the number ends before the time
        (DedupRule(1_000, 2), [("a", 0), ("b", 1), ("c", 2)], 3, {"b", "c"}, 1),
        (DedupRule(1_000, 1), [("a", 0), ("b", 0), ("c", 0)], 0, {"c"}, 2),
        # what has expired is not cut
        (DedupRule(1_000, 2), [("a", 0), ("b", 1), ("c", 2_000)], 2_000, {"c"}, 0),
        # nothing at all
        (DedupRule(1_000, 2), [], 5_000, set(), 0),
    ],
)
def test_identities_are_known_for_their_time_and_up_to_their_number(
    rule: DedupRule, added: list[tuple[str, int]], asked_ms: int, known: set[str], cut: int
) -> None:
    window = TopicWindow(rule)
    for number, (identity, at_ms) in enumerate(added):
        assert window.find(identity, at_ms) is None
        window.add(identity, number, at_ms)
    assert {one for one in "abc" if window.find(one, asked_ms) is not None} == known
    assert (len(window), window.cut) == (len(known), cut)


def test_an_identity_that_was_freed_is_known_again_from_its_second_message_on() -> None:
    window = TopicWindow(DedupRule(1_000, 10))
    window.add("a", 7, 0)
    window.forget("a")
    assert window.find("a", 0) is None
    window.add("a", 9, 900)
    assert window.find("a", 1_899) == 9  # the time of the first is over
    assert window.find("a", 1_900) is None


def test_freeing_and_sending_an_id_repeatedly_stays_within_the_configured_number() -> None:
    window = TopicWindow(DedupRule(1_000, 3))
    window.add("kept", 0, 0)
    for number in range(1, 3):
        window.add("a", number, 0)
        window.forget("a")
    assert window.find("kept", 0) == 0
    window.add("a", 3, 0)
    assert (window.find("a", 0), window.find("kept", 0), window.cut) == (3, None, 1)


class WindowMachine(RuleBasedStateMachine):
    """Against a list of everything that was added and not freed."""

    def __init__(self) -> None:
        super().__init__()
        self.rule = DedupRule(1_000, 5)
        self.window = TopicWindow(self.rule)
        self.now_ms = 0
        self.added: list[tuple[str, int, int]] = []
        self.freed: set[int] = set()
        self.offset = 0

    def youngest(self) -> Iterator[tuple[str, int, int]]:
        """The last five that were added, without those that were freed."""
        return (one for one in self.added[-self.rule.ids :] if one[1] not in self.freed)

    @rule(identity=st.sampled_from("abcdefgh"))
    def send(self, identity: str) -> None:
        if self.window.find(identity, self.now_ms) is None:
            self.offset += 1
            self.window.add(identity, self.offset, self.now_ms)
            self.added.append((identity, self.offset, self.now_ms))

    @rule(identity=st.sampled_from("abcdefgh"))
    def free(self, identity: str) -> None:
        offset = self.window.find(identity, self.now_ms)
        self.window.forget(identity)
        if offset is not None:
            self.freed.add(offset)

    @rule(ms=st.sampled_from([0, 1, 2, 3, 100, 999, 1_000, 1_001, 5_000]))
    def wait(self, ms: int) -> None:
        self.now_ms += ms

    @precondition(lambda self: self.added)
    @invariant()
    def remembers_what_it_promised(self) -> None:
        for identity, offset, added_ms in self.youngest():
            age_ms = self.now_ms - added_ms
            if age_ms < self.rule.time_ms:
                assert self.window.find(identity, self.now_ms) == offset
            elif age_ms > self.rule.time_ms + self.rule.time_ms // 500:
                assert self.window.find(identity, self.now_ms) != offset

    @invariant()
    def stays_within_its_number(self) -> None:
        assert len(self.window) <= self.rule.ids


TestWindowMachine = WindowMachine.TestCase
