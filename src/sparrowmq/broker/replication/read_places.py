"""To which broker of a name a consumer's next pull should go: the master, or a slave.

```
master ── reads from the device and is far from the end, or the master is busy ──▶ slave
slave  ── close to the end, and the master is there ─────────────────────────────▶ master
```

Every answer to a pull suggests a broker id, and clients follow it queue by queue. A slave that has
the messages reads an old backlog just as well as its master, which keeps its memory and its device
for new messages.

A consumer must not bounce between the two. It leaves the master when it has to wait for the device
and is further from the end of the log than `slave_read_gap_bytes`; it returns when it is within
half of that, and no sooner than STAY_S after it came. The two distances are measured on two
machines with different page caches, so without this gap the two could disagree.
"""

from collections.abc import Collection, Mapping
from struct import Struct
from typing import Protocol

from sparrowmq.broker.config import MASTER_ID, BrokerConfig
from sparrowmq.broker.queue_locks import QueueLocks
from sparrowmq.broker.replication.follower import Follower
from sparrowmq.broker.replication.replication import Replication
from sparrowmq.clock import Clock
from sparrowmq.net.errors import RequestRefused
from sparrowmq.net.peers import split_address
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.group_config import SubscriptionGroupConfig
from sparrowmq.protocol.headers.pull import PullMessage
from sparrowmq.protocol.record_layout import AT
from sparrowmq.store.messages import QueueRead
from sparrowmq.store.store import Store

STAY_S = 5.0
"""How long at least a slave keeps a queue's reader that its master sent: a master that is busy for
a while would otherwise get it back with the next pull."""
_LOG_OFFSET = Struct(">q")
_LOG_OFFSET_AT = AT["log_offset"]


def which_broker(
    group: SubscriptionGroupConfig, own_id: int, *, is_slow: bool, others: Collection[int]
) -> int:
    """The broker id that an answer suggests; `others` are brokers that can serve the next pull.

    The group's settings decide, as on Apache's brokers: `whichBrokerWhenConsumeSlowly` for a slow
    read, `brokerId` otherwise. If the broker they name cannot serve, any slave can replace another,
    and a slave can replace the master. A slave keeps a reader that Apache's rule would send to the
    master and back.
    """
    wished = group.which_broker_when_consume_slowly if is_slow else group.broker_id
    if wished == own_id or wished in others:
        return wished
    if own_id != MASTER_ID:
        return own_id
    return min(others, default=MASTER_ID)


def is_slow_read(*, is_away: bool, is_cold: bool, behind_bytes: int, gap_bytes: int) -> bool:
    """Whether a reader belongs on a slave; `is_away` if it is at one now.

    `is_cold`: it had to wait for the device. `behind_bytes`: its distance from the log's end.
    """
    if is_away:
        return behind_bytes > gap_bytes // 2
    return is_cold and behind_bytes > gap_bytes


class ReadPlaces(Protocol):
    """What the pull handler needs to suggest a broker."""

    @property
    def others(self) -> Collection[int]:
        """Empty while every answer suggests the master, so that `suggest` need not be asked."""
        ...

    def suggest(
        self,
        group: SubscriptionGroupConfig,
        header: PullMessage,
        found: QueueRead | None,
        *,
        is_cold: bool,
        is_busy: bool,
    ) -> int:
        """The broker id for this queue's next pull; `found` is a read with messages, or None."""
        ...


class HeldReads(Protocol):
    """What the pull handler needs of a broker whose copy of the log may lack messages: it moves no
    position."""

    @property
    def role(self) -> str:
        """What such a broker is, for texts."""
        ...

    @property
    def master_or_self(self) -> int:
        """The broker id to suggest with a pull that cannot be served here."""
        ...

    def why_not(self, header: PullMessage) -> str:
        """Why this pull must not be served from the copy; empty if it may. Raises RequestRefused
        if no pull may."""
        ...


class WaitingReads:
    """A master that waits for its slaves. It may have lost messages that consumers have seen, and
    hides some: both are there when it serves."""

    role = "a master that waits for its slaves"
    master_or_self = MASTER_ID

    def __init__(self, store: Store) -> None:
        self._store = store

    def why_not(self, header: PullMessage) -> str:
        """Why this pull must not be served yet: another broker may have been the master."""
        if header.epoch is not None and header.epoch > self._store.epochs.current:
            return "this master waits, and does not know the epoch of the offset yet"
        return ""


