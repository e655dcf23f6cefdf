"""What changed since, whether a state may be applied, and which progress counts."""

from hypothesis import given
from hypothesis import strategies as st

from sparrowmq.broker.replication.table_rules import (
    OffsetChange,
    RecentChanges,
    When,
    merged,
    when_to_apply,
)

KEYS = st.sampled_from("abcdef")
CHANGES = st.builds(
    OffsetChange,
    st.just("t@g"),
    st.just(0),
    offset=st.integers(-1, 4),
    is_reset=st.booleans(),
    rewind=st.integers(0, 3),
)


@given(
    changes=st.lists(st.sets(KEYS, max_size=3), max_size=20),
    most=st.integers(1, 8),
    since=st.integers(-1, 21),
)
def test_what_changed_since_is_exact_or_unknown(
    changes: list[set[str]], most: int, since: int
) -> None:
    recent: RecentChanges[str] = RecentChanges(most)
    for keys in changes:
        recent.note(keys)
    assert recent.count == len(changes)
    found = recent.since(since)
    expected = set().union(*changes[max(since, 0) :])
    if found is not None:
        assert len(found) == len(set(found))
        assert set(found) == expected
    elif 0 <= since <= len(changes):
        assert len(set().union(*changes)) > most, "it has forgotten something without need"


def test_no_changes_are_listed_since_the_last_change() -> None:
    recent: RecentChanges[str] = RecentChanges()
    recent.note("ab")
    assert recent.since(recent.count) == []
    assert recent.since(-1) is None
    assert recent.since(recent.count + 1) is None


@given(
    life=st.integers(1, 3),
    followed=st.integers(1, 3),
    log_end=st.integers(0, 5),
    own=st.integers(0, 5),
)
def test_a_state_is_applied_when_the_log_has_reached_it(
    life: int, followed: int, log_end: int, own: int
) -> None:
    when = when_to_apply(life=life, log_end=log_end, followed_life=followed, own_log_end=own)
    if life != followed:
        assert when is When.NEVER
    else:
        assert when is (When.NOW if own >= log_end else When.LATER)


@given(one=CHANGES, other=CHANGES, third=CHANGES)
def test_progress_is_the_same_in_whatever_order_it_is_merged(
    one: OffsetChange, other: OffsetChange, third: OffsetChange
) -> None:
    assert merged(one, one) == one
    assert merged(one, other) == merged(other, one)
    assert merged(merged(one, other), third) == merged(one, merged(other, third))


@given(one=CHANGES, other=CHANGES)
def test_progress_moves_back_by_a_later_rewind_only(one: OffsetChange, other: OffsetChange) -> None:
    after = merged(one, other)
    assert after in (one, other)
    assert after.offset >= one.offset or after.rewind > one.rewind
