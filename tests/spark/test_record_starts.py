"""Where records begin is found by their magic where they are small, and never wrongly."""

from itertools import accumulate
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyarrow", reason="needs the spark extra: pip install sparrowmq[spark]")

from sparrowmq.protocol.record_layout import MAGIC_V1
from sparrowmq.spark.decode.record_heads import record_starts, starts_by_magic
from sparrowmq.spark.errors import Damaged
from tests.spark.records import record

MAGIC = MAGIC_V1.to_bytes(4, "big")
MANY = 400
"""Small records that are enough to be looked for together."""
PLAIN = record()


def begins(records: list[bytes]) -> list[int]:
    return list(accumulate(map(len, records), initial=0))[:-1]


def bodies() -> st.SearchStrategy[bytes]:
    a_size = len(PLAIN).to_bytes(4, "big")
    return st.sampled_from(
        [b"x", MAGIC, MAGIC * 3, b"\xda" * 50, a_size + MAGIC, PLAIN, PLAIN * 2, bytes(5000)]
    )


def with_the_other_magic(body: bytes) -> bytes:
    made = bytearray(record(body=body))
    made[4:8] = 0xDAA320AB.to_bytes(4, "big")
    return bytes(made)


def kinds(body: bytes) -> st.SearchStrategy[bytes]:
    return st.sampled_from([record(body=body), with_the_other_magic(body)])


@given(st.lists(bodies().flatmap(kinds), max_size=20), st.integers(0, MANY))
def test_every_record_is_found_for_any_body(odd: list[bytes], place: int) -> None:
    records = [PLAIN] * place + odd + [PLAIN] * (MANY - place)
    assert record_starts(b"".join(records)).tolist() == begins(records)


def test_small_records_are_found_together_but_for_the_last() -> None:
    records = [record(body=b"y" * (number % 40)) for number in range(MANY)]
    found, following = starts_by_magic(b"".join(records))
    assert [*found.tolist(), following] == begins(records)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"at": 3, "to": b"\x05"}, "total size 5, at least"),
        ({"at": 0, "to": b"\x7f"}, "bytes left"),
    ],
)
def test_an_impossible_size_is_reported_with_its_place(change: dict[str, Any], reason: str) -> None:
    data = bytearray(PLAIN * MANY)
    place = 300 * len(PLAIN)
    data[place + change["at"] : place + change["at"] + 1] = change["to"]
    with pytest.raises(Damaged, match=reason) as caught:
        record_starts(bytes(data))
    assert caught.value.position == place
