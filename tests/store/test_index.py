"""The key index: what it finds, and that its files are RocketMQ's to the byte."""

import errno
from random import Random
from typing import Any

import pytest

from sparrowmq.disk.errors import DiskFull
from sparrowmq.store.index.entries import HEADER, IndexLayout, IndexRequest
from sparrowmq.store.index.key_index import KeyIndex
from sparrowmq.store.trash import Trash
from sparrowmq.testing.recording_disk import RecordingDisk
from tests.protocol.java_vectors import cases

LAYOUT = IndexLayout(slots=16, entries=40)
NOON = 1_700_000_000_000
FOREVER = 1 << 62


def opened(
    disk: RecordingDisk, log_end: int = 0, layout: IndexLayout = LAYOUT, *, trust: bool = False
) -> KeyIndex:
    index = KeyIndex(disk, layout)
    index.recover(log_end, trust_unmarked=trust)
    return index


def requests(count: int, rng: Random | None = None) -> list[IndexRequest]:
    rng = rng or Random(1)
    made: list[IndexRequest] = []
    log_offset, now = 0, NOON
    for number in range(count):
        uniq_key = f"7F0000010B8C18B4AAC2{number // 3:08X}{number:04X}"
        keys = rng.choice(("", "", "shared", f"k-{number % 5} shared", f"order-{number}"))
        made.append((rng.choice(("orders", "payments")), uniq_key, keys, log_offset, now))
        log_offset += rng.randint(91, 300)
        now += rng.choice((0, 1, 700))
    return made


def add_all(index: KeyIndex, messages: list[IndexRequest]) -> None:
    for message in messages:
        index.add(message)


def index_files(disk: RecordingDisk) -> dict[str, bytes]:
    return {path: data for path, data in disk.files().items() if path.startswith("index/")}


def files_of(messages: list[IndexRequest], layout: IndexLayout = LAYOUT) -> dict[str, bytes]:
    disk = RecordingDisk()
    index = opened(disk, layout=layout)
    add_all(index, messages)
    index.close()
    return index_files(disk)


def test_files_with_unwritten_slots_are_listed() -> None:
    index = opened(RecordingDisk())
    assert index.unplaced_files == []
    add_all(index, requests(60))
    index.build()
    assert [file.room > 0 for file in index.unplaced_files] == [False, True]
    index.begin_sync()
    index.end_sync()
    assert len(index.unplaced_files) == 2, "their entries are durable now"
    index.build()
    assert index.unplaced_files == []


def test_the_slots_of_a_new_file_are_empty_without_reading_them() -> None:
    disk = RecordingDisk()
    index = opened(disk)
    add_all(index, requests(3))
    read: list[str] = []
    disk.on_call = lambda operation, path: read.append(path) if operation == "read" else None
    index.build()
    assert len([path for path in read if path.startswith("index/")]) == 1, "its header"


def apache_requests(case: dict[str, Any]) -> list[IndexRequest]:
    made = []
    for message in case["messages"]:
        pairs = message["properties"].rstrip("\x02").split("\x02")
        properties = dict(pair.split("\x01") for pair in pairs)
        # Since 5.4 Apache indexes the tag too, as the key T#tag; a query by tag is not ours yet.
        tag = f" T#{properties['TAGS']}" if "TAGS" in properties else ""
        made.append(
            (
                message["topic"],
                properties.get("UNIQ_KEY", ""),
                properties.get("KEYS", "") + tag,
                message["log_offset"],
                message["store_timestamp"],
            )
        )
    return made


def apache_files(case: dict[str, Any]) -> dict[str, bytes]:
    return {
        path: bytes.fromhex(file["hex"]).ljust(file["size"], b"\x00")
        for path, file in case["files"].items()
        if path.startswith("index/")
    }


@pytest.mark.parametrize("number", [0, 1])
def test_the_files_are_apaches_to_the_byte(number: int) -> None:
    case = cases("store")[number]
    layout = IndexLayout(case["index_slots"], case["index_entries"])
    ours = files_of(apache_requests(case), layout)
    theirs = apache_files(case)
    assert len(theirs) == 2
    assert list(ours.values()) == list(theirs.values())


@pytest.mark.parametrize("number", [0, 1])
def test_keys_in_files_that_apache_wrote_are_found(number: int) -> None:
    case = cases("store")[number]
    disk = RecordingDisk()
    for path, data in apache_files(case).items():
        disk.poke(path, data)
    messages = apache_requests(case)
    index = opened(
        disk, 1 << 40, IndexLayout(case["index_slots"], case["index_entries"]), trust=True
    )
    for topic, uniq_key, _, log_offset, _ in messages[:-1]:
        assert index.find(topic, uniq_key, 0, FOREVER, 64).log_offsets == [log_offset]


def test_everything_is_found_newest_first() -> None:
    index = opened(RecordingDisk())
    messages = requests(200)
    add_all(index, messages)
    for topic, uniq_key, keys, log_offset, _ in messages:
        for key in [uniq_key, *keys.split()]:
            expected = [
                message[3]
                for message in reversed(messages)
                if message[0] == topic and key in (message[1], *message[2].split())
            ]
            found = index.find(topic, key, 0, FOREVER, 1000)
            assert found.log_offsets == expected
            assert not found.is_cut
            assert log_offset in expected


def test_a_topic_does_not_see_the_keys_of_another() -> None:
    index = opened(RecordingDisk(), layout=IndexLayout(1000, 1000))
    index.add(("orders", "", "k", 0, NOON))
    assert index.find("payments", "k", 0, FOREVER, 10).log_offsets == []


