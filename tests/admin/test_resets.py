"""Resets that are journaled: a group's former progress, undoing them, and refusals."""

import json
from pathlib import Path

import pytest

from sparrowmq import (
    Admin,
    AdminError,
    Client,
    MessageQueue,
    MoveBy,
    NotFound,
    OffsetMove,
    ResetJournal,
    ResetRecord,
)
from sparrowmq.admin.resets import tripped_backlogs
from sparrowmq.testing.sim_cluster import SimCluster
from tests.admin.operator import as_client, consuming, numbered, send

FIRST = MessageQueue("orders", "broker-a", 0)
SECOND = MessageQueue("orders", "broker-a", 1)


async def sold(client: Client, count: int = 6) -> Admin:
    """A topic with two queues that a group has read all of."""
    admin = Admin(client=client)
    await admin.create_topic("orders", queues=2)
    await send(client, *numbered("orders", count))
    async with consuming(client, "billing", "orders", count):
        pass
    return admin


def test_a_reset_is_written_down_and_undone(tmp_path: Path) -> None:
    journal = ResetJournal(tmp_path / "resets")

    async def work(client: Client) -> None:
        admin = await sold(client)
        made = await admin.reset_with_journal(
            "billing", "orders", "earliest", journal=journal, who="ann@desk"
        )
        assert [(each.before, each.after) for each in made.moves] == [(3, 0), (3, 0)]
        assert made.record is not None
        assert (await admin.lag("billing", "orders")).lag == 6
        (record,) = journal.records("billing")
        assert record == made.record
        assert (record.who, record.state) == ("ann@desk", "done")
        assert record.cluster.names == "DefaultCluster"
        text = json.loads((journal.folder / f"{record.id}.json").read_text())
        moved = {"broker": "broker-a", "queue": 0, "before": 3, "after": 0, "oldest": 0}
        assert text["queues"][0] == moved

        shown = await admin.undo_reset("billing", journal=journal, who="bob", dry_run=True)
        assert (shown.record, len(journal.records())) == (None, 1)
        undone = await admin.undo_reset("billing", journal=journal, who="bob")
        assert [(each.before, each.after) for each in undone.moves] == [(0, 3), (0, 3)]
        assert (await admin.lag("billing", "orders")).lag == 0
        assert sorted(each.kind for each in journal.records("billing")) == ["reset", "undo"]
        with pytest.raises(
            NotFound, match="has no reset of group billing in this cluster that can still"
        ):
            await admin.undo_reset("billing", journal=journal, who="bob")
        with pytest.raises(AdminError, match="was undone before, by"):
            await admin.undo_reset("billing", record.id, journal=journal, who="bob")

    with SimCluster(seed=1).run() as sim:
        as_client(sim, work)


def test_an_undo_is_refused_when_members_have_gone_on_unless_forced(tmp_path: Path) -> None:
    journal = ResetJournal(tmp_path)

    async def work(client: Client) -> None:
        admin = await sold(client)
        await admin.reset_with_journal("billing", "orders", "earliest", journal=journal, who="ann")
        async with consuming(client, "billing", "orders", 6):
            pass
        await send(client, *numbered("orders", 2))
        with pytest.raises(
            AdminError, match=r"has moved since reset .*broker-a/0 is at 3, not 0.*--force"
        ):
            await admin.undo_reset("billing", journal=journal, who="ann")
        assert (await admin.lag("billing", "orders")).lag == 2
        forced = await admin.undo_reset("billing", journal=journal, who="ann", force=True)
        assert [each.after for each in forced.moves] == [3, 3]

    with SimCluster(seed=1).run() as sim:
        as_client(sim, work)


def rewrite(journal: ResetJournal, **changed: object) -> None:
    """Give the only record other values, as if another desk had written it."""
    (path,) = journal.folder.glob("*.json")
    path.write_text(json.dumps(json.loads(path.read_text()) | changed))


