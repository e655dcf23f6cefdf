"""The key index after power cuts, kills, damage and a log that lost its end."""

from contextlib import suppress
from random import Random

import pytest

from sparrowmq.disk.syncer import SyncPlan, sync_plan
from sparrowmq.store.index.entries import ENTRY, HEADER, IndexLayout, IndexRequest
from sparrowmq.store.index.key_index import INDEX_MARK, KeyIndex
from sparrowmq.store.trash import Trash
from sparrowmq.testing.recorded_calls import PowerCut
from sparrowmq.testing.recording_disk import RecordingDisk
from tests.seeds import seeds
from tests.store.test_index import (
    FOREVER,
    LAYOUT,
    add_all,
    files_of,
    index_files,
    opened,
    requests,
)


def sync_round(disk: RecordingDisk, index: KeyIndex) -> bool:
    """What a checkpoint does; False when there was nothing to sync."""
    plan = index.begin_sync()
    if plan is not None:
        sync_plan(disk, plan)
    index.end_sync()
    return plan is not None


def run(
    disk: RecordingDisk, messages: list[IndexRequest], rng: Random, published: list[int]
) -> None:
    """Add, build and sync in random steps, as a store does; record the published times."""
    index = opened(disk)
    left = list(messages)
    while left:
        step = rng.randint(1, 12)
        add_all(index, left[:step])
        del left[:step]
        if rng.random() < 0.7:
            index.build(rng.choice((None, None, 5)))
        if rng.random() < 0.6:
            plan = index.begin_sync() or SyncPlan([], [], [])
            for path in plan.derived:
                disk.sync(path)
                if rng.random() < 0.3:
                    index.build()
            sync_plan(disk, SyncPlan([], [], plan.directories))
            index.end_sync()
            published.append(index.durable_timestamp)
    if rng.random() < 0.5:
        index.close()


def recovered(disk: RecordingDisk, messages: list[IndexRequest], log_end: int) -> KeyIndex:
    index = KeyIndex(disk, LAYOUT)
    again_from = index.recover(log_end)
    assert again_from == log_end or again_from in (0, *(message[3] for message in messages))
    add_all(index, [message for message in messages if again_from <= message[3] < log_end])
    return index


def cut_disk(messages: list[IndexRequest], seed: int) -> tuple[RecordingDisk, list[int]]:
    rng = Random(seed)
    calls = RecordingDisk()
    run(calls, messages, Random(seed), [])
    disk = RecordingDisk()
    disk.cut_at(rng.randint(1, calls.calls["write"] + calls.calls["sync"]))
    published: list[int] = [0]
    with suppress(PowerCut):
        run(disk, messages, Random(seed), published)
    return disk, published


@pytest.mark.parametrize("seed", seeds(40))
def test_after_a_power_cut_the_index_is_complete(seed: int) -> None:
    messages = requests(150, Random(seed))
    rng = Random(seed)
    disk, _ = cut_disk(messages, seed)
    for _ in range(5):
        crashed = disk.crashed(rng)
        end = rng.choice([message[3] for message in messages] + [messages[-1][3] + 91])
        index = recovered(crashed, messages, end)
        index.close()
        assert index_files(crashed) == files_of([m for m in messages if m[3] < end])


@pytest.mark.parametrize("seed", seeds(20))
def test_after_a_kill_too(seed: int) -> None:
    messages = requests(150, Random(seed))
    disk, _ = cut_disk(messages, seed)
    killed = disk.killed()
    recovered(killed, messages, messages[-1][3] + 91).close()
    assert index_files(killed) == files_of(messages)


@pytest.mark.parametrize("seed", seeds(20))
def test_crash_after_crash_loses_nothing(seed: int) -> None:
    messages = requests(150, Random(seed))
    disk, _ = cut_disk(messages, seed)
    rng = Random(seed)
    for _ in range(4):
        disk = disk.crashed(rng)
        disk.cut_at(rng.randint(1, 60))
        try:
            index = recovered(disk, messages, messages[-1][3] + 91)
            index.build()
            sync_round(disk, index)
        except PowerCut:
            continue
    disk = disk.crashed(rng)
    recovered(disk, messages, messages[-1][3] + 91).close()
    assert index_files(disk) == files_of(messages)


@pytest.mark.parametrize("seed", seeds(30))
def test_what_apache_would_open_after_a_kill_is_whole(seed: int) -> None:
    """It keeps files that end before the checkpoint, and follows slots up to the header's count."""
    messages = requests(150, Random(seed))
    disk, published = cut_disk(messages, seed)
    for found in index_files(disk.killed()).values():
        data = found.ljust(LAYOUT.file_size, b"\x00")  # mapping a file extends it in Java
        _, end_time, _, _, _, count = HEADER.unpack(data[:40])
        assert end_time <= max(published)
        for slot in range(LAYOUT.slots):
            number = int.from_bytes(data[40 + slot * 4 : 44 + slot * 4], "big")
            assert number < max(count, 1)
            while number:
                at = LAYOUT.entries_at + number * 20
                key_hash, _, _, previous = ENTRY.unpack(data[at : at + 20])
                assert key_hash % LAYOUT.slots == slot
                assert previous < number
                number = previous


