"""A broker with a planted bug: progress is kept in memory only."""

from sparrowmq.broker.consumer_offsets import ConsumerOffsets
from sparrowmq.broker.tables import OffsetsTable
from sparrowmq.cli.main import main
from sparrowmq.net.workers import Workers


async def _forget(table: OffsetsTable, offsets: ConsumerOffsets, workers: Workers) -> None:
    """Nothing is written."""


if __name__ == "__main__":
    setattr(OffsetsTable, "journal", _forget)  # noqa: B010 - mypy forbids assigning
    setattr(OffsetsTable, "save", _forget)  # noqa: B010 - mypy forbids assigning
    main()
