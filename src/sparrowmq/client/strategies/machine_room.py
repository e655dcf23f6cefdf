"""Strategies that know in which machine room brokers and members are."""

from collections.abc import Callable, Collection, Sequence
from typing import TypeVar

from sparrowmq.client.strategies.strategy import Strategy, takes_part
from sparrowmq.protocol.message import MessageQueue

T = TypeVar("T")


def by_machine_room(rooms: Collection[str]) -> Strategy:
    """Only queues of brokers named `room@name` with a room in `rooms`, in even shares.

    The remainder is taken from the end, one queue for each of the first members. Queues in other
    rooms are not consumed by members with these rooms.
    """
    wanted = frozenset(rooms)

    def allocate(
        group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        if not takes_part(group, client_id, queues, client_ids):
            return []
        near = [queue for queue in queues if _room_before_at(queue.broker_name) in wanted]
        share, rest = divmod(len(near), len(client_ids))
        index = client_ids.index(client_id)
        mine = near[index * share : (index + 1) * share]
        if index < rest:
            mine.append(near[share * len(client_ids) + index])
        return mine

    return Strategy("MACHINE_ROOM", allocate)


def _room_before_at(broker_name: str) -> str | None:
    parts = broker_name.split("@")
    while parts and not parts[-1]:  # Java's split drops empty texts at the end
        parts.pop()
    return parts[0] if len(parts) == 2 else None


def machine_room_nearby(
    inner: Strategy,
    room_of_queue: Callable[[MessageQueue], str],
    room_of_client: Callable[[str], str],
) -> Strategy:
    """Queues go to members in their own room by `inner`; a room without members is shared by all.

    The functions must return a room for every queue and client; an empty one raises a ValueError
    when queues are allocated.
    """

    def allocate(
        group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        if not takes_part(group, client_id, queues, client_ids):
            return []
        queues_in = _by_room(queues, room_of_queue)
        clients_in = _by_room(client_ids, room_of_client)
        here = room_of_client(client_id)
        mine: list[MessageQueue] = []
        if here in queues_in:
            mine += inner(group, client_id, queues_in[here], clients_in[here])
        for room in sorted(queues_in.keys() - clients_in.keys(), key=_java_order):
            mine += inner(group, client_id, queues_in[room], client_ids)
        return mine

    return Strategy(f"MACHINE_ROOM_NEARBY-{inner.name}", allocate, inner.why_idle)


def _by_room(items: Sequence[T], room_of: Callable[[T], str]) -> dict[str, list[T]]:
    rooms: dict[str, list[T]] = {}
    for item in items:
        room = room_of(item)
        if not room:
            raise ValueError(f"no machine room is known for {item}")
        rooms.setdefault(room, []).append(item)
    return rooms


def _java_order(text: str) -> bytes:
    # String.compareTo compares UTF-16 units, which sorts some characters unlike Python.
    return text.encode("utf-16-be", "surrogatepass")
