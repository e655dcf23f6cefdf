"""The senders of a topic, as far as its newest messages tell.

Brokers do not record who sends to which topic. But every message carries the address and port that
it was sent from, and brokers list the producers that are connected with theirs, so the two are
joined. A producer that was idle for long, or has connected again since, is missing or has no name.
"""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from sparrowmq.admin.members import LiveProducer
from sparrowmq.console.pages.topic_messages import described
from sparrowmq.console.scan import BUDGET, MOST_QUEUES, scan
from sparrowmq.console.view import Answer, Page, PageRoute, View, panel
from sparrowmq.protocol import properties as names
from sparrowmq.protocol.hosts import Address, format_address, parse_address
from sparrowmq.protocol.message_ext import MessageExt
from sparrowmq.protocol.names import INNER_PRODUCER_GROUP

_NEVER = datetime.min.replace(tzinfo=UTC)
_MOST_SHOWN = 200


@dataclass(slots=True)
class TopicSender:
    """An address from which messages were sent."""

    address: str
    messages: int = 0
    last_ms: int = 0
    """When the newest of them was stored."""
    client_ids: set[str] = field(default_factory=set)
    """Clients that are connected from this address now."""
    groups: set[str] = field(default_factory=set)
    """Producer groups of these clients, and those that messages of transactions name."""


async def show(view: View) -> Answer:
    """Show who sent the newest messages."""
    admin, name = view.console.admin, view.names["topic"]
    topic, producers = await asyncio.gather(described(admin, name), panel(admin.producers()))
    latest = sorted(topic.queues, key=lambda each: each.last_stored or _NEVER)[-MOST_QUEUES:]
    starts = {each.queue: each.max_offset for each in latest}
    found = await scan(admin, topic, starts, newest_first=True, wants=lambda _: True, limit=BUDGET)
    senders = senders_of(found.messages, producers.value or ())
    return Page(
        template="topic_senders.html",
        title=f"Senders to {name}",
        area="topics",
        command="sparrowmq client list --producers",
        is_live=False,
        values={
            "name": name,
            "topic": topic,
            "producers": producers,
            "found": found,
            "senders": senders[:_MOST_SHOWN],
            "others": len(senders) - _MOST_SHOWN,
            "oldest_ms": min((each.store_timestamp for each in found.messages), default=None),
            "left_out": len(topic.queues) - len(latest),
        },
    )


def senders_of(
    messages: Iterable[MessageExt], producers: Iterable[LiveProducer]
) -> list[TopicSender]:
    """The addresses that sent the messages, the latest sender first."""
    found: dict[Address, TopicSender] = {}
    for message in messages:
        host = message.born_host
        sender = found.setdefault(host, TopicSender(format_address(host)))
        sender.messages += 1
        sender.last_ms = max(sender.last_ms, message.store_timestamp)
        if group := message.properties.get(names.PRODUCER_GROUP):
            sender.groups.add(group)
    for producer in producers:
        try:
            connected = found.get(parse_address(producer.address))
        except ValueError:  # a broker that does not report ports
            continue
        if connected is not None:
            connected.client_ids.add(producer.client_id)
            if producer.group != INNER_PRODUCER_GROUP:  # every Java client is in that one
                connected.groups.add(producer.group)
    return sorted(found.values(), key=lambda each: (-each.last_ms, each.address))


ROUTES = (PageRoute("/topics/{topic}/senders", show),)
