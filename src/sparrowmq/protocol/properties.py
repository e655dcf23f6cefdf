"""Message properties: `name \\x01 value \\x02 …`, and the names with a special meaning."""

from collections.abc import Mapping

KEY_SEPARATOR = " "
"""Separates the keys of one message."""

MAX_PROPERTIES_BYTES = 32_767
"""The length is a signed short in a record."""

KEYS = "KEYS"
TAGS = "TAGS"
WAIT_STORE_OK = "WAIT"
DELAY_LEVEL = "DELAY"
RETRY_TOPIC = "RETRY_TOPIC"
REAL_TOPIC = "REAL_TOPIC"
REAL_QUEUE_ID = "REAL_QID"
TRANSACTION_PREPARED = "TRAN_MSG"
PRODUCER_GROUP = "PGROUP"
MIN_OFFSET = "MIN_OFFSET"
MAX_OFFSET = "MAX_OFFSET"
BUYER_ID = "BUYER_ID"
ORIGIN_MESSAGE_ID = "ORIGIN_MESSAGE_ID"
TRANSFER_FLAG = "TRANSFER_FLAG"
CORRECTION_FLAG = "CORRECTION_FLAG"
MQ2_FLAG = "MQ2_FLAG"
RECONSUME_TIME = "RECONSUME_TIME"
MSG_REGION = "MSG_REGION"
TRACE_SWITCH = "TRACE_ON"
UNIQUE_KEY = "UNIQ_KEY"
EXTEND_UNIQUE_INFO = "EXTEND_UNIQ_INFO"
MAX_RECONSUME_TIMES = "MAX_RECONSUME_TIMES"
CONSUME_START_TIME = "CONSUME_START_TIME"
INNER_NUM = "INNER_NUM"
INNER_BASE = "INNER_BASE"
DUP_INFO = "DUP_INFO"
CHECK_IMMUNITY_TIME_S = "CHECK_IMMUNITY_TIME_IN_SECONDS"
TRANSACTION_PREPARED_QUEUE_OFFSET = "TRAN_PREPARED_QUEUE_OFFSET"
TRANSACTION_ID = "__transactionId__"
TRANSACTION_CHECK_TIMES = "TRANSACTION_CHECK_TIMES"
INSTANCE_ID = "INSTANCE_ID"
CORRELATION_ID = "CORRELATION_ID"
REPLY_TO_CLIENT = "REPLY_TO_CLIENT"
TTL = "TTL"
REPLY_ARRIVE_TIME = "ARRIVE_TIME"
PUSH_REPLY_TIME = "PUSH_REPLY_TIME"
CLUSTER = "CLUSTER"
MESSAGE_TYPE = "MSG_TYPE"
POP_CK = "POP_CK"
POP_CK_OFFSET = "POP_CK_OFFSET"
FIRST_POP_TIME = "1ST_POP_TIME"
SHARDING_KEY = "__SHARDINGKEY"
TRACE_CONTEXT = "TRACE_CONTEXT"
INNER_MULTI_DISPATCH = "INNER_MULTI_DISPATCH"
INNER_MULTI_QUEUE_OFFSET = "INNER_MULTI_QUEUE_OFFSET"
TIMER_DELAY_S = "TIMER_DELAY_SEC"
TIMER_DELAY_MS = "TIMER_DELAY_MS"
TIMER_DELIVER_MS = "TIMER_DELIVER_MS"
TIMER_ENQUEUE_MS = "TIMER_ENQUEUE_MS"
TIMER_DEQUEUE_MS = "TIMER_DEQUEUE_MS"
TIMER_ROLL_TIMES = "TIMER_ROLL_TIMES"
TIMER_OUT_MS = "TIMER_OUT_MS"
TIMER_DELETE_UNIQUE_KEY = "TIMER_DEL_UNIQKEY"
TIMER_DELAY_LEVEL = "TIMER_DELAY_LEVEL"
BORN_HOST = "__BORNHOST"
BORN_TIMESTAMP = "BORN_TIMESTAMP"
DLQ_ORIGIN_TOPIC = "DLQ_ORIGIN_TOPIC"
DLQ_ORIGIN_MESSAGE_ID = "DLQ_ORIGIN_MESSAGE_ID"
CRC32 = "__CRC32#"
DIVERTED_FROM = "DIVERTED_FROM"
"""Ours: the topic whose limit refused the message before it was sent to another topic."""

