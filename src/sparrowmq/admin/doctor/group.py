"""Decides about one consumer group: what its settings, lag and progress say.

What its members say about themselves is in `member_states.py`.
"""

from collections.abc import Iterator

from sparrowmq.admin.doctor.facts import GroupFacts, passes
from sparrowmq.admin.doctor.findings import Decided, Finding, NotMade, found, shorten
from sparrowmq.admin.doctor.member_states import (
    decide_members,
    idle_queues,
    without_handler_times,
    without_times,
)
from sparrowmq.admin.doctor.progress import COMMIT_S, QueueProgress, progress_of
from sparrowmq.admin.groups import is_paused, pauses_of
from sparrowmq.admin.lag import QueueLag
from sparrowmq.client.errors import counted
from sparrowmq.protocol.names import is_retry_topic

LEAST_GROWTH = 10
LEAST_LAG = 100
ONE_QUEUE_SHARE = 0.9
LEAST_SAMPLES = 10
DEAD_LATELY_MS = 600_000
STUCK_MS = 10_000
"""A message that arrived more recently may simply be in work."""
SETTLED_MS = 10_000
"""How long a member has to be online before missing progress means anything."""


def decide_group(facts: GroupFacts) -> Decided:
    """What is wrong with a group."""
    if facts.is_broadcasting:
        return Decided(
            [*_broadcasting(facts), *_settings(facts), *decide_members(facts)], facts.missing
        )
    moves = progress_of(facts)
    findings = [
        *_offline(facts),
        *_settings(facts),
        *_positions(facts),
        *_never_committed(facts),
        *_lag(facts, moves),
        *_filters(facts),
        *_retries(facts),
        *_stuck(facts, moves),
        *decide_members(facts),
    ]
    return Decided(findings, [*facts.missing, *_unknown(facts, moves)])


def _subject(facts: GroupFacts) -> str:
    return f"group {facts.name}"


def place(queue: QueueLag) -> str:
    """`orders broker-a/3`."""
    return f"{queue.queue.topic} {queue.queue.place}"


def _broadcasting(facts: GroupFacts) -> Iterator[Finding]:
    yield found(
        "broadcasting-has-no-lag",
        _subject(facts),
        f"{counted(len(facts.members), 'member')}, each reads every queue",
        f"sparrowmq group members {facts.name}",
    )


def _offline(facts: GroupFacts) -> Iterator[Finding]:
    lag = sum(each.lag for each in facts.second.queues)
    if not facts.members and lag:
        topics = sorted({each.queue.topic for each in facts.second.queues if each.lag})
        yield found(
            "no-members",
            _subject(facts),
            f"{counted(lag, 'message')} in {shorten(topics)}, 0 members online",
            f"sparrowmq group show {facts.name}",
        )


def _settings(facts: GroupFacts) -> Iterator[Finding]:
    for each in pauses_of(facts.settings):
        count, verb = len(each.brokers), "does" if len(each.brokers) == 1 else "do"
        what = "consume" if each.topic is None else f"read topic {each.topic}"
        only = "" if each.topic is None else f" --topic {each.topic}"
        yield found(
            "paused",
            _subject(facts),
            f"{count} of {counted(len(facts.settings), 'broker')} {verb} not let it {what}:"
            f" {shorten(each.brokers)}",
            f"sparrowmq group resume {facts.name}{only}",
        )


def _positions(facts: GroupFacts) -> Iterator[Finding]:
    wrong = [each for each in facts.second.queues if each.is_out_of_range]
    if not wrong:
        return
    texts = shorten(
        f"{place(each)} at {each.consumer_offset}, has {each.min_offset} to {each.broker_offset}"
        for each in wrong
    )
    skipped = sum(
        each.min_offset - (each.consumer_offset or 0) for each in wrong if each.is_expired
    )
    lost = f"; {counted(skipped, 'message')} expired unread" if skipped else ""
    topic = wrong[0].queue.topic
    yield found(
        "offset-out-of-range",
        _subject(facts),
        texts + lost,
        f"sparrowmq group reset {facts.name} --topic {topic} --to earliest --dry-run",
        cause=""
        if skipped
        else "the topic was deleted and created again, or its broker lost messages",
    )


def _never_committed(facts: GroupFacts) -> Iterator[Finding]:
    since = [each.since for each in facts.members if each.since is not None]
    is_settled = not since or min(since).timestamp() * 1000 <= facts.second.at_ms - SETTLED_MS
    if not facts.members or not is_settled:
        return
    for topic in _without_progress(facts):
        queues = [each for each in facts.second.queues if each.queue.topic == topic]
        waiting = sum(each.broker_offset - each.min_offset for each in queues)
        yield found(
            "never-committed",
            _subject(facts),
            f"topic {topic} has {counted(waiting, 'message')}, and the group no progress in any of"
            f" {counted(len(queues), 'queue')}",
            f"sparrowmq group lag {facts.name} --topic {topic}",
        )


def _without_progress(facts: GroupFacts) -> list[str]:
    """Subscribed topics with messages in which the group has stored no offset at all."""
    found_topics = []
    for topic in sorted({each.topic for each in facts.subscriptions}):
        queues = [each for each in facts.second.queues if each.queue.topic == topic]
        readable = [each for each in queues if not is_paused(facts.settings, each.queue)]
        has_messages = any(each.broker_offset > each.min_offset for each in readable)
        if has_messages and all(each.consumer_offset is None for each in queues):
            found_topics.append(topic)
    return found_topics


# ---- lag


