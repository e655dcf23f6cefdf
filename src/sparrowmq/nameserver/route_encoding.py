"""Route answers as bytes: assembled from encoded parts, and kept until something changes."""

from collections.abc import Collection, Mapping, Sequence

import msgspec

from sparrowmq.protocol.lenient_json import write_json
from sparrowmq.protocol.route import BrokerData, QueueData, TopicQueueMappingInfo

_MANY = 1_000
_text = msgspec.json.Encoder().encode


class RouteAnswers:
    """Encoded answers by topic and flavour, up to `max_bytes`; the oldest are dropped first.

    A thousand clients ask for the same routes every 30 seconds, and routes seldom change.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._answers: dict[tuple[str, bool], bytes] = {}

    @property
    def size_bytes(self) -> int:
        """The size of the kept answers."""
        return self._bytes

    def get(self, topic: str, quoted: bool) -> bytes | None:
        """The answer, if it is kept."""
        return self._answers.get((topic, quoted))

    def put(self, topic: str, quoted: bool, answer: bytes) -> None:
        """Keep an answer until the topic changes."""
        if len(answer) > self._max_bytes:
            return
        self.forget(topic, quoted)
        self._answers[topic, quoted] = answer
        self._bytes += len(answer)
        while self._bytes > self._max_bytes:
            self._bytes -= len(self._answers.pop(next(iter(self._answers))))

    def forget(self, topic: str, *flavours: bool) -> None:
        """Drop the answers of a topic that has changed."""
        if self._answers:
            for quoted in flavours or (True, False):
                self._bytes -= len(self._answers.pop((topic, quoted), b""))

    def forget_all(self, topics: Collection[str]) -> None:
        """Drop the answers of topics that have changed. If they are many, all answers: to look for
        each of a broker's 50,000 topics takes longer than to encode a few answers again."""
        if len(topics) > _MANY:
            self.clear()
            return
        for topic in topics:
            self.forget(topic)

    def clear(self) -> None:
        """Drop all answers, after a change that every route shows."""
        self._answers.clear()
        self._bytes = 0


def encode_broker(broker: BrokerData, *, quoted: bool) -> bytes:
    """One broker of a route. Ids are quoted for clients that read standard JSON.

    Clients before 4.9.4 get bare ids, as from Apache: the Go client of that time parses the text
    itself and reads a quoted id as 0.
    """
    if quoted:
        return broker.to_json()
    addresses = b",".join(b"%d:%b" % (id, _text(at)) for id, at in broker.broker_addrs.items())
    zone = b"" if broker.zone_name is None else b',"zoneName":' + _text(broker.zone_name)
    return b'{"brokerAddrs":{%b},"brokerName":%b,"cluster":%b,"enableActingMaster":%b%b}' % (
        addresses,
        _text(broker.broker_name),
        _text(broker.cluster),
        b"true" if broker.enable_acting_master else b"false",
        zone,
    )


def encode_route(
    queues: Sequence[QueueData],
    brokers: Sequence[bytes],
    *,
    order_conf: str | None,
    filter_servers: Mapping[str, Sequence[str]],
    mappings: Mapping[str, TopicQueueMappingInfo] | None,
) -> bytes:
    """The JSON of a TopicRoute whose brokers are already encoded."""
    members = [
        b'"brokerDatas":[%b]' % b",".join(brokers),
        b'"filterServerTable":%b' % write_json(filter_servers),
        b'"queueDatas":[%b]' % b",".join(_encode_queues(data) for data in queues),
    ]
    if order_conf is not None:
        members.append(b'"orderTopicConf":%b' % _text(order_conf))
    if mappings:
        members.append(b'"topicQueueMappingByBroker":%b' % write_json(mappings))
    return b"{%b}" % b",".join(members)


def _encode_queues(data: QueueData) -> bytes:
    return (
        b'{"brokerName":%b,"perm":%d,"readQueueNums":%d,"topicSysFlag":%d,"writeQueueNums":%d}'
        % (
            _text(data.broker_name),
            data.perm,
            data.read_queue_nums,
            data.topic_sys_flag,
            data.write_queue_nums,
        )
    )
