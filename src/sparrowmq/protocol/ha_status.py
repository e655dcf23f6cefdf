"""How replication is doing: as request 907 answers it and `mqadmin haStatus` prints it, and, with
slaves that are away, as SparrowMQ's masters list it."""

from sparrowmq.protocol.body import Body


class SlaveStatus(Body, frozen=True, kw_only=True):
    """One slave, as its master sees it (HAConnectionRuntimeInfo)."""

    addr: str
    slave_ack_offset: int
    diff: int
    """Bytes of the master's log that the slave has not acknowledged."""
    in_sync: bool
    transferred_byte_in_second: int = 0
    transfer_from_where: int = 0
    """The log offset that is sent next."""


class FollowerStatus(Body, frozen=True, kw_only=True):
    """A slave, as it sees itself (HAClientRuntimeInfo). All empty on a master."""

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
    """A slave that a master keeps log files for, and asks after a power cut."""

    broker_id: int
    address: str
    follows: bool
    acknowledged: int = 0
    """It had everything before this log offset when it was last heard of."""
    heard_ms: int = 0
    """The time of day then, by the master's clock; 0 when that is not known."""


class SlaveList(Body, frozen=True, kw_only=True):
    """The answer to request 30004."""

    log_end: int
    """Of the master."""
    slaves: tuple[RememberedSlave, ...] = ()
