"""The state of replication: for requests 907 and 30004, runtime information, and metrics.

A slave's lag is measured in bytes of the log. People ask for seconds: the age of the last message
that the slave has, while it lacks the next one; and how long ago its master was last heard from,
while it follows none. Clocks of two machines differ, so a few seconds mean nothing.
"""

import asyncio
from dataclasses import dataclass, field
from typing import NamedTuple

from sparrowmq.broker.replication.follower import Follower
from sparrowmq.broker.replication.replication import Replication
from sparrowmq.broker.replication.slave_link import SlaveLink
from sparrowmq.clock import Clock
from sparrowmq.protocol.ha_status import (
    FollowerStatus,
    HaStatus,
    RememberedSlave,
    SlaveList,
    SlaveStatus,
)

_SHORTEST_MS = 1_000
OWN_LOG = 0
"""The key of a slave's own log among the rates."""


class _Look(NamedTuple):
    at_ms: int
    log_offset: int
    rate: int


@dataclass(slots=True)
class ReplicationFigures:
    """Figures that only operators look at."""

    monotonic: Clock
    master_flushed: int = 0
    """What request 908 set on a slave. It is only shown: nothing here depends on it."""
    _looks: dict[int, _Look] = field(default_factory=dict)

    def rate(self, slave_id: int, log_offset: int) -> int:
        """Bytes a second since the last call; the same figure for calls within a second."""
        now_ms = self.monotonic()
        last = self._looks.get(slave_id, _Look(now_ms, log_offset, 0))
        if now_ms - last.at_ms >= _SHORTEST_MS:
            grown = max(0, log_offset - last.log_offset)
            last = _Look(now_ms, log_offset, grown * 1000 // (now_ms - last.at_ms))
        self._looks[slave_id] = last
        return last.rate


def ha_status(replication: Replication, figures: ReplicationFigures, now_ms: int) -> HaStatus:
    """What request 907 answers; `now_ms` is the time of day."""
    if replication.follower is not None:
        return HaStatus(master=False, ha_client_runtime_info=_own(replication, figures, now_ms))
    end = replication.store.max_log_offset
    links = sorted(replication.feed.links.items())
    return HaStatus(
        master=True,
        master_commit_log_max_offset=end,
        in_sync_slave_nums=replication.replicas.in_sync(end) - 1,
        ha_connection_info=tuple(_slave(replication, figures, link, end) for _, link in links),
    )


def _slave(
    replication: Replication, figures: ReplicationFigures, link: SlaveLink, end: int
) -> SlaveStatus:
    host, port = link.peer
    behind = end - link.acknowledged
    return SlaveStatus(
        addr=replication.known_slaves.addresses.get(link.slave_id, f"{host}:{port}"),
        slave_ack_offset=link.acknowledged,
        diff=behind,
        in_sync=behind <= replication.replicas.max_gap_bytes,
        transferred_byte_in_second=figures.rate(link.slave_id, link.position),
        transfer_from_where=link.position,
    )


def _own(replication: Replication, figures: ReplicationFigures, now_ms: int) -> FollowerStatus:
    follower = replication.follower
    assert follower is not None
    end = replication.store.max_log_offset
    heard_ms = 0
    if follower.heard_s:
        heard_ms = now_ms - round(1000 * (asyncio.get_running_loop().time() - follower.heard_s))
    return FollowerStatus(
        master_addr=follower.master_address,
        max_offset=end,
        last_read_timestamp=heard_ms,
        last_write_timestamp=heard_ms,  # every chunk is answered with a report
        master_flush_offset=figures.master_flushed,
        transferred_byte_in_second=figures.rate(OWN_LOG, end),
        activated=bool(follower.master_address),
    )


def slave_list(replication: Replication, now_ms: int) -> SlaveList:
    """What request 30004 answers: every slave that a master remembers."""
    replication.note_heard(now_ms)
    slaves = sorted(replication.known_slaves.slaves.items())
    return SlaveList(
        log_end=replication.store.max_log_offset,
        slaves=tuple(
            RememberedSlave(
                broker_id=slave_id,
                address=slave.address,
                follows=slave_id in replication.feed.links,
                acknowledged=slave.acknowledged,
                heard_ms=slave.heard_ms,
            )
            for slave_id, slave in slaves
        ),
    )


def replication_table(replication: Replication, now_ms: int) -> dict[str, object]:
    """For the runtime information. Apache's has nothing on replication, so the names are ours."""
    store, replicas = replication.store, replication.replicas
    end = store.max_log_offset
    values: dict[str, object] = {"replicationRole": replication.role.value}
    follower = replication.follower
    if follower is None:
        behind = [end - offset for offset in replicas.acknowledged.values()]
        return values | {
            "slavesFollowing": len(behind),
            "copiesInSync": replicas.in_sync(end),
            "copiesWanted": replicas.wanted,
            "slavesBehindBytes": max(behind, default=0),
        }
    behind_bytes, behind_s = behind_master(replication, follower, now_ms)
    return values | {
        "masterAddr": follower.master_address,
        "behindMasterBytes": behind_bytes,
        "behindMasterSeconds": behind_s,
    }


def behind_master(replication: Replication, follower: Follower, now_ms: int) -> tuple[int, float]:
    """How many bytes of its master's log a slave lacks, and the seconds that they stand for: -1 if
    those are not known, because no master was heard from yet or the log is empty."""
    store = replication.store
    behind_bytes = max(0, follower.master_end - store.max_log_offset)
    if not follower.master_address:
        now_s = asyncio.get_running_loop().time()
        return behind_bytes, round(now_s - follower.heard_s, 3) if follower.heard_s else -1
    if not behind_bytes:
        return 0, 0
    stored_ms = store.store_time(store.last_record_offset)
    return behind_bytes, -1 if stored_ms < 0 else max(0, now_ms - stored_ms) / 1000
