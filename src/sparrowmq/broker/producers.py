"""Live producers: who can be asked about the transactions of a group."""

from collections.abc import Iterator

from sparrowmq.broker.consumers import Member
from sparrowmq.net.connection import Connection


class Producers:
    """Producer groups and their connections."""

    def __init__(self) -> None:
        self._groups: dict[str, dict[Connection, Member]] = {}
        self._groups_of: dict[Connection, set[str]] = {}
        self._by_client_id: dict[str, Member] = {}

    def join(self, group: str, member: Member) -> None:
        """Register a producer by its heartbeat."""
        self._groups.setdefault(group, {})[member.connection] = member
        self._groups_of.setdefault(member.connection, set()).add(group)
        self._by_client_id[member.client_id] = member

    def leave(self, connection: Connection, group: str) -> None:
        """A producer said goodbye."""
        members = self._groups.get(group)
        gone = None
        if members is not None:
            gone = members.pop(connection, None)
            if not members:
                del self._groups[group]
        groups = self._groups_of.get(connection)
        if groups is not None:
            groups.discard(group)
            if not groups:
                del self._groups_of[connection]
                self._forget_client(gone)

    def _forget_client(self, member: Member | None) -> None:
        if member is not None:
            current = self._by_client_id.get(member.client_id)
            if current is not None and current.connection is member.connection:
                del self._by_client_id[member.client_id]

    def find(self, client_id: str) -> Member | None:
        """The live producer with a client id, on its newest connection."""
        return self._by_client_id.get(client_id)

    def forget(self, connection: Connection) -> None:
        """A connection ended."""
        for group in tuple(self._groups_of.get(connection, ())):
            self.leave(connection, group)

    def members(self, group: str) -> list[Member]:
        """The live producers of a group, in the order they came."""
        return list(self._groups.get(group, {}).values())

    def groups(self) -> Iterator[tuple[str, list[Member]]]:
        """Every live group with its members."""
        return iter([(group, list(members.values())) for group, members in self._groups.items()])

    def silent_since(self, before_ms: int) -> list[Member]:
        """Members whose last heartbeat came before that time."""
        return [
            member
            for members in self._groups.values()
            for member in members.values()
            if member.last_seen_ms < before_ms
        ]