@pytest.mark.parametrize("seed", seeds(30))
def test_the_durable_time_is_never_ahead_of_the_disk(seed: int) -> None:
    messages = requests(150, Random(seed))
    disk, published = cut_disk(messages, seed)
    crashed = disk.crashed(Random(seed))
    index = KeyIndex(crashed, LAYOUT)
    again_from = index.recover(messages[-1][3] + 91)
    for topic, uniq_key, _, log_offset, timestamp in messages:
        # Messages of one millisecond may be settled in part.
        if timestamp < published[-1] and log_offset < again_from:
            assert index.find(topic, uniq_key, 0, FOREVER, 9).log_offsets == [log_offset]


def test_most_of_the_index_survives_a_power_cut() -> None:
    disk = RecordingDisk()
    index = opened(disk)
    messages = requests(150)
    for message in messages:
        index.add(message)
        index.build()
        sync_round(disk, index)
    again_from = KeyIndex(disk.crashed(Random(3)), LAYOUT).recover(1 << 40)
    assert again_from >= messages[-5][3]


@pytest.mark.parametrize(
    ("layout", "allowed"), [(LAYOUT, 8), (IndexLayout(slots=512, entries=4096), 4)]
)
def test_a_kill_at_any_call_costs_the_last_rounds_only(layout: IndexLayout, allowed: int) -> None:
    """Headers follow the mark, and a process may die between the two. More files, more rounds."""
    messages = requests(300)
    rounds = [messages[first : first + 10] for first in range(0, 300, 10)]
    disk = RecordingDisk()
    built_from: list[int] = []
    costs: list[int] = []

    def look(operation: str, path: str) -> None:
        if operation in ("write", "sync") and len(built_from) > 4:
            again_from = KeyIndex(disk.killed(), layout).recover(1 << 40)
            costs.append(sum(again_from <= start for start in built_from))

    index = opened(disk, layout=layout)
    disk.on_call = look
    for batch in rounds:
        add_all(index, batch)
        built_from.append(batch[0][3])
        index.build()
        sync_round(disk, index)
    assert costs
    assert max(costs) <= allowed, costs


def test_unmarked_files_are_rebuilt_unless_their_writer_stopped_properly() -> None:
    disk = RecordingDisk()
    index = opened(disk)
    messages = requests(100)
    add_all(index, messages)
    index.close()
    disk.unlink(INDEX_MARK)
    assert KeyIndex(disk.killed(), LAYOUT).recover(1 << 40) == 0
    again_from = KeyIndex(disk, LAYOUT).recover(1 << 40, trust_unmarked=True)
    assert again_from == messages[-1][3]


@pytest.mark.parametrize("missing", [[0], [1], [-1], [0, 1], [0, -1]])
def test_missing_files_are_noticed_and_rebuilt(missing: list[int]) -> None:
    disk = RecordingDisk()
    index = opened(disk)
    messages = requests(100)
    add_all(index, messages)
    index.close()
    paths = list(index_files(disk))
    for number in missing:
        disk.unlink(paths[number])
    index = KeyIndex(disk, LAYOUT)
    again_from = index.recover(1 << 40)
    assert again_from < messages[-1][3]
    add_all(index, [message for message in messages if message[3] >= again_from])
    index.close()
    assert index_files(disk) == files_of(messages)


@pytest.mark.parametrize("cut", range(1, 12))
def test_files_deleted_for_their_age_are_not_missed(cut: int) -> None:
    disk = RecordingDisk()
    index = opened(disk)
    messages = requests(150)
    add_all(index, messages)
    index.build()
    while sync_round(disk, index):
        pass
    disk.cut_at(cut)
    with suppress(PowerCut):
        index.clean(messages[75][3], Trash(disk))
    for seed in range(5):
        again = KeyIndex(disk.crashed(Random(seed)), LAYOUT)
        assert again.recover(messages[-1][3] + 91) > messages[75][3]
        for topic, uniq_key, _, log_offset, _ in messages[75:-1]:
            assert again.find(topic, uniq_key, 0, FOREVER, 9).log_offsets == [log_offset]


def test_a_flipped_or_cut_byte_anywhere_is_survived() -> None:
    messages = requests(60)
    layout = IndexLayout(8, 30)
    disk = RecordingDisk()
    index = opened(disk, layout=layout)
    add_all(index, messages)
    index.close()
    paths = [*index_files(disk), INDEX_MARK]
    for path in paths:
        original = disk.files()[path]
        for at in range(0, len(original), 3):
            damaged = disk.killed()
            damaged.poke(path, original[:at] + bytes([original[at] ^ 0x41]) + original[at + 1 :])
            survive(damaged, messages, layout)
        for at in range(0, len(original), 41):
            damaged = disk.killed()
            damaged.poke(path, original[:at])
            survive(damaged, messages, layout)


def survive(disk: RecordingDisk, messages: list[IndexRequest], layout: IndexLayout) -> None:
    index = KeyIndex(disk, layout)
    again_from = index.recover(1 << 30)
    if again_from < 1 << 30:
        add_all(index, [message for message in messages if message[3] >= again_from])
    for topic, uniq_key, _, _, _ in messages[::20]:
        index.find(topic, uniq_key, 0, FOREVER, 64)
    index.add(("t", "new", "", 1 << 30, 1))
    assert index.find("t", "new", 0, FOREVER, 1).log_offsets == [1 << 30]
    index.close()
