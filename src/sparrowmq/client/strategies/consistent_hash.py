"""A ring of hashes: each queue belongs to the next point on it, as in ConsistentHashRouter."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from hashlib import md5

from sparrowmq.client.strategies.strategy import Strategy, takes_part
from sparrowmq.protocol.message import MessageQueue


def consistent_hash(virtual_nodes: int = 10) -> Strategy:
    """Few queues move when members come or go, but the shares are uneven.

    `virtual_nodes` is the number of points of each member, which must be the same for all members;
    with 0 no member consumes. Raises ValueError if it is negative.
    """
    if virtual_nodes < 0:
        raise ValueError(f"virtual_nodes is {virtual_nodes}, must be 0 or more")

    def allocate(
        group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        if not takes_part(group, client_id, queues, client_ids):
            return []
        points, owners = _ring(tuple(client_ids), virtual_nodes)
        return [
            queue for queue in queues if owners[bisect_left(points, _hash(str(queue)))] == client_id
        ]

    return Strategy("CONSISTENT_HASH", allocate)


@lru_cache(maxsize=4)  # a group uses the same ring for all of its topics
def _ring(client_ids: tuple[str, ...], virtual_nodes: int) -> tuple[list[int], list[str | None]]:
    """Points in order, and the owner of each place before, between and after them."""
    ring: dict[int, str] = {}
    points: Counter[str] = Counter()
    for client_id in client_ids:
        first = points[client_id]  # a client listed twice gets further points, as in addNode
        for index in range(first, first + virtual_nodes):
            point = _hash(f"{client_id}-{index}")
            if point in ring:
                points[ring[point]] -= 1
            ring[point] = client_id
            points[client_id] += 1
    sorted_points = sorted(ring)
    owners: list[str | None] = [ring[point] for point in sorted_points]
    # after the last point the ring starts over; without points there is no owner
    return sorted_points, [*owners, owners[0] if owners else None]


def _hash(key: str) -> int:
    # Java encodes an invalid character as '?'
    digest = md5(key.encode("utf-8", "replace"), usedforsecurity=False).digest()
    return int.from_bytes(digest[:4], "big")


CONSISTENT_HASH = consistent_hash()
