"""Routes of topics and offsets of their queues, fetched over blocking sockets.

    with RemoteCluster("127.0.0.1:9876") as cluster:
        for queue in cluster.queues("orders"):
            print(queue, cluster.min_offset(queue), cluster.max_offset(queue))

Runs on drivers and executors: standard library only.
"""

from dataclasses import dataclass
from types import TracebackType
from typing import Any, NamedTuple, Self

from sparrowmq.protocol.codes import ROUTE_LOST, RequestCode, ResponseCode
from sparrowmq.protocol.hosts import parse_address
from sparrowmq.protocol.json_reader import parse_json
from sparrowmq.protocol.names import AUTO_CREATE_TOPIC, is_system_topic
from sparrowmq.protocol.perm import PERM_READ_WRITE, is_readable, is_writable
from sparrowmq.spark.errors import BrokerAway, ClusterUnreachable, ServerRefused, TopicMissing
from sparrowmq.spark.wire.remoting import Answer, Remoting

_EPOCH = "sparrowEpoch"
VALID_END = "sparrowValidEnd"
"""Field in answers: offsets of the request's epoch are valid up to here."""


class Queue(NamedTuple):
    """One queue of a topic on the brokers of one name. Sorted by topic, broker and id."""

    topic: str
    broker_name: str
    queue_id: int

    def __str__(self) -> str:
        return f"{self.topic} queue {self.queue_id} of {self.broker_name}"


UNKNOWN_EPOCH = 0
"""The epoch of offsets learned before brokers had epochs, or from a broker without them."""


class QueuePosition(NamedTuple):
    """An offset of a queue, and the epoch of the broker's log in which it was learned."""

    offset: int
    epoch: int = UNKNOWN_EPOCH


class QueueEnd(NamedTuple):
    """Where a queue ends now."""

    position: QueuePosition
    valid_end: int | None = None
    """How far offsets of the requested epoch are valid; None where nothing limits them."""


class BrokerAddresses(NamedTuple):
    """The brokers of one name: a master and its slaves."""

    cluster: str
    name: str
    addresses: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Route:
    """Which queues a topic has, and which brokers serve them."""

    queues: tuple[Queue, ...]
    """The readable queues."""
    addresses: dict[str, str]
    """`host:port` by broker name: the master's, or a slave's while there is no master."""
    write_queues: tuple[Queue, ...] = ()
    """The writable queues, in the order in which producers number them."""
    without_master: frozenset[str] = frozenset()
    """Broker names whose address is a slave's."""


def split_name_servers(text: str) -> tuple[str, ...]:
    """The addresses in `a:9876;b:9876` (or with commas). Raises ValueError for anything else."""
    servers = tuple(part.strip() for part in text.replace(",", ";").split(";") if part.strip())
    if not servers:
        raise ValueError("no name server is given, write host:port")
    for server in servers:
        parse_address(server)
    return servers


