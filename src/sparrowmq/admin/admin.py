"""Looking at a cluster and changing it."""

import asyncio
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from sparrowmq.admin.errors import AdminError, NameServerRefusal, NameServersAway, PartlyDone
from sparrowmq.client.client import Client
from sparrowmq.client.config import FROM_ENVIRONMENT, config_of
from sparrowmq.client.errors import ClientError, NameServerRefused, NoNameServer
from sparrowmq.net.calls import Response
from sparrowmq.net.errors import NetError
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.header import RequestHeader
from sparrowmq.protocol.headers.nameserver import (
    DeleteTopicRoute,
    GetAllTopics,
    GetClusterInfo,
)
from sparrowmq.protocol.headers.topics import CreateTopic, DeleteTopic
from sparrowmq.protocol.names import check_topic
from sparrowmq.protocol.perm import PERM_READ_WRITE
from sparrowmq.protocol.route import ClusterInfo, TopicList, TopicRoute

_ROUTE_LOOKS = 60
_ROUTE_LOOK_S = 0.05


class Admin:
    """Operations through the name servers and brokers of one cluster.

    async with Admin("127.0.0.1:9876") as admin:
        await admin.create_topic("orders", queues=8)
    """

    def __init__(
        self, name_servers: str | Sequence[str] = FROM_ENVIRONMENT, *, client: Client | None = None
    ) -> None:
        self._owns_client = client is None
        self.client = client or Client(config_of(name_servers, None, has_client=False))

    async def __aenter__(self) -> Self:
        if self._owns_client:
            await self.client.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._owns_client:
            await self.client.stop()

    # ---- looking

    async def cluster_info(self) -> ClusterInfo:
        """Clusters, their brokers and addresses."""
        response = await self._ask_name_server(GetClusterInfo())
        return ClusterInfo.from_json(response.body)

    async def topics(self) -> list[str]:
        """Names of all topics any broker registered."""
        response = await self._ask_name_server(GetAllTopics())
        return sorted(TopicList.from_json(response.body).topic_list)

    async def route(self, topic: str) -> TopicRoute:
        """Where a topic lives. Raises AdminError when it lives nowhere."""
        try:
            route = await self.client.name_servers.route(topic)
        except NoNameServer as error:
            raise NameServersAway(error.addresses, error.failure) from error
        except NameServerRefused as error:
            raise NameServerRefusal(error.code, error.text) from error
        except ClientError as error:
            raise AdminError(str(error)) from error
        if route is None:
            text = f"topic {topic} does not exist; create it with: sparrowmq topic create {topic}"
            raise AdminError(text)
        return route

    async def masters(
        self, *, brokers: Sequence[str] = (), cluster: str | None = None
    ) -> dict[str, str]:
        """Broker name → master address: of the brokers named, of a cluster, or of all.

        Raises AdminError for a broker or cluster that is not there.
        """
        info = await self.cluster_info()
        if cluster is not None and cluster not in info.cluster_addr_table:
            known = ", ".join(sorted(info.cluster_addr_table)) or "none"
            raise AdminError(f"there is no cluster {cluster}; known are: {known}")
        wanted = set(brokers) or (
            info.cluster_addr_table[cluster] if cluster else set(info.broker_addr_table)
        )
        found: dict[str, str] = {}
        for name in sorted(wanted):
            data = info.broker_addr_table.get(name)
            if data is None or data.master_addr is None:
                known = ", ".join(sorted(info.broker_addr_table)) or "none"
                what = "is not registered" if data is None else "has no master now"
                raise AdminError(f"broker {name} {what}; registered are: {known}")
            found[name] = data.master_addr
        if not found:
            raise AdminError("no broker is registered with the name server; start one first")
        return found

    # ---- changing

    async def create_topic(
        self,
        topic: str,
        *,
        queues: int = 8,
        brokers: Sequence[str] = (),
        cluster: str | None = None,
        perm: int = PERM_READ_WRITE,
        order: bool = False,
    ) -> list[str]:
        """Create a topic, or change it, on brokers, a cluster, or everywhere; where it is now.

        Raises ValueError, AdminError, or PartlyDone when some brokers refused.
        """
        check_topic(topic)
        targets = await self.masters(brokers=brokers, cluster=cluster)
        header = CreateTopic(
            topic=topic,
            default_topic="TBW102",
            read_queue_nums=queues,
            write_queue_nums=queues,
            perm=perm,
            topic_filter_type="SINGLE_TAG",
            order=order,
        )
        done = await self._everywhere(f"topic {topic} is set", targets, header)
        await self._until_routed(topic, queues, done)
        return done

    async def _until_routed(self, topic: str, queues: int, brokers: Sequence[str]) -> None:
        """Brokers register a change with the name servers on their own; wait until it is there."""
        for _ in range(_ROUTE_LOOKS):
            route = await self.client.name_servers.route(topic)
            datas = route.queue_datas if route else ()
            known = {data.broker_name for data in datas if data.write_queue_nums == queues}
            if known.issuperset(brokers):
                return
            await asyncio.sleep(_ROUTE_LOOK_S)
        raise AdminError(
            f"topic {topic} is set on {', '.join(brokers)}, but the name server does not know it"
            " yet; clients will find it within 30 s"
        )

    async def delete_topic(self, topic: str) -> list[str]:
        """Delete a topic on all brokers and then from the name servers."""
        check_topic(topic)
        done = await self._everywhere(
            f"topic {topic} is deleted", await self.masters(), DeleteTopic(topic=topic)
        )
        for server in self.client.name_servers.addresses:
            await self._call(server, DeleteTopicRoute(topic=topic))
        return done

    async def _everywhere(
        self, what: str, targets: dict[str, str], header: RequestHeader
    ) -> list[str]:
        done: list[str] = []
        failed: dict[str, str] = {}
        for name, address in targets.items():
            try:
                await self._call(address, header)
            except AdminError as error:
                failed[name] = str(error)
            else:
                done.append(name)
        if failed and not done:
            reasons = "; ".join(f"{name}: {reason}" for name, reason in failed.items())
            raise AdminError(f"not done: {reasons}")
        if failed:
            raise PartlyDone(what, done, failed)
        return done

    async def _ask_name_server(self, header: RequestHeader) -> Response:
        try:
            response = await self.client.name_servers.call(header)
        except NetError as error:
            raise NameServersAway(self.client.name_servers.addresses, str(error)) from error
        if response.code != ResponseCode.SUCCESS:
            raise NameServerRefusal(response.code, response.remark)
        return response

    async def _call(self, address: str, header: RequestHeader) -> Response:
        try:
            response = await self.client.peers.call(address, header, timeout_s=5.0)
        except NetError as error:
            raise AdminError(str(error)) from error
        if response.code != ResponseCode.SUCCESS:
            raise AdminError(f"{address} answered {response.code}: {response.remark}")
        return response
