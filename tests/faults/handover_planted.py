"""Planted bugs of queue hand-over, which the judges must notice."""

import pytest

from sparrowmq.client.broker_calls import Position
from sparrowmq.client.group.held_queue import HeldQueue
from sparrowmq.client.group.queue_ownership import QueueOwnership


def plant_no_draining(monkeypatch: pytest.MonkeyPatch) -> None:
    """Running handlers, and the lock around an ordered one, are not waited for."""

    async def at_once(held: HeldQueue, within_s: float) -> None:
        """As if no handler ran."""

    monkeypatch.setattr(HeldQueue, "handlers_end", at_once)
    monkeypatch.setattr(HeldQueue, "is_running", False)


def plant_early_commits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages count as consumed once they are pulled."""

    def commit_early(ownership: QueueOwnership, held: HeldQueue) -> None:
        if not held.is_dropped:
            ownership.offsets.update(held.queue, Position(held.next_offset))

    monkeypatch.setattr(QueueOwnership, "note_progress", commit_early)
