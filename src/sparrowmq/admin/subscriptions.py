"""What the members of a group subscribe to, and in what they differ.

RocketMQ expects all members of a group to want the same. Where they do not, the broker keeps what
the latest heartbeat said, and a queue's messages are dropped by a member that did not ask for them.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from sparrowmq.admin.groups import GroupInfo
from sparrowmq.admin.members import GroupMember, Subscription


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSubscription:
    """One subscription, and the members that have it."""

    subscription: Subscription
    members: tuple[str, ...]
    """Client ids; empty where only the broker knows of it."""
    difference: str
    """What differs between members, in words; empty where all have this subscription."""


def subscriptions_of(group: GroupInfo) -> list[GroupSubscription]:
    """Every subscription of a group, by topic."""
    asked = [each for each in group.members if each.subscriptions is not None]
    wanted = {one for each in asked for one in each.subscriptions or ()} | group.subscriptions
    return [
        GroupSubscription(
            subscription=one,
            members=tuple(each.client_id for each in asked if one in (each.subscriptions or ())),
            difference=_difference(one, asked),
        )
        for one in sorted(wanted)
    ]


def _difference(one: Subscription, asked: Sequence[GroupMember]) -> str:
    lacking = [each for each in asked if one not in (each.subscriptions or ())]
    if not lacking:
        return ""
    parts = []
    for each in lacking:
        other = next(
            (have.expression for have in each.subscriptions or () if have.topic == one.topic), None
        )
        text = "not subscribed" if other is None else f"subscribes to {other!r}"
        parts.append(f"{each.client_id} {text}")
    return "; ".join(parts)
