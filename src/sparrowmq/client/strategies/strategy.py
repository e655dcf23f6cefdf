"""The strategy type, and the checks that all strategies share."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from sparrowmq.protocol.message import MessageQueue

Owners = dict[MessageQueue, str]
Allocate = Callable[[str, str, Sequence[MessageQueue], Sequence[str]], list[MessageQueue]]
"""(group, client id, sorted queues, sorted client ids) to the queues of that client."""


Plan = Callable[[Sequence[MessageQueue], Sequence[str], Mapping[MessageQueue, str]], Owners]
"""(sorted queues, sorted client ids, which member holds what now) to the owner of every queue."""


def _never_idle(_group: str, _client_ids: Sequence[str]) -> str | None:
    return None


@dataclass(frozen=True, slots=True)
class Strategy:
    """A way to share queues, with the name by which other members and operators know it.

    Every member calls it separately with the same sorted lists and must get the same shares. To
    write your own, use `Strategy("MY_NAME", my_function)`.
    """

    name: str
    allocate: Allocate
    why_idle: Callable[[str, Sequence[str]], str | None] = _never_idle
    """(group, client ids) to the reason why no member at all consumes, for the log; else None."""
    plan: Plan | None = None
    """Used instead of `allocate` if brokers know which member holds which queue."""

    def __call__(
        self,
        group: str,
        client_id: str,
        queues: Sequence[MessageQueue],
        client_ids: Sequence[str],
    ) -> list[MessageQueue]:
        """The queues of `client_id`. Raises ValueError if they cannot be computed."""
        return self.allocate(group, client_id, queues, client_ids)


def takes_part(
    group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
) -> bool:
    """Whether the client is among the members. Raises ValueError for invalid lists.

    A client that is not listed (yet) gets no queues: the others share them without it.
    """
    if not client_id:
        raise ValueError(f"group {group}: the client id is empty")
    if not queues:
        raise ValueError(f"group {group}: there are no queues to share")
    if not client_ids:
        raise ValueError(f"group {group}: there are no members to share the queues")
    return client_id in client_ids
