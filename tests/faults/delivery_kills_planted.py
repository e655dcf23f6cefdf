"""A broker with a planted bug: progress is kept in memory only."""

from sparrowmq.broker.commit_slots import CommitSlots, Place
from sparrowmq.broker.consumer_offsets import ConsumerOffsets
from sparrowmq.broker.tables import OffsetsTable
from sparrowmq.cli.main import main
from sparrowmq.net.workers import Workers


async def _forget(table: OffsetsTable, offsets: ConsumerOffsets, workers: Workers) -> None:
    """Nothing is written."""


def _keep_nothing(slots: CommitSlots, place: Place, offset: int) -> bool:
    """Not even until the next kill."""
    return True


if __name__ == "__main__":
    setattr(OffsetsTable, "journal", _forget)  # noqa: B010 - mypy forbids assigning
    setattr(OffsetsTable, "save", _forget)  # noqa: B010 - mypy forbids assigning
    setattr(CommitSlots, "update", _keep_nothing)  # noqa: B010 - mypy forbids assigning
    main()
