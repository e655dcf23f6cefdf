"""Acknowledged commits survive brokers that are killed at any moment after that."""

import asyncio
import errno
import logging
import random
from types import SimpleNamespace
from typing import Any

import pytest

from sparrowmq.broker.commit_slots import PATHS
from sparrowmq.broker.consumer_offsets import ConsumerOffsets, finished
from sparrowmq.broker.replication.table_rules import OffsetChange
from sparrowmq.broker.tables import OffsetsTable, read_progress
from sparrowmq.disk.errors import DiskFull
from sparrowmq.net import slices
from sparrowmq.net.slices import Slices
from sparrowmq.net.workers import InlineWorkers
from sparrowmq.protocol.offsets_body import ConsumerOffsetTable
from sparrowmq.store.messages import Damage
from sparrowmq.testing.recording_disk import RecordingDisk
from tests.seeds import seeds

LOG = logging.getLogger("commits")
TABLE = "config/consumerOffset.json"
GROUPS = 6
Place = tuple[str, int]


class Life:
    """Consumer offsets from a broker's start to its kill."""

    def __init__(self, disk: RecordingDisk, *, is_copy: bool = False, epoch: int = 0) -> None:
        self.disk = disk
        self.damage: list[Damage] = []
        store: Any = SimpleNamespace(
            max_log_offset=0,
            max_offset=lambda topic, queue_id: 1_000_000,
            epochs=SimpleNamespace(current=epoch),
        )
        self.table = OffsetsTable(disk, self.damage.append)
        self.offsets = self.table.open(store, LOG, is_copy=is_copy)

    def journal(self) -> None:
        asyncio.run(self.table.journal(self.offsets, InlineWorkers(), Slices()))

    def save(self) -> None:
        asyncio.run(self.table.save(self.offsets, InlineWorkers(), Slices()))

    def killed(self, *, is_copy: bool = False) -> "Life":
        return Life(self.disk.killed(), is_copy=is_copy)

    def at(self, group: str, queue_id: int = 0) -> int:
        return self.offsets.get(group, "orders", queue_id)


def commit(life: Life, offset: int, group: str = "billing", queue_id: int = 0) -> None:
    life.offsets.commit(group, "orders", queue_id, offset)


def test_a_commit_survives_a_kill_before_anything_is_journaled() -> None:
    life = Life(RecordingDisk())
    commit(life, 5)
    life.offsets.carry("billing", "orders", 1, 7)
    after = life.killed()
    assert (after.at("billing"), after.at("billing", 1)) == (5, 7)
    commit(after, 8)
    assert after.killed().at("billing") == 8


def test_a_commit_that_moves_back_survives_a_kill_too() -> None:
    life = Life(RecordingDisk())
    for offset in (5, 9, 3, 4):
        commit(life, offset)
    assert life.killed().at("billing") == 4


def test_commits_take_the_same_bytes_again() -> None:
    life = Life(RecordingDisk())
    commit(life, 1)
    before = {path: len(data) for path, data in life.disk.files().items()}
    calls = life.disk.calls.copy()
    for offset in range(2, 5_000):
        life.offsets.carry("billing", "orders", 0, offset)
    assert life.disk.calls - calls == {"write": 4_998}
    assert {path: len(data) for path, data in life.disk.files().items()} == before


def test_files_are_emptied_when_the_table_has_been_saved() -> None:
    life = Life(RecordingDisk())
    sizes = set()
    for number in range(40):
        for place in range(200):
            commit(life, number + 1, f"group-{number}-{place}")
        life.save()
        sizes.add(sum(len(life.disk.files()[path]) for path in PATHS))
    assert max(sizes) == 2 * 64 * 1024
    assert life.killed().at("group-0-0") == 1


def test_a_file_grows_with_the_places_that_are_committed() -> None:
    life = Life(RecordingDisk())
    for place in range(3_000):
        commit(life, place + 1, f"group-{place}")
    after = life.killed()
    assert [after.at(f"group-{place}") for place in range(3_000)] == list(range(1, 3_001))


def test_a_reset_that_was_answered_wins_over_the_commits_before_it() -> None:
    life = Life(RecordingDisk())
    commit(life, 50)
    life.offsets.reset("billing", "orders", 0, 10)
    life.journal()
    commit(life, 60)  # ignored: the member has not applied the reset
    after = life.killed()
    assert after.at("billing") == 10
    assert after.offsets.pending_resets() == {"orders@billing": [0]}


def test_a_commit_after_a_reset_was_applied_counts() -> None:
    life = Life(RecordingDisk())
    commit(life, 50)
    life.offsets.reset("billing", "orders", 0, 10)
    life.journal()
    life.offsets.applied("billing", "orders", 0)
    commit(life, 12)
    after = life.killed()
    assert after.at("billing") == 12
    assert not after.offsets.pending_resets()