class RemoteCluster:
    """A cluster as its name servers describe it. Connections stay open until `close`.

    Raises ClusterUnreachable when a server does not answer, ServerRefused when it refuses.
    """

    def __init__(self, name_servers: str, timeout_s: float = 3.0, *, origin: str = "") -> None:
        """`origin` is where the addresses were configured; errors quote it."""
        self.name_servers = split_name_servers(name_servers)
        self._origin = origin
        self._timeout_s = timeout_s
        self._connections: dict[str, Remoting] = {}
        self._routes: dict[str, Route] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, tuple[str, float, str]]:
        # Readers carry the cluster to executors; connections stay here.
        return _remote_cluster, (";".join(self.name_servers), self._timeout_s, self._origin)

    def __str__(self) -> str:
        servers = ";".join(self.name_servers)
        return f"{servers} ({self._origin})" if self._origin else servers

    def close(self) -> None:
        """Close all connections; a later call opens them again."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def route(self, topic: str) -> Route:
        """The topic's route; the last known one while no name server answers.

        Raises TopicMissing.
        """
        fields = {"topic": topic, "acceptStandardJsonOnly": "true"}
        try:
            answer = self._from_name_server(RequestCode.GET_ROUTEINFO_BY_TOPIC, fields)
        except ClusterUnreachable:
            if topic in self._routes:
                return self._routes[topic]
            raise
        if answer.code == ResponseCode.TOPIC_NOT_EXIST:
            is_lost = answer.remark.startswith(ROUTE_LOST)
            raise TopicMissing(topic, str(self), answer.remark if is_lost else "")
        _check(answer, str(self), "GET_ROUTEINFO_BY_TOPIC")
        route = self._routes[topic] = _route(topic, parse_json(answer.body))
        return route

    def known_route(self, topic: str) -> Route:
        """The route of a topic known to have existed. If it is not found, its brokers are away: a
        name server forgets a topic together with its last broker.

        Raises BrokerAway.
        """
        try:
            return self.route(topic)
        except TopicMissing as missing:
            text = f"no broker that serves topic {topic} is registered at {missing.name_servers}"
            raise BrokerAway(text) from missing

    def topics(self) -> list[str]:
        """The names of all topics."""
        answer = self._from_name_server(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, {})
        _check(answer, str(self), "GET_ALL_TOPIC_LIST_FROM_NAMESERVER")
        return sorted(map(str, parse_json(answer.body).get("topicList") or ()))

    def user_topics(self) -> list[str]:
        """The topics of users: no system topics, and none of those that brokers create under their
        own name and their cluster's.
        """
        info = self._info()
        clusters = set(info.get("clusterAddrTable") or ())
        own = clusters | set(info.get("brokerAddrTable") or ())
        own |= {f"{name}_REPLY_TOPIC" for name in clusters}
        return [topic for topic in self.topics() if topic not in own and not is_system_topic(topic)]

    def broker_names(self) -> list[str]:
        """The names of the registered brokers."""
        return sorted(map(str, self._info().get("brokerAddrTable") or ()))

    def masters(self) -> dict[str, str]:
        """The address of each master, by broker name."""
        table = self._info().get("brokerAddrTable") or {}
        masters = {str(name): data["brokerAddrs"].get("0") for name, data in table.items()}
        return {name: str(address) for name, address in masters.items() if address}

    def create_topic(self, topic: str, queues: int) -> list[str]:
        """Create a topic with this many queues on every broker; returns the brokers' names.

        The name servers hear about the topic from the brokers, a moment later.
        """
        masters = self.masters()
        for address in masters.values():
            fields = {
                "topic": topic,
                "defaultTopic": AUTO_CREATE_TOPIC,
                "readQueueNums": str(queues),
                "writeQueueNums": str(queues),
                "perm": str(int(PERM_READ_WRITE)),
                "topicFilterType": "SINGLE_TAG",
                "topicSysFlag": "0",
                "order": "false",
            }
            self._connection(address).ask(RequestCode.UPDATE_AND_CREATE_TOPIC, fields)
        return sorted(masters)

    def brokers(self, topic: str) -> list[BrokerAddresses]:
        """The brokers that serve a topic, by name. Raises TopicMissing."""
        serving = self.route(topic).addresses
        found = [
            BrokerAddresses(
                str(data.get("cluster", "")), name, tuple(sorted(data["brokerAddrs"].values()))
            )
            for name, data in (self._info().get("brokerAddrTable") or {}).items()
            if name in serving
        ]
        return sorted(found)

    def queues(self, topic: str) -> list[Queue]:
        """All readable queues of a topic, on all brokers. Raises TopicMissing."""
        return list(self.route(topic).queues)

    def address(self, topic: str, broker_name: str) -> str:
        """The address at which that broker serves the topic. Raises BrokerAway if it does not."""
        route = self._routes.get(topic) or self.known_route(topic)
        if broker_name not in route.addresses:
            route = self.known_route(topic)
        if broker_name not in route.addresses:
            raise BrokerAway(
                f"broker {broker_name} does not serve topic {topic} at present, known are"
                f" {', '.join(sorted(route.addresses)) or 'none'}; start it again"
            )
        return route.addresses[broker_name]

    def wait_for_master(self, queue: Queue, why: str) -> None:
        """Raise BrokerAway if a slave currently answers for a queue.

        A slave may lack the newest messages and the newest epoch, which looks like data loss.
        """
        route = self._routes.get(queue.topic) or self.known_route(queue.topic)
        if queue.broker_name in route.without_master:
            raise BrokerAway(
                f"the master of {queue.broker_name} is away, and its slave cannot take over: {why}"
            )

    def name_server(self, address: str) -> Remoting:
        """The connection to one of the name servers, for requests that go to all of them."""
        return self._connection(address)

    def broker(self, topic: str, broker_name: str) -> Remoting:
        """The connection to that broker."""
        return self._connection(self.address(topic, broker_name))

    def min_offset(self, queue: Queue) -> int:
        """The oldest offset that a queue still has."""
        answer = self._ask(queue, RequestCode.GET_MIN_OFFSET, {})
        return int(answer.fields["offset"])

    def max_offset(self, queue: Queue) -> int:
        """The offset that the queue's next message will get."""
        answer = self._ask(queue, RequestCode.GET_MAX_OFFSET, {"committed": "true"})
        return int(answer.fields["offset"])

    def end(self, queue: Queue, since: int = UNKNOWN_EPOCH) -> QueueEnd:
        """Where a queue ends, with the epoch, and how far offsets of epoch `since` are valid."""
        fields = {"committed": "true", _EPOCH: str(since)}
        answer = self._ask(queue, RequestCode.GET_MAX_OFFSET, fields)
        valid_end = answer.fields.get(VALID_END) if since != UNKNOWN_EPOCH else None
        return QueueEnd(_position(answer), None if valid_end is None else int(valid_end))

    def oldest(self, queue: Queue) -> QueuePosition:
        """The oldest offset that a queue still has, with its epoch."""
        # Fetched first: an epoch that is too old is safe, one that is too new is not.
        epoch = self.end(queue).position.epoch
        return QueuePosition(self.min_offset(queue), epoch)

    def position_at(self, queue: Queue, timestamp_ms: int) -> QueuePosition:
        """The first message that was stored at that time or later."""
        fields = {"timestamp": str(timestamp_ms), "boundaryType": "LOWER"}
        fields[_EPOCH] = str(UNKNOWN_EPOCH)
        return _position(self._ask(queue, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, fields))

    def offset_at(self, queue: Queue, timestamp_ms: int) -> int:
        """The offset of `position_at`, without its epoch."""
        return self.position_at(queue, timestamp_ms).offset

    def consumer_offset(self, group: str, queue: Queue) -> int | None:
        """A group's offset in a queue; None if it has none."""
        fields = {"consumerGroup": group, "setZeroIfNotFound": "false"}
        try:
            answer = self._ask(queue, RequestCode.QUERY_CONSUMER_OFFSET, fields)
        except ServerRefused as refused:
            if refused.code == ResponseCode.QUERY_NOT_FOUND:
                return None
            raise
        return int(answer.fields["offset"])

    def groups(self, topic: str) -> list[str]:
        """The consumer groups that the topic's brokers know."""
        found: set[str] = set()
        for name in self.route(topic).addresses:
            answer = self.broker(topic, name).ask(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, {})
            found |= set(parse_json(answer.body).get("subscriptionGroupTable") or ())
        return sorted(map(str, found))

    def consuming_groups(self, topic: str) -> list[str]:
        """The groups that subscribe to a topic or have progress in it."""
        found: set[str] = set()
        for name in self.route(topic).addresses:
            broker = self.broker(topic, name)
            answer = broker.ask(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, {"topic": topic})
            found |= set(parse_json(answer.body).get("groupList") or ())
        return sorted(map(str, found))

    def update_consumer_offset(self, group: str, queue: Queue, at: QueuePosition) -> None:
        """Store where a group continues. The group has to exist on that broker.

        Our brokers ignore a position past the messages of its epoch that are left.
        """
        fields = {"consumerGroup": group, "commitOffset": str(at.offset), **epoch_field(at.epoch)}
        self._ask(queue, RequestCode.UPDATE_CONSUMER_OFFSET, fields)

    def _ask(self, queue: Queue, code: RequestCode, fields: dict[str, str]) -> Answer:
        of_queue = {"topic": queue.topic, "queueId": str(queue.queue_id)}
        try:
            broker = self.broker(queue.topic, queue.broker_name)
            return broker.ask(code, {**of_queue, **fields})
        except ClusterUnreachable:
            # The broker may be back at another address, or a slave may serve now: look once.
            old = self.address(queue.topic, queue.broker_name)
            self.known_route(queue.topic)
            if self.address(queue.topic, queue.broker_name) == old:
                raise
        return self.broker(queue.topic, queue.broker_name).ask(code, {**of_queue, **fields})

    def _info(self) -> dict[str, Any]:
        answer = self._from_name_server(RequestCode.GET_BROKER_CLUSTER_INFO, {})
        _check(answer, str(self), "GET_BROKER_CLUSTER_INFO")
        return dict(parse_json(answer.body))

    def _from_name_server(self, code: RequestCode, fields: dict[str, str]) -> Answer:
        """The answer of the first name server that gives one."""
        failure: ClusterUnreachable | None = None
        for address in self.name_servers:
            try:
                return self._connection(address).call(code, fields)
            except ClusterUnreachable as error:
                failure = error
        assert failure is not None
        raise ClusterUnreachable(
            failure.address, failure.request, failure.reason, self._origin
        ) from failure

    def _connection(self, address: str) -> Remoting:
        if address not in self._connections:
            self._connections[address] = Remoting(address, self._timeout_s)
        return self._connections[address]


