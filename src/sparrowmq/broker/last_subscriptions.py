"""What groups subscribed to when the broker stopped, until their members say it again.

Pulls of the Go client do not carry their filter, and its heartbeats come every 30 s: without this
its consumers would stand still that long after every restart.
"""

from collections.abc import Iterable

from sparrowmq.broker.consumers import ConsumerGroup
from sparrowmq.protocol.body import Body
from sparrowmq.protocol.heartbeat import ConsumerData


class LastSubscriptions(Body, frozen=True, kw_only=True):
    """Contents of config/lastSubscriptions.json, written by a broker that stops in order."""

    until_ms: int = 0
    """Members that have not come back by then are gone."""
    groups: tuple[ConsumerData, ...] = ()

    def by_name(self) -> dict[str, ConsumerGroup]:
        """Groups as they were, without their members."""
        found = {}
        for data in self.groups:
            group = found[data.group_name] = ConsumerGroup(data.group_name, data)
            group.subscribe(data.subscription_data_set)
        return found


def last_subscriptions(groups: Iterable[ConsumerGroup], until_ms: int) -> LastSubscriptions:
    """What these groups subscribe to now."""
    return LastSubscriptions(
        until_ms=until_ms,
        groups=tuple(
            ConsumerData(
                group_name=group.name,
                consume_type=group.consume_type,
                message_model=group.message_model,
                consume_from_where=group.from_where,
                subscription_data_set=tuple(group.subscriptions.values()),
            )
            for group in groups
        ),
    )
