"""Invalid registrations are refused with a reason and change nothing."""

import struct
import zlib

import pytest

from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.headers.nameserver import QueryDataVersion, RegisterTopic
from sparrowmq.protocol.registration import RegisterBrokerBody
from sparrowmq.protocol.topic_config import RegisteredTopics, TopicConfig
from tests.nameserver.world import PORT, World, registration, topic, world
from tests.net.wire import Answer, Wire, request

FIELDS = {
    "clusterName": "DefaultCluster",
    "brokerName": "broker-a",
    "brokerId": "0",
    "brokerAddr": "10.1.1.1:10911",
    "haServerAddr": "10.1.1.1:10912",
}


def ask(w: World, frame: bytes) -> Answer:
    async def over_the_wire() -> Answer:
        wire = await Wire.open("ns", PORT)
        answer = await wire.ask(frame)
        wire.close()
        return answer

    return w.sim.run(over_the_wire(), on=w.sim.host("hostile"))


def body_of(*topics: TopicConfig) -> bytes:
    table = {config.topic_name: config for config in topics}
    return RegisterBrokerBody(topics=RegisteredTopics(topic_config_table=table)).to_json()


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"brokerAddr": "no-port"}, "'no-port' must be host:port"),
        ({"brokerAddr": "host:99999"}, "must be host:port"),
        ({"brokerAddr": "h" * 300 + ":1"}, "1 to 255"),
        ({"haServerAddr": "nowhere"}, "HA server address"),
        ({"brokerName": ""}, "broker name ''"),
        ({"brokerName": "a\x00b"}, "printable"),
        ({"clusterName": "c" * 256}, "cluster name"),
        ({"brokerId": "-1"}, "broker id is -1, must be 0 to"),
        ({"brokerId": "99999999999999999999"}, "broker id is 99999999999999999999"),
        ({"brokerId": "zero"}, "brokerId"),
        ({"heartbeatTimeoutMillis": "0"}, "heartbeatTimeoutMillis is 0"),
        ({"heartbeatTimeoutMillis": "999999999999"}, "heartbeatTimeoutMillis"),
        ({"enableActingMaster": "perhaps"}, "enableActingMaster"),
        ({"__ZONE_NAME": "z" * 256}, "zone name"),
        ({"bodyCrc32": "12345"}, "the header says 12345"),
        ({"compressed": "true"}, "zlib"),
    ],
)
def test_a_field_that_cannot_be_is_named(changes: dict[str, str], says: str) -> None:
    with world() as w:
        answer = ask(w, request(103, {**FIELDS, **changes}, registration(["orders"])))
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert says in answer.remark
        assert len(answer.remark) < 600
        assert w.server.table.groups == {}


@pytest.mark.parametrize("missing", list(FIELDS))
def test_a_missing_field_is_named(missing: str) -> None:
    with world() as w:
        fields = {name: value for name, value in FIELDS.items() if name != missing}
        answer = ask(w, request(103, fields, registration(["orders"])))
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert missing in answer.remark
        assert w.server.table.groups == {}


BOMB = zlib.compress(bytes(70 * 1024 * 1024))


@pytest.mark.parametrize(
    "body",
    [
        b"not json",
        b'{"topicConfigSerializeWrapper":',
        b'{"topicConfigSerializeWrapper":[]}',
        b'{"topicConfigSerializeWrapper":{"topicConfigTable":{"a":{"topicName":7}}}}',
        b'{"topicConfigSerializeWrapper":{"topicConfigTable":{"a":{"perm":6}}}}',
        b'{"a":' * 1000 + b"1" + b"}" * 1000,
        b"\xff\xfe\xfd",
        b"x\xda cut",
        zlib.compress(b"\x00\x00\x00\x02{}\x7f\xff\xff\xff"),
        zlib.compress(struct.pack(">i", -5)),
        BOMB,
        body_of(topic("ok"), topic("")),
        body_of(topic("ok"), topic("t" * 256)),
        body_of(topic("ok"), topic("bell\x07")),
        body_of(topic("ok"), topic("many", queues=65_537)),
        body_of(topic("ok"), topic("few", queues=-1)),
        body_of(topic("ok"), topic("perm", perm=16)),
        body_of(topic("ok"), topic("perm", perm=-1)),
        body_of(topic("ok"), topic("flag", flag=-1)),
    ],
    ids=lambda body: repr(body[:30]),
)
def test_a_broken_body_is_refused_and_changes_nothing(body: bytes) -> None:
    with world() as w:
        w.broker("broker-b").register(["orders"])
        answer = ask(w, request(103, FIELDS, body))
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert 10 < len(answer.remark) < 600
        assert "Traceback" not in answer.remark
        assert set(w.server.table.groups) == {"broker-b"}
        assert "ok" not in w.server.table.topics


def test_too_many_topics_are_refused_also_one_after_the_other() -> None:
    with world(max_topics_per_broker=5) as w:
        broker = w.broker()
        response = broker.call(broker.header(), registration([f"t{i}" for i in range(4)]))
        assert response.code == ResponseCode.SYSTEM_ERROR
        assert "6 topics in one registration, at most 5 allowed" in response.remark
        broker.register(["a", "b"])
        broker.register(["b", "c"])
        response = broker.call(broker.header(), registration(["d", "e"]))
        assert "would have 7 topics, at most 5 allowed" in response.remark
        body = b'{"queueDatas":[{"brokerName":"broker-a","readQueueNums":1,"writeQueueNums":1}]}'
        response = broker.call(RegisterTopic(topic="d"), body)
        assert "would have 6 topics" in response.remark
        broker.ok(RegisterTopic(topic="c"), body)


def test_too_many_brokers_are_refused_and_known_ones_may_register_again() -> None:
    with world(max_brokers=2) as w:
        one, two, three = w.broker("a"), w.broker("b"), w.broker("c")
        one.register()
        two.register()
        response = three.call(three.header(), registration())
        assert response.code == ResponseCode.SYSTEM_ERROR
        assert "2 brokers are registered" in response.remark
        one.register()


def test_other_broken_bodies_are_refused_too() -> None:
    with world() as w:
        broker = w.broker()
        broker.register()
        for header in (
            RegisterTopic(topic="new"),
            QueryDataVersion(
                cluster_name="c", broker_name="b", broker_id=0, broker_addr=broker.address
            ),
        ):
            response = broker.call(header, b"{broken")
            assert response.code == ResponseCode.SYSTEM_ERROR
            assert "the body must be" in response.remark


def test_a_broker_from_before_3_0_11_registers_a_bare_table() -> None:
    with world() as w:
        table = RegisteredTopics(topic_config_table={name: topic(name) for name in ("a", "b")})

        async def register() -> tuple[Wire, Answer]:
            wire = await Wire.open("ns", PORT)
            return wire, await wire.ask(request(103, FIELDS, table.to_json(), version=36))

        wire, answer = w.sim.run(register(), on=w.sim.host("old-broker"))
        assert answer.code == ResponseCode.SUCCESS
        assert w.client.has_route("a")
        wire.close()
