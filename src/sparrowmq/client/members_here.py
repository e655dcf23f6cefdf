"""Consumers of this process, so that two of them do not get into each other's way.

Two members of a clustering group with one client id take the same queues, and members that
subscribe differently lose messages. Brokers can only report both; here they are refused.
"""

import asyncio
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from sparrowmq.client.subscriptions import Subscriptions, differences


class Here(Protocol):
    """A consumer as far as it matters here."""

    subscriptions: Subscriptions

    @property
    def group(self) -> str:
        """Its group."""
        ...

    @property
    def is_broadcasting(self) -> bool:
        """Whether each member gets everything."""
        ...


@dataclass(frozen=True, slots=True)
class Place:
    """Who it is for brokers, and which brokers."""

    client_id: str
    name_servers: frozenset[str]
    pid: int
    """A forked child has copies of its parent's entries."""


@dataclass(frozen=True, slots=True)
class _Entry:
    consumer: "weakref.ref[Here]"
    place: Place
    loop: asyncio.AbstractEventLoop


class MembersHere:
    """Started consumers; one that was forgotten without being stopped does not count."""

    def __init__(self) -> None:
        self._entries: list[_Entry] = []

    def enter(self, consumer: Here, place: Place) -> None:
        """Raises ValueError for a client id that is taken and for another subscription."""
        for other, where in self._of_group(consumer.group, place):
            everybody_gets_all = consumer.is_broadcasting and other.is_broadcasting
            if where.client_id == place.client_id and not everybody_gets_all:
                raise ValueError(
                    f"group {consumer.group} has a member with client id {place.client_id} in this"
                    " process already: both would take the same queues; give each Client an"
                    " instance_name of its own, or none"
                )
            difference = differences(consumer.subscriptions.all(), other.subscriptions.all())
            if difference:
                raise ValueError(
                    f"group {consumer.group} has a member in this process that subscribes"
                    f" differently: {difference}; members of one group need the same"
                    " subscriptions, else messages are lost: use another group"
                )
        loop = asyncio.get_running_loop()
        self._entries.append(_Entry(weakref.ref(consumer), place, loop))

    def leave(self, consumer: Here) -> None:
        """It stopped."""
        self._entries = [one for one in self._entries if one.consumer() is not consumer]

    def _of_group(self, group: str, place: Place) -> Iterator[tuple[Here, Place]]:
        for entry in self._entries:
            other = entry.consumer()
            if other is None or other.group != group or entry.loop.is_closed():
                continue
            if entry.place.pid == place.pid and entry.place.name_servers & place.name_servers:
                yield other, entry.place


MEMBERS_OF_PROCESS = MembersHere()
"""Of this process. Simulations have one for each host."""
