"""`store verify`: an intact store has no findings, and each damaged byte that matters is found."""

from random import Random

import pytest

from sparrowmq.store.index.entries import IndexLayout
from sparrowmq.store.inspect.verify import StoreFinding, Verified, verify
from sparrowmq.store.messages import Damage, StartProgress
from sparrowmq.testing.recording_disk import RecordingDisk
from tests.faults.store_run import LAYOUT, StoreRun, open_store


def stopped_store(steps: int = 30) -> RecordingDisk:
    disk = RecordingDisk()
    run = StoreRun(disk, Random(5), sync_flush=False)
    for _ in range(steps):
        run.step()
    run.store.close()
    return disk


def looked_at(
    disk: RecordingDisk, layout: IndexLayout = LAYOUT
) -> tuple[Verified, list[StoreFinding]]:
    findings: list[StoreFinding] = []

    def report(event: StoreFinding | StartProgress) -> None:
        if isinstance(event, StoreFinding):
            findings.append(event)

    before = disk.files()
    disk.is_read_only = True
    result = verify(disk, report, layout)
    disk.is_read_only = False
    assert disk.files() == before, "verify changes nothing"
    return result, findings


def flipped(disk: RecordingDisk, path: str, at: int) -> RecordingDisk:
    damaged = disk.killed()
    data = damaged.files()[path]
    damaged.poke(path, data[:at] + bytes([data[at] ^ 0x21]) + data[at + 1 :])
    return damaged


def test_a_stopped_store_is_fine() -> None:
    result, findings = looked_at(stopped_store())
    assert findings == []
    assert result.records > 60
    assert result.units == result.records
    assert result.queues == 3
    assert result.index_entries == 3 * result.records
    assert result.log_files > 1
    assert result.damage == 0


def test_an_empty_directory_is_fine() -> None:
    assert looked_at(RecordingDisk()) == (Verified(), [])


@pytest.mark.parametrize("steps", [3, 17, 30])
def test_the_state_after_a_kill_is_not_damage(steps: int) -> None:
    disk = RecordingDisk()
    run = StoreRun(disk, Random(7), sync_flush=False)
    for _ in range(steps):
        run.step()
    result, findings = looked_at(disk.killed())
    assert [finding for finding in findings if finding.is_damage] == []
    assert result.damage == 0
    assert result.left_to_start == len(findings)


def test_every_flipped_byte_of_a_record_is_found_with_file_and_offset() -> None:
    disk = stopped_store(3)
    path = "commitlog/00000000000000000000"
    size = int.from_bytes(disk.files()[path][:4], "big")
    for at in range(size):
        result, findings = looked_at(flipped(disk, path, at))
        assert result.damage
        assert (path, 0) in [(finding.path, finding.position) for finding in findings]


def test_a_flipped_byte_of_a_unit_is_found_with_file_and_offset() -> None:
    disk = stopped_store()
    path = "consumequeue/orders/0/00000000000000000320"
    for at in range(20, 40):
        _, findings = looked_at(flipped(disk, path, at))
        assert [(finding.path, finding.position) for finding in findings] == [(path, 20)]


def test_a_flipped_byte_of_an_index_file_is_found() -> None:
    disk = stopped_store()
    path = next(path for path in disk.files() if path.startswith("index/"))
    first_entry = LAYOUT.entries_at + 20  # entry 0 is not used
    for at in [*range(80), *range(first_entry, first_entry + 60)]:
        result, _ = looked_at(flipped(disk, path, at))
        if at not in range(first_entry + 12, first_entry + 16):  # the first entry's seconds: any
            assert result.damage, at


def units_in(disk: RecordingDisk, path: str) -> int:
    data = disk.files()[path]
    return len([at for at in range(0, len(data), 20) if any(data[at : at + 20])])