def remove_group(offsets: ConsumerOffsets) -> None:
    finished(offsets.removing_group("billing"))


def remove_topic(offsets: ConsumerOffsets) -> None:
    offsets.remove_topic("orders")


@pytest.mark.parametrize("remove", [remove_group, remove_topic])
@pytest.mark.parametrize("is_saved", [False, True])
def test_what_was_deleted_does_not_come_back(remove: Any, is_saved: bool) -> None:
    life = Life(RecordingDisk())
    commit(life, 50)
    if is_saved:
        life.save()
    remove(life.offsets)
    life.journal()
    assert life.killed().at("billing") == -1
    commit(life, 3)  # made again
    assert life.killed().at("billing") == 3


def test_deletions_whose_numbers_were_forgotten_do_not_come_back() -> None:
    life = Life(RecordingDisk())
    for number in range(10_001):
        commit(life, 50, f"group-{number}")
    life.offsets.remove_topic("orders")
    life.journal()
    assert life.offsets.forgotten_rewind > 0
    assert not list(life.killed().offsets.rows())


def test_what_a_slave_removed_without_a_number_does_not_come_back() -> None:
    life = Life(RecordingDisk(), is_copy=True)
    commit(life, 50)
    life.journal()
    finished(life.offsets.comparing_missing(ConsumerOffsetTable(forgotten_rewind=7)))
    assert life.at("billing") == -1
    life.journal()
    assert life.killed(is_copy=True).at("billing") == -1


def test_a_commit_at_a_slave_is_sent_to_its_master_after_a_kill() -> None:
    life = Life(RecordingDisk(), is_copy=True)
    commit(life, 50)
    after = life.killed(is_copy=True)
    assert after.offsets.take_unsent(10) == [OffsetChange("orders@billing", 0, 50)]


def test_what_a_slave_gave_its_master_survives_a_kill() -> None:
    life = Life(RecordingDisk())
    commit(life, 5)
    life.offsets.merge([OffsetChange("orders@billing", 0, 8)])
    assert life.killed().at("billing") == 8


def test_apaches_table_wins_over_older_commits() -> None:
    life = Life(RecordingDisk())
    commit(life, 50)
    disk = life.disk.killed()
    disk.poke(TABLE, b'{"offsetTable":{"orders@billing":{0:40}}}')
    assert Life(disk).at("billing") == 40
    assert Life(disk.killed()).at("billing") == 40


def test_tools_see_commits_of_a_broker_that_runs() -> None:
    life = Life(RecordingDisk())
    commit(life, 5)
    life.save()
    commit(life, 9)
    table = ConsumerOffsetTable.from_json(life.disk.files()[TABLE])
    assert read_progress(life.disk, table) == {"orders@billing": {0: 9}}


def test_a_torn_tail_costs_only_what_is_torn() -> None:
    life = Life(RecordingDisk())
    for place in range(3):
        commit(life, place + 1, f"group-{place}")
    data = life.disk.files()[PATHS[0]]
    end = len(data.rstrip(b"\0"))
    for cut in range(end):
        disk = life.disk.killed()
        disk.poke(PATHS[0], data[:cut])
        after = Life(disk)
        found = [after.at(f"group-{place}") for place in range(3)]
        assert all(at in (-1, place + 1) for place, at in enumerate(found)), (cut, found)
        assert found == sorted(found, key=lambda at: at < 0), "what comes before it is there"
        assert not after.damage


