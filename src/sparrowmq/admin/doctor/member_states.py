"""Decides about the members of a group: their handlers, flow control, queues and agreement."""

import re
from collections.abc import Iterator

from sparrowmq.admin.doctor.facts import GroupFacts
from sparrowmq.admin.doctor.findings import Finding, found, shorten
from sparrowmq.admin.doctor.progress import owners_of
from sparrowmq.admin.members import tells_finished
from sparrowmq.admin.stacks import handler_frame
from sparrowmq.client.errors import counted
from sparrowmq.protocol.connections import ConsumerRunningInfo, ProcessQueueInfo
from sparrowmq.protocol.message import MessageQueue
from sparrowmq.protocol.names import is_retry_topic

SLOW_MS = 1000.0
HANG_MS = 30_000
FAILED_SHARE = 0.01
_STRATEGY = "allocateMessageQueueStrategy"
_THRESHOLD = "pullThresholdForQueue"
_JAVA_STRATEGIES = {
    "AllocateMessageQueueAveragely": "AVG",
    "AllocateMessageQueueAveragelyByCircle": "AVG_BY_CIRCLE",
    "AllocateMessageQueueByConfig": "CONFIG",
    "AllocateMessageQueueByMachineRoom": "MACHINE_ROOM",
    "AllocateMessageQueueConsistentHash": "CONSISTENT_HASH",
}
"""Java's members print the object; these are the names that the same rules have on the wire."""


_JAVA_WORKER = re.compile(r"(ConsumeMessageThread\S*?) *TID: \d+ STATE: ")
_JAVA_LIBRARIES = ("java.", "jdk.", "sun.", "org.apache.rocketmq.")
_GO_CALLER = "rocketmq-client-go/v2/consumer.(*pushConsumer).consumeInner("
_GO_CALL = re.compile(
    r"^(?P<function>(?P<package>(?:[^\s/]++/)*+[^\s/.]++)\.\S+?)\([^()\n]*\)\n"
    r"\t(?P<file>[^\n]+):(?P<line>\d+)(?: \+0x[0-9a-f]+)?$",
    re.MULTILINE,
)
"""`net/http.(*Client).Do(…)`, and the file below it. Go's own files lie in `src/net/http/`. Nothing
is tried twice (`++`), so that the time is linear in what a member sends."""


def decide_members(facts: GroupFacts) -> Iterator[Finding]:
    """What is wrong with the members of a group."""
    yield from _agreement(facts)
    yield from _doubled(facts)
    yield from _strategies(facts)
    for client_id, info in sorted(facts.second.members.items()):
        if info is not None:
            yield from _member(facts, client_id, info)
    if not facts.is_broadcasting:
        yield from _idle_members(facts)
        yield from _moved(facts)
        yield from _without_owner(facts)


def idle_queues(facts: GroupFacts) -> set[MessageQueue]:
    """Queues that do not move for a reason that has its own finding: a hanging or slow handler, or
    a paused member."""
    explained: set[MessageQueue] = set()
    pulling = without_handler_times(facts)
    for client_id, info in facts.second.members.items():
        if info is None:
            continue
        hanging = set(_hanging(facts, client_id, info))
        window_ms = facts.window_s * 1000
        slow = {
            topic
            for topic, status in info.status_table.items()
            if client_id not in pulling and status.consume_rt >= max(SLOW_MS, window_ms)
        }
        paused = {name for name, note in info.user_consumer_info.items() if "paused" in note}
        for queue in info.mq_table:
            if queue.topic in slow or str(queue) in paused or queue in hanging:
                explained.add(queue)
    return explained


# ---- one member


def _member(facts: GroupFacts, client_id: str, info: ConsumerRunningInfo) -> Iterator[Finding]:
    subject = f"member {client_id} of group {facts.name}"
    show = f"sparrowmq group members {facts.name}"
    yield from _handler(facts, client_id, info, subject)
    paused = [name for name, note in info.user_consumer_info.items() if "paused" in note]
    if paused:
        evidence = f"it says of {len(paused)} of {len(info.mq_table)} queues that they are paused"
        remedy = "resume it in its program"
        yield found("paused", subject, evidence, show, remedy=remedy)
    full = [queue for queue, held in info.mq_table.items() if _is_full(info, queue, held)]
    if full:
        waiting = sum(info.mq_table[queue].cached_msg_count for queue in full)
        verb = "waits" if waiting == 1 else "wait"
        evidence = f"{counted(waiting, 'message')} {verb} for its handler, of"
        places = shorten(map(_place, sorted(full)))
        yield found("flow-controlled", subject, f"{evidence} {places}", show)


