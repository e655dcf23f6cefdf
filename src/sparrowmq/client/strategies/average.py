"""Even shares: in one piece each, or dealt out in turn."""

from collections.abc import Sequence

from sparrowmq.client.strategies.strategy import Strategy, takes_part
from sparrowmq.protocol.message import MessageQueue


def averagely(
    group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
) -> list[MessageQueue]:
    """Consecutive queues for each member; the first ones get one more where it does not divide."""
    if not takes_part(group, client_id, queues, client_ids):
        return []
    share, rest = divmod(len(queues), len(client_ids))
    index = client_ids.index(client_id)
    start = index * share + min(index, rest)
    return list(queues[start : start + share + (index < rest)])


def averagely_by_circle(
    group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
) -> list[MessageQueue]:
    """One queue for each member in turn, until none is left."""
    if not takes_part(group, client_id, queues, client_ids):
        return []
    return list(queues[client_ids.index(client_id) :: len(client_ids)])


AVG = Strategy("AVG", averagely)
AVG_BY_CIRCLE = Strategy("AVG_BY_CIRCLE", averagely_by_circle)