def test_damage_in_the_middle_is_reported_and_costs_one_place() -> None:
    life = Life(RecordingDisk())
    for place in range(3):
        commit(life, place + 1, f"group-{place}")
    data = life.disk.files()[PATHS[0]]
    for at in range(data.index(b"orders@group-0") + 16, data.index(b"orders@group-1")):
        disk = life.disk.killed()
        disk.poke(PATHS[0], data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        after = Life(disk)
        assert [after.at(f"group-{place}") for place in range(3)] == [1, -1, 3], at
        assert [damage.path for damage in after.damage] == [PATHS[0]]


def test_on_a_full_disk_commits_continue_and_are_persisted_later() -> None:
    life = Life(RecordingDisk())
    life.disk.fail("reserve", errno.ENOSPC)
    for place in range(3_000):
        commit(life, 1, f"group-{place}")
    assert life.at("group-2999") == 1
    assert life.killed().at("group-2999") == -1, "no space was left for it"
    with pytest.raises(DiskFull):
        life.disk.fail("write", errno.ENOSPC, path_prefix="sparrowmq/consumerOffset")
        life.save()
    life.disk.heal()
    life.save()
    commit(life, 2, "group-2999")
    after = life.killed()
    assert (after.at("group-2998"), after.at("group-2999")) == (1, 2)


def test_saves_that_fail_leave_commits_where_they_count() -> None:
    life = Life(RecordingDisk())
    life.disk.fail("write", errno.ENOSPC, path_prefix="sparrowmq/consumerOffset")
    for offset in range(1, 5):
        commit(life, offset)
        with pytest.raises(DiskFull):
            life.save()
        assert life.killed().at("billing") == offset


def test_a_start_on_a_full_disk_keeps_commits_until_they_are_journaled() -> None:
    life = Life(RecordingDisk())
    commit(life, 5)
    disk = life.disk.killed()
    disk.fail("write", errno.ENOSPC)
    life = Life(disk)
    assert life.at("billing") == 5
    disk = life.disk.killed()
    assert Life(disk).at("billing") == 5
    life.disk.heal()
    life.save()
    commit(life, 6)
    assert life.killed().at("billing") == 6


# ---- any change, and a kill before any call of the disk


def rank(change: OffsetChange) -> tuple[int, int]:
    return change.rewind, change.offset


class Witness:
    """What was promised so far, and what a kill at this moment would leave."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.life = Life(RecordingDisk())
        self.promised: dict[Place, OffsetChange] = {}
        self.kills = 0

    def states(self, offsets: ConsumerOffsets) -> dict[Place, OffsetChange]:
        return {(change.key, change.queue_id): change for change in offsets.everything()}

    def promise(self, states: dict[Place, OffsetChange]) -> None:
        for place, change in states.items():
            known = self.promised.get(place)
            if known is None or rank(change) >= rank(known):
                self.promised[place] = change

    def check(self, found: ConsumerOffsets) -> None:
        self.kills += 1
        now, after = self.states(self.life.offsets), self.states(found)
        nothing = OffsetChange("", 0, -1)
        for place in self.promised.keys() | after.keys():
            promised, at = self.promised.get(place, nothing), after.get(place, nothing)
            assert rank(promised) <= rank(at), place
            if now.get(place, nothing).offset >= 0:  # else it may be in the middle of its removal
                assert rank(at) <= rank(now[place]), place
            if rank(promised) == rank(at) and not promised.is_reset:
                assert not at.is_reset, place

    def before_call(self, operation: str, path: str) -> None:
        if operation in {"write", "truncate", "reserve", "replace", "sync", "sync_dir"}:
            self.check(Life(self.life.disk.killed()).offsets)

    def change_anything(self) -> None:
        offsets, rng = self.life.offsets, self.rng
        group, queue_id = f"group-{rng.randrange(GROUPS)}", rng.randrange(2)
        place, before = (f"orders@{group}", queue_id), offsets.get(group, "orders", queue_id)
        match rng.randrange(9):
            case 0 | 1 | 2:
                offsets.carry(group, "orders", queue_id, rng.randrange(1_000))
            case 3 | 4:
                offsets.commit(group, "orders", queue_id, rng.randrange(1_000))
            case 5:
                offsets.reset(group, "orders", queue_id, rng.randrange(1_000))
                return
            case 6:
                offsets.applied(group, "orders", queue_id)
            case 7:
                finished(offsets.removing_group(group))
                return
            case 8:
                offsets.merge([OffsetChange(*place, rng.randrange(1_000))])
        if offsets.get(group, "orders", queue_id) != before:
            self.promise({place: self.states(offsets)[place]})

    async def write(self) -> None:
        """Journal or save while members and operators keep committing."""
        life = self.life
        write = self.rng.choice((life.table.save, life.table.journal))
        before = self.states(life.offsets)
        writing = asyncio.ensure_future(write(life.offsets, InlineWorkers(), Slices()))
        while not writing.done():
            self.change_anything()
            await asyncio.sleep(0)
        await writing
        self.promise(before)

    def run(self) -> None:
        for _ in range(4):
            self.life.disk.on_call = self.before_call
            for _ in range(6):
                self.change_anything()
                asyncio.run(self.write())
            self.life.disk.on_call = None
            after = Life(self.life.disk.killed(), epoch=self.life.offsets.last_rewind)
            self.check(after.offsets)
            self.life = after


@pytest.mark.parametrize("seed", seeds(12, few=4))
def test_no_kill_between_any_two_calls_of_the_disk_undoes_what_was_promised(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(slices, "SLICE_S", 0.0)  # others run between the rows of a table
    witness = Witness(seed)
    witness.run()
    assert witness.kills > 100