def _handler(
    facts: GroupFacts, client_id: str, info: ConsumerRunningInfo, subject: str
) -> Iterator[Finding]:
    stacks = f"sparrowmq group members {facts.name} --stacks {client_id}"
    hanging = _hanging(facts, client_id, info)
    if hanging:
        last = min(hanging, key=lambda queue: _idle_ms(info, info.mq_table[queue]))
        idle_ms, most = _idle_ms(info, info.mq_table[last]), ""
        if not info.mq_table[last].running_since:  # it may have waited for the message
            idle_ms = min(idle_ms, facts.second.at_ms - facts.next_stored_ms[last])
            most = "at most "
        count = sum(info.mq_table[queue].cached_msg_count for queue in hanging)
        evidence = (
            f"{counted(count, 'message')} of {shorten(map(_place, sorted(hanging)))}"
            f" {'is' if count == 1 else 'are'} with its handler, which has finished nothing for"
            f" {most}{idle_ms / 1000:,.0f} s"
        )
        where = handler_line(facts.stacks.get(client_id, ""))
        cause = f"it waits in {where}" if where else ""
        yield found("handler-hangs", subject, evidence, stacks, cause=cause)
    for topic, status in sorted(info.status_table.items()):
        if is_retry_topic(topic):
            continue
        if client_id not in without_handler_times(facts) and status.consume_rt >= SLOW_MS:
            evidence = (
                f"{status.consume_rt:,.0f} ms per call for topic {topic},"
                f" {status.consume_ok_tps:.1f} messages/s"
            )
            yield found("handler-slow", subject, evidence, stacks)
        done, failed = status.consume_ok_tps, status.consume_failed_tps
        if failed > 0 and failed >= FAILED_SHARE * (done + failed):
            evidence = (
                f"of topic {topic}, {failed:.2f} messages/s failed and {done:.2f} succeeded in the"
                f" last minute; {status.consume_failed_msgs:,} failed since the member started"
            )
            yield found("handler-fails", subject, evidence, f"sparrowmq group members {facts.name}")


def without_handler_times(facts: GroupFacts) -> list[str]:
    """Members that do not report how long their handlers take. Go's client (2.1.2) reports how long
    its pulls take instead, and those wait for messages."""
    return [each.client_id for each in facts.members if each.language == "GO"]


def without_times(facts: GroupFacts) -> list[str]:
    """Members that do not report when they finish a message."""
    return [
        each.client_id
        for each in facts.members
        if (info := facts.second.members.get(each.client_id)) is not None
        and not tells_finished(each, info)
    ]


def _hanging(facts: GroupFacts, client_id: str, info: ConsumerRunningInfo) -> list[MessageQueue]:
    """Queues in which a handler does not finish its messages."""
    if client_id in without_times(facts):
        return []
    return [queue for queue, held in info.mq_table.items() if _hangs(facts, info, queue, held)]


def _hangs(
    facts: GroupFacts, info: ConsumerRunningInfo, queue: MessageQueue, held: ProcessQueueInfo
) -> bool:
    """Whether the handler has had a message for long and finished nothing since. The message has to
    be old too: an idle member has not finished anything either."""
    stored_ms = facts.next_stored_ms.get(queue)
    return (
        not held.dropped
        and held.cached_msg_count > 0
        and stored_ms is not None
        and facts.second.at_ms - stored_ms >= HANG_MS
        and _idle_ms(info, held) >= HANG_MS
    )


def _idle_ms(info: ConsumerRunningInfo, held: ProcessQueueInfo) -> int:
    """How long the queue has been idle, by the member's own clock, which has at least reached the
    time of its last pull."""
    now_ms = max(each.last_pull_timestamp for each in info.mq_table.values())
    return now_ms - held.busy_since_ms


def _is_full(info: ConsumerRunningInfo, queue: MessageQueue, held: ProcessQueueInfo) -> bool:
    note = info.user_consumer_info.get(str(queue), "")
    limit = info.properties.get(_THRESHOLD, "")
    is_over = limit.isdecimal() and 0 < int(limit) <= held.cached_msg_count
    return "at most" in note or is_over


def handler_line(stacks: str) -> str:
    """Where a handler is in a member's stacks; empty where none is recognised."""
    return _java_line(stacks) or _go_line(stacks) or handler_frame(stacks)


def _java_line(stacks: str) -> str:
    """Every line of Java's begins with the name of its thread, the innermost call first. The first
    call that is neither Java's nor RocketMQ's is the program's own.

    Names are padded to 40 characters: no space follows one that is longer.
    """
    name = None
    for line in stacks.splitlines():
        if worker := _JAVA_WORKER.match(line):
            name = worker[1]
        elif name is not None and line.startswith(name):
            call = line.removeprefix(name).strip()
            if not call.startswith(_JAVA_LIBRARIES):
                return call
    return ""


def _go_line(stacks: str) -> str:
    """Two lines for each call, the innermost first: the function, then its place. The first call
    that the client makes, directly or not, and that is not Go's own is the program's."""
    for block in stacks.split("\n\n"):
        handled = block.partition(_GO_CALLER)
        if not handled[1]:
            continue
        for call in _GO_CALL.finditer(handled[0]):
            if f"/src/{call['package']}/" not in call["file"]:
                return f"{call['function']} ({call['file']}:{call['line']})"
    return ""