def test_a_reset_of_another_cluster_of_the_same_name_is_not_undone(tmp_path: Path) -> None:
    journal = ResetJournal(tmp_path)

    async def work(client: Client) -> None:
        admin = await sold(client)
        made = await admin.reset_with_journal(
            "billing", "orders", "earliest", journal=journal, who="ann"
        )
        assert made.record is not None
        assert await admin.last_reset("billing", journal=journal) == made.record
        rewrite(journal, addresses=["10.9.9.9:10911"], nameServers=["10.9.9.9:9876"])
        assert await admin.last_reset("billing", journal=journal) is None
        with pytest.raises(
            NotFound, match="no reset of group billing in this cluster that can still"
        ):
            await admin.undo_reset("billing", journal=journal, who="ann")
        with pytest.raises(AdminError, match=r"another cluster called DefaultCluster \(name serv"):
            await admin.undo_reset("billing", made.record.id, journal=journal, who="ann")
        assert (await admin.lag("billing", "orders")).lag == 6
        await admin.undo_reset("billing", made.record.id, journal=journal, who="ann", force=True)
        assert (await admin.lag("billing", "orders")).lag == 0

    with SimCluster(seed=1).run() as sim:
        as_client(sim, work)


def test_a_record_without_addresses_belongs_to_every_cluster_of_its_name(tmp_path: Path) -> None:
    journal = ResetJournal(tmp_path)

    async def work(client: Client) -> None:
        admin = await sold(client)
        await admin.reset_with_journal("billing", "orders", "earliest", journal=journal, who="ann")
        rewrite(journal, addresses=[], nameServers=[])
        await admin.undo_reset("billing", journal=journal, who="ann")
        assert (await admin.lag("billing", "orders")).lag == 0

    with SimCluster(seed=1).run() as sim:
        as_client(sim, work)


class Killed(Exception):
    """The operator's process ended here."""


