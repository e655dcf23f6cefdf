"""Config tables: whole after any power cut, and never silently empty."""

import errno
import json
from random import Random
from typing import Any

import pytest

from sparrowmq.disk.errors import DiskFull
from sparrowmq.store.messages import Damage
from sparrowmq.store.table_file import TableFile, TableMissing
from sparrowmq.testing.recorded_calls import PowerCut
from sparrowmq.testing.recording_disk import RecordingDisk
from tests.seeds import seeds

NAME = "consumerOffset.json"
MAIN, BACKUP = f"config/{NAME}", f"config/{NAME}.bak"


def table_on(disk: RecordingDisk) -> TableFile[Any]:
    return TableFile(disk, NAME, json.loads)


def load(disk: RecordingDisk, *, used: bool = True) -> tuple[Any, list[Damage]]:
    damage: list[Damage] = []
    return table_on(disk).load(damage.append, store_is_used=used), damage


def saved(disk: RecordingDisk, *versions: int) -> TableFile[Any]:
    table = table_on(disk)
    for version in versions:
        table.save(json.dumps({"version": version}).encode())
    return table


def test_what_was_saved_is_loaded() -> None:
    disk = RecordingDisk()
    saved(disk, 1, 2)
    assert load(disk) == ({"version": 2}, [])
    assert disk.files()[BACKUP] == b'{"version": 1}'


def test_saving_the_same_again_writes_nothing() -> None:
    disk = RecordingDisk()
    table = saved(disk, 1)
    writes = disk.calls["write"]
    assert not table.save(b'{"version": 1}')
    assert disk.calls["write"] == writes


def test_a_new_store_starts_without_tables() -> None:
    assert load(RecordingDisk(), used=False) == (None, [])


@pytest.mark.parametrize("seed", range(5))
def test_a_store_that_dies_before_its_first_save_starts_again(seed: int) -> None:
    disk = RecordingDisk()
    load(disk, used=False)
    assert load(disk.crashed(Random(seed)), used=True) == ({}, [])


def test_a_used_store_without_both_copies_is_refused_and_the_repair_is_named() -> None:
    disk = RecordingDisk()
    with pytest.raises(TableMissing, match="sparrowmq store rebuild DIR --table consumerOffset"):
        load(disk)
    table: TableFile[Any] = table_on(disk)
    assert table.load(lambda _: None, store_is_used=True, may_be_missing=True) is None


def test_a_missing_table_is_restored_from_its_backup_and_reported() -> None:
    disk = RecordingDisk()
    saved(disk, 1, 2)
    disk.unlink(MAIN)
    table, damage = load(disk)
    assert table == {"version": 1}
    assert [str(each) for each in damage] == [
        f"{MAIN} is damaged at byte 0 (0 bytes): is missing; {BACKUP} is used"
    ]


@pytest.mark.parametrize("garbage", [b"", b'{"version": 2', b"\x00" * 14])
def test_a_torn_table_is_moved_aside_and_its_backup_survives_the_next_save(garbage: bytes) -> None:
    disk = RecordingDisk()
    saved(disk, 1, 2)
    disk.poke(MAIN, garbage)
    damage: list[Damage] = []
    table = table_on(disk)
    assert table.load(damage.append, store_is_used=True) == {"version": 1}
    assert len(damage) == 2
    assert disk.files()[f"{MAIN}.damaged"] == garbage
    table.save(b'{"version": 3}')
    assert disk.files()[BACKUP] == b'{"version": 1}'
    assert load(disk) == ({"version": 3}, [])


def test_a_torn_table_takes_no_name_of_one_that_was_moved_aside_before() -> None:
    disk = RecordingDisk()
    for garbage in (b"first", b"second"):
        saved(disk, 1, 2)
        disk.poke(MAIN, garbage)
        _, damage = load(disk)
        assert damage
    assert {disk.files()[f"{MAIN}.damaged"], disk.files()[f"{MAIN}.damaged.1"]} == {
        b"first",
        b"second",
    }


def test_two_torn_copies_are_refused_even_in_a_new_store() -> None:
    disk = RecordingDisk()
    disk.poke(MAIN, b"{")
    disk.poke(BACKUP, b"[")
    with pytest.raises(TableMissing, match="cannot be read"):
        load(disk, used=False)


@pytest.mark.parametrize(
    ("copies", "words"),
    [
        ([], f"{MAIN} and its .bak are missing; what"),
        ([MAIN], rf"{MAIN} cannot be read \(.*\), and its .bak is missing; what"),
        ([BACKUP], rf"{MAIN} is missing, and its .bak cannot be read \(.*\); what"),
        (
            [MAIN, BACKUP],
            rf"{MAIN} cannot be read \(.*\), and its .bak cannot be read \(.*\); what",
        ),
    ],
)
def test_a_refusal_names_the_fault_of_each_copy(copies: list[str], words: str) -> None:
    disk = RecordingDisk()
    for copy in copies:
        disk.poke(copy, b"{")
    with pytest.raises(TableMissing, match=f"^{words}"):
        load(disk)


@pytest.mark.parametrize("seed", seeds(60))
def test_a_power_cut_during_a_save_leaves_the_old_or_the_new(seed: int) -> None:
    rng = Random(seed)
    disk = RecordingDisk()
    table = saved(disk, 1, 2)
    disk.cut_at(rng.randint(1, 9))
    acknowledged = 2
    try:
        table.save(b'{"version": 3}')
        acknowledged = 3
    except PowerCut:
        pass
    for _ in range(10):
        found, _ = load(disk.crashed(rng))
        assert found["version"] in {acknowledged, 3}


@pytest.mark.parametrize("operation", ["create", "write", "sync"])
def test_a_failed_save_leaves_the_old_one(operation: str) -> None:
    disk = RecordingDisk()
    table = saved(disk, 1, 2)
    disk.fail(operation, errno.ENOSPC)
    with pytest.raises(DiskFull):
        table.save(b'{"version": 3}')
    disk.heal()
    assert load(disk) == ({"version": 2}, [])
    assert table.save(b'{"version": 3}')
    assert load(disk) == ({"version": 3}, [])
