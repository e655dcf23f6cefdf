"""A planted bug for every kind of fault of a campaign: the checker has to notice each of them.

That of `driver` is in `campaign_stream`: Spark reads in processes that cannot be changed from here.
Bugs are planted by replacing a named part of the product, in a simulation or in a broker's process.
"""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from sparrowmq.broker.consumer_offsets import ConsumerOffsets
from sparrowmq.broker.delivery.delay_levels import DelayLevels
from sparrowmq.broker.positions import Positions
from sparrowmq.client.broker_calls import Position, max_offset
from sparrowmq.client.consuming.pull_loop import PullLoop
from sparrowmq.client.group.held_queue import HeldQueue
from sparrowmq.client.group.offsets import StartOffsets
from sparrowmq.client.group.queue_ownership import QueueOwnership
from sparrowmq.client.route_polls import RoutePolls
from sparrowmq.net.calls import Response
from sparrowmq.net.errors import NetError
from sparrowmq.protocol.message import MessageQueue
from sparrowmq.protocol.subscription import SubscriptionData
from sparrowmq.store import retention
from sparrowmq.store.retention import LogFile
from sparrowmq.testing import sim_nodes
from tests.faults.lying_store import plant_lying_store

Patch = Callable[[Any, str, object], None]
"""Replaces an attribute, as monkeypatch.setattr does."""


def acknowledge_before_append(patch: Patch) -> None:
    """One message in fifty is acknowledged and never stored."""
    plant_lying_store(patch, every=50, is_target=lambda put: b"|" in put.body)


def sync_nothing(patch: Patch) -> None:
    """A flush that is skipped."""
    patch(sim_nodes, "sync_plan", lambda disk, plan: None)


def commit_early(patch: Patch) -> None:
    """What was only pulled counts as consumed."""

    def note_progress(ownership: QueueOwnership, held: HeldQueue) -> None:
        if not held.is_dropped:
            ownership.offsets.update(held.queue, Position(held.next_offset))

    patch(QueueOwnership, "note_progress", note_progress)


def skip_after_failed_pulls(patch: Patch) -> None:
    """A pull that failed counts as if it had brought something."""
    pull = PullLoop.pull

    async def skip(loop: PullLoop, held: HeldQueue, subscription: SubscriptionData) -> Response:
        try:
            return await pull(loop, held, subscription)
        except NetError:
            held.next_offset += 2
            raise

    patch(PullLoop, "pull", skip)


async def _never(polls: RoutePolls) -> None:
    """Ask no other broker."""


def never_ask_again(patch: Patch) -> None:
    """Stop polling routes after no name server answered once."""

    async def run(polls: RoutePolls) -> None:
        while True:
            if not await polls._refresh(polls._members.topics()):
                return
            await asyncio.sleep(10.0)

    patch(RoutePolls, "run", run)
    patch(RoutePolls, "follow_losses", _never)


def believe_the_first_route(patch: Patch) -> None:
    """Poll routes only once."""

    patch(RoutePolls, "run", _never)
    patch(RoutePolls, "follow_losses", _never)


def deliver_at_once(patch: Patch) -> None:
    """Messages with a delay level are due as soon as they are read."""
    patch(DelayLevels, "due_ms", lambda levels, log_offset, unit_ms: 0)


def deliver_late(patch: Patch) -> None:
    """Delay levels wait for ten minutes more."""
    patch(DelayLevels, "due_ms", lambda levels, log_offset, unit_ms: unit_ms + 600_000)


def delete_the_young(patch: Patch) -> None:
    """Retention deletes whatever is not written any more."""

    def all_of_them(config: object, files: list[LogFile], *_: object, **__: object) -> list[int]:
        return [file.start for file in files]

    patch(retention, "files_to_delete", all_of_them)


def believe_every_position(patch: Patch) -> None:
    """Trust a member's position although its queue got shorter or was recreated."""
    patch(Positions, "valid_end", lambda *_: None)


def keep_progress_of_deleted_topics(patch: Patch) -> None:
    """Stored offsets outlive their topic, and positions too."""
    believe_every_position(patch)
    patch(ConsumerOffsets, "remove_topic", lambda offsets, topic: None)


def advance_deleted_groups(patch: Patch) -> None:
    """A deleted group is a few messages further when it comes back."""

    def advance(offsets: ConsumerOffsets, group: str) -> Iterator[None]:
        for topic in offsets.topics_of(group):
            for queue_id, offset in dict(offsets.queues(group, topic)).items():
                offsets.reset(group, topic, queue_id, offset + 5)
        yield

    patch(ConsumerOffsets, "removing_group", advance)


def start_at_the_end(patch: Patch) -> None:
    """A queue without progress begins at its end, and one with progress too."""

    async def at_end(starts: StartOffsets, queue: MessageQueue, stored: object) -> Position:
        return await max_offset(starts.client, queue)

    patch(StartOffsets, "of", at_end)


def reset_too_far(patch: Patch) -> None:
    """A reset skips three messages."""
    reset = ConsumerOffsets.reset

    def further(one: ConsumerOffsets, group: str, topic: str, queue_id: int, offset: int) -> None:
        reset(one, group, topic, queue_id, offset + 3)

    patch(ConsumerOffsets, "reset", further)


@dataclass(frozen=True)
class Planted:
    """A bug, the faults that bring it to light, and how it shows."""

    plant: Callable[[Patch], None]
    kinds: tuple[str, ...]
    """The first is the one that it is the twin of."""
    noticed: tuple[str, ...]
    """The verdict has to hold one of these."""
    faults: int = 3
    seed: int = 1
    sync_flush: bool = True


_SKIPPED = ("skipped", "passed")
_BACKLOG = ("backlogs are left",)
PLANTED = {
    "kill": Planted(acknowledge_before_append, ("kill",), ("lost",)),
    "stop": Planted(acknowledge_before_append, ("stop",), ("lost",)),
    "connections": Planted(skip_after_failed_pulls, ("connections",), _SKIPPED),
    "port": Planted(believe_the_first_route, ("port",), _BACKLOG),
    "power": Planted(sync_nothing, ("power",), ("not durable in a power cut",), faults=2),
    "power, positions": Planted(
        believe_every_position, ("power",), _SKIPPED, faults=6, sync_flush=False
    ),
    "pause": Planted(acknowledge_before_append, ("pause",), ("lost",)),
    "partition": Planted(skip_after_failed_pulls, ("partition",), _SKIPPED),
    "member": Planted(commit_early, ("member",), _SKIPPED),
    "stopped member": Planted(commit_early, ("stopped-member",), _SKIPPED),
    "name server": Planted(never_ask_again, ("name-server", "port"), _BACKLOG, faults=6),
    "clock forward": Planted(deliver_at_once, ("clock-forward",), ("early",)),
    "clock back": Planted(deliver_late, ("clock-back",), ("late", "skipped")),
    "retention": Planted(delete_the_young, ("retention",), ("lost",), faults=6),
    "topic": Planted(keep_progress_of_deleted_topics, ("topic",), _SKIPPED),
    "group": Planted(advance_deleted_groups, ("group",), _SKIPPED, faults=6),
    "grow": Planted(start_at_the_end, ("grow", "member"), ("skipped",), faults=6),
    "shrink": Planted(start_at_the_end, ("shrink", "member"), ("skipped",), faults=6),
    "reset": Planted(reset_too_far, ("reset",), ("not handled again after a reset",)),
}
