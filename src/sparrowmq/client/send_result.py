"""What a send came to."""

from enum import StrEnum

import msgspec

from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.message import MessageQueue


class SendStatus(StrEnum):
    """How safe a stored message is. Only SEND_OK is all that was asked for."""

    SEND_OK = "SEND_OK"
    FLUSH_DISK_TIMEOUT = "FLUSH_DISK_TIMEOUT"
    """Stored, but not synced to the disk in time."""
    FLUSH_SLAVE_TIMEOUT = "FLUSH_SLAVE_TIMEOUT"
    """Stored, but a slave did not confirm in time."""
    SLAVE_NOT_AVAILABLE = "SLAVE_NOT_AVAILABLE"
    """Stored, but there is no slave to hold the second copy."""


STATUS_OF_CODE = {
    int(ResponseCode.SUCCESS): SendStatus.SEND_OK,
    int(ResponseCode.FLUSH_DISK_TIMEOUT): SendStatus.FLUSH_DISK_TIMEOUT,
    int(ResponseCode.FLUSH_SLAVE_TIMEOUT): SendStatus.FLUSH_SLAVE_TIMEOUT,
    int(ResponseCode.SLAVE_NOT_AVAILABLE): SendStatus.SLAVE_NOT_AVAILABLE,
}


class SendResult(msgspec.Struct, frozen=True, kw_only=True):
    """Where a message ended up and how safe it is there."""

    status: SendStatus
    msg_id: str
    """The unique id, made by the client; of a batch all of them with commas between."""
    offset_msg_id: str
    """The id that names broker and log offset."""
    queue: MessageQueue
    queue_offset: int
    transaction_id: str = ""
    recall_handle: str = ""
    """What to recall a message with that has a delivery time; empty for others, also with a delay
    level."""
    diverted_from: str = ""
    """The topic whose limit refused the message, where the producer diverts it (`when_refused`):
    then `queue` is one of the other topic."""

    @property
    def is_ok(self) -> bool:
        """Whether it is as safe as was asked for."""
        return self.status is SendStatus.SEND_OK