REPLY_MESSAGE_TYPE = "reply"
"""Value of MSG_TYPE in the reply to a request message."""

SYSTEM_PROPERTIES = frozenset(
    {
        *(KEYS, TAGS, WAIT_STORE_OK, DELAY_LEVEL, RETRY_TOPIC, REAL_TOPIC, REAL_QUEUE_ID),
        *(TRANSACTION_PREPARED, PRODUCER_GROUP, MIN_OFFSET, MAX_OFFSET, BUYER_ID),
        *(ORIGIN_MESSAGE_ID, TRANSFER_FLAG, CORRECTION_FLAG, MQ2_FLAG, RECONSUME_TIME),
        *(MSG_REGION, TRACE_SWITCH, UNIQUE_KEY, EXTEND_UNIQUE_INFO, MAX_RECONSUME_TIMES),
        *(CONSUME_START_TIME, DUP_INFO, TRANSACTION_PREPARED_QUEUE_OFFSET, INSTANCE_ID),
        *(CORRELATION_ID, REPLY_TO_CLIENT, TTL, REPLY_ARRIVE_TIME, PUSH_REPLY_TIME, CLUSTER),
        *(MESSAGE_TYPE, POP_CK, POP_CK_OFFSET, FIRST_POP_TIME, INNER_MULTI_QUEUE_OFFSET),
        *(TIMER_DELAY_S, TIMER_DELAY_MS, TIMER_DELIVER_MS, TIMER_ENQUEUE_MS, TIMER_DEQUEUE_MS),
        *(TIMER_ROLL_TIMES, TIMER_OUT_MS, TIMER_DELETE_UNIQUE_KEY, TIMER_DELAY_LEVEL),
        *(BORN_HOST, BORN_TIMESTAMP, DLQ_ORIGIN_TOPIC, DLQ_ORIGIN_MESSAGE_ID, CRC32),
    }
)
"""Names that users cannot set, as Apache's MessageConst lists them."""


def format_properties(properties: Mapping[str, str]) -> str:
    """The properties as one text.

    Raises ValueError for a name or value that contains a separator, and over 32,767 bytes.
    """
    text = "".join([f"{name}\x01{value}\x02" for name, value in properties.items()])
    if text.count("\x01") != len(properties) or text.count("\x02") != len(properties):
        raise ValueError(_separator_fault(properties))
    size = len(text) if text.isascii() else len(text.encode())
    if size > MAX_PROPERTIES_BYTES:
        raise ValueError(f"properties of {size} bytes, at most {MAX_PROPERTIES_BYTES} allowed")
    return text


def encode_properties(properties: Mapping[str, str]) -> bytes:
    """`format_properties` as bytes, as a record stores them."""
    return format_properties(properties).encode()


def parse_properties(text: str) -> dict[str, str]:
    """The properties in a text; what Java leaves out (no name, no value) is left out too.

    If a name occurs twice, its last value counts.
    """
    try:
        # Nearly always well formed. The checks are C searches, the loop below is not.
        if (
            "\x01\x02" not in text
            and "\x02\x01" not in text
            and text[:1] != "\x01"
            and text[-1:] != "\x01"
        ):
            pairs = text.split("\x02")
            if not pairs[-1]:
                pairs.pop()
            return dict([pair.split("\x01", 1) for pair in pairs])
    except ValueError:  # a pair without a value
        pass
    found: dict[str, str] = {}
    for pair in text.split("\x02"):
        name, _, value = pair.partition("\x01")
        if name and value:
            found[name] = value
    return found


def decode_properties(data: bytes | memoryview) -> dict[str, str]:
    """`parse_properties` for a record's bytes; invalid UTF-8 is replaced, as in Java."""
    return parse_properties(str(data, "utf-8", "replace"))


def find_property(text: str, name: str) -> str | None:
    """One property without decoding the others; if its name occurs twice, the first.

    For the few properties the broker looks at on every send.
    """
    mark = name + "\x01"
    if text.startswith(mark):
        start = len(mark)
    else:
        at = text.find("\x02" + mark)
        if at < 0:
            return None
        start = at + 1 + len(mark)
    end = text.find("\x02", start)
    return (text[start:] if end < 0 else text[start:end]) or None


def _separator_fault(properties: Mapping[str, str]) -> str:
    for name, value in properties.items():
        for text in (name, value):
            if "\x01" in text or "\x02" in text:
                return f"property {name!r} holds \\x01 or \\x02, which separate properties"
    raise AssertionError("a separator was counted")