def test_a_unit_past_the_last_message_of_its_queue_is_found() -> None:
    disk = stopped_store()
    path = max(path for path in disk.files() if path.startswith("consumequeue/orders/0/"))
    at = units_in(disk, path) * 20
    data = disk.files()[path]
    disk.poke(path, data[:at] + data[at - 20 : at] + data[at + 20 :])
    result, findings = looked_at(disk)
    assert [(finding.path, finding.position) for finding in findings] == [(path, at)]
    assert "no message of this queue" in findings[0].reason
    assert result.damage == 1


def killed_with_late_units() -> tuple[RecordingDisk, str, int]:
    """A store that was killed, and where the last unit of a queue is: past the checkpoint."""
    disk = RecordingDisk()
    run = StoreRun(disk, Random(7), sync_flush=False)
    for _ in range(17):
        run.step()
    run.append()
    for _ in range(3):
        run.store.tick(run.now_ms)
    disk = disk.killed()
    path = max(path for path in disk.files() if path.startswith("consumequeue/orders/0/"))
    return disk, path, (units_in(disk, path) - 1) * 20


def test_past_the_checkpoint_a_unit_may_be_missing_but_not_wrong() -> None:
    disk, path, at = killed_with_late_units()
    data = disk.files()[path]
    disk.poke(path, data[:at] + bytes(20) + data[at + 20 :])
    result, findings = looked_at(disk)
    assert result.damage == 0
    assert (path, at) in [(finding.path, finding.position) for finding in findings]
    result, findings = looked_at(flipped(killed_with_late_units()[0], path, at + 7))
    assert [(finding.path, finding.position) for finding in findings if finding.is_damage] == [
        (path, at)
    ]
    assert result.damage == 1


def test_space_filled_by_recovery_no_longer_counts_as_damage() -> None:
    disk = stopped_store()
    path = "commitlog/00000000000000000000"
    size = int.from_bytes(disk.files()[path][:4], "big")
    disk = flipped(disk, path, size + 100)
    assert looked_at(disk)[0].damage
    for name in ("queues.0", "queues.1", "mark"):
        disk.unlink(f"sparrowmq/{name}")
    disk.open("abort", create=True).close()
    damage: list[Damage] = []
    open_store(disk, 1_800_000_000_000, damage).close()
    assert damage
    result, findings = looked_at(disk)
    assert findings == []
    assert result.records == result.units + 1


def test_index_entries_for_messages_the_log_lacks_are_found() -> None:
    disk = stopped_store()
    whole, _ = looked_at(disk)
    last = max(path for path in disk.files() if path.startswith("commitlog/"))
    data = disk.files()[last]
    first = int.from_bytes(data[:4], "big")
    disk.poke(last, data[:first] + bytes(len(data) - first))
    result, findings = looked_at(disk)
    lost = whole.records - result.records
    assert lost > 0
    behind = [finding for finding in findings if finding.path.startswith("index/")]
    assert len(behind) == 3 * lost
    assert all("the log ends at" in finding.reason and finding.is_damage for finding in behind)


def test_missing_queues_and_index_are_found() -> None:
    disk = stopped_store()
    for path in disk.files():
        if path.startswith(("consumequeue/payments", "index/")):
            disk.unlink(path)
    result, findings = looked_at(disk)
    assert result.damage > 0
    assert {finding.path.partition("/")[0] for finding in findings} == {"consumequeue", "index"}


def test_a_checkpoint_ahead_of_the_log_is_found() -> None:
    disk = stopped_store()
    disk.poke("checkpoint", (1 << 60).to_bytes(8, "big") + disk.files()["checkpoint"][8:])
    _, findings = looked_at(disk)
    assert [finding.path for finding in findings] == ["checkpoint"]


def test_a_torn_table_is_found_and_javas_json_is_accepted() -> None:
    disk = stopped_store()
    disk.poke("config/consumerOffset.json", b'{"offsetTable":{"t@g":{0:5,1:7}}}')
    disk.poke("config/topics.json", b'{"dataVersion":{')
    _, findings = looked_at(disk)
    assert [finding.path for finding in findings] == ["config/topics.json"]


def test_index_files_of_another_size_are_reported() -> None:
    result, _ = looked_at(stopped_store(), IndexLayout(10, 10))
    assert "--index-slots" in result.skipped[0]
