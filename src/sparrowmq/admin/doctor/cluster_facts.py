"""Asks name servers and brokers how they are."""

import re
from collections.abc import Iterable, Mapping
from functools import partial

from sparrowmq.admin.brokers import broker_config, runtime_table
from sparrowmq.admin.cluster_calls import ClusterCalls, at_once
from sparrowmq.admin.doctor.facts import BrokerFacts, BrokerKey, ClusterFacts, NameServerFacts
from sparrowmq.admin.doctor.findings import NotMade
from sparrowmq.admin.errors import AdminError, BrokerRefusal, NotFound, is_unsupported, shown
from sparrowmq.admin.slaves import SlaveInfo, slaves_of
from sparrowmq.admin.topics import topic_config
from sparrowmq.protocol.headers.nameserver import GetClusterInfo, GetTopicRoute
from sparrowmq.protocol.perm import is_writable
from sparrowmq.protocol.route import MASTER_ID, ClusterInfo, TopicRoute

_UNITS_S = {"days": 86_400, "hours": 3600, "minutes": 60, "seconds": 1}


async def look_at_cluster(calls: ClusterCalls, cluster: str | None) -> ClusterFacts:
    """All name servers and the brokers of one cluster, or of all. Raises NotFound."""
    addresses = calls.client.name_servers.addresses
    answers = await at_once([partial(_cluster_info, calls, each) for each in addresses])
    infos = {
        address: answer
        for address, answer in zip(addresses, answers, strict=True)
        if not isinstance(answer, AdminError)
    }
    known = _registered(infos.values(), cluster)
    names = {name for name, _ in known}
    servers = []
    for address, answer in zip(addresses, answers, strict=True):
        if isinstance(answer, AdminError):
            servers.append(NameServerFacts(address=address, error=str(answer)))
        else:
            servers.append(await _name_server(calls, address, answer, names))
    brokers = await at_once([partial(_broker, calls, *item) for item in known.items()])
    found = tuple(each for each in brokers if not isinstance(each, AdminError))
    slaves, missing = await _slaves(calls, found)
    return ClusterFacts(
        name_servers=tuple(servers), brokers=found, slaves=slaves, missing=tuple(missing)
    )


async def _cluster_info(calls: ClusterCalls, address: str) -> ClusterInfo:
    return ClusterInfo.from_json((await calls.call(address, GetClusterInfo())).body)


def _registered(
    infos: Iterable[ClusterInfo], cluster: str | None
) -> dict[BrokerKey, tuple[str, tuple[str, ...]]]:
    """Address and clusters of every broker that any name server knows. Raises NotFound."""
    found: dict[BrokerKey, tuple[str, tuple[str, ...]]] = {}
    clusters: set[str] = set()
    for info in infos:
        clusters |= info.cluster_addr_table.keys()
        for name, data in info.broker_addr_table.items():
            within = tuple(
                sorted(each for each, names in info.cluster_addr_table.items() if name in names)
            )
            if cluster is None or cluster in within:
                for broker_id, address in data.broker_addrs.items():
                    found.setdefault((name, broker_id), (address, within))
    if cluster is not None and clusters and cluster not in clusters:
        raise NotFound("cluster", cluster, f"known are: {shown(clusters)}")
    return dict(sorted(found.items()))


async def _name_server(
    calls: ClusterCalls, address: str, info: ClusterInfo, names: set[str]
) -> NameServerFacts:
    """What it knows. Every broker has a topic of its own name, by which a wiped permission is seen
    with one question."""
    listed = sorted(names & info.broker_addr_table.keys())
    asks = [partial(_shows_as_writable, calls, address, name) for name in listed]
    answers = await at_once(asks)
    return NameServerFacts(
        address=address,
        brokers={
            (name, broker_id): at
            for name, data in info.broker_addr_table.items()
            if name in names
            for broker_id, at in data.broker_addrs.items()
        },
        read_only=frozenset(
            name for name, is_open in zip(listed, answers, strict=True) if is_open is False
        ),
    )


async def _shows_as_writable(calls: ClusterCalls, address: str, name: str) -> bool:
    header = GetTopicRoute(topic=name, accept_standard_json_only=True)
    route = TopicRoute.from_json((await calls.call(address, header)).body)
    perms = [each.perm for each in route.queue_datas if each.broker_name == name]
    return not perms or any(map(is_writable, perms))


# ---- brokers


async def _broker(
    calls: ClusterCalls, key: BrokerKey, at: tuple[str, tuple[str, ...]]
) -> BrokerFacts:
    (name, broker_id), (address, clusters) = key, at
    clock = calls.client.clock
    asked_ms = clock()
    (runtime,) = await at_once([partial(runtime_table, calls, address)])
    answered_ms = clock()
    if isinstance(runtime, AdminError):
        return BrokerFacts(
            name=name,
            broker_id=broker_id,
            address=address,
            clusters=clusters,
            error=str(runtime),
            is_refusal=isinstance(runtime, BrokerRefusal),
        )
    (settings,) = await at_once([partial(broker_config, calls, address)])
    (takes_sends,) = await at_once([partial(_takes_sends, calls, address, name)])
    now_ms = _its_time_ms(runtime)
    return BrokerFacts(
        name=name,
        broker_id=broker_id,
        address=address,
        clusters=clusters,
        runtime=runtime,
        settings=None if isinstance(settings, AdminError) else settings,
        skew_s=None if now_ms is None else (now_ms - (asked_ms + answered_ms) / 2) / 1000,
        skew_doubt_s=1 + (answered_ms - asked_ms) / 2000,
        takes_sends=not isinstance(takes_sends, AdminError) and takes_sends,
    )


async def _takes_sends(calls: ClusterCalls, address: str, name: str) -> bool:
    return is_writable((await topic_config(calls, address, name)).perm)


def _its_time_ms(runtime: Mapping[str, str]) -> int | None:
    """A broker's clock: when it started, and since when it runs, in whole seconds."""
    started = runtime.get("bootTimestamp", "")
    parts = re.findall(r"(\d+) (days|hours|minutes|seconds)", runtime.get("runtime", ""))
    if not started.isdecimal() or not parts:
        return None
    seconds = sum(int(number) * _UNITS_S[unit] for number, unit in parts)
    return int(started) + 1000 * seconds + 500


async def _slaves(
    calls: ClusterCalls, brokers: tuple[BrokerFacts, ...]
) -> tuple[tuple[SlaveInfo, ...], list[NotMade]]:
    masters = [each for each in brokers if each.broker_id == MASTER_ID and each.runtime is not None]
    answers = await at_once(
        [partial(slaves_of, calls, each.name, each.address) for each in masters]
    )
    found: list[SlaveInfo] = []
    missing = []
    for broker, answer in zip(masters, answers, strict=True):
        if isinstance(answer, AdminError):
            reason = (
                "Apache's masters do not remember their slaves"
                if is_unsupported(answer)
                else str(answer)
            )
            missing.append(NotMade(("slave-behind",), f"broker {broker.name}", reason))
        else:
            found += answer
    return tuple(found), missing
