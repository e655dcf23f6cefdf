"""Decides about one topic."""

from collections.abc import Iterator

from sparrowmq.admin.doctor.facts import TopicFacts
from sparrowmq.admin.doctor.findings import Decided, Finding, found, shorten
from sparrowmq.client.errors import counted
from sparrowmq.protocol.dedup import MOST_IDS
from sparrowmq.protocol.limits import BacklogAction, Quota
from sparrowmq.protocol.message import MessageQueue
from sparrowmq.protocol.perm import is_readable, is_writable

UNEVEN_SHARE = 3.0
UNEVEN_LEAST = 100
"""Messages. With fewer, chance alone makes queues differ."""
RETENTION_SHARE = 0.8
_HOUR_S = 3600.0
_CLIENT_QUEUES = 4
"""What Java's producers ask for when a topic is created by their first message."""


def decide_topic(facts: TopicFacts) -> Decided:
    """What is wrong with a topic."""
    if facts.route is None:
        command = (
            "sparrowmq cluster show" if facts.is_lost else f"sparrowmq topic create {facts.name}"
        )
        cause = "the brokers that have it are gone" if facts.is_lost else ""
        remedy = "start them again" if facts.is_lost else ""
        finding = found(
            "no-route", _subject(facts), facts.no_route, command, cause=cause, remedy=remedy
        )
        return Decided([finding], facts.missing)
    findings = [
        *_permissions(facts),
        *_queue_numbers(facts),
        *_unevenness(facts),
        *_readers(facts),
        *_agreement(facts),
        *_old_routes(facts),
        *_retention(facts),
        *_auto_created(facts),
        *_limits(facts),
        *_dedup_cut(facts),
    ]
    return Decided(findings, facts.missing)


def _subject(facts: TopicFacts) -> str:
    return f"topic {facts.name}"


def _permissions(facts: TopicFacts) -> Iterator[Finding]:
    route = facts.route
    datas = () if route is None else route.queue_datas
    if not datas:
        return
    texts = shorten(
        f"{each.broker_name}: perm {each.perm}, {each.read_queue_nums} read and"
        f" {each.write_queue_nums} write queues"
        for each in datas
    )
    if not any(is_writable(each.perm) and each.write_queue_nums for each in datas):
        hidden = [each.broker for each in facts.settings if is_writable(each.perm)]
        if hidden:
            yield found(
                "not-writable",
                _subject(facts),
                texts,
                f"sparrowmq broker resume {hidden[0]}",
                cause="its brokers drain, or an operator wiped their write permission",
                remedy="take a broker back, or put the topic on another one",
            )
        else:
            command = f"sparrowmq topic update {facts.name} --perm rw"
            yield found("not-writable", _subject(facts), texts, command)
    if not any(is_readable(each.perm) and each.read_queue_nums for each in datas):
        command = f"sparrowmq topic update {facts.name} --perm rw"
        yield found("not-readable", _subject(facts), texts, command)


def _queue_numbers(facts: TopicFacts) -> Iterator[Finding]:
    numbers = {(each.read_queues, each.write_queues) for each in facts.settings}
    if len(numbers) > 1:
        texts = shorten(
            f"{each.broker} {each.read_queues} read and {each.write_queues} write"
            for each in facts.settings
        )
        most = max(max(pair) for pair in numbers)
        command = f"sparrowmq topic update {facts.name} --queues {most} --dry-run"
        yield found("queues-differ-by-broker", _subject(facts), texts, command)


def _unevenness(facts: TopicFacts) -> Iterator[Finding]:
    total = sum(each.messages for each in facts.queues)
    if len(facts.queues) < 2 or total < UNEVEN_LEAST:
        return
    fullest = max(facts.queues, key=lambda each: each.messages)
    mean = total / len(facts.queues)
    limit = UNEVEN_SHARE if len(facts.queues) > UNEVEN_SHARE else len(facts.queues) * 0.9
    if fullest.messages >= limit * mean:
        yield found(
            "queues-uneven",
            _subject(facts),
            f"{fullest.queue.place} has {fullest.messages:,} of {counted(total, 'message')},"
            f" the mean of {counted(len(facts.queues), 'queue')} is {mean:,.0f}",
            f"sparrowmq topic show {facts.name} --queues",
        )


def _readers(facts: TopicFacts) -> Iterator[Finding]:
    messages = sum(each.messages for each in facts.queues)
    if facts.readers is None or not messages or any(each.members for each in facts.readers):
        return
    offline = shorten(each.group for each in facts.readers)
    groups = (
        f"{counted(len(facts.readers), 'group')} offline: {offline}"
        if offline
        else "no group reads it"
    )
    yield found(
        "nobody-consumes",
        _subject(facts),
        f"{counted(messages, 'message')}, and {groups}",
        f"sparrowmq topic show {facts.name}",
    )


def _agreement(facts: TopicFacts) -> Iterator[Finding]:
    """Members get a share of the queues also where they do not subscribe to the topic."""
    for reader in facts.readers or ():
        if reader.members and reader.lacking:
            yield found(
                "unequal-subscriptions",
                f"group {reader.group} in topic {facts.name}",
                f"{len(reader.lacking)} of {reader.members + len(reader.lacking)} members do not"
                f" subscribe to it, so that nobody may read their share of its queues:"
                f" {shorten(reader.lacking)}",
                f"sparrowmq group lag {reader.group} --topic {facts.name}",
            )


