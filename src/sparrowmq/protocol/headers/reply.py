"""Request-reply: the consumer sends its reply to a broker, which pushes it to the requester."""

from typing import ClassVar

from sparrowmq.protocol.codes import RequestCode
from sparrowmq.protocol.header import RequestHeader
from sparrowmq.protocol.headers.send import SendMessage, SendMessageV2


class SendReply(SendMessage, frozen=True, kw_only=True):
    """A reply message; its property REPLY_TO_CLIENT names the requester."""

    CODE: ClassVar[RequestCode] = RequestCode.SEND_REPLY_MESSAGE


class SendReplyV2(SendMessageV2, frozen=True, kw_only=True):
    """The same with one-letter names."""

    CODE: ClassVar[RequestCode] = RequestCode.SEND_REPLY_MESSAGE_V2


class PushReply(RequestHeader, frozen=True, kw_only=True):
    """A broker pushes a reply to its requester. The body is that of the reply message."""

    CODE: ClassVar[RequestCode] = RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT

    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: int
    queue_id: int
    sys_flag: int
    born_timestamp: int
    flag: int
    properties: str = ""
    reconsume_times: int = 0
    unit_mode: bool = False
    born_host: str
    store_host: str
    store_timestamp: int
