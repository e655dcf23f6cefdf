"""The tables of a broker at one point of its log, as they are sent to another broker of its name.

```
slave    "I have your tables as of these changes of this life; this was committed here"
master   what changed since, the end of its log now, and how far delivery has come
```

A life is one run of a master, identified by the number of the epoch that it began. Every life
restarts the counts of changes, so a slave that has no state of this life gets whole tables, and
after that only what changed. Each table has a separate count. The state is taken atomically, within
one turn of the loop: everything in it is true for a log that ends at `log_end`. Only a whole table
of offsets is copied before, in slices; the changes made meanwhile are put into it in that turn.
"""

import zlib
from collections.abc import Sequence

import msgspec

from sparrowmq.broker.replication.table_rules import OffsetChange
from sparrowmq.protocol.body import DataVersion
from sparrowmq.protocol.broker_stats import MessageRequestModeTable
from sparrowmq.protocol.drain import DrainTable
from sparrowmq.protocol.group_config import SubscriptionGroupConfig
from sparrowmq.protocol.offsets_body import ConsumerOffsetTable
from sparrowmq.protocol.topic_config import TopicConfig
from sparrowmq.store.epochs import EpochTable

_DEFLATED_FROM = 64 * 1024
"""In bytes. Offsets of 100,000 queues are about 5 MB of JSON, and deflate to a tenth of that."""
_MOST_INFLATED = 256 * 1024 * 1024


class StateUnreadable(Exception):
    """A state or question of another broker that cannot be read."""


class TableCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Up to which change a broker has each table of a master; -1 if it has none of it."""

    life: int = 0
    topics: int = -1
    groups: int = -1
    modes: int = -1
    offsets: int = -1
    epoch: int = -1
    """The last epoch; each deletion of a topic begins one."""


class TableQuestion(msgspec.Struct, frozen=True):
    """What the asking broker has."""

    have: TableCounts = TableCounts()
    progress: Sequence[OffsetChange] = ()
    """Offsets that were committed at a slave, for the master to merge."""
    only_progress: bool = False
    """Set by a returning master: it only wants the progress that was made at its slave."""


class TopicsCopied(msgspec.Struct, frozen=True):
    """Topics that changed, or all of them."""

    changed: Sequence[TopicConfig]
    removed: Sequence[str]
    is_whole: bool
    """Whether topics that are not listed do not exist."""
    version: DataVersion


class GroupsCopied(msgspec.Struct, frozen=True):
    """Groups that changed, or all of them."""

    changed: Sequence[SubscriptionGroupConfig]
    removed: Sequence[str]
    is_whole: bool
    forbidden: dict[str, dict[str, int]]
    """Always the whole table of topics that groups must not read."""
    version: DataVersion


class DeletionsCopied(msgspec.Struct, frozen=True):
    """All deletions of topics, and the epochs that they began; None if there are no epochs."""

    epochs: EpochTable | None
    before: dict[str, int]
    """Topic to the log offset at which it was deleted."""


class DeliveryCopied(msgspec.Struct, frozen=True):
    """How far delayed messages are delivered."""

    levels: dict[int, int]
    """Delay level to the queue offset of its next message."""
    timer_marks: Sequence[tuple[int, int]]
    """The time and queue offset of each mark."""
    timers_pending_from: int
    """No timer before this queue offset is pending."""
    clock_steps: Sequence[tuple[int, int]] | None = None
    """Where the log ended when the master's clock was set, and by how many milliseconds. Masters of
    earlier versions, and Apache's, do not send it: then the slave's own clock counts."""


class TableState(msgspec.Struct, frozen=True, kw_only=True):
    """What another broker needs for identical tables; None for a part that did not change."""

    counts: TableCounts
    log_end: int
    topics: TopicsCopied | None = None
    groups: GroupsCopied | None = None
    modes: MessageRequestModeTable | None = None
    progress: Sequence[OffsetChange] | ConsumerOffsetTable | None = None
    """Offsets that changed, or all of them."""
    deletions: DeletionsCopied | None = None
    delivery: DeliveryCopied | None = None
    drain: DrainTable | None = None
    """Small, and always present; masters of earlier versions do not send it."""
    slaves_show_to: int | None = None
    """Up to which log offset slaves may show their copies; None: everything."""


def encode_state(state: TableState) -> tuple[bytes, bool]:
    """The body, and whether it is deflated. Large ones take a while: call it in a worker."""
    body = msgspec.json.encode(state)
    if len(body) < _DEFLATED_FROM:
        return body, False
    return zlib.compress(body, 1), True


def decode_state(body: bytes, *, is_deflated: bool) -> TableState:
    """The state; raises StateUnreadable."""
    try:
        if is_deflated:
            inflate = zlib.decompressobj()
            body = inflate.decompress(body, _MOST_INFLATED)
            if not inflate.eof:
                raise StateUnreadable(f"tables of more than {_MOST_INFLATED} bytes, or cut off")
        return msgspec.json.decode(body, type=TableState)
    except (zlib.error, msgspec.MsgspecError) as error:
        raise StateUnreadable(f"no state of tables: {error}") from error


def decode_question(body: bytes) -> TableQuestion:
    """The question; an empty body asks for everything. Raises StateUnreadable."""
    try:
        return msgspec.json.decode(body, type=TableQuestion) if body else TableQuestion()
    except msgspec.MsgspecError as error:
        raise StateUnreadable(f"no question for tables: {error}") from error
