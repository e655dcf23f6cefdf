"""Only members on listed machines consume."""

from collections.abc import Collection, Sequence

from sparrowmq.client.strategies.average import averagely
from sparrowmq.client.strategies.strategy import Strategy, takes_part
from sparrowmq.protocol.message import MessageQueue


def pinned_machines(addresses: Collection[str]) -> Strategy:
    """Members whose address is listed share all queues as in averagely; the others get none.

    The address is what stands before '@' in a client id. With none of them alive nobody consumes,
    and `why_idle` says so. Raises ValueError if there is no address, or one that no client id has.
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
            f"({', '.join(sorted(listed))}), so nobody consumes"
        )

    return Strategy("PINNED_MACHINES", allocate, why_idle)
