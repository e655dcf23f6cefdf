"""Decides about one message: where it is, and how far each group is with it."""

from collections.abc import Iterator

from sparrowmq.admin.doctor.facts import MessageFacts, MessageReader, passes
from sparrowmq.admin.doctor.findings import Decided, Finding, found
from sparrowmq.client.errors import counted
from sparrowmq.clock import date_of
from sparrowmq.protocol.message_ext import MessageExt
from sparrowmq.protocol.properties import PRODUCER_GROUP, REAL_TOPIC, TRANSACTION_CHECK_TIMES


def decide_message(facts: MessageFacts) -> Decided:
    """Why a message is where it is."""
    if facts.stored is None:
        return Decided(list(_not_delivered(facts)), facts.missing)
    findings = [one for reader in facts.readers for one in _for_group(facts, reader, facts.stored)]
    return Decided(findings, facts.missing)


def _subject(facts: MessageFacts) -> str:
    return f"message {facts.id}"


def _time(time_ms: int) -> str:
    return f"{date_of(time_ms):%Y-%m-%dT%H:%M:%SZ}"


def _not_delivered(facts: MessageFacts) -> Iterator[Finding]:
    trace = f"sparrowmq message trace {facts.id} --topic {facts.topic}"
    if facts.waiting is not None and facts.due_ms is not None:
        left_s = (facts.due_ms - facts.now_ms) / 1000
        evidence = f"due {_time(facts.due_ms)}, in {left_s:,.0f} s; stored {_stored(facts.waiting)}"
        yield found("still-delayed", _subject(facts), evidence, trace)
    elif facts.half is not None:
        yield _half(facts, facts.half)
    elif facts.expired:
        show = f"sparrowmq topic show {facts.topic}"
        yield found("expired", _subject(facts), facts.expired, show)
    elif not facts.errors:  # a broker that does not answer may have it
        evidence = (
            f"{counted(facts.asked, 'broker')} answered: neither topic {facts.topic} nor their"
            " queues of delayed and half messages have it"
        )
        get = f"sparrowmq message get {facts.topic} --id {facts.id}"
        yield found("not-found", _subject(facts), evidence, get)


def _stored(message: MessageExt) -> str:
    return f"{_time(message.store_timestamp)} at {message.place}"


def _half(facts: MessageFacts, half: MessageExt) -> Finding:
    producers = half.properties.get(PRODUCER_GROUP, "")
    clients = "sparrowmq client list --producers"
    if facts.half_ended and not facts.is_set_aside:
        evidence = f"its half message, stored {_stored(half)}, has ended, and topic {facts.topic}"
        return found("rolled-back", _subject(facts), f"{evidence} does not have it", clients)
    asked = half.properties.get(TRANSACTION_CHECK_TIMES, "0")
    evidence = f"times asked: {asked}, producer group {producers or '?'}; stored {_stored(half)}"
    if facts.is_set_aside:
        return found(
            "half-open",
            _subject(facts),
            f"{evidence}; the broker has given up asking",
            clients,
            cause="no producer of its group answered in all checks",
        )
    return found("half-open", _subject(facts), evidence, clients)


def _for_group(facts: MessageFacts, reader: MessageReader, stored: MessageExt) -> Iterator[Finding]:
    subject = f"{_subject(facts)} and group {reader.group}"
    if reader.dead is not None and reader.resent is None:
        evidence = (
            f"dead since {_time(reader.dead.store_timestamp)}, after"
            f" {counted(reader.dead.reconsume_times, 'attempt')}"
        )
        command = f"sparrowmq dlq resend {reader.group} --id {facts.id} --dry-run"
        yield found("dead", subject, evidence, command)
    elif reader.retry is not None and not reader.retry_is_done:
        yield _retrying(reader, reader.retry, subject)
    elif reader.offset is None or reader.offset <= stored.queue_offset:
        yield from _not_read(reader, stored, subject)
    elif reader.subscription is not None and not passes(reader.subscription, stored.properties):
        yield _filtered(reader, stored, subject)
    else:
        evidence = f"it stands at {reader.offset}, past {stored.place}"
        if reader.subscription is None:
            evidence += "; offline, so its filter is not known"
        if reader.resent is not None:
            evidence += f"; its dead letter was {_sent_again(reader.resent)}"
        yield found(
            "consumed-by",
            subject,
            evidence,
            f"sparrowmq message trace {facts.id} --topic {facts.topic}",
        )


def _retrying(reader: MessageReader, retry: MessageExt, subject: str) -> Finding:
    next_text = f"next {_time(reader.retry_due_ms)}" if reader.retry_due_ms else "next now"
    command = f"sparrowmq group members {reader.group}"
    if reader.resent is None:
        evidence = f"attempt {retry.reconsume_times} failed, {next_text}"
        return found("retrying", subject, evidence, command)
    return found(
        "retrying",
        subject,
        f"dead before, {_sent_again(reader.resent)}; the group has not finished it, {next_text}",
        command,
        cause="its dead letter was sent again, and waits for the group",
        remedy="wait; if it stays, look whether the group has live members",
    )


def _sent_again(copy: MessageExt) -> str:
    target = copy.properties.get(REAL_TOPIC) or copy.topic
    return f"sent again to {target} at {_time(copy.store_timestamp)}"


def _not_read(reader: MessageReader, stored: MessageExt, subject: str) -> Iterator[Finding]:
    if reader.subscription is not None and not passes(reader.subscription, stored.properties):
        yield _filtered(reader, stored, subject)
        return
    before = stored.queue_offset - (reader.offset or 0)
    start = (
        "has no progress in this queue" if reader.offset is None else f"stands at {reader.offset}"
    )
    state, cause, remedy = "", "", ""
    if reader.subscription is None:
        state, cause, remedy = "; it is offline", "no member is online", "start a member"
    elif before <= 0:
        cause = "its members have not finished it"
    yield found(
        "waiting-behind",
        subject,
        f"{counted(before, 'message')} before it: the group {start}, the message is"
        f" {stored.place}{state}",
        f"sparrowmq doctor group {reader.group}",
        cause=cause,
        remedy=remedy,
    )


def _filtered(reader: MessageReader, stored: MessageExt, subject: str) -> Finding:
    assert reader.subscription is not None
    evidence = f"tag {stored.tags or 'none'} does not pass {reader.subscription.expression!r}"
    return found(
        "filtered-for-group", subject, evidence, f"sparrowmq group subscriptions {reader.group}"
    )