class MasterReads:
    """A master's suggestions: slaves on other hosts that have the messages."""

    def __init__(self, config: BrokerConfig, replication: Replication) -> None:
        self._gap_bytes = config.slave_read_gap_bytes
        self._host = config.advertised_host
        self._replication = replication
        self.others: Mapping[int, int] = (
            replication.replicas.acknowledged if config.slave_reads else {}
        )
        """The slaves that follow, by broker id. Looked at for every pull."""

    def suggest(
        self,
        group: SubscriptionGroupConfig,
        header: PullMessage,
        found: QueueRead | None,
        *,
        is_cold: bool,
        is_busy: bool,
    ) -> int:
        """The broker id for the next pull of this queue."""
        if not is_busy and not is_cold and group.broker_id == MASTER_ID:
            return MASTER_ID
        end = self._replication.store.max_log_offset
        start, read_to = end, 0
        if found is not None:
            start = _log_offset(found)
            read_to = min(end, start + found.size)
        is_slow = is_busy or is_slow_read(
            is_away=False,
            is_cold=is_cold,
            behind_bytes=end - start,
            gap_bytes=self._gap_bytes,
        )
        slaves = self._slaves_with(read_to, end)
        return which_broker(group, MASTER_ID, is_slow=is_slow, others=slaves)

    def _slaves_with(self, log_offset: int, end: int) -> list[int]:
        """Slaves in sync that have the log up to there. Not those on this host, which would load
        the same device, nor those that said no hello, whose broker id is not known."""
        lowest = max(log_offset, end - self._replication.replicas.max_gap_bytes)
        addresses = self._replication.known_slaves.addresses
        return [
            slave_id
            for slave_id, acknowledged in self.others.items()
            if acknowledged >= lowest
            and slave_id in addresses
            and split_address(addresses[slave_id])[0] != self._host
        ]


class SlaveReads:
    """A slave's suggestions, and the pulls that it must not serve."""

    role = "a slave"

    def __init__(
        self, config: BrokerConfig, replication: Replication, follower: Follower, monotonic: Clock
    ) -> None:
        self._config = config
        self._id = config.broker_id
        self._store = replication.store
        self._follower = follower
        self._visits = Visits(monotonic)
        self._locked_after = 0
        """How often a master had been followed when queues were last locked here."""
        self.others: Collection[int] = (self._id,)

    def why_not(self, header: PullMessage) -> str:
        """Why this pull must not be served from the copy; empty if it may. Raises RequestRefused.

        An epoch that this slave does not know may have begun at a different end of the log than the
        one here; and a log that has diverged from the master's has different messages.
        """
        config = self._config
        if not config.slave_reads:
            # Like Apache's slave: clients try again later, and then find the master.
            text = (
                f"broker {config.broker_name} with the id {config.broker_id} is a slave"
                " and does not answer pulls (slaveReadEnable is false); pull from its master (id 0)"
            )
            raise RequestRefused(ResponseCode.SYSTEM_BUSY, text)
        if self._follower.has_diverged:
            return "this slave's log differs from its master's"
        if header.epoch is not None and header.epoch > self._store.epochs.current:
            return "this slave does not know the epoch of the offset yet"
        return ""

    @property
    def master_or_self(self) -> int:
        """Where to send a pull that this slave cannot serve: to the master, if there is one."""
        follower = self._follower
        return MASTER_ID if follower.master_address or follower.knows_master else self._id

    def suggest(
        self,
        group: SubscriptionGroupConfig,
        header: PullMessage,
        found: QueueRead | None,
        *,
        is_cold: bool,
        is_busy: bool,
    ) -> int:
        """The broker id for the next pull of this queue."""
        follower = self._follower
        is_young = found is not None and self._visits.is_young(header)
        # A master that is registered but not followed may be dead: only a reader that finds
        # nothing more here is sent there to try.
        if not follower.master_address and (found is not None or not follower.knows_master):
            return which_broker(group, self._id, is_slow=False, others=())
        stays = found is not None and not self._is_beside_master
        stays = stays and (is_young or self._is_far_from_end(found))
        if not stays:
            self._visits.end(header)
        return which_broker(group, self._id, is_slow=stays, others=(MASTER_ID,))

    def _is_far_from_end(self, found: QueueRead | None) -> bool:
        return found is not None and is_slow_read(
            is_away=True,
            is_cold=False,
            behind_bytes=self._store.max_log_offset - _log_offset(found),
            gap_bytes=self._config.slave_read_gap_bytes,
        )

    def check_locking(self, locks: QueueLocks) -> None:
        """Raise RequestRefused while the master is there, because the master grants the locks.

        Without a master, Python members lock queues that they consume concurrently here, so that a
        queue changes hands as it does at a master. Ordered members ask masters only: the order must
        not depend on what two brokers know of each other.
        """
        if self._follower.master_address:
            text = f"queues are locked at the master, {self._follower.master_address}"
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, text)
        if self._locked_after != self._follower.times_followed:
            self._locked_after = self._follower.times_followed
            locks.clear()

    @property
    def _is_beside_master(self) -> bool:
        address = self._follower.master_address
        return bool(address) and split_address(address)[0] == self._config.advertised_host


class Visits:
    """When the readers of queues came to a slave."""

    def __init__(self, monotonic: Clock) -> None:
        self._monotonic = monotonic
        self._began_ms: dict[tuple[str, str, int], int] = {}
        """By group, topic and queue."""

    def is_young(self, header: PullMessage) -> bool:
        """Whether the queue's reader, which is here now, came less than STAY_S ago."""
        now_ms = self._monotonic()
        return now_ms - self._began_ms.setdefault(_reader(header), now_ms) < STAY_S * 1000

    def end(self, header: PullMessage) -> None:
        """The reader is sent away: if it comes again, a new visit begins."""
        self._began_ms.pop(_reader(header), None)


def _reader(header: PullMessage) -> tuple[str, str, int]:
    return header.consumer_group, header.topic, header.queue_id


def _log_offset(found: QueueRead) -> int:
    """The log offset of the first message."""
    offset: int = _LOG_OFFSET.unpack_from(found.chunks[0], _LOG_OFFSET_AT)[0]
    return offset
