"""Brokers: their addresses, roles and state."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial

from sparrowmq.admin.cluster_calls import ClusterCalls, at_once
from sparrowmq.admin.errors import AdminError, NotFound, failure_of, shown
from sparrowmq.admin.values import Listing, time_of
from sparrowmq.protocol.body import KVTable
from sparrowmq.protocol.headers.admin import GetBrokerConfig, GetRuntimeInfo
from sparrowmq.protocol.route import MASTER_ID


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerRuntime:
    """A broker's state. A figure that it does not report is None."""

    version: str
    """Of RocketMQ, such as V5_3_3."""
    sparrowmq_version: str
    """Of SparrowMQ, such as 0.1.0; empty for a broker of Apache's."""
    started: datetime | None
    stored_per_s: float | None
    """Messages per second in the last ten seconds."""
    delivered_per_s: float | None
    stored_today: int | None
    """Messages since midnight, by the broker's clock."""
    delivered_today: int | None
    disk_used: float | None
    """The used part of the disk with the commit log, from 0 to 1."""
    oldest_message: datetime | None
    waiting_timers: int | None
    """Messages that are waiting for their delivery time."""
    busy_reason: str
    """Why it refuses sends at the moment; empty if it does not."""
    drain: str
    """In words, that it is draining or drained; empty if it is not."""
    copies_in_sync: int | None
    """For a master: how many brokers have nearly all of its log, itself included."""
    behind_bytes: int | None
    """For a slave: bytes of its master's log that it lacks. For a master: the same for the slave
    that lacks the most."""
    behind_s: float | None
    """For a slave: the age of its last message while it lacks the next one."""
    table: Mapping[str, str]
    """Everything that it reports, by Apache's names."""

    @property
    def versions(self) -> str:
        """Both for people: `0.1.0 (as V5_3_3)`; of a broker of Apache's only its own."""
        own = self.sparrowmq_version
        return f"{own} (as {self.version})" if own else self.version


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerInfo:
    """A broker that is registered with the name servers."""

    name: str
    broker_id: int
    """0 for the master of its name."""
    address: str
    cluster: str
    runtime: BrokerRuntime | None
    """None if it did not answer."""

    @property
    def is_master(self) -> bool:
        """Whether it takes sends and changes."""
        return self.broker_id == MASTER_ID

    @property
    def role(self) -> str:
        """`master` or `slave`."""
        return "master" if self.is_master else "slave"


async def clusters(cluster: ClusterCalls) -> dict[str, tuple[str, ...]]:
    """Names of the brokers of each cluster."""
    table = (await cluster.info()).cluster_addr_table
    return {name: tuple(sorted(table[name])) for name in sorted(table)}


async def brokers(cluster: ClusterCalls) -> Listing[BrokerInfo]:
    """All brokers, including slaves; those that do not answer have no figures, and are also in
    `errors`."""
    table = (await cluster.info()).broker_addr_table
    known = [
        (data, broker_id)
        for _, data in sorted(table.items())
        for broker_id in sorted(data.broker_addrs)
    ]
    addresses = [data.broker_addrs[broker_id] for data, broker_id in known]
    answers = await at_once([partial(runtime_table, cluster, address) for address in addresses])
    found, errors = [], []
    for (data, broker_id), address, answer in zip(known, addresses, answers, strict=True):
        runtime = None
        if isinstance(answer, AdminError):
            errors.append(failure_of(data.broker_name, address, answer))
        else:
            runtime = _runtime(answer, is_master=broker_id == MASTER_ID)
        found.append(
            BrokerInfo(
                name=data.broker_name,
                broker_id=broker_id,
                address=address,
                cluster=data.cluster,
                runtime=runtime,
            )
        )
    return Listing(tuple(found), tuple(errors))


async def runtime_table(cluster: ClusterCalls, address: str) -> dict[str, str]:
    """What a broker reports about itself, by Apache's names."""
    return KVTable.from_json((await cluster.call(address, GetRuntimeInfo())).body).table


async def is_sparrow(cluster: ClusterCalls, address: str) -> bool:
    """Whether a broker is SparrowMQ's: only these report how many pulls wait."""
    return "waitingPulls" in await runtime_table(cluster, address)


async def broker_config(cluster: ClusterCalls, address: str) -> dict[str, str]:
    """The settings in force on a broker, by Apache's names."""
    return read_settings((await cluster.call(address, GetBrokerConfig())).body)


def read_settings(body: bytes) -> dict[str, str]:
    """Parse the settings from `name=value` lines, the format of the servers' answers."""
    lines = body.decode("utf-8", "replace").splitlines()
    pairs = (line.partition("=") for line in lines if "=" in line and not line.startswith("#"))
    return {name.strip(): value.strip() for name, _, value in pairs}


async def address_of_broker(cluster: ClusterCalls, name: str, broker_id: int) -> str:
    """Where a broker is, by its name and id. Raises NotFound."""
    table = (await cluster.info()).broker_addr_table
    if name not in table:
        raise NotFound("broker", name, f"registered are: {shown(table)}")
    found = table[name].broker_addrs
    if broker_id not in found:
        ids = ", ".join(map(str, sorted(found)))
        raise NotFound("broker", f"{name} with id {broker_id}", f"of that name there are: {ids}")
    return found[broker_id]


async def config_of(cluster: ClusterCalls, name: str) -> dict[str, str]:
    """The settings in force on the master of a name. Raises NotFound."""
    address = (await cluster.masters(brokers=[name]))[name]
    return await broker_config(cluster, address)


def _runtime(table: Mapping[str, str], *, is_master: bool) -> BrokerRuntime:
    now, morning = _whole(table, "msgPutTotalTodayNow"), _whole(table, "msgPutTotalTodayMorning")
    got, got_morning = (
        _whole(table, "msgGetTotalTodayNow"),
        _whole(table, "msgGetTotalTodayMorning"),
    )
    return BrokerRuntime(
        version=table.get("brokerVersionDesc", ""),
        sparrowmq_version=table.get("sparrowmqVersion", ""),
        started=time_of(_whole(table, "bootTimestamp")),
        stored_per_s=_first(table, "putTps"),
        delivered_per_s=_first(table, "getTransferredTps"),
        stored_today=None if now is None or morning is None else now - morning,
        delivered_today=None if got is None or got_morning is None else got - got_morning,
        disk_used=_first(table, "commitLogDiskRatio"),
        oldest_message=time_of(_whole(table, "earliestMessageTimeStamp")),
        waiting_timers=_whole(table, "timerCongestNum"),
        busy_reason=table.get("busyReason", ""),
        drain=table.get("drain", ""),
        copies_in_sync=_whole(table, "copiesInSync"),
        behind_bytes=_whole(table, "slavesBehindBytes" if is_master else "behindMasterBytes"),
        behind_s=_seconds(table, "behindMasterSeconds"),
        table=dict(table),
    )


def _whole(table: Mapping[str, str], name: str) -> int | None:
    try:
        return int(table.get(name, ""))
    except ValueError:
        return None


def _seconds(table: Mapping[str, str], name: str) -> float | None:
    """A figure in seconds; None if it is negative, which is how a slave reports an unknown one."""
    found = _first(table, name)
    return None if found is None or found < 0 else found


def _first(table: Mapping[str, str], name: str) -> float | None:
    """The first of several numbers: rates are over ten seconds, a minute and ten minutes."""
    try:
        return float(table.get(name, "").split()[0])
    except (ValueError, IndexError):
        return None
