"""Requests that end transactions: commit, rollback, or outcome not known yet."""

from functools import partial

from sparrowmq.broker.broker import Broker
from sparrowmq.broker.delivery import transactions
from sparrowmq.broker.delivery.half_messages import immunity_ms
from sparrowmq.broker.delivery.placement import fields_of
from sparrowmq.broker.send_checks import store_refusal
from sparrowmq.disk.errors import DiskFull
from sparrowmq.net.audit import audit
from sparrowmq.net.errors import RequestRefused
from sparrowmq.net.routes import Handled, Reply, Request, Routes
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.errors import BodyError
from sparrowmq.protocol.headers.transactions import EndTransaction, ResumeCheckHalfMessage
from sparrowmq.protocol.ids import OffsetId
from sparrowmq.protocol.names import TRANS_CHECK_MAX_TIME_TOPIC, TRANS_HALF_TOPIC
from sparrowmq.protocol.properties import CHECK_IMMUNITY_TIME_S, PRODUCER_GROUP, REAL_TOPIC
from sparrowmq.protocol.record import Record
from sparrowmq.protocol.sys_flag import TRANSACTION_COMMIT, TRANSACTION_NONE, TRANSACTION_ROLLBACK
from sparrowmq.store.errors import MessageTooLarge, StoreStopped

routes: Routes[Broker] = Routes()


@routes.on(EndTransaction)
def end_transaction(broker: Broker, request: Request[EndTransaction]) -> Handled:
    """End a transaction; ending it again changes nothing. Like Apache's, a slave ends none."""
    if broker.slave_reads is not None:
        refusal = str(broker.store.admission.refusal)
        raise RequestRefused(ResponseCode.SLAVE_NOT_AVAILABLE, refusal)
    header, clock = request.header, broker.delivery.clock
    now_ms = clock.now_ms()
    if not clock.is_saved:  # a committed message may have to wait for its time
        return broker.saving.handle_when_saved(clock, partial(end_transaction, broker, request))
    kind = header.commit_or_rollback
    if kind not in (TRANSACTION_NONE, TRANSACTION_COMMIT, TRANSACTION_ROLLBACK):
        text = f"commitOrRollback is {kind}, must be 0 (unknown), 8 (commit) or 12 (rollback)"
        raise RequestRefused(ResponseCode.INVALID_PARAMETER, text)
    if kind == TRANSACTION_NONE:
        return Reply()  # the producer will be asked again
    record, fields = _half_record(broker, header)
    half = broker.delivery.halves.get(record.queue_offset)
    if half is None:
        return Reply(remark="this transaction has ended before")
    if not header.from_transaction_check:
        _refuse_late(broker, record, fields, half.checks)
    try:
        if kind == TRANSACTION_COMMIT:
            transactions.commit(broker, half, record, fields, now_ms)
            broker.delivery.committed[fields[REAL_TOPIC]] += 1  # it is there: it was delivered
        else:
            broker.traffic.dedup.half_ends(broker, half, fields)
            transactions.end(broker, half)
            if REAL_TOPIC in fields:
                broker.delivery.rolled_back[fields[REAL_TOPIC]] += 1
    except (DiskFull, StoreStopped) as error:
        raise store_refusal(error) from error
    end = broker.store.max_log_offset
    return broker.durability.reply_when_safe(request, Reply(), end)


@routes.on(ResumeCheckHalfMessage)
def resume_check(broker: Broker, request: Request[ResumeCheckHalfMessage]) -> Reply | None:
    """Ask the producers again about a transaction that was given up, as if for the first time.

    As with Apache, the message also stays where it was kept.
    """
    try:
        log_offset = OffsetId.parse(request.header.msg_id).log_offset
    except BodyError as error:
        raise RequestRefused(ResponseCode.INVALID_PARAMETER, str(error)) from error
    record = broker.store.read_record(log_offset)
    if record is None or record.topic != TRANS_CHECK_MAX_TIME_TOPIC:
        text = f"no transaction that was given up is at log offset {log_offset}"
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, text)
    try:
        transactions.resume(broker, record)
    except (DiskFull, StoreStopped, MessageTooLarge) as error:
        raise store_refusal(error) from error
    audit(request, "resumed transaction %d", log_offset)
    end = broker.store.max_log_offset
    return broker.durability.reply_when_safe(request, Reply(), end)


def _half_record(broker: Broker, header: EndTransaction) -> tuple[Record, dict[str, str]]:
    """The requested half message and its properties; Apache makes the same three checks."""
    log_offset = header.commit_log_offset
    record = broker.store.read_record(log_offset)
    if record is None or record.topic != TRANS_HALF_TOPIC:
        text = f"no half message at log offset {log_offset} of {broker.config.broker_name}"
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, text)
    fields = fields_of(record)
    if fields.get(PRODUCER_GROUP) != header.producer_group:
        text = f"the half message at {log_offset} is not one of group {header.producer_group[:200]}"
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, text)
    if record.queue_offset != header.tran_state_table_offset:
        text = (
            f"the half message at {log_offset} has queue offset {record.queue_offset},"
            f" not {header.tran_state_table_offset}"
        )
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, text)
    return record, fields


def _refuse_late(broker: Broker, record: Record, fields: dict[str, str], checks: int) -> None:
    """Refuse a producer that set its own timeout and is late: it has to wait for a check."""
    if not fields.get(CHECK_IMMUNITY_TIME_S):
        return
    limit_ms = immunity_ms(fields, int(broker.config.transaction_timeout_s * 1000))
    if checks or broker.delivery.clock.age_ms(record) > limit_ms:
        text = f"later than the {limit_ms // 1000} s it asked for; the producer will be asked"
        raise RequestRefused(ResponseCode.ILLEGAL_OPERATION, text)
