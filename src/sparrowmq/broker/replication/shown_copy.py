"""How much of its copy a slave shows to consumers.

Where an acknowledgement takes two copies, a slave that has a message confirms it, and shows it at
once. Where it takes more, the message may be on this slave and the master alone, and the master may
come back without it after a power cut, because it need not ask every slave then. So such a master
says how far it shows its own log: when it accepts the slave, and with its tables, three times a
second. While there is no master the last answer counts.
"""

from collections.abc import Iterable

from sparrowmq.broker.arrivals import Arrivals
from sparrowmq.broker.replication.shown_end import UNLIMITED, ShownEnd
from sparrowmq.store.store import Store


class ShownCopy:
    """What consumers may see of a slave's log."""

    def __init__(self, store: Store, arrivals: Arrivals, shown: ShownEnd) -> None:
        self._store = store
        self._arrivals = arrivals
        self._shown = shown
        self._hidden: dict[tuple[str, int], None] = {}
        """Queues that may have messages past the end that is shown."""
        self._note_hidden()

    @property
    def _is_limited(self) -> bool:
        return self._shown.log_offset != UNLIMITED

    def _note_hidden(self) -> None:
        if self._is_limited:
            self._hidden = dict.fromkeys(self._store.queues())

    def grew(self, queues: Iterable[tuple[str, int]]) -> None:
        """The copy has new messages in these queues."""
        if self._is_limited:
            self._hidden.update(dict.fromkeys(queues))

    def show_to(self, log_offset: int | None) -> None:
        """Show what lies before this log offset, as the master says; None: everything.

        Raises OSError.
        """
        end = UNLIMITED if log_offset is None else log_offset
        if end == self._shown.log_offset:
            return
        was_limited = self._is_limited
        self._shown.set(end)
        self._store.limit_readers(end)
        if not was_limited:
            self._note_hidden()
            return
        for topic, queue_id in self._hidden:
            self._arrivals.announce(topic, queue_id)
        if end >= self._store.max_log_offset:
            self._hidden.clear()
