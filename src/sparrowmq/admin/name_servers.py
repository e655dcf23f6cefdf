"""Name servers: which of them answer and what they know; their key-value configuration."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from sparrowmq.admin.cluster_calls import ClusterCalls, answered, at_once, partly_done
from sparrowmq.admin.errors import (
    AdminError,
    BrokerRefusal,
    NameServersAway,
    NotFound,
    not_done,
)
from sparrowmq.admin.server_settings import name_server_failure
from sparrowmq.admin.values import Listing
from sparrowmq.protocol.body import KVTable
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.header import RequestHeader
from sparrowmq.protocol.headers.nameserver import (
    DeleteKvConfig,
    GetAllTopics,
    GetClusterInfo,
    GetKvConfig,
    KvConfigFound,
    ListKvConfig,
    PutKvConfig,
)
from sparrowmq.protocol.route import ClusterInfo, TopicList

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class NameServerInfo:
    """One of the name servers. The numbers are None if it does not answer."""

    address: str
    brokers: int | None = None
    """How many addresses are registered, including slaves."""
    topics: int | None = None

    @property
    def answers(self) -> bool:
        """Whether it answers."""
        return self.brokers is not None


async def name_servers(cluster: ClusterCalls) -> Listing[NameServerInfo]:
    """Each name server and what it knows; those that do not answer are also in `errors`. Raises
    NameServersAway if none answers."""
    addresses = cluster.client.name_servers.addresses
    results = await at_once([partial(_info, cluster, address) for address in addresses])
    found, errors = [], []
    for address, result in zip(addresses, results, strict=True):
        if isinstance(result, AdminError):
            errors.append(name_server_failure(address, str(result)))
            found.append(NameServerInfo(address=address))
        else:
            found.append(result)
    if len(errors) == len(addresses):
        raise NameServersAway(addresses, errors[-1].reason)
    return Listing(tuple(found), tuple(errors))


async def _info(cluster: ClusterCalls, address: str) -> NameServerInfo:
    info = ClusterInfo.from_json((await cluster.call(address, GetClusterInfo())).body)
    topics = TopicList.from_json((await cluster.call(address, GetAllTopics())).body)
    brokers = sum(len(data.broker_addrs) for data in info.broker_addr_table.values())
    return NameServerInfo(address=address, brokers=brokers, topics=len(topics.topic_list))


# ---- key-value configuration


async def key_values(cluster: ClusterCalls, namespace: str) -> dict[str, str]:
    """All keys and values of a namespace, from the first name server that answers. Raises
    NotFound."""

    async def ask(address: str) -> Mapping[str, str]:
        response = await cluster.call(address, ListKvConfig(namespace=namespace))
        return KVTable.from_json(response.body).table

    return dict(await _first(cluster, ask, NotFound("namespace", namespace, "no key is in it")))


async def key_value(cluster: ClusterCalls, namespace: str, key: str) -> str:
    """One value. Raises NotFound."""

    async def ask(address: str) -> str:
        response = await cluster.call(address, GetKvConfig(namespace=namespace, key=key))
        return response.header(KvConfigFound).value

    listing = f"those that do: sparrowmq nameserver kv list {namespace}"
    missing = NotFound("key", f"{namespace}/{key}", listing)
    return await _first(cluster, ask, missing)


async def set_key_value(cluster: ClusterCalls, namespace: str, key: str, value: str) -> None:
    """Set a value on all name servers. Raises ValueError, PartlyDone."""
    _check_words(namespace=namespace, key=key)
    await _change(cluster, PutKvConfig(namespace=namespace, key=key, value=value), "set")


async def delete_key_value(cluster: ClusterCalls, namespace: str, key: str) -> None:
    """Remove a key from all name servers. Raises NotFound, PartlyDone."""
    await key_value(cluster, namespace, key)
    await _change(cluster, DeleteKvConfig(namespace=namespace, key=key), "deleted")


def _check_words(**words: str) -> None:
    for name, word in words.items():
        if not word.strip():
            raise ValueError(f"{name} is {word!r}, must not be empty")


async def _first(cluster: ClusterCalls, ask: Callable[[str], Awaitable[T]], missing: NotFound) -> T:
    """The answer of the first name server that gives one. Raises `missing` if it has none."""
    addresses = cluster.client.name_servers.addresses
    failure: AdminError | None = None
    for address in addresses:
        try:
            return await answered(partial(ask, address))
        except BrokerRefusal as error:
            if error.code == ResponseCode.QUERY_NOT_FOUND:
                raise missing from error
            raise
        except AdminError as error:
            failure = error
    raise NameServersAway(addresses, str(failure))


async def _change(cluster: ClusterCalls, header: RequestHeader, done: str) -> None:
    addresses = cluster.client.name_servers.addresses
    failed = await cluster.change_name_servers(header)
    if len(failed) == len(addresses):
        raise not_done(failed)
    if failed:
        missing = {each.address for each in failed}
        made = [f"name server {each}" for each in addresses if each not in missing]
        raise partly_done(f"the key is {done}", made, failed)
