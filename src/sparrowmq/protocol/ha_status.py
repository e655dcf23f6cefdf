"""Replication status: the answer to request 907, which `mqadmin haStatus` prints, and SparrowMQ's
list of slaves, which includes those that are away."""

from sparrowmq.protocol.body import Body


class SlaveStatus(Body, frozen=True, kw_only=True):
    """One slave from its master's view (HAConnectionRuntimeInfo)."""

    addr: str
    slave_ack_offset: int
    diff: int
    """Bytes of the master's log that the slave has not acknowledged."""
    in_sync: bool
    transferred_byte_in_second: int = 0
    transfer_from_where: int = 0
    """The log offset to be sent next."""


class FollowerStatus(Body, frozen=True, kw_only=True):
    """A slave from its own view (HAClientRuntimeInfo). All empty on a master."""

    master_addr: str = ""
    max_offset: int = 0
    last_read_timestamp: int = 0
    last_write_timestamp: int = 0
    master_flush_offset: int = 0
    transferred_byte_in_second: int = 0
    activated: bool = False


class HaStatus(Body, frozen=True, kw_only=True):
    """The answer to request 907 (HARuntimeInfo)."""

    master: bool
    master_commit_log_max_offset: int = 0
    in_sync_slave_nums: int = 0
    ha_connection_info: tuple[SlaveStatus, ...] = ()
    ha_client_runtime_info: FollowerStatus = FollowerStatus()


class RememberedSlave(Body, frozen=True, kw_only=True):
    """A slave for which a master keeps log files, and which it asks after a power cut."""

    broker_id: int
    address: str
    follows: bool
    acknowledged: int = 0
    """It had everything before this log offset when it was last heard from."""
    heard_ms: int = 0
    """When that was, by the master's clock; 0 if unknown."""


class SlaveList(Body, frozen=True, kw_only=True):
    """The answer to request 30004."""

    log_end: int
    """End of the master's log."""
    slaves: tuple[RememberedSlave, ...] = ()
