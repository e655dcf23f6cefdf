"""Appended messages are read back: offsets, order, limits, filters, statuses."""

import sys

import pytest

from sparrowmq.protocol.record import decode_record
from sparrowmq.protocol.record_layout import MAGIC_V2
from sparrowmq.protocol.sys_flag import TRANSACTION_COMMIT, TRANSACTION_PREPARED
from sparrowmq.protocol.tags import tag_code
from sparrowmq.store.errors import MessageTooLarge
from sparrowmq.store.messages import ReadStatus
from sparrowmq.store.store import Store
from sparrowmq.testing.recording_disk import RecordingDisk
from tests.store.stores import (
    batch,
    flush,
    message,
    number_of,
    numbers,
    open_store,
    read,
    read_all,
    records_of,
    with_sizes,
)


@pytest.fixture
def store() -> Store:
    return open_store(RecordingDisk())


def fill(store: Store, count: int, queues: int = 1) -> None:
    for number in range(count):
        store.append(message(number, queue_id=number % queues), number)


def test_offsets_count_up_in_each_queue_and_through_the_log(store: Store) -> None:
    stored = [store.append(message(number, queue_id=number % 2), 5) for number in range(6)]
    assert [one.queue_offset for one in stored] == [0, 0, 1, 1, 2, 2]
    ends = [one.log_offset + one.size for one in stored]
    assert [one.log_offset for one in stored] == [0, *ends[:-1]]
    assert store.max_log_offset == ends[-1]
    assert {one.store_timestamp for one in stored} == {5}


def test_a_record_contains_every_field_of_its_message(store: Store) -> None:
    put = message(8, queue_id=3)
    put.reconsume_times, put.prepared_transaction_offset = 2, 77
    stored = store.append(put, 1234)
    record = decode_record(store.read_message(stored.log_offset) or b"")
    assert (record.topic, record.queue_id, record.queue_offset) == ("orders", 3, 0)
    assert (record.body, record.flag, record.sys_flag) == (put.body, put.flag, 0)
    assert (record.born_timestamp, record.born_host) == (put.born_timestamp, put.born_host)
    assert (record.store_timestamp, record.store_host) == (1234, store.config.store_host)
    assert (record.reconsume_times, record.prepared_transaction_offset) == (2, 77)
    assert record.properties.startswith(put.properties)


def test_messages_of_a_queue_that_lie_together_are_one_chunk(store: Store) -> None:
    fill(store, 10)
    found = read(store, "orders", 0, 2, max_count=5)
    assert len(found.chunks) == 1
    assert [number_of(record) for record in records_of(found)] == [2, 3, 4, 5, 6]
    assert found.next_offset == 7
    assert (found.min_offset, found.max_offset) == (0, 10)


def test_messages_between_those_of_other_queues_are_cut_out(store: Store) -> None:
    fill(store, 30, queues=3)
    found = read(store, "orders", 1, 0)
    assert [number_of(record) for record in records_of(found)] == list(range(1, 30, 3))


def test_a_read_stops_at_its_limits_but_returns_at_least_one_message(store: Store) -> None:
    fill(store, 10)
    size = read(store, "orders", 0, 0, max_count=1).size
    assert read(store, "orders", 0, 0, max_bytes=3 * size).count == 3
    assert read(store, "orders", 0, 0, max_bytes=3 * size - 1).count == 2
    assert read(store, "orders", 0, 0, max_bytes=1).count == 1
    assert read(store, "orders", 0, 0, max_count=4).count == 4


@pytest.mark.parametrize(
    ("queue_id", "offset", "status", "next_offset"),
    [
        (0, 3, ReadStatus.OFFSET_OVERFLOW_ONE, 3),
        (0, 9, ReadStatus.OFFSET_OVERFLOW_BADLY, 3),
        (0, -1, ReadStatus.OFFSET_TOO_SMALL, 0),
        (7, 5, ReadStatus.NO_MATCHED_LOGIC_QUEUE, 0),
    ],
)
def test_reads_out_of_range_are_answered_as_apache_answers_them(
    store: Store, queue_id: int, offset: int, status: ReadStatus, next_offset: int
) -> None:
    fill(store, 3)
    found = read(store, "orders", queue_id, offset)
    assert (found.status, found.next_offset, found.count) == (status, next_offset, 0)


def test_a_queue_that_only_took_a_prepared_record_has_no_message(store: Store) -> None:
    put = message(1)
    put.sys_flag = TRANSACTION_PREPARED
    assert store.append(put, 1).queue_offset == 0
    assert read(store, "orders", 0, 0).status is ReadStatus.NO_MESSAGE_IN_QUEUE
    put.sys_flag = TRANSACTION_COMMIT
    assert store.append(put, 1).queue_offset == 0
    assert read(store, "orders", 0, 0).count == 1


def test_a_tag_filter_looks_at_hashes_only(store: Store) -> None:
    fill(store, 12)
    found = read(store, "orders", 0, 0, accepts_tag={tag_code("tag1")})
    assert [number_of(record) for record in records_of(found)] == [1, 4, 7, 10]
    assert found.next_offset == 12


def test_a_record_filter_sees_whole_records(store: Store) -> None:
    fill(store, 12)
    seen: list[int] = []

    def accepts(data: bytes | memoryview) -> bool:
        seen.append(number_of(decode_record(data)))
        return seen[-1] % 5 == 0

    found = read(store, "orders", 0, 0, accepts_record=accepts)
    assert [number_of(record) for record in records_of(found)] == [0, 5, 10]
    assert seen == list(range(12))


