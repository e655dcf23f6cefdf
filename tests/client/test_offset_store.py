"""Where progress is kept: at the broker, or in a file with a copy of the one before."""

import asyncio
import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sparrowmq.client.broker_calls import Position
from sparrowmq.client.group import offsets as offset_stores
from sparrowmq.client.group.offsets import LocalOffsets, RemoteOffsets
from sparrowmq.client.group.offsets_folder import OffsetsFolder
from sparrowmq.protocol.message import MessageQueue

QUEUES = [MessageQueue("orders", "broker-a", number) for number in range(3)]
LOG = logging.getLogger("test")


def opened(directory: Path) -> LocalOffsets:
    return LocalOffsets(OffsetsFolder(directory / "10.0.0.1@till" / "billing"), LOG)


def written(directory: Path, *steps: dict[MessageQueue, int]) -> LocalOffsets:
    """Offsets after each step was written."""
    offsets = opened(directory)
    for step in steps:
        for queue, offset in step.items():
            offsets.update(queue, Position(offset))
        asyncio.run(offsets.persist(QUEUES))
    return offsets


@pytest.mark.parametrize("is_remote", [True, False])
def test_progress_goes_back_only_after_a_seek_or_reset(is_remote: bool, tmp_path: Path) -> None:
    client: Any = None  # nothing is sent
    offsets = RemoteOffsets(client, "billing", LOG) if is_remote else opened(tmp_path)
    seen = []
    for offset, may_lower in ((5, False), (3, False), (3, True), (-1, True), (0, True), (4, False)):
        offsets.update(QUEUES[0], Position(offset), may_lower=may_lower)
        seen.append(offsets.get(QUEUES[0]))
    assert seen == [5, 5, 3, 3, 0, 4]


def test_each_member_and_group_has_its_own_file(tmp_path: Path) -> None:
    offsets = written(tmp_path, {QUEUES[0]: 5})
    assert offsets.path == tmp_path / "10.0.0.1@till" / "billing" / "offsets.json"
    assert opened(tmp_path).get(QUEUES[0]) == 5
    assert opened(tmp_path).get(QUEUES[1]) == -1


def test_a_broken_file_gives_way_to_the_one_before(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    offsets = written(tmp_path, {QUEUES[0]: 5}, {QUEUES[0]: 9})
    offsets.path.write_bytes(b'{"offsetTable":{')
    assert opened(tmp_path).get(QUEUES[0]) == 5
    assert "cannot be read" in caplog.text


def test_a_missing_file_gives_way_too(tmp_path: Path) -> None:
    offsets = written(tmp_path, {QUEUES[0]: 5}, {QUEUES[0]: 9})
    offsets.path.unlink()
    assert opened(tmp_path).get(QUEUES[0]) == 5


def test_nothing_is_written_when_nothing_changed(tmp_path: Path) -> None:
    offsets = written(tmp_path, {QUEUES[0]: 5})
    offsets.path.unlink()
    offsets.update(QUEUES[0], Position(5))
    asyncio.run(offsets.persist(QUEUES))
    assert not offsets.path.exists()


def test_progress_goes_back_only_when_it_is_sought(tmp_path: Path) -> None:
    offsets = written(tmp_path, {QUEUES[0]: 5})
    offsets.update(QUEUES[0], Position(3))
    assert offsets.get(QUEUES[0]) == 5
    offsets.update(QUEUES[0], Position(3), may_lower=True)
    assert offsets.get(QUEUES[0]) == 3


def test_what_could_not_be_written_is_written_the_next_time(tmp_path: Path) -> None:
    offsets = opened(tmp_path / "offsets")
    (tmp_path / "offsets").write_text("in the way")
    offsets.update(QUEUES[0], Position(5))
    asyncio.run(offsets.persist(QUEUES))
    with pytest.raises(OSError, match="offsets"):
        asyncio.run(offsets.persist(QUEUES, raises=True))
    (tmp_path / "offsets").unlink()
    asyncio.run(offsets.persist(QUEUES))
    assert opened(tmp_path / "offsets").get(QUEUES[0]) == 5


def one_broker() -> Any:
    """A client that knows one broker, which has no sessions."""
    table = SimpleNamespace(address=lambda name: "10.0.0.3:10911")
    sessions = SimpleNamespace(name=lambda address: "")
    return SimpleNamespace(route_table=table, sessions=sessions)


def test_a_commit_that_ends_after_its_queue_was_released_blocks_no_later_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    offsets = RemoteOffsets(one_broker(), "billing", LOG)
    commits: list[int] = []

    async def commit(client: Any, group: str, queue: MessageQueue, position: Position) -> str:
        commits.append(position.offset)
        if len(commits) == 1:
            offsets.forget(queue)
        return "10.0.0.3:10911"

    monkeypatch.setattr(offset_stores, "commit_offset", commit)
    for _ in range(3):  # the queue was taken again, and consumed up to the same offset
        offsets.update(QUEUES[0], Position(5))
        asyncio.run(offsets.persist(QUEUES))
    assert commits == [5, 5]


def test_a_queue_that_comes_back_has_its_progress_stored_although_it_is_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another member may have stored another one meanwhile."""
    offsets = RemoteOffsets(one_broker(), "billing", LOG)
    commits: list[int] = []

    async def commit(client: Any, group: str, queue: MessageQueue, position: Position) -> str:
        commits.append(position.offset)
        return "10.0.0.3:10911"

    monkeypatch.setattr(offset_stores, "commit_offset", commit)
    for _ in range(2):
        offsets.update(QUEUES[0], Position(5))
        asyncio.run(offsets.persist(QUEUES))
        offsets.forget(QUEUES[0])
    assert commits == [5, 5]
