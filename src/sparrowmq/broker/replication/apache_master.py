"""Before a slave copies from an Apache master: is its log a copy, and where does it continue?

Apache's broker does not know the hello, so ordinary requests ask what a hello would say:

```
26  its settings         name, cluster, role, size of log files, HA address
28  its log              where it begins and ends
33  one of its records   the last one that this log also has: the two must be equal
```

Then the HA connection starts with the offset (`protocol/ha.py`). An Apache master that is asked for
offset 0 sends its *last* file, whatever precedes it. If its log begins at 0, the first record is
therefore taken from the answer to 33, and the connection asks for what follows it.
"""

from collections.abc import Mapping

from sparrowmq.broker.replication.claims import LogClaim
from sparrowmq.broker.replication.follower import (
    Approach,
    LogsDiverged,
    MustStartAnew,
    NotFollowing,
)
from sparrowmq.net.calls import Response
from sparrowmq.net.peers import Peers
from sparrowmq.protocol.body import KVTable
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.header import RequestHeader
from sparrowmq.protocol.headers.admin import GetBrokerConfig, GetRuntimeInfo
from sparrowmq.protocol.headers.messages import ViewMessage
from sparrowmq.store.store import Store

_ASK_S = 3.0
_OTHER_LOGS = ("enableControllerMode", "enableDLegerCommitLog")
"""Settings with which a master replicates its log in another than the classic way."""


class ApacheMaster:
    """The master at an address: everything that a slave has to know about it."""

    def __init__(self, address: str, peers: Peers) -> None:
        self.address = address
        self._peers = peers

    async def approach(self, store: Store, own: LogClaim) -> Approach:
        """How to start copying, for the owner of `store`, which `own` describes.

        Raises NotFollowing, MustStartAnew or NetError.
        """
        ha_address = check_settings(self.address, await self._settings(), own)
        begin, end = await self.log_range()
        start = own.end
        if own.is_empty:
            start = begin or await self.take_first_record(store, end)
        elif start < begin:
            raise MustStartAnew(
                f"the log of {own.address} ends at {start:,} and the log of {self.address} begins"
                f" at {begin:,}: what lies between has expired"
            )
        elif start > end:
            raise LogsDiverged(
                f"the log here ends at {start:,}, past the end of {self.address} at {end:,}: it has"
                " messages that the master lost; promote this broker, or move its data directory"
                " aside and start with an empty one"
            )
        else:
            await self._compare_last_record(store, begin)
        return Approach(ha_address=ha_address, start=start, master_end=end, is_apache=True)

    async def log_range(self) -> tuple[int, int]:
        """The log offsets at which the master's log begins and ends."""
        answer = await self.ask(GetRuntimeInfo())
        table = KVTable.from_json(answer.body).table
        try:
            begin, end = int(table["commitLogMinOffset"]), int(table["commitLogMaxOffset"])
        except (KeyError, ValueError):
            raise NotFollowing(
                f"{self.address} does not say where its log begins and ends (request 28 without"
                " commitLogMinOffset and commitLogMaxOffset)"
            ) from None
        return max(0, begin), max(0, end)  # Apache reports -1 as the begin of an empty log

    async def ask(self, header: RequestHeader) -> Response:
        """The answer to a request that must succeed. Raises NotFollowing, NetError."""
        return self.checked(header, await self.call(header))

    async def call(self, header: RequestHeader) -> Response:
        """The answer to a request, whatever its code. Raises NetError."""
        return await self._peers.call(self.address, header, timeout_s=_ASK_S)

    def checked(self, header: RequestHeader, answer: Response) -> Response:
        """The answer, which must be a success. Raises NotFollowing."""
        if answer.code != ResponseCode.SUCCESS:
            name = header.CODE.name
            raise NotFollowing(f"{self.address} refuses request {name}: {answer.remark}")
        return answer

    async def _settings(self) -> dict[str, str]:
        lines = (await self.ask(GetBrokerConfig())).body.decode(errors="replace").splitlines()
        pairs = (line.partition("=") for line in lines if "=" in line)
        return {name.strip(): value.strip() for name, _, value in pairs}

    async def take_first_record(self, store: Store, end: int) -> int:
        """Store the record at offset 0, if there is one yet; returns where the log ends then."""
        if end:
            record = (await self.ask(ViewMessage(offset=0))).body
            store.append_raw(0, record)
        return store.max_log_offset

    async def _compare_last_record(self, store: Store, begin: int) -> None:
        """Raise LogsDiverged if the end of this log differs from what the master has there."""
        offset = store.last_record_offset
        own = store.read_message(offset) if offset >= begin else None
        if own is None:
            return  # the master no longer has anything to compare it with
        answer = await self.call(ViewMessage(offset=offset))
        if answer.code != ResponseCode.SUCCESS or answer.body != own:
            raise LogsDiverged(
                f"the record at log offset {offset:,} here is not the one of {self.address}: the"
                " logs have diverged; move this data directory aside and start with an empty one"
            )


def check_settings(address: str, settings: Mapping[str, str], own: LogClaim) -> str:
    """The host:port to copy from, for a master with these settings.

    Raises NotFollowing if it cannot be followed, or a setting that is needed is missing.
    """
    wanted = {
        "brokerClusterName": own.cluster,
        "brokerName": own.broker_name,
        "mappedFileSizeCommitLog": str(own.file_size),
    }
    needed = (*wanted, "brokerRole", "brokerIP2", "haListenPort")
    missing = [name for name in needed if not settings.get(name)]
    if missing:
        raise NotFollowing(f"{address} does not report its {', '.join(missing)} (request 26)")
    for name, value in wanted.items():
        if settings[name] != value:
            raise NotFollowing(
                f"{name} of {address} is {settings[name]}, here it is {value}; they must be equal"
            )
    if settings["brokerRole"] == "SLAVE":
        raise NotFollowing(f"{address} is a slave itself")
    for name in _OTHER_LOGS:
        if settings.get(name) == "true":
            raise NotFollowing(f"{address} has {name}=true, and replicates in a way of its own")
    return f"{settings['brokerIP2']}:{settings['haListenPort']}"
