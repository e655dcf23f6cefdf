"""Unique ids and offset ids."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparrowmq.protocol.errors import BodyError
from sparrowmq.protocol.hosts import encode_host
from sparrowmq.protocol.ids import OffsetId, UniqueId, UniqueIds, month_around, offset_id
from tests.protocol.java_vectors import cases

NOV_15 = 1_700_000_000_123
NOV_1 = 1_698_796_800_000
DEC_1 = 1_701_388_800_000


class Hand:
    """A clock that shows what it was set to."""

    def __init__(self, now_ms: int) -> None:
        self.now_ms = now_ms

    def __call__(self) -> int:
        return self.now_ms


def ids_at(clock: Hand) -> UniqueIds:
    return UniqueIds(clock, ip=bytes([10, 20, 30, 40]), pid=0x1FFFF, instance=0x18B4AAC2)


@pytest.mark.parametrize("case", cases("ids", "offset_id"), ids=lambda case: str(case["id"]))
def test_offset_ids_are_javas(case: dict[str, Any]) -> None:
    host = encode_host(case["host"], case["port"])
    assert offset_id(host, case["log_offset"]) == case["id"]
    parsed = OffsetId.parse(case["id"])
    assert encode_host(*parsed.store_host) == host
    assert parsed.log_offset == case["log_offset"]


@pytest.mark.parametrize("case", cases("ids", "unique_id"), ids=lambda case: str(case["id"]))
def test_parts_of_unique_ids_are_javas(case: dict[str, Any]) -> None:
    parsed = UniqueId.parse(case["id"])
    assert parsed.ip == case["address_text"]
    assert parsed.pid == case["pid"]


def test_a_unique_id_contains_the_values_it_was_made_from() -> None:
    ids = ids_at(Hand(NOV_15))
    first, second = UniqueId.parse(ids.next()), UniqueId.parse(ids.next())
    assert first == ("10.20.30.40", 0xFFFF, 0x18B4AAC2, NOV_15 - NOV_1, 0)
    assert second.counter == 1


def test_ids_of_one_millisecond_differ() -> None:
    ids = ids_at(Hand(NOV_15))
    assert len({ids.next() for _ in range(65_536)}) == 65_536


def test_the_time_starts_again_with_the_month() -> None:
    clock = Hand(DEC_1 - 1)
    ids = ids_at(clock)
    assert UniqueId.parse(ids.next()).month_ms == DEC_1 - NOV_1 - 1
    clock.now_ms = DEC_1 + 5
    assert UniqueId.parse(ids.next()).month_ms == 5


def test_a_clock_set_back_over_the_month_makes_a_sound_id() -> None:
    clock = Hand(DEC_1 + 5)
    ids = ids_at(clock)
    clock.now_ms = DEC_1 - 1
    assert len(ids.next()) == 32


@given(st.integers(0, 4_000_000_000_000), st.integers(-14, 14))
def test_the_time_of_an_id_can_be_read_back(made_ms: int, offset_h: int) -> None:
    tz = timezone(timedelta(hours=offset_h))
    ids = UniqueIds(lambda: made_ms, ip=b"\x7f\0\0\1", pid=1, instance=1, tz=tz)
    assert UniqueId.parse(ids.next()).near_time_ms(made_ms + 1, tz) == made_ms


def test_an_id_from_the_end_of_last_month_is_not_dated_in_the_future() -> None:
    ids = ids_at(Hand(DEC_1 - 1_000))
    assert UniqueId.parse(ids.next()).near_time_ms(DEC_1 + 1_000) == DEC_1 - 1_000


@given(st.integers(0, 4_000_000_000_000))
def test_a_month_begins_on_its_first_day(now_ms: int) -> None:
    start, end = month_around(now_ms)
    assert start <= now_ms < end
    for edge in (start, end):
        at = datetime.fromtimestamp(edge / 1000, UTC)
        assert (at.day, at.hour, at.minute, at.second, at.microsecond) == (1, 0, 0, 0, 0)


def test_ipv6_addresses_make_longer_ids() -> None:
    ids = UniqueIds(Hand(NOV_15), ip=bytes(15) + b"\1", pid=1, instance=1)
    made = ids.next()
    assert len(made) == 56
    assert UniqueId.parse(made).ip == "::1"


@pytest.mark.parametrize(
    "text", ["", "xyz", "7F" * 15, "7F" * 17, " " + "7F" * 15 + " ", "7F " * 16]
)
def test_an_invalid_id_is_refused(text: str) -> None:
    with pytest.raises(BodyError, match="32 or 56 hex digits"):
        OffsetId.parse(text)
    with pytest.raises(BodyError, match="32 or 56 hex digits"):
        UniqueId.parse(text)


def test_an_address_of_another_length_is_refused() -> None:
    with pytest.raises(ValueError, match="5 bytes, must be 4"):
        UniqueIds(Hand(0), ip=b"12345", pid=1, instance=1)
