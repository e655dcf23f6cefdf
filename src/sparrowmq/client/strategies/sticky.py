"""Even shares that move the fewest queues when members or queues come and go.

Two steps, each with the same result at every member that gets the same lists:

1. `balanced_ring`, from queues and members alone: a hash ring on which a full member is skipped.
   Loads differ by at most one, and a change of members moves little.
2. `plan_sticky`, from the previous owners too, where the members share them: every queue stays
   where it is unless that would make the loads uneven, so that no plan moves fewer.

If a plan was only partly carried out, planning again leads to the same end, no matter which moves
came first: so members that plan during a hand-over agree. docs/decisions/0006-sticky-strategy.md
says why both steps are needed.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b

from sparrowmq.client.strategies.strategy import Owners, Strategy, takes_part
from sparrowmq.protocol.message import MessageQueue

_POINTS = (
    20  # of each member on the ring; 100 would move 10 % fewer queues and take 3 times as long
)


def sticky(previous: Mapping[MessageQueue, str] | None = None) -> Strategy:
    """Loads within one queue of each other, and the fewest moves from `previous`.

    Without `previous`, brokers report which member holds what, as SparrowMQ's do; with brokers that
    do not know, shares follow from queues and members alone and still move little. If you pass
    `previous`, it maps queues to the client ids that hold them and must be the same at all members.
    """
    owners = dict(previous or {})

    def allocate(
        group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        if not takes_part(group, client_id, queues, client_ids):
            return []
        plan = plan_sticky(queues, client_ids, owners)
        return [queue for queue in queues if plan[queue] == client_id]

    return Strategy("STICKY", allocate, plan=plan_sticky if previous is None else None)


def plan_sticky(
    queues: Iterable[MessageQueue], client_ids: Iterable[str], previous: Mapping[MessageQueue, str]
) -> Owners:
    """The owner of every queue among the members, of which there must be at least one.

    Other queues and clients in `previous` are ignored.
    """
    all_queues, members = sorted(set(queues)), sorted(set(client_ids))
    ring = balanced_ring(all_queues, members)
    room = _shares(all_queues, members, ring, previous)
    plan: Owners = {}
    # The first queues of an owner stay, then queues go where the ring has them, then anywhere: each
    # step takes by a fixed order, which is what makes a plan carried out in part end in the same.
    for wanted in (previous, ring):
        for queue in all_queues:
            owner = wanted.get(queue)
            if queue not in plan and owner is not None and room.get(owner, 0) > 0:
                plan[queue] = owner
                room[owner] -= 1
    places = (member for member in members for _ in range(room[member]))
    for queue in all_queues:
        if queue not in plan:
            plan[queue] = next(places)
    return plan


def _shares(
    queues: Sequence[MessageQueue],
    members: Sequence[str],
    ring: Owners,
    previous: Mapping[MessageQueue, str],
) -> dict[str, int]:
    """How many queues each member gets: the larger share for those that hold that many now."""
    share, larger = divmod(len(queues), len(members))
    held = Counter(previous.get(queue) for queue in queues)
    on_ring = Counter(ring.values())
    ranked = sorted(members, key=lambda each: (held[each] <= share, on_ring[each] <= share, each))
    return {member: share + (place < larger) for place, member in enumerate(ranked)}


def balanced_ring(queues: Sequence[MessageQueue], members: Sequence[str]) -> Owners:
    """Each queue goes to the next point on the ring whose member has room."""
    ring = sorted((_hash(f"{member}-{i}"), member) for member in members for i in range(_POINTS))
    points = [point for point, _ in ring]
    onward = _Onward([member for _, member in ring])
    share, larger = divmod(len(queues), len(members))
    loads: Counter[str] = Counter()
    owners: Owners = {}
    for queue in queues:
        owner = onward.from_point(bisect_left(points, _hash(str(queue))))
        owners[queue] = owner
        loads[owner] += 1
        if loads[owner] > share:
            larger -= 1
            onward.close(owner)
            if larger == 0:
                for member in members:
                    if loads[member] == share:
                        onward.close(member)
        elif loads[owner] == share and larger == 0:
            onward.close(owner)
    return owners


class _Onward:
    """Points of a ring, and from each the next one whose member is open, found in almost constant
    time.

    A closed point links to a later one; each lookup shortens the path for the next.
    """

    def __init__(self, members: Sequence[str]) -> None:
        self._members = members
        self._next = list(range(len(members) + 1))
        self._points: dict[str, list[int]] = {}
        for point, member in enumerate(members):
            self._points.setdefault(member, []).append(point)

    def close(self, member: str) -> None:
        for point in self._points[member]:
            self._next[point] = point + 1

    def from_point(self, point: int) -> str:
        found = self._open_from(point)
        if found == len(self._members):
            found = self._open_from(0)
        return self._members[found]

    def _open_from(self, point: int) -> int:
        found = point
        while self._next[found] != found:
            found = self._next[found]
        while self._next[point] != found and point != found:
            self._next[point], point = found, self._next[point]
        return found


def _hash(key: str) -> int:
    return int.from_bytes(blake2b(key.encode("utf-8", "replace"), digest_size=8).digest(), "big")


STICKY = sticky()
"""Remembers nothing itself: any number of groups may share it."""
