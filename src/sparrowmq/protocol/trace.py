"""Message trace: what happened to a message, in the text that RocketMQ's tools read.

one line   kind \\x01 field \\x01 field … \\x02     several lines are the body of a trace message

`TraceDataEncoder` of Apache's client dictates the fields and their order; it writes the word null
for what a message does not have.
"""

from enum import IntEnum

import msgspec

from sparrowmq.protocol.properties import MSG_REGION, TRACE_SWITCH

DEFAULT_REGION = "DefaultRegion"
REGION_FIELD = {MSG_REGION: DEFAULT_REGION}
TRACE_FIELDS = {**REGION_FIELD, TRACE_SWITCH: "true"}
"""What Apache's brokers add to messages and to the answers of sends, from their settings regionId
and traceOn. Clients send a trace only if they find both."""
_ABSENT = "null"


class TracedKind(IntEnum):
    """The kind of message that was sent; Java's MessageType by ordinal."""

    NORMAL = 0
    HALF = 1
    TRANSACTION_END = 2
    DELAYED = 3


class TracedMessage(msgspec.Struct, frozen=True, kw_only=True):
    """What both kinds of line contain: a message, its sender and its place."""

    time_ms: int
    region: str = DEFAULT_REGION
    group: str
    topic: str
    msg_id: str
    tags: str | None
    keys: str | None
    store_host: str


def format_sent(
    sent: TracedMessage,
    *,
    kind: TracedKind,
    body_bytes: int,
    cost_ms: int,
    offset_msg_id: str,
    is_ok: bool,
) -> str:
    """The line of a message that a broker has stored."""
    fields = (body_bytes, cost_ms, int(kind), offset_msg_id, _java(is_ok))
    return _line("Pub", sent, *fields)


def format_ended(half: TracedMessage, *, state: str, transaction_id: str, is_answer: bool) -> str:
    """The line of a transaction that ended; `is_answer`: because the broker asked."""
    fields = (int(TracedKind.TRANSACTION_END), transaction_id, state, _java(is_answer))
    return _line("EndTransaction", half, *fields)


class TraceOutcome(IntEnum):
    """The result of a call of a consumer's handler: the context code of its trace."""

    SUCCESS = 0
    TIMEOUT = 1
    EXCEPTION = 2
    FAILED = 4
    """The handler wants the messages again. 3, which Java has for null, cannot happen here."""


def format_before(
    *,
    time_ms: int,
    region: str,
    group: str,
    request_id: str,
    msg_id: str,
    attempts: int,
    keys: str | None,
) -> str:
    """The line of a message that a handler is about to get, after `attempts` earlier ones."""
    fields = (time_ms, region, group, request_id, msg_id, attempts, keys or _ABSENT)
    return _joined("SubBefore", *fields)


def format_after(
    *,
    time_ms: int,
    group: str,
    request_id: str,
    msg_id: str,
    cost_ms: int,
    outcome: TraceOutcome,
    keys: str | None,
) -> str:
    """The line of the same message when the handler has ended."""
    is_ok = _java(outcome is TraceOutcome.SUCCESS)
    fields = (request_id, msg_id, cost_ms, is_ok, keys or _ABSENT, int(outcome), time_ms, group)
    return _joined("SubAfter", *fields)


def format_recalled(*, time_ms: int, group: str, topic: str, msg_id: str, is_ok: bool) -> str:
    """The line of a message that its producer recalled before its delivery, or tried to."""
    fields = (time_ms, DEFAULT_REGION, group, topic, msg_id, _java(is_ok))
    return _joined("Recall", *fields)


def _line(kind: str, message: TracedMessage, *more: object) -> str:
    return _joined(
        kind,
        message.time_ms,
        message.region,
        message.group,
        message.topic,
        message.msg_id,
        message.tags or _ABSENT,
        message.keys or _ABSENT,
        message.store_host,
        *more,
    )


def _joined(*values: object) -> str:
    return "\x01".join(map(str, values)) + "\x02"


def _java(value: bool) -> str:
    return "true" if value else "false"


# ---- reading


class TraceStep(msgspec.Struct, frozen=True, kw_only=True):
    """A line's content. Java's and Go's consumers write lines too: before and after a handler."""

    kind: str
    """Pub, SubBefore, SubAfter, EndTransaction or Recall."""
    msg_id: str
    time_ms: int = 0
    """0 if the line has none, as in SubAfter of clients before 5.0."""
    group: str = ""
    topic: str = ""
    client: str = ""
    """Address of the client, if the line has one."""
    request_id: str = ""
    """Links the lines before and after one call of a handler."""
    took_ms: int | None = None
    is_ok: bool | None = None
    retries: int | None = None
    state: str = ""
    """The state of a transaction, or why a handler failed."""
    offset_msg_id: str = ""


def parse_trace(body: str) -> list[TraceStep]:
    """The lines of a trace message; lines of unknown kinds or with missing fields are left out."""
    steps = []
    for line in body.split("\x02"):
        fields = line.split("\x01")
        read = _READERS.get(fields[0])
        if read is None:
            continue
        try:
            steps.append(read(fields))
        except (IndexError, ValueError):
            continue
    return steps


def _published(fields: list[str]) -> TraceStep:
    # 13 fields before 4.6, then with the offset id, then with the client's host.
    has_place = len(fields) >= 14
    return TraceStep(
        kind="Pub",
        time_ms=int(fields[1]),
        group=fields[3],
        topic=fields[4],
        msg_id=fields[5],
        took_ms=int(fields[10]),
        offset_msg_id=fields[12] if has_place else "",
        is_ok=_truth(fields[13] if has_place else fields[12]),
        client=fields[14] if len(fields) >= 15 else "",
    )


def _begun(fields: list[str]) -> TraceStep:
    return TraceStep(
        kind="SubBefore",
        time_ms=int(fields[1]),
        group=fields[3],
        request_id=fields[4],
        msg_id=fields[5],
        retries=int(fields[6]),
        client=fields[8] if len(fields) >= 9 else "",
    )


def _handled(fields: list[str]) -> TraceStep:
    return TraceStep(
        kind="SubAfter",
        request_id=fields[1],
        msg_id=fields[2],
        took_ms=int(fields[3]),
        is_ok=_truth(fields[4]),
        state=_CONTEXT.get(fields[6], "") if len(fields) >= 7 else "",
        time_ms=int(fields[7]) if len(fields) >= 9 else 0,
        group=fields[8] if len(fields) >= 9 else "",
    )


def _decided(fields: list[str]) -> TraceStep:
    return TraceStep(
        kind="EndTransaction",
        time_ms=int(fields[1]),
        group=fields[3],
        topic=fields[4],
        msg_id=fields[5],
        state=fields[11],
    )


def _recalled(fields: list[str]) -> TraceStep:
    return TraceStep(
        kind="Recall",
        time_ms=int(fields[1]),
        group=fields[3],
        topic=fields[4],
        msg_id=fields[5],
        is_ok=_truth(fields[6]),
    )


def _truth(text: str) -> bool:
    return text == "true"


_CONTEXT = {"1": "timed out", "2": "failed", "3": "returned null", "4": "asked to retry"}
"""Java's ConsumeReturnType by ordinal; 0 is success."""

_READERS = {
    "Pub": _published,
    "SubBefore": _begun,
    "SubAfter": _handled,
    "EndTransaction": _decided,
    "Recall": _recalled,
}
