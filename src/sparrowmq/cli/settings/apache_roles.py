"""Master or slave, and how many copies a send waits for: the lines of a broker.conf that only make
sense together.

```
brokerRole      brokerId       here
ASYNC_MASTER    0 or absent    replication async: a send waits for no slave
SYNC_MASTER     0 or absent    replication sync: waits for inSyncReplicas copies, 2 when absent
SLAVE           1 or more      follows the master of its name
```

Apache's broker ignores the id of a master, and serves with 0. A file that says both is refused
here: treated as a slave it would accept no send, treated as a master it would be a second one.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from sparrowmq.broker.config import ReplicationMode

ROLE, ID, COPIES = "brokerRole", "brokerId", "inSyncReplicas"
_SLAVE = "SLAVE"
_ROLES = (*(role.value for role in ReplicationMode), _SLAVE)


class ConfLine(NamedTuple):
    """One `key=value` of a file."""

    where: str
    """File and line."""
    key: str
    value: str

    @property
    def origin(self) -> str:
        """The name of the line in errors."""
        return f"{self.where}: {self.key}"


def role_problems(lines: Mapping[str, ConfLine]) -> Iterator[str]:
    """Problems of roles that do not exist or contradict the id; `lines` are the file's by key."""
    role, broker_id = lines.get(ROLE), lines.get(ID)
    if role is not None and role.value.upper() not in _ROLES:
        yield f"{role.origin} is {role.value!r}, must be one of {', '.join(_ROLES)}"
        return
    is_slave = role is not None and role.value.upper() == _SLAVE
    has_slave_id = broker_id is not None and broker_id.value.isdecimal() and int(broker_id.value)
    if is_slave and not has_slave_id:
        assert role is not None
        yield f"{role.origin} is {role.value!r}, which needs a brokerId of 1 or more"
    elif has_slave_id and not is_slave:
        assert broker_id is not None
        written = "without a brokerRole" if role is None else f"with brokerRole={role.value}"
        yield (
            f"{broker_id.origin} is {broker_id.value!r} {written}, must be 0; a slave has 1 or more"
            " and brokerRole=SLAVE"
        )


def role_warnings(lines: Mapping[str, ConfLine]) -> Iterator[str]:
    """Warnings where the number of copies differs from Apache's broker, or has no effect."""
    role, copies = lines.get(ROLE), lines.get(COPIES)
    is_sync = role is not None and role.value.upper() == ReplicationMode.SYNC
    if is_sync and copies is None:
        assert role is not None
        yield (
            f"{role.origin}={role.value} waits for 2 copies of a message here; RocketMQ 5, where"
            f" {COPIES} is 1 unless set, waits for none. {COPIES}=2 says the same on both"
        )
    if copies is not None and not is_sync and copies.value != "1":
        yield f"{copies.origin} has no effect, only a SYNC_MASTER waits for slaves"


def replication_of(role: str) -> str | None:
    """The setting that a role stands for; None for a slave, which acknowledges nothing, and for an
    unknown role."""
    return role if role.upper() in (*ReplicationMode,) else None