def _old_routes(facts: TopicFacts) -> Iterator[Finding]:
    assert facts.route is not None
    served = {
        MessageQueue(facts.name, data.broker_name, number)
        for data in facts.route.queue_datas
        for number in range(data.read_queue_nums if is_readable(data.perm) else 0)
    }
    for reader in facts.readers or ():
        for client_id, held in sorted(reader.held.items()):
            gone = sorted(held - served)
            if gone:
                yield found(
                    "old-route-in-client",
                    f"member {client_id} of group {reader.group}",
                    f"it holds {counted(len(gone), 'queue')} that topic {facts.name} does not"
                    f" have for reading: {shorten(each.place for each in gone)}",
                    f"sparrowmq group members {reader.group}",
                )


def _retention(facts: TopicFacts) -> Iterator[Finding]:
    for reader in facts.readers or ():
        late = [
            (delay_s / kept_s, delay_s, kept_s, queue)
            for queue, delay_s in reader.delays_s.items()
            if (kept_s := _kept_s(facts, queue.broker_name)) and delay_s >= RETENTION_SHARE * kept_s
        ]
        if late:
            _, delay_s, kept_s, queue = max(late)
            yield found(
                "retention-overtakes-lag",
                f"group {reader.group} in topic {facts.name}",
                f"its next message in {queue.place} is {delay_s / _HOUR_S:,.1f} h old, and"
                f" {queue.broker_name} keeps messages for {kept_s / _HOUR_S:,.0f} h",
                f"sparrowmq group lag {reader.group} --topic {facts.name}",
            )


def _kept_s(facts: TopicFacts, broker: str) -> float:
    text = facts.broker_settings.get(broker, {}).get("fileReservedTime", "")
    return int(text) * _HOUR_S if text.isdecimal() else 0.0


def _auto_created(facts: TopicFacts) -> Iterator[Finding]:
    """On some brokers only, with the queues that an automatic topic gets."""
    having = {each.broker: each for each in facts.settings}
    lacking = sorted(set(facts.masters) - set(having))
    if facts.errors or not lacking or not having:
        return
    for each in having.values():
        settings = facts.broker_settings.get(each.broker, {})
        default = settings.get("defaultTopicQueueNums", "")
        most = int(default) if default.isdecimal() else 0
        queues = {each.read_queues, each.write_queues}
        if settings.get("autoCreateTopicEnable") != "true" or not queues <= {_CLIENT_QUEUES, most}:
            return
    texts = shorten(
        f"{name} has {counted(each.write_queues, 'queue')}" for name, each in having.items()
    )
    yield found(
        "auto-created",
        _subject(facts),
        f"{texts}, which an automatic topic gets; not on {shorten(lacking)}",
        f"sparrowmq topic create {facts.name} --queues 8",
    )


def _limits(facts: TopicFacts) -> Iterator[Finding]:
    for limit in facts.limits:
        if limit.backlog is None and limit.refused_last_minute:
            quota = Quota(limit.messages, limit.bytes)
            yield found(
                "quota-reached",
                _subject(facts),
                f"{counted(limit.refused_last_minute, 'refusal')} in the last minute,"
                f" {quota} are allowed over {counted(len(limit.brokers), 'broker')}",
                "sparrowmq quota list",
            )
        if limit.backlog is not None and limit.is_refusing:
            group = max(limit.lags, key=limit.lags.__getitem__, default="")
            unit = "s" if limit.backlog.is_time else "messages"
            is_refused = limit.backlog.action is BacklogAction.REFUSE
            what = "refusal" if is_refused else "slowed answer"
            yield found(
                "backlog-refused",
                _subject(facts),
                f"group {group} is {limit.lags.get(group, 0):,} {unit} behind,"
                f" {limit.backlog.limit_text} are allowed;"
                f" {counted(limit.refused_last_minute, what)} in the last minute",
                f"sparrowmq group lag {group}",
            )
        if limit.backlog is not None and limit.uncounted:
            whys = shorten(f"{group}: {why}" for group, why in sorted(limit.uncounted.items()))
            yield found(
                "backlog-uncounted",
                _subject(facts),
                f"{whys}; the limit is {limit.backlog.limit_text} for"
                f" {counted(len(limit.backlog.groups), 'group')}",
                f"sparrowmq group show {min(limit.uncounted)}",
            )


def _dedup_cut(facts: TopicFacts) -> Iterator[Finding]:
    for broker, (cut, span_ms, asked_ms) in sorted(facts.dedup_cuts.items()):
        if span_ms < asked_ms:  # what was cut long ago is over
            yield found(
                "dedup-window-cut",
                _subject(facts),
                f"{broker} remembers {span_ms / 1000:,.0f} s of {asked_ms / 1000:,.0f} s, and"
                f" forgot {counted(cut, 'message')} before their time",
                f"sparrowmq topic update {facts.name} --attribute"
                f" sparrowmq.dedup={asked_ms // 1000}s/{MOST_IDS}",
            )
