"""RocketMQ's classic strategies: even shares, pinned machines, a configured list."""

from collections.abc import Collection, Sequence

from sparrowmq.client.strategies.strategy import Strategy, takes_part
from sparrowmq.protocol.message import MessageQueue


def averagely(
    group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
) -> list[MessageQueue]:
    """Consecutive queues for each member; if they do not divide evenly, the first members get one
    more."""
    if not takes_part(group, client_id, queues, client_ids):
        return []
    share, rest = divmod(len(queues), len(client_ids))
    index = client_ids.index(client_id)
    start = index * share + min(index, rest)
    return list(queues[start : start + share + (index < rest)])


def averagely_by_circle(
    group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
) -> list[MessageQueue]:
    """Deal out the queues, one to each member in turn, until none is left."""
    if not takes_part(group, client_id, queues, client_ids):
        return []
    return list(queues[client_ids.index(client_id) :: len(client_ids)])


AVG = Strategy("AVG", averagely)
AVG_BY_CIRCLE = Strategy("AVG_BY_CIRCLE", averagely_by_circle)


def pinned_machines(addresses: Collection[str]) -> Strategy:
    """Members whose address is listed share all queues as in averagely; the others get none.

    The address is the part of a client id before '@'. If none of them is alive, no member consumes,
    and `why_idle` says so. Raises ValueError if there is no address, or one that no client id can
    have.
    """
    listed = frozenset(addresses)
    if not listed or any(not address or "@" in address for address in listed):
        raise ValueError(f"pinned machines {sorted(listed)}: give addresses such as 10.0.0.1")

    def pinned(client_ids: Sequence[str]) -> list[str]:
        return [each for each in client_ids if each.partition("@")[0] in listed]

    def allocate(
        group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        takes_part(group, client_id, queues, client_ids)
        sharing = pinned(client_ids)
        return averagely(group, client_id, queues, sharing) if sharing else []

    def why_idle(group: str, client_ids: Sequence[str]) -> str | None:
        if pinned(client_ids):
            return None
        return (
            f"group {group}: none of its {len(client_ids)} members runs on a pinned machine "
            f"({', '.join(sorted(listed))}), so no member consumes"
        )

    return Strategy("PINNED_MACHINES", allocate, why_idle)


def by_configuration(configured: Sequence[MessageQueue]) -> Strategy:
    """This member consumes exactly `configured`, regardless of other members.

    As in RocketMQ, nothing is checked: the configuration of the members has to cover every queue
    once.
    """
    chosen = tuple(configured)

    def allocate(
        _group: str, _client_id: str, _queues: Sequence[MessageQueue], _client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        return list(chosen)

    return Strategy("CONFIG", allocate)
