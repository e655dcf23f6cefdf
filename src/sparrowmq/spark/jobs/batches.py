"""How ranges are cut into batches that fill the queues of another topic evenly.

The sink sends the rows of a task to the queues in turn. A task whose rows are a multiple of the
queues gives each of them the same number, so a batch takes a multiple of that from every range; the
rests, fewer than queues each, go in the last batch, in one task.
"""

from dataclasses import dataclass

from sparrowmq.spark.offsets import Offsets, QueueRange, share_out


@dataclass(frozen=True, slots=True)
class Batch:
    """What is sent before the next commit."""

    ranges: list[QueueRange]
    is_rest: bool


def next_batch(done: Offsets, ends: Offsets, limit: int, unit: int) -> Batch | None:
    """The batch behind `done`, None at the end. About `limit` messages, at least one `unit`.

    The same arguments give the same batch: a run that died repeats what it did.
    """
    left = {queue: end - done[queue] for queue, end in sorted(ends.items()) if end > done[queue]}
    if not left:
        return None
    # Counted in units, a share of the limit is what `share_out` gives.
    units = {queue: size // unit for queue, size in left.items()}
    if not any(units.values()):
        ranges = [QueueRange(queue, done[queue], ends[queue]) for queue in left]
        return Batch(ranges, is_rest=True)
    shares = share_out(dict.fromkeys(units, 0), units, max(1, limit // unit))
    ranges = [
        QueueRange(queue, done[queue], done[queue] + share * unit)
        for queue, share in shares.items()
        if share
    ]
    return Batch(ranges, is_rest=False)
