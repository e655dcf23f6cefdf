"""Following a topic without a group: it commits nothing and takes no messages from members."""

import asyncio
from collections.abc import Callable, Mapping
from datetime import datetime

from sparrowmq.admin.cluster_calls import ClusterCalls
from sparrowmq.admin.errors import AdminError
from sparrowmq.admin.messages import pull_part
from sparrowmq.admin.ranges import Span, range_ms, spans
from sparrowmq.client.argument_checks import check_time
from sparrowmq.protocol.message import MessageQueue
from sparrowmq.protocol.message_ext import MessageExt
from sparrowmq.protocol.tags import parse_tags, tags_fault

_PAGE = 32
_MOST_FAILURES = 5
"""How many rounds in a row a broker may fail before it is no longer followed."""


async def tail(
    cluster: ClusterCalls,
    topic: str,
    on_message: Callable[[MessageExt], bool],
    *,
    expression: str,
    queue: MessageQueue | None,
    since: datetime | int | None,
    interval_s: float,
) -> None:
    """Call `on_message` with what is stored from now on, or since a time, until it returns
    False."""
    check_time("interval_s", interval_s)
    fault = tags_fault(expression, for_comma="`consume`") if expression != "*" else None
    if fault is not None:
        raise ValueError(f"the filter is {expression!r}, {fault}")
    wanted = frozenset(parse_tags(expression))
    found = await spans(cluster, topic, range_ms(since, None), queue=queue)
    if found.errors:
        reasons = "; ".join(map(str, found.errors))
        raise AdminError(f"not all brokers of topic {topic} answer: {reasons}")
    places = {each.queue: _start(each, since) for each in found.items}
    addresses = {each.queue: each.address for each in found.items}
    failures = 0
    while True:
        try:
            batch = await _round(cluster, places, addresses, expression)
            failures = 0
        except AdminError:
            failures += 1
            if failures == _MOST_FAILURES:
                raise
            batch = []
        for message in sorted(batch, key=lambda each: each.store_timestamp):
            # Brokers compare hashes of tags, which may collide
            if wanted and message.tags not in wanted:
                continue
            if not on_message(message):
                return
        if not batch:
            await asyncio.sleep(interval_s)


def _start(span: Span, since: datetime | int | None) -> int:
    return span.high if since is None else span.low


async def _round(
    cluster: ClusterCalls,
    places: dict[MessageQueue, int],
    addresses: Mapping[MessageQueue, str],
    expression: str,
) -> list[MessageExt]:
    """What is new in all queues; advances `places`."""
    batch: list[MessageExt] = []
    for queue, at in list(places.items()):
        part = await pull_part(cluster, addresses[queue], queue, at, _PAGE, expression=expression)
        batch += [each for each in part.messages if each.queue_offset >= at]
        places[queue] = max(at, part.next_offset) if part.next_offset else at
    return batch
