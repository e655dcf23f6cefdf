"""What this broker tells the other brokers of its name about its log, and a note of its owner.

A log does not say whose it is, and two unrelated logs may have nothing that distinguishes them: one
of them may be empty. So every broker notes its name and cluster in its store, for an operator who
finds a store without its broker (`sparrowmq store follow`).
"""

import logging

import msgspec

from sparrowmq.broker.config import BrokerConfig
from sparrowmq.broker.replication.claims import LogClaim, tail_checksum, tail_range
from sparrowmq.disk.atomic_file import AtomicFile
from sparrowmq.disk.disk import Disk
from sparrowmq.protocol.body import Body
from sparrowmq.protocol.record_layout import BLANK
from sparrowmq.store.epochs import EpochTable
from sparrowmq.store.layout import OWN_DIR
from sparrowmq.store.store import Store

OWNER = f"{OWN_DIR}/owner.json"


class LogOwner(msgspec.Struct, frozen=True):
    """The broker that last used a store."""

    cluster: str
    broker_name: str


def owner_of(disk: Disk) -> LogOwner | None:
    """Whose store this is; None if no broker noted it, as in a store of Apache's broker.

    Raises OSError, or ValueError for a damaged file.
    """
    data = AtomicFile(disk, OWNER).read()
    return None if data is None else msgspec.json.decode(data, type=LogOwner)


def note_owner(disk: Disk, config: BrokerConfig) -> None:
    """Note that this is the broker's store, unless it is noted. Raises DiskFull or OSError."""
    owner = LogOwner(config.cluster_name, config.broker_name)
    if _readable_owner(disk) != owner:
        AtomicFile(disk, OWNER).replace(msgspec.json.encode(owner))


def is_anothers(disk: Disk, config: BrokerConfig, log: logging.Logger) -> bool:
    """Whether another broker used this store last, which is logged: a broker that was renamed goes
    on with its store. Raises OSError."""
    owner = _readable_owner(disk)
    if owner is None or owner == LogOwner(config.cluster_name, config.broker_name):
        return False
    log.warning(
        "%s was last used by broker %s of cluster %s, and this is %s of %s: if it was not renamed,"
        " stop it now and correct --data or --broker-name",
        *(config.data_dir, owner.broker_name, owner.cluster),
        *(config.broker_name, config.cluster_name),
    )
    return True


def _readable_owner(disk: Disk) -> LogOwner | None:
    try:
        return owner_of(disk)
    except ValueError:
        return None


class LogDescription(Body, frozen=True, kw_only=True):
    """A log's claim, and everything that is known about its epochs."""

    claim: LogClaim
    epochs: EpochTable
    follows: str = ""
    """host:port of the master from which it copies now; empty if there is none."""
    is_waiting: bool = False
    """Whether it is a master that takes no messages yet."""
    slaves_show_to: int | None = None
    """Up to where slaves may show their copies of it; None: everything."""


def describe_log(
    config: BrokerConfig,
    store: Store,
    port: int,
    *,
    follows: str = "",
    is_waiting: bool = False,
    slaves_show_to: int | None = None,
) -> LogDescription:
    """The log as it is now. Reads up to 64 KiB of its end, which is usually in memory."""
    begin, file_size = store.min_log_offset, store.config.log_file_size
    start, end = tail_range(file_size, begin, _last_record_end(store))
    # Where this log was damaged it differs from its copies.
    start = max([start, *(each.end for each in store.recovered.filled if each.end <= end)])
    return LogDescription(
        claim=LogClaim(
            cluster=config.cluster_name,
            broker_name=config.broker_name,
            broker_id=config.broker_id,
            address=config.address(port),
            file_size=file_size,
            begin=begin,
            end=store.max_log_offset,
            lineage=tuple(store.epochs.lineage),
            tail_start=start,
            tail_end=end,
            tail_crc=tail_checksum(store.read_log, start, end) or 0,
        ),
        epochs=store.epochs.table(),
        follows=follows,
        is_waiting=is_waiting,
        slaves_show_to=slaves_show_to,
    )


def comparable_bytes(store: Store, log_offset: int, count: int) -> bytes:
    """Bytes of the log to compare with a copy's: none where damage was filled, which says nothing
    about the history of the two."""
    end = log_offset + count
    if any(each.start < end and log_offset < each.end for each in store.recovered.filled):
        return b""
    return store.read_log(log_offset, count)


def _last_record_end(store: Store) -> int:
    offset = store.last_record_offset
    if offset < store.min_log_offset:
        return store.min_log_offset
    head = store.read_log(offset, BLANK.size)
    return offset + BLANK.unpack(head)[0] if len(head) == BLANK.size else store.min_log_offset