@pytest.mark.parametrize("already", [{}, {FIRST: 3}], ids=["before", "between two queues"])
def test_an_undo_that_was_killed_is_run_again(
    already: dict[MessageQueue, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = ResetJournal(tmp_path)

    async def work(client: Client) -> None:
        admin = await sold(client)
        await admin.reset_with_journal("billing", "orders", "earliest", journal=journal, who="ann")

        async def killed(*_: object) -> None:
            if already:
                await admin.reset_offsets("billing", "orders", already)
            raise Killed

        with monkeypatch.context() as patch:
            patch.setattr("sparrowmq.admin.resets.apply_reset", killed)
            with pytest.raises(Killed):
                await admin.undo_reset("billing", journal=journal, who="ann")
        undone = await admin.undo_reset("billing", journal=journal, who="ann")
        assert [each.after for each in undone.moves] == [3, 3]
        assert (await admin.lag("billing", "orders")).lag == 0

    with SimCluster(seed=1).run() as sim:
        as_client(sim, work)


def test_a_reset_skips_all_of_a_queue_without_progress_and_an_undo_brings_all_of_it_back(
    tmp_path: Path,
) -> None:
    journal = ResetJournal(tmp_path)

    async def work(client: Client) -> None:
        admin = Admin(client=client)
        await admin.create_topic("orders", queues=2)
        await admin.create_group("billing")
        await admin.reset_offsets("billing", "orders", {FIRST: 0})
        await send(client, *numbered("orders", 2))
        made = await admin.reset_with_journal(
            "billing", "orders", "latest", journal=journal, who="ann"
        )
        assert [each.skipped for each in made.moves] == [1, 1]
        assert made.unread == (SECOND,)
        undone = await admin.undo_reset("billing", journal=journal, who="ann")
        assert undone.moves == (OffsetMove(FIRST, 1, 0), OffsetMove(SECOND, 1, 0))
        assert undone.unread == (SECOND,)
        assert (await admin.lag("billing", "orders")).lag == 2

    with SimCluster(seed=1).run() as sim:
        as_client(sim, work)


@pytest.mark.parametrize(
    ("by", "after"),
    [(1, [3, 3]), (-1, [2, 3]), (-100, [0, 3])],
    ids=["past the end stays there", "back by one", "back past the oldest"],
)
def test_a_single_queue_is_moved_by_a_number_of_messages(by: int, after: list[int]) -> None:
    async def work(client: Client) -> None:
        admin = await sold(client)
        moves = await admin.reset_offsets("billing", "orders", MoveBy(by), queues=[FIRST])
        assert [each.queue for each in moves] == [FIRST]
        lag = await admin.lag("billing", "orders")
        assert [each.consumer_offset for each in lag.queues] == after

    with SimCluster(seed=1).run() as sim:
        as_client(sim, work)


def test_a_reset_that_cannot_be_written_down_is_not_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    journal = ResetJournal(tmp_path / "file" / "resets")

    async def work(client: Client) -> None:
        admin = await sold(client)
        with pytest.raises(AdminError, match="the reset cannot be written down in"):
            await admin.reset_with_journal("billing", "orders", "earliest", journal=journal, who="")
        assert (await admin.lag("billing", "orders")).lag == 0

    with SimCluster(seed=1).run() as sim:
        as_client(sim, work)


class FullAfter(ResetJournal):
    """A journal whose disk is full after a number of records."""

    def __init__(self, folder: Path, room: int) -> None:
        super().__init__(folder)
        self.room = room

    def write(self, record: ResetRecord) -> None:
        if self.room == 0:
            raise AdminError(f"the reset cannot be written down in {self.folder}: no space")
        self.room -= 1
        super().write(record)


def test_a_reset_is_reported_as_made_when_the_disk_of_its_journal_fills_up(
    tmp_path: Path,
) -> None:
    journal = FullAfter(tmp_path, room=1)

    async def work(client: Client) -> None:
        admin = await sold(client)
        made = await admin.reset_with_journal(
            "billing", "orders", "earliest", journal=journal, who=""
        )
        assert (await admin.lag("billing", "orders")).lag == 6
        assert made.record == journal.records("billing")[0]
        assert made.record.state == "started"
        journal.room = 1
        await admin.undo_reset("billing", made.record.id, journal=journal, who="")
        assert (await admin.lag("billing", "orders")).lag == 0

    with SimCluster(seed=1).run() as sim:
        as_client(sim, work)


def test_files_that_are_not_reset_records_are_ignored(tmp_path: Path) -> None:
    for name, text in {"a.json": "{", "b.json": "[]", "c.json": '{"id": 1}'}.items():
        (tmp_path / name).write_text(text)
    assert ResetJournal(tmp_path).records() == []


def test_wrong_moves_are_refused() -> None:
    async def work(client: Client) -> None:
        admin = await sold(client)
        other = MessageQueue("orders", "broker-a", 7)
        with pytest.raises(NotFound, match=r"queue broker-a/7 does not exist; .*2 on broker-a"):
            await admin.reset_offsets("billing", "orders", "latest", queues=[other])
        with pytest.raises(ValueError, match="is not a queue of topic orders"):
            foreign = MessageQueue("x", "broker-a", 0)
            await admin.reset_offsets("billing", "orders", "latest", queues=[foreign])
        with pytest.raises(ValueError, match="leave `queues` out"):
            await admin.reset_offsets("billing", "orders", {FIRST: 0}, queues=[FIRST])

    with pytest.raises(ValueError, match="messages is 0"):
        MoveBy(0)
    with SimCluster(seed=1).run() as sim:
        as_client(sim, work)


@pytest.mark.parametrize(
    ("backlog", "said"),
    [
        (
            "6:refuse:billing",
            [
                "broker-a: sends to orders would be refused: billing would be 6 messages behind, at"
                " most 6 messages are allowed"
            ],
        ),
        ("7:refuse:billing", []),
        (
            "90s:slow:billing",
            [
                "broker-a: sends to orders would be slowed if the first message that waits then is"
                " 90 s old"
            ],
        ),
        ("90s:slow:audit", []),
    ],
)
def test_a_reset_that_would_reach_a_backlog_limit_is_said_in_its_preview(
    backlog: str, said: list[str], tmp_path: Path
) -> None:
    async def work(client: Client) -> list[list[str]]:
        admin = await sold(client)
        await admin.update_topic("orders", attributes={"sparrowmq.backlog": backlog})
        journal = ResetJournal(tmp_path / "resets")
        topic = await admin.topic("orders")
        previews = [
            await admin.reset_with_journal(
                "billing", "orders", to, journal=journal, who="ann", dry_run=True
            )
            for to in ("earliest", "latest")
        ]
        return [tripped_backlogs(topic, "billing", each.moves) for each in previews]

    with SimCluster(seed=1).run() as sim:
        assert as_client(sim, work) == [said, []]
