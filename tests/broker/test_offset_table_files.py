"""Consumer offsets when Apache's broker or an older one had the store before, or none had."""

import asyncio
from pathlib import Path

from sparrowmq.broker.consumer_offsets import ConsumerOffsets
from sparrowmq.broker.tables import OffsetsTable
from sparrowmq.disk.real_disk import RealDisk
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
    asyncio.run(table.journal(offsets, InlineWorkers()))
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
