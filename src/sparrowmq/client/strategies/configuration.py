"""Queues written down by somebody who knows."""

from collections.abc import Sequence

from sparrowmq.client.strategies.strategy import Strategy
from sparrowmq.protocol.message import MessageQueue


def by_configuration(configured: Sequence[MessageQueue]) -> Strategy:
    """This member consumes exactly `configured`, whoever else there is.

    Nothing is checked, as in RocketMQ: that all members together cover every queue once is up to
    whoever wrote their configurations.
    """
    chosen = tuple(configured)

    def allocate(
        _group: str, _client_id: str, _queues: Sequence[MessageQueue], _client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        return list(chosen)

    return Strategy("CONFIG", allocate)
