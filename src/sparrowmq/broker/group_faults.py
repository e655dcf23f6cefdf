"""What is wrong inside a group: members that subscribe differently, one client id used twice.

Both are reported and never refused: a rolling change of a subscription looks the same for a while.
"""

from collections import Counter

import msgspec

from sparrowmq.broker.consumers import ConsumerGroup


class GroupFaults(msgspec.Struct, frozen=True):
    """Empty when all is well."""

    unequal: dict[str, list[str]]
    """Client id to what it subscribes to, of every member, when they do not agree."""
    doubled: list[str]
    """Client ids with several connections: such members take the same queues."""

    def __bool__(self) -> bool:
        return bool(self.unequal or self.doubled)

    def __str__(self) -> str:
        parts = []
        if self.unequal:
            wanted = "; ".join(f"{who}: {', '.join(what)}" for who, what in self.unequal.items())
            remedy = "give all members of a group the same subscriptions"
            parts.append(f"members subscribe differently ({wanted}): {remedy}")
        if self.doubled:
            remedy = "give each process an instance name of its own"
            parts.append(f"client ids are used twice ({', '.join(self.doubled)}): {remedy}")
        return " and ".join(parts)


def faults_of(group: ConsumerGroup) -> GroupFaults:
    """What is wrong in the group now."""
    told = [member for member in group.members.values() if member.wanted is not None]
    unequal = {}
    if len({member.wanted for member in told}) > 1:
        unequal = {member.client_id: sorted(member.wanted or ()) for member in told}
    doubled = []
    if not group.is_broadcasting:
        uses = Counter(member.client_id for member in group.members.values())
        doubled = sorted(client_id for client_id, count in uses.items() if count > 1)
    return GroupFaults(unequal, doubled)