def _remote_cluster(name_servers: str, timeout_s: float, origin: str) -> RemoteCluster:
    return RemoteCluster(name_servers, timeout_s, origin=origin)


def epoch_field(epoch: int) -> dict[str, str]:
    """The request field for an offset learned in this epoch; empty if the epoch is unknown."""
    return {} if epoch == UNKNOWN_EPOCH else {_EPOCH: str(epoch)}


def _position(answer: Answer) -> QueuePosition:
    return QueuePosition(
        int(answer.fields["offset"]), int(answer.fields.get(_EPOCH) or UNKNOWN_EPOCH)
    )


_A_BROKER = "this is a broker, not a name server; name servers listen on port 9876 by default"


def _check(answer: Answer, address: str, request: str) -> None:
    """Check a name server's answer; brokers do not know the requests that name servers get."""
    if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
        raise ServerRefused(address, request, answer.code, _A_BROKER)
    if answer.code != ResponseCode.SUCCESS:
        raise ServerRefused(address, request, answer.code, answer.remark)


def _route(topic: str, data: dict[str, Any]) -> Route:
    queues = [
        Queue(topic, str(part["brokerName"]), queue_id)
        for part in data.get("queueDatas") or ()
        if is_readable(int(part.get("perm", PERM_READ_WRITE)))
        for queue_id in range(int(part["readQueueNums"]))
    ]
    addresses = {
        str(part["brokerName"]): _best_address(part["brokerAddrs"])
        for part in data.get("brokerDatas") or ()
        if part.get("brokerAddrs")
    }
    without_master = frozenset(addresses) - _with_master(data)
    return Route(tuple(sorted(queues)), addresses, _write_queues(topic, data), without_master)


def _write_queues(topic: str, data: dict[str, Any]) -> tuple[Queue, ...]:
    """Writable queues of brokers that have a master; an order configuration replaces them.

    Same as the client's `publish_queues`, so that every producer maps a key to the same queue.
    """
    if order := data.get("orderTopicConf"):
        counts = [part.split(":") for part in str(order).split(";") if part]
        return tuple(Queue(topic, name, at) for name, count in counts for at in range(int(count)))
    masters = _with_master(data)
    return tuple(
        Queue(topic, str(part["brokerName"]), queue_id)
        for part in sorted(data.get("queueDatas") or (), key=lambda part: str(part["brokerName"]))
        if str(part["brokerName"]) in masters
        and is_writable(int(part.get("perm", PERM_READ_WRITE)))
        for queue_id in range(int(part["writeQueueNums"]))
    )


def _with_master(data: dict[str, Any]) -> set[str]:
    return {
        str(part["brokerName"])
        for part in data.get("brokerDatas") or ()
        if "0" in map(str, part.get("brokerAddrs") or ())
    }


def _best_address(by_id: dict[str, str]) -> str:
    return str(by_id[min(by_id, key=int)])  # 0 is the master
