"""Giving back messages that could not be consumed."""

from sparrowmq.broker.broker import Broker
from sparrowmq.broker.handlers.send import check_size, refusal
from sparrowmq.broker.placement import append
from sparrowmq.broker.retry import given_back, group_of
from sparrowmq.net.errors import RequestRefused
from sparrowmq.net.reply import Reply, Request
from sparrowmq.net.routes import Routes
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.headers.send_back import SendBack
from sparrowmq.protocol.names import is_dlq_topic
from sparrowmq.protocol.record import decode_record
from sparrowmq.store.errors import DiskFull, MessageTooLarge, StoreStopped

routes: Routes[Broker] = Routes()


@routes.on(SendBack)
def send_back(broker: Broker, request: Request[SendBack]) -> Reply | None:
    """Store the message again, to be delivered later or as a dead letter."""
    header = request.header
    group = group_of(broker, header.group)
    if group.retry_queue_nums <= 0:
        return Reply()  # the group's operator switched retries off, as Apache understands it
    found = broker.store.read_message(header.offset)
    if found is None:
        text = f"no message at log offset {header.offset} of {broker.config.broker_name}"
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, text)
    now_ms = broker.clock()
    placement = given_back(
        broker,
        decode_record(found, check_crc=False),
        group,
        level=header.delay_level,
        most_times=header.max_reconsume_times,
        now_ms=now_ms,
    )
    check_size(broker, placement.put)
    try:
        stored = append(broker, placement, now_ms)
    except (DiskFull, StoreStopped, MessageTooLarge) as error:
        raise refusal(error) from error
    if is_dlq_topic(placement.put.topic):
        broker.log.info(
            "group %s gave up message %s after %d attempts",
            header.group,
            placement.put.uniq_key,
            placement.put.reconsume_times,
        )
    end = stored.log_offset + stored.size
    # Its group moves on as soon as it hears of success, so success means that it is safe.
    return broker.durability.reply_when_safe(request, Reply(), end, must_wait=True)
