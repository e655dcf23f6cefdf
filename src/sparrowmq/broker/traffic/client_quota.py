"""The quota that applies to every client.

Client ids live only as long as a process, so no table of them is kept: an id has buckets from its
first send until they are full again, and thus as good as new ones.
"""

from sparrowmq.broker.traffic.meter import Metered, Refusals
from sparrowmq.protocol.limits import Quota, Scope


class ClientQuota:
    """The default quota, and the clients that are currently using it."""

    def __init__(self, quota: Quota) -> None:
        self.quota = quota
        self.refusals = Refusals()
        self.busiest = (0, 0)
        """Most messages and bytes that a client has sent in the last second."""
        self._clients: dict[str, Metered] = {}
        """What each client has left."""
        self._taken: dict[str, tuple[int, int]] = {}
        """What each client had taken at the last tick."""
        self._refused_before = [0]

    def of(self, client_id: str, now_ms: int) -> Metered:
        """What a client has left."""
        found = self._clients.get(client_id)
        if found is None:
            found = Metered(Scope.CLIENT, client_id, self.quota, self.refusals, now_ms)
            self._clients[client_id] = found
        return found

    def __len__(self) -> int:
        return len(self._clients)

    def change(self, quota: Quota, now_ms: int) -> None:
        """Change the limit."""
        self.quota = quota
        for each in self._clients.values():
            each.buckets.change(quota, now_ms)

    @property
    def refused_last_minute(self) -> int:
        """Messages of all clients that were refused in the last minute."""
        return self.refusals.total - self._refused_before[0]

    def tick(self, now_ms: int) -> None:
        """A second is over: forget clients whose quota is completely unused."""
        taken = {client_id: each.buckets.taken for client_id, each in self._clients.items()}
        before = self._taken
        lately = [
            (messages - had[0], size - had[1])
            for client_id, (messages, size) in taken.items()
            for had in [before.get(client_id, (0, 0))]
        ]
        self.busiest = (
            max((messages for messages, _ in lately), default=0),
            max((size for _, size in lately), default=0),
        )
        for client_id, each in tuple(self._clients.items()):
            if each.buckets.is_full(now_ms):
                del self._clients[client_id], taken[client_id]
        self._taken = taken
        self._refused_before = [*self._refused_before[-59:], self.refusals.total]