def test_a_filter_that_rejects_everything_moves_on_after_a_bounded_scan() -> None:
    store = open_store(RecordingDisk(), with_sizes(scan_units=40))
    fill(store, 100)
    found = read(store, "orders", 0, 0, accepts_tag=set())
    assert (found.status, found.next_offset) == (ReadStatus.NO_MATCHED_MESSAGE, 40)
    assert not read_all(store, accepts_tag=set())


def test_a_batch_is_one_write_with_contiguous_offsets() -> None:
    disk = RecordingDisk()
    store = open_store(disk)
    fill(store, 2)
    before = disk.calls["write"]
    stored = store.append_batch(batch([message(number) for number in range(2, 10)]), 9)
    assert disk.calls["write"] == before + 1
    assert stored.queue_offset == 2
    assert len(stored.log_offsets) == 8
    assert stored.end == store.max_log_offset
    assert numbers(store) == list(range(10))


def test_a_batch_never_spans_two_files(store: Store) -> None:
    size = store.append(message(0), 1).size
    for start in range(1, 300, 20):
        puts = [message(number) for number in range(start, start + 20)]
        stored = store.append_batch(batch(puts), 1)
        files = {offset // store.config.log_file_size for offset in stored.log_offsets}
        assert len(files) == 1
    assert size * 300 > 2 * store.config.log_file_size
    assert numbers(store) == list(range(301))


def test_a_message_that_does_not_fit_into_a_file_is_refused_and_changes_nothing(
    store: Store,
) -> None:
    with pytest.raises(MessageTooLarge, match="at most 16376 fit"):
        store.append(message(0, size=16 * 1024), 1)
    with pytest.raises(MessageTooLarge):
        store.append_batch(batch([message(0, size=9_000), message(1, size=9_000)]), 1)
    assert store.max_log_offset == 0
    assert store.append(message(0), 1).queue_offset == 0


def test_long_topics_and_ipv6_hosts_are_stored_as_apache_stores_them() -> None:
    host = bytes(range(16)) + bytes((0, 0, 0x2A, 0x9F))
    store = open_store(RecordingDisk(), with_sizes(store_host=host))  # type: ignore[arg-type]
    topic = "%RETRY%" + "g" * 200
    put = message(1, topic)
    put.born_host = host
    store.append(put, 1)
    (record,) = read_all(store, topic)
    assert (record.magic, record.topic) == (MAGIC_V2, topic)
    assert record.born_host == record.store_host == host
    assert record.sys_flag == 0x30


@pytest.mark.parametrize("topic", ["../../etc", "a/b", "", "..", "a\0b", "x" * 128])
def test_an_invalid_topic_name_never_becomes_a_path(store: Store, topic: str) -> None:
    """CVE-2019-17572."""
    with pytest.raises(ValueError, match="topic"):
        store.append(message(1, topic), 1)
    with pytest.raises(ValueError, match="queue id -1"):
        store.append(message(1, queue_id=-1), 1)
    assert store.max_log_offset == 0


def test_units_returns_the_entries_of_a_queue(store: Store) -> None:
    stored = [store.append(message(number), 1) for number in range(5)]
    units = store.units("orders", 0, 1, 3)
    assert [(at, size) for at, size, _ in units] == [(s.log_offset, s.size) for s in stored[1:4]]
    assert units[0][2] == tag_code("tag1")
    assert store.units("orders", 0, 5, 3) == []
    assert store.units("nothing", 0, 0, 3) == []


@pytest.mark.parametrize("window", [0, 2])
def test_what_is_not_durable_can_be_held_back_from_consumers(window: int) -> None:
    """#8239: a power cut takes it back, and its offset goes to another message."""
    disk = RecordingDisk()
    store = open_store(disk, with_sizes(unsynced_window=window))
    fill(store, 5)
    flush(store, disk)
    fill(store, 3)
    end = 5 + window
    found = read(store, "orders", 0, 3, only_visible=True)
    assert (found.count, found.next_offset, found.max_offset) == (end - 3, end, end)
    waiting = read(store, "orders", 0, end, only_visible=True)
    assert (waiting.status, waiting.next_offset) == (ReadStatus.OFFSET_OVERFLOW_ONE, end)
    assert store.visible_range("orders", 0) == (0, end)
    assert read(store, "orders", 0, 3).count == 5
    flush(store, disk)
    assert read(store, "orders", 0, 3, only_visible=True).count == 5
    assert store.visible_range("orders", 0) == (0, 8)


def test_readers_see_nothing_past_a_limit() -> None:
    """Whichever log offset it is, also while the newest units are in files only."""
    disk = RecordingDisk()
    store = open_store(disk)
    at = [store.append(message(number), 1).log_offset for number in range(60)]
    flush(store, disk)
    store.tick(1)
    store.close()
    store = open_store(disk)
    at += [store.append(message(number), 1).log_offset for number in range(60, 70)]
    for log_offset in (0, *at[::7], at[-1] + 1):
        store.limit_readers(log_offset)
        end = sum(each < log_offset for each in at)
        assert store.visible_range("orders", 0) == (0, end)
        if end:
            found = read(store, "orders", 0, end - 1, only_visible=True)
            assert (found.count, found.max_offset) == (1, end)
        for position in {end, len(at)}:
            waiting = read(store, "orders", 0, position, only_visible=True)
            assert waiting.status is ReadStatus.OFFSET_OVERFLOW_ONE
            assert waiting.next_offset == position
    store.limit_readers(at[5])
    filtered = read(store, "orders", 0, 0, only_visible=True, accepts_tag={tag_code("tag2")})
    assert (filtered.count, filtered.next_offset) == (1, 5)
    assert read(store, "orders", 0, 5).count > 0, "tools see everything"
    store.limit_readers(sys.maxsize)
    assert store.visible_range("orders", 0) == (0, len(at))
