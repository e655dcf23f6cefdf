"""The answer to a message that was sent again: that of the first, derived from its record.

```
record lies in       queue id    queue offset    recall handle
its own queue        its own     its own         –
a delay level        REAL_QID    its own         –
the timer queue      REAL_QID    its own         from TIMER_OUT_MS
half messages        REAL_QID    its own         –
nowhere any more     as asked    -1              –
```

The queue offset of a waiting message is the one in the queue where it waits, as in the first
answer: the end of a transaction refers to it.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import msgspec

from sparrowmq.net.routes import Handled, Reply, Request
from sparrowmq.protocol.headers.messages import RecallableSent, format_handle
from sparrowmq.protocol.headers.send import AnySend, MessageSent, SpecialMessageSent
from sparrowmq.protocol.names import TIMER_TOPIC
from sparrowmq.protocol.properties import (
    REAL_QUEUE_ID,
    TIMER_OUT_MS,
    UNIQUE_KEY,
    decode_properties,
)
from sparrowmq.protocol.record import Record

if TYPE_CHECKING:
    from sparrowmq.broker.broker import Broker

_GONE = "stored before, and its record has expired since: its place is no longer known"
_ID_DIGITS = 16


def answer_again(broker: "Broker", request: Request[AnySend], log_offset: int) -> Handled:
    """Answer for the message that is already stored at `log_offset`, once that one is safe."""
    record = broker.store.read_record(log_offset)
    if record is None:
        return Reply(_gone(broker, request, log_offset), remark=_GONE)
    reply = Reply(_first_answer(broker, request.header.topic, record))
    return broker.durability.answer_send(request, reply, record.log_offset + record.size)


def answer_batch_again(
    broker: "Broker", request: Request[AnySend], log_offsets: Sequence[int]
) -> Handled:
    """Answer a batch whose messages are all stored already. The position is that of the first."""
    last = broker.store.read_record(max(log_offsets))
    first = broker.store.read_record(log_offsets[0])
    ids = offset_ids(broker, log_offsets)
    if first is None or last is None:
        answer = SpecialMessageSent(
            msg_id=ids, queue_id=max(0, request.header.queue_id), queue_offset=-1
        )
        return Reply(answer, remark=_GONE)
    sent = _first_answer(broker, request.header.topic, first)
    reply = Reply(
        SpecialMessageSent(msg_id=ids, queue_id=sent.queue_id, queue_offset=sent.queue_offset)
    )
    return broker.durability.answer_send(request, reply, last.log_offset + last.size)


def offset_ids(broker: "Broker", log_offsets: Iterable[int]) -> str:
    """Ids as the answer to a batch lists them."""
    return ",".join([f"{broker.id_prefix}{log_offset:016X}" for log_offset in log_offsets])


def stored_offsets(reply: Reply) -> list[int]:
    """Where the messages of a send are stored, as its answer says."""
    sent = reply.header
    assert isinstance(sent, MessageSent | RecallableSent | SpecialMessageSent)
    return [int(one[-_ID_DIGITS:], 16) for one in sent.msg_id.split(",")]


def list_all_ids(reply: Reply, ids: str) -> None:
    """Answer a batch with an id for each of its messages, including those that were left out:
    Java's automatic batching counts them."""
    sent = reply.header
    assert isinstance(sent, SpecialMessageSent)
    reply.header = msgspec.structs.replace(sent, msg_id=ids)


def _gone(broker: "Broker", request: Request[AnySend], log_offset: int) -> MessageSent:
    fields = decode_properties(request.header.properties.encode())
    return MessageSent(
        msg_id=offset_ids(broker, [log_offset]),
        queue_id=max(0, request.header.queue_id),
        queue_offset=-1,
        transaction_id=fields.get(UNIQUE_KEY, ""),
    )


def _first_answer(broker: "Broker", topic: str, record: Record) -> MessageSent | RecallableSent:
    fields = decode_properties(record.properties)
    queue_id, msg_id = record.queue_id, fields.get(UNIQUE_KEY, "")
    if record.topic != topic:
        queue_id = int(fields[REAL_QUEUE_ID])
    ids = offset_ids(broker, [record.log_offset])
    if record.topic != TIMER_TOPIC:
        return MessageSent(
            msg_id=ids,
            queue_id=queue_id,
            queue_offset=record.queue_offset,
            transaction_id=msg_id,
        )
    # One past the beginning of the slot, as at its placement
    time_ms = int(fields[TIMER_OUT_MS]) + 1
    return RecallableSent(
        msg_id=ids,
        queue_id=queue_id,
        queue_offset=record.queue_offset,
        transaction_id=msg_id,
        recall_handle=format_handle(topic, broker.config.broker_name, time_ms, msg_id),
    )