def _lag(facts: GroupFacts, moves: list[QueueProgress]) -> Iterator[Finding]:
    if not facts.members:
        return
    known = [
        each
        for each in moves
        if each.is_certain
        and not is_retry_topic(each.queue.topic)
        and not is_paused(facts.settings, each.queue)
    ]
    before, after = sum(each.lag_before for each in known), sum(each.lag_after for each in known)
    if after - before >= LEAST_GROWTH and facts.window_s > 0:
        yield found(
            "lag-grows",
            _subject(facts),
            f"{before:,} → {counted(after, 'message')} in {facts.window_s:.1f} s,"
            f" {(after - before) / facts.window_s:,.0f} more every second",
            f"sparrowmq group lag {facts.name} --watch",
        )
    for topic in sorted({each.queue.topic for each in facts.second.queues}):
        queues = [each for each in facts.second.queues if each.queue.topic == topic]
        total = sum(each.lag for each in queues)
        worst = max(queues, key=lambda each: each.lag)
        if is_paused(facts.settings, worst.queue):
            continue
        if len(queues) > 1 and total >= LEAST_LAG and worst.lag >= ONE_QUEUE_SHARE * total:
            owner = f", held by {worst.owner}" if worst.owner else ""
            yield found(
                "lag-one-queue",
                _subject(facts),
                f"{place(worst)} has {worst.lag:,} of {total:,} waiting messages{owner}",
                f"sparrowmq group lag {facts.name} --topic {topic} --by queue",
            )


def _stuck(facts: GroupFacts, moves: list[QueueProgress]) -> Iterator[Finding]:
    """Queues that stand still, except those whose reason is already known."""
    if not facts.members:
        return
    explained, without_progress = idle_queues(facts), _without_progress(facts)
    subscribed = {one.topic for one in facts.subscriptions}.union(
        one.topic for member in facts.members for one in member.subscriptions or ()
    )
    for each in moves:
        came_ms = facts.next_stored_ms.get(each.queue, 0)
        is_known = (
            each.queue in explained
            or each.queue.topic in without_progress
            or not (each.queue.topic in subscribed or is_retry_topic(each.queue.topic))
            or is_paused(facts.settings, each.queue)
        )
        is_young = facts.second.at_ms - came_ms < STUCK_MS
        if not each.is_certain or not each.stands_still or is_known or is_young:
            continue
        queue = each.queue
        owner = f", held by {each.owner}" if each.owner else ""
        yield found(
            "stuck-at-offset",
            _subject(facts),
            f"{queue.topic} {queue.place} stays at offset {each.after} for {facts.window_s:.1f} s"
            f" while {counted(each.lag_after, 'message')} {_waits(each.lag_after)}{owner}",
            f"sparrowmq message get {queue.topic} --queue {queue.place} --offset {each.after}",
        )


def _unknown(facts: GroupFacts, moves: list[QueueProgress]) -> Iterator[NotMade]:
    doubtful = [each for each in moves if not each.is_certain and each.lag_after]
    if facts.members and doubtful:
        yield NotMade(
            ("lag-grows", "stuck-at-offset"),
            f"{counted(len(doubtful), 'queue')} of group {facts.name}",
            "no live owner tells its progress, and brokers learn it only every"
            f" {COMMIT_S:.0f} s: look for longer, with --for 10s",
        )
    mute = [each.broker for each in facts.settings if each.paused_topics is None]
    if mute:
        yield NotMade(
            ("paused",),
            f"single topics of group {facts.name}",
            f"these brokers do not say which topics a group may not read: {shorten(mute)}",
        )
    for client_id in without_handler_times(facts):
        yield NotMade(
            ("handler-slow",),
            f"member {client_id} of group {facts.name}",
            "Go's client reports how long its pulls take, and not its handler",
        )
    for client_id in without_times(facts):
        yield NotMade(
            ("handler-hangs",),
            f"member {client_id} of group {facts.name}",
            "ordered members of Go's client do not report when they finish a message",
        )


# ---- messages


def _filters(facts: GroupFacts) -> Iterator[Finding]:
    for wanted in sorted(facts.subscriptions):
        samples = facts.samples.get(wanted.topic, ())
        if len(samples) < LEAST_SAMPLES or any(passes(wanted, each) for each in samples):
            continue
        tags: dict[str, int] = {}
        for properties in samples:
            tag = properties.get("TAGS") or "no tag"
            tags[tag] = tags.get(tag, 0) + 1
        seen = shorten(f"{tag} ({count})" for tag, count in sorted(tags.items()))
        yield found(
            "filter-matches-nothing",
            _subject(facts),
            f"0 of the newest {len(samples)} messages of topic {wanted.topic} pass"
            f" {wanted.expression!r}; their tags: {seen}",
            f"sparrowmq group subscriptions {facts.name}",
        )


def _waits(messages: int) -> str:
    return "waits" if messages == 1 else "wait"


def _retries(facts: GroupFacts) -> Iterator[Finding]:
    first, second = facts.first, facts.second
    if first.retry_end is not None and second.retry_end is not None:
        more = second.retry_end - first.retry_end
        if more > 0:
            yield found(
                "retries-growing",
                _subject(facts),
                f"{counted(more, 'message')} {'was' if more == 1 else 'were'} sent back in the"
                f" last {round(facts.window_s, 1):g} s, {second.retry_end:,} in all",
                f"sparrowmq group members {facts.name}",
            )
    died = 0
    if first.dead_end is not None and second.dead_end is not None:
        died = second.dead_end - first.dead_end
    age_ms = second.at_ms - facts.dead_last_ms
    if second.dead_end and (died > 0 or age_ms <= DEAD_LATELY_MS):
        yield found(
            "dead-letters-growing",
            _subject(facts),
            f"{counted(second.dead_end, 'dead letter')}, the last one"
            f" {max(0, age_ms) / 1000:,.0f} s ago",
            f"sparrowmq dlq show {facts.name}",
        )
