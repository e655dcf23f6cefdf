"""Finding messages by time, by key and by log offset."""

import pytest

from sparrowmq.protocol.record import decode_record
from sparrowmq.store.store import Boundary, Store
from sparrowmq.testing.recording_disk import RecordingDisk
from tests.store.stores import message, number_of, open_store

LOWER, UPPER = Boundary.LOWER, Boundary.UPPER


@pytest.fixture
def store() -> Store:
    """Ten messages, two at each of the times 100, 200, … 500."""
    store = open_store(RecordingDisk())
    for number in range(10):
        store.append(message(number), 100 + number // 2 * 100)
        store.append(message(100 + number, queue_id=1), 100 + number // 2 * 100)
    return store


@pytest.mark.parametrize(
    ("timestamp", "boundary", "offset"),
    [
        (0, LOWER, 0),
        (100, LOWER, 0),
        (101, LOWER, 2),
        (300, LOWER, 4),
        (500, LOWER, 8),
        (501, LOWER, 10),
        (99, UPPER, 0),
        (100, UPPER, 1),
        (199, UPPER, 1),
        (300, UPPER, 5),
        (9_999, UPPER, 9),
    ],
)
def test_the_offset_at_a_time(
    store: Store, timestamp: int, boundary: Boundary, offset: int
) -> None:
    assert store.queue_offset_by_time("orders", 0, timestamp, boundary) == offset


@pytest.mark.parametrize(
    ("begin_ms", "end_ms", "is_found"),
    [(300, 300, True), (301, 1_000, False), (0, 299, False)],
)
def test_both_ends_of_a_time_range_belong_to_it(
    store: Store, begin_ms: int, end_ms: int, is_found: bool
) -> None:
    found = store.find_by_key("orders", "k4", begin_ms, end_ms, 8)
    assert bool(found.log_offsets) is is_found


def test_a_queue_that_does_not_exist_starts_at_0(store: Store) -> None:
    assert store.queue_offset_by_time("nothing", 0, 100) == 0
    assert store.earliest_store_time("nothing", 0) == -1


def test_the_earliest_store_time_is_that_of_the_first_message(store: Store) -> None:
    assert store.earliest_store_time("orders", 0) == 100


def test_a_message_is_found_by_each_of_its_keys_and_its_unique_id(store: Store) -> None:
    put = message(50)
    put.properties = put.properties.replace(b"KEYS\x01k50", b"KEYS\x01red blue")
    put.keys = "red blue"
    stored = store.append(put, 700)
    for key in ("red", "blue", "ID000050"):
        found = store.find_by_key("orders", key, 0, 1_000, 8)
        assert found.log_offsets == [stored.log_offset]
        assert (found.last_timestamp, found.last_log_offset) == (700, stored.log_offset)
    assert not store.find_by_key("payments", "red", 0, 1_000, 8).log_offsets
    assert not store.find_by_key("orders", "red", 0, 699, 8).log_offsets
    assert not store.find_by_key("orders", "red", 701, 1_000, 8).log_offsets


def test_keys_whose_hashes_collide_are_distinguished(store: Store) -> None:
    """Aa and BB have the same String.hashCode."""
    offsets = []
    for number, key in ((60, "Aa"), (61, "BB")):
        put = message(number)
        put.properties = put.properties.replace(b"k%d" % number, key.encode())
        put.keys = key
        offsets.append(store.append(put, 700).log_offset)
    assert store.find_by_key("orders", "Aa", 0, 1_000, 8).log_offsets == [offsets[0]]
    assert store.find_by_key("orders", "BB", 0, 1_000, 8).log_offsets == [offsets[1]]


def test_a_query_reports_whether_there_are_more_results(store: Store) -> None:
    offsets = []
    for number in range(10):
        put = message(number)
        put.properties = put.properties.replace(b"KEYS\x01k%d" % number, b"KEYS\x01same")
        put.keys = "same"
        offsets.append(store.append(put, 700).log_offset)
    found = store.find_by_key("orders", "same", 0, 1_000, 4)
    assert found.is_cut
    assert found.log_offsets == offsets[:-5:-1]


def test_a_record_is_found_only_by_its_exact_log_offset(store: Store) -> None:
    stored = store.append(message(77), 1)
    data = store.read_message(stored.log_offset)
    assert data is not None
    assert number_of(decode_record(data)) == 77
    for wrong in (stored.log_offset + 1, -1, store.max_log_offset, 1 << 60):
        assert store.read_message(wrong) is None