def _place(queue: MessageQueue) -> str:
    return f"{queue.topic} {queue.place}"


# ---- members compared with each other


def _agreement(facts: GroupFacts) -> Iterator[Finding]:
    wanted = {who: frozenset(what) for who, what in facts.unequal.items()}
    for member in facts.members:
        if member.subscriptions is not None:
            wanted.setdefault(member.client_id, member.subscriptions)
    if len(set(wanted.values())) <= 1:
        return
    texts = shorten(
        f"{who}: {shorten(f'{each.topic} {each.expression}' for each in sorted(what))}"
        for who, what in sorted(wanted.items())
    )
    yield found(
        "unequal-subscriptions",
        f"group {facts.name}",
        texts,
        f"sparrowmq group subscriptions {facts.name}",
    )


def _doubled(facts: GroupFacts) -> Iterator[Finding]:
    if facts.doubled:
        evidence = f"used by more than one process: {shorten(sorted(facts.doubled))}"
        command = f"sparrowmq group members {facts.name}"
        yield found("doubled-client-id", f"group {facts.name}", evidence, command)


def _strategies(facts: GroupFacts) -> Iterator[Finding]:
    names: dict[str, list[str]] = {}
    for client_id, info in sorted(facts.second.members.items()):
        text = "" if info is None else info.properties.get(_STRATEGY, "")
        name = text.partition("@")[0].rpartition(".")[2]
        if name:
            names.setdefault(_JAVA_STRATEGIES.get(name, name), []).append(client_id)
    if len(names) > 1:
        texts = "; ".join(f"{name}: {shorten(who)}" for name, who in sorted(names.items()))
        command = f"sparrowmq rebalance explain {facts.name}"
        yield found("one-strategy-differs", f"group {facts.name}", texts, command)


def _idle_members(facts: GroupFacts) -> Iterator[Finding]:
    queues = {topic: len(held) for topic, held in facts.readable.items() if held}
    if not queues or len(facts.members) <= max(queues.values()):
        return
    topic = max(queues, key=lambda each: queues[each])
    spare = len(facts.members) - queues[topic]
    yield found(
        "more-members-than-queues",
        f"group {facts.name}",
        f"{counted(len(facts.members), 'member')}, and topic {topic} has"
        f" {counted(queues[topic], 'queue')}: {counted(spare, 'member')} too many",
        f"sparrowmq topic update {topic} --queues {len(facts.members)} --dry-run",
    )


def _moved(facts: GroupFacts) -> Iterator[Finding]:
    before, after = owners_of(facts.first), owners_of(facts.second)
    moved = sorted(queue for queue in before.keys() & after.keys() if before[queue] != after[queue])
    joined = sorted(facts.second.members.keys() - facts.first.members.keys())
    left = sorted(facts.first.members.keys() - facts.second.members.keys())
    if moved or joined or left:
        yield found(
            "rebalancing-often",
            f"group {facts.name}",
            f"in {facts.window_s:.1f} s {counted(len(moved), 'queue')} changed owners,"
            f" {counted(len(joined), 'member')} joined and {len(left)} left",
            f"sparrowmq rebalance explain {facts.name}",
        )


def _without_owner(facts: GroupFacts) -> Iterator[Finding]:
    """Queues with messages that no member has, although all of them answer and none joins or
    leaves. SparrowMQ's brokers report who has the lock; with Apache's that is only likely."""
    live = {each.client_id for each in facts.members}
    held = owners_of(facts.first).keys() | owners_of(facts.second).keys()
    orphans = [
        each.queue
        for each in facts.second.queues
        if each.lag
        and each.queue not in held
        and each.queue in facts.readable.get(each.queue.topic, ())
        and facts.locks.get(each.queue) not in live
    ]
    if not orphans or not _is_settled(facts):
        return
    lag = sum(each.lag for each in facts.second.queues if each.queue in orphans)
    dead = sorted({facts.locks[queue] for queue in orphans if queue in facts.locks})
    evidence = (
        f"{counted(lag, 'message')} in {shorten(map(_place, orphans))}, which none of"
        f" {counted(len(facts.members), 'member')} holds"
    )
    if dead:
        evidence += f"; locked by {shorten(dead)}, which is not a live member"
    command = f"sparrowmq rebalance explain {facts.name}"
    yield found("lock-held-by-dead", f"group {facts.name}", evidence, command)


def _is_settled(facts: GroupFacts) -> bool:
    """Whether the members are known, and the same at both looks."""
    first, second = facts.first.members, facts.second.members
    is_known = all(info is not None for info in (*first.values(), *second.values()))
    return bool(facts.members) and is_known and first.keys() == second.keys()
