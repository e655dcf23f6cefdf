"""Send back: messages that could not be consumed."""

from functools import partial

from sparrowmq.broker.broker import Broker
from sparrowmq.broker.delivery.placement import append, fields_of
from sparrowmq.broker.delivery.retry import group_of, place_dead_letter, place_retry
from sparrowmq.broker.send_checks import size_fault, store_refusal
from sparrowmq.broker.statistics import SENT_BACK
from sparrowmq.disk.errors import DiskFull
from sparrowmq.net.errors import RequestRefused
from sparrowmq.net.routes import Handled, Reply, Request, Routes
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.headers.send import SendBack
from sparrowmq.protocol.properties import RETRY_TOPIC
from sparrowmq.store.errors import MessageTooLarge, StoreStopped

routes: Routes[Broker] = Routes()


@routes.on(SendBack)
def send_back(broker: Broker, request: Request[SendBack]) -> Handled:
    """Store the message again, to be delivered later or as a dead letter. A slave stores nothing:
    clients send the message to another broker, or keep it."""
    if broker.slave_reads is not None:
        raise RequestRefused(ResponseCode.SYSTEM_BUSY, str(broker.store.admission.refusal))
    header, clock = request.header, broker.delivery.clock
    now_ms = clock.now_ms()
    if not clock.is_saved:
        return broker.saving.handle_when_saved(clock, partial(send_back, broker, request))
    group = group_of(broker, header.group)
    if group.retry_queue_nums <= 0:
        return Reply()  # the group's operator switched retries off, as in Apache's broker
    record = broker.store.read_record(header.offset)
    if record is None:
        text = f"no message at log offset {header.offset} of {broker.config.broker_name}"
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, text)
    placement = place_retry(
        broker,
        record,
        group,
        level=header.delay_level,
        most_times=header.max_reconsume_times,
        now_ms=now_ms,
    )
    fault = size_fault(broker, len(placement.put.body), len(placement.put.properties))
    if fault is not None:
        # If it were refused, its consumer would send it back forever.
        broker.log.error("message at %d cannot be retried: %s", header.offset, fault)
        placement = place_dead_letter(broker, record, group)
    try:
        stored = append(broker, placement, now_ms)
    except (DiskFull, StoreStopped, MessageTooLarge) as error:
        raise store_refusal(error) from error
    # Under the topic it was originally sent to, even if it comes from the retry topic
    origin = fields_of(record).get(RETRY_TOPIC, record.topic)
    broker.statistics.count(SENT_BACK, f"{origin}@{header.group}", 1, broker.monotonic())
    if placement.attempts:
        broker.dead_letters.note(placement)
    end = stored.log_offset + stored.size
    # The group moves on as soon as it gets the answer, so success means that the copy is safe.
    # Missing slaves are waited for but not reported: a consumer would send the message back again.
    return broker.durability.reply_when_safe(request, Reply(), end, says_missing_copies=False)
