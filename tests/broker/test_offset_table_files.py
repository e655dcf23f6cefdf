"""The files of consumer offsets: whose they were, and what is saved under load."""

import asyncio
import random
from pathlib import Path

import pytest

from sparrowmq.broker.consumer_offsets import ConsumerOffsets, finished
from sparrowmq.broker.tables import OffsetsTable
from sparrowmq.disk.real_disk import RealDisk
from sparrowmq.net import slices
from sparrowmq.net.slices import Slices
from sparrowmq.net.workers import InlineWorkers
from sparrowmq.store.journal import Journal

TABLE = "config/consumerOffset.json"


def table_at(root: Path) -> OffsetsTable:
    return OffsetsTable(RealDisk(root), lambda damage: None)


def consume_to(root: Path, offset: int) -> None:
    """A broker that starts, journals progress and dies before it saves the table."""
    table = table_at(root)
    offsets = table.load(store_is_used=False)
    offsets.commit("billing", "orders", 0, offset)
    asyncio.run(table.journal(offsets, InlineWorkers(), Slices()))
    table.close()


def loaded(root: Path) -> ConsumerOffsets:
    table = table_at(root)
    offsets = table.load(store_is_used=True)
    table.close()
    return offsets


def test_the_journal_of_a_first_start_counts(tmp_path: Path) -> None:
    consume_to(tmp_path, 15)
    assert loaded(tmp_path).get("billing", "orders", 0) == 15


def test_a_table_that_apache_wrote_wins_over_our_older_journal(tmp_path: Path) -> None:
    consume_to(tmp_path, 15)
    (tmp_path / TABLE).write_text('{"offsetTable":{"orders@billing":{0:40}}}')
    assert loaded(tmp_path).get("billing", "orders", 0) == 40


def test_progress_after_apaches_table_is_journaled_again(tmp_path: Path) -> None:
    consume_to(tmp_path, 15)
    (tmp_path / TABLE).write_text('{"offsetTable":{"orders@billing":{0:40}}}')
    consume_to(tmp_path, 45)
    assert loaded(tmp_path).get("billing", "orders", 0) == 45


def test_a_journal_from_before_resets_were_journaled_counts(tmp_path: Path) -> None:
    consume_to(tmp_path, 15)
    journal = Journal(RealDisk(tmp_path), "consumerOffset")
    journal.replay(lambda damage: None)
    journal.append(b'[["orders@billing",0,16],["orders@billing",1,-1]]')
    journal.close()
    assert dict(loaded(tmp_path).rows()) == {"orders@billing": {0: 16}}


ROWS = 50


async def turns_of_others(folder: Path) -> dict[str, int]:
    """How often the loop came round while a journal entry and a table were written."""
    table, turns = table_at(folder), dict.fromkeys(("journal", "save"), 0)
    offsets = table.load(store_is_used=False)
    for name, write in (("journal", table.journal), ("save", table.save)):
        for number in range(ROWS):
            offsets.commit(f"group-{number}", "orders", 0, len(name))
        writing = asyncio.ensure_future(write(offsets, InlineWorkers(), Slices()))
        while not writing.done():
            turns[name] += 1
            await asyncio.sleep(0)
        await writing
    table.close()
    return turns


def test_others_run_between_the_rows_of_a_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slices, "SLICE_S", 0.0)  # every slice is over at once
    turns = asyncio.run(turns_of_others(tmp_path))
    assert turns["journal"] > ROWS
    assert turns["save"] > 2 * ROWS, "the changes, and the table"


def change_anything(offsets: ConsumerOffsets, rng: random.Random) -> None:
    """What members and operators may do between two turns of the loop."""
    group, queue_id = f"group-{rng.randrange(ROWS)}", rng.randrange(2)
    match rng.randrange(5):
        case 0:
            offsets.commit(group, "orders", queue_id, rng.randrange(1_000))
        case 1:
            offsets.carry(group, "orders", queue_id, rng.randrange(1_000))
        case 2:
            offsets.reset(group, "orders", queue_id, rng.randrange(1_000))
        case 3:
            offsets.applied(group, "orders", queue_id)
        case 4:
            finished(offsets.removing_group(group))


async def save_under_load(root: Path, rng: random.Random) -> ConsumerOffsets:
    """Save the table twice while it changes, and the last changes to the journal."""
    table = table_at(root)
    offsets = table.load(store_is_used=False)
    for number in range(ROWS):
        for queue_id in range(2):
            offsets.commit(f"group-{number}", "orders", queue_id, 500)
    for write in (table.save, table.save, table.journal):
        writing = asyncio.ensure_future(write(offsets, InlineWorkers(), Slices()))
        while not writing.done():
            change_anything(offsets, rng)
            await asyncio.sleep(0)
        await writing
    await table.journal(offsets, InlineWorkers(), Slices())
    table.close()
    return offsets


@pytest.mark.parametrize("is_damaged", [False, True], ids=["whole", "from the .bak"])
@pytest.mark.parametrize("seed", range(10))
def test_what_changes_while_a_table_is_copied_is_there_after_a_crash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, is_damaged: bool
) -> None:
    monkeypatch.setattr(slices, "SLICE_S", 0.0)
    offsets = asyncio.run(save_under_load(tmp_path, random.Random(seed)))
    if is_damaged:
        (tmp_path / TABLE).write_bytes(b"{")
    assert sorted(loaded(tmp_path).everything()) == sorted(offsets.everything())