def test_a_query_is_limited_in_time_to_whole_seconds() -> None:
    index = opened(RecordingDisk())
    for second in range(10):
        index.add(("t", "", "k", second * 100, NOON + second * 1000 + 500 * (second > 0)))
    found = index.find("t", "k", NOON + 3_000, NOON + 6_000, 64).log_offsets
    # Entries know seconds since the first one: 3 stands for 3.0 to 3.9, so 2.5 is out, 3.5 is in.
    assert found == [600, 500, 400, 300]


def test_a_truncated_answer_is_marked_as_such() -> None:
    index = opened(RecordingDisk())
    for number in range(9):
        index.add(("t", "", "k", number * 100, NOON))
    assert index.find("t", "k", 0, FOREVER, 8) == ([800, 700, 600, 500, 400, 300, 200, 100], True)
    assert index.find("t", "k", 0, FOREVER, 9)[1] is False


def test_a_key_listed_twice_gives_a_message_once() -> None:
    index = opened(RecordingDisk())
    index.add(("t", "id", "k  k id ", 700, NOON))
    assert index.find("t", "k", 0, FOREVER, 10).log_offsets == [700]
    assert index.find("t", "id", 0, FOREVER, 10).log_offsets == [700]


def test_a_clock_that_goes_back_hides_no_message() -> None:
    index = opened(RecordingDisk())
    for number in range(100):
        index.add(("t", f"id-{number}", "k", number * 100, NOON - number * 20_000))
    for number in range(100):
        found = index.find("t", f"id-{number}", NOON - 2_100_000, NOON + 1000, 64)
        assert found.log_offsets == [number * 100]


def test_files_are_named_by_time_and_never_alike() -> None:
    names = [
        path.rpartition("/")[2] for path in files_of([("t", f"{n}", "", n, 0) for n in range(99)])
    ]
    assert names == ["19700101000000000", "19700101000000001", "19700101000000002"]


def test_files_have_rocketmqs_size_at_once() -> None:
    disk = RecordingDisk()
    index = opened(disk)
    index.add(("t", "id", "", 0, NOON))
    index.build()
    (data,) = index_files(disk).values()
    assert len(data) == 40 + 16 * 4 + 40 * 20
    assert IndexLayout().file_size == 420_000_040


def test_building_in_pieces_gives_the_same_bytes() -> None:
    messages = requests(150)
    disk = RecordingDisk()
    index = opened(disk)
    add_all(index, messages)
    while index.pending:
        assert index.build(7) <= 7
        index.begin_sync()
        index.end_sync()
    index.close()
    assert index_files(disk) == files_of(messages)


def test_deleted_files_come_back_identical() -> None:
    messages = requests(150)
    disk = RecordingDisk()
    index = opened(disk)
    add_all(index, messages)
    index.close()
    before = index_files(disk)
    for path in before:
        disk.unlink(path)
    again = KeyIndex(disk, LAYOUT)
    assert again.recover(1 << 40) == 0
    add_all(again, messages)
    again.close()
    assert index_files(disk) == before


def test_a_normal_stop_leaves_nothing_to_repeat() -> None:
    disk = RecordingDisk()
    index = opened(disk)
    add_all(index, requests(100))
    index.close()
    again = KeyIndex(disk, LAYOUT)
    assert again.recover(99_999) == 99_999
    assert again.find("orders", "shared", 0, FOREVER, 64).log_offsets


def test_a_clean_mark_is_not_believed_after_the_next_start() -> None:
    disk = RecordingDisk()
    index = opened(disk)
    messages = requests(60)
    add_all(index, messages[:30])
    index.close()
    running = opened(disk, messages[30][3])
    add_all(running, messages[30:])
    running.build()
    again = KeyIndex(disk.killed(), LAYOUT)
    assert again.recover(99_999) <= messages[30][3]


def test_a_full_disk_keeps_what_could_not_be_written() -> None:
    messages = requests(150)
    disk = RecordingDisk()
    index = opened(disk)
    add_all(index, messages)
    for first in (1, 2, 1, 3):
        disk.fail("write", errno.ENOSPC, first=first, path_prefix="index/")
        with pytest.raises(DiskFull):
            index.build(40)
            index.build()
        disk.heal()
    disk.fail("create", errno.ENOSPC, path_prefix="index/")
    with pytest.raises(DiskFull):
        index.build()
    disk.heal()
    index.close()
    assert index_files(disk) == files_of(messages)


def test_old_files_are_deleted_but_never_the_newest() -> None:
    disk = RecordingDisk()
    index = opened(disk)
    messages = requests(150)
    add_all(index, messages)
    index.build()
    index.clean(messages[-1][3] + 1, Trash(disk))
    assert len(index_files(disk)) > 3, "what is not on the disk yet stays"
    while index.begin_sync():
        index.end_sync()
    index.clean(messages[75][3], Trash(disk))
    for topic, uniq_key, _, log_offset, _ in messages[75:]:
        assert index.find(topic, uniq_key, 0, FOREVER, 9).log_offsets == [log_offset]
    index.clean(messages[-1][3] + 1, Trash(disk))
    assert len(index_files(disk)) == 1


def test_the_header_counts_entries_and_slots_as_rocketmq_does() -> None:
    (data,) = files_of([("t", "a", "b c", 5, NOON), ("t", "a", "", 9, NOON + 1)]).values()
    begin, end, first, last, used_slots, count = HEADER.unpack(data[:40])
    assert (begin, end, first, last, count) == (NOON, NOON + 1, 5, 9, 5)
    assert used_slots == 3
