"""Which sends have limits, and what becomes of those that do.

A topic without limits is remembered in `topics.checked_for_send`, and its sends never get here:
limits cost nothing where there are none.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from sparrowmq.broker.traffic.dedup import Dedup
from sparrowmq.net.routes import Handled, Request
from sparrowmq.protocol.headers.send import AnySend
from sparrowmq.protocol.topic_config import TopicConfig

if TYPE_CHECKING:
    from sparrowmq.broker.broker import Broker

Send = Callable[["Broker", Request[AnySend], TopicConfig | None], Handled]
"""A handler of sends, told that the topic is admitted."""


class Traffic:
    """The limits of one broker."""

    def __init__(self) -> None:
        self.dedup = Dedup()

    def watches(self, topic: TopicConfig) -> bool:
        """Whether a send to this topic has a limit of any kind."""
        return self.dedup.watches(topic)

    def handle(
        self, broker: "Broker", request: Request[AnySend], topic: TopicConfig, send: Send
    ) -> Handled:
        """Handle a send to a topic that is watched. Raises RequestRefused."""
        if self.dedup.watches(topic):  # a duplicate is answered before anything else is counted
            return self.dedup.handle(broker, request, topic, send)
        return send(broker, request, topic)
