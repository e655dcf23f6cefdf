"""Invalid requests that RocketMQ's servers accepted from users, by report number."""

import msgspec
import pytest

from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.headers.clients import Heartbeat
from sparrowmq.protocol.headers.send import SendMessageV2
from sparrowmq.protocol.headers.topics import CreateTopic
from sparrowmq.testing.sim_cluster import SimCluster
from sparrowmq.testing.wire import Refused
from tests.broker.delivery_world import DeliveryWorld
from tests.broker.world import subscribes, world_with

BAD_NAMES = ("", " ", "a b", "a.b", "a/b", "../../etc/cron.d/x", "订单", "a\x01b", "x" * 128)


@pytest.mark.parametrize("name", BAD_NAMES)
def test_report_1637_the_server_itself_refuses_bad_topic_names_in_every_request(name: str) -> None:
    with world_with() as world:
        before = set(world.broker.topics.table().topic_config_table)
        with pytest.raises(Refused):
            world.send(name, b"x")
        create = CreateTopic(topic=name, read_queue_nums=1, write_queue_nums=1, perm=6)
        assert world.ask(create).code != ResponseCode.SUCCESS
        if name != "x" * 128:
            world.client("member").beat(subscribes(name or " "))
        assert set(world.broker.topics.table().topic_config_table) == before


@pytest.mark.parametrize("length", [32_768, 40_000, 65_535, 65_536, 65_600, 131_072])
def test_report_3786_properties_whose_length_would_wrap_are_refused(length: int) -> None:
    with DeliveryWorld() as world:
        header = world.send_header("orders", 0, {})
        header = msgspec.structs.replace(header, properties=f"mine\x01{'v' * length}\x02")
        reply = world.call(header, b"x")
        assert reply.code == ResponseCode.MESSAGE_ILLEGAL
        world.send("orders", b"next")
        world.kill()
        assert [message.body for message in world.messages("orders")] == [b"next"]


@pytest.mark.parametrize(
    "changes",
    [
        {"queue_id": -(2**31)},
        {"queue_id": 2**31 - 1},
        {"born_timestamp": -(2**63)},
        {"born_timestamp": 2**63 - 1},
        {"flag": -(2**31)},
        {"reconsume_times": -(2**31)},
        {"properties": "\x01\x02\x01\x02\x02\x01"},
        {"properties": "DELAY\x01nonsense\x02"},
        {"producer_group": "\x00"},
    ],
)
def test_report_8801_extreme_fields_are_stored_whole_or_refused(changes: dict[str, object]) -> None:
    with SimCluster(seed=1).run() as sim:
        fields: dict[str, object] = {
            "producer_group": "svc",
            "topic": "orders",
            "default_topic": "TBW102",
            "default_topic_queue_nums": 4,
            "queue_id": 0,
            "sys_flag": 0,
            "born_timestamp": 1,
            "flag": 0,
            "properties": "",
        }
        header = SendMessageV2(**(fields | changes))  # type: ignore[arg-type]
        answer = sim.wait(sim.client.call(header, b"body"))
        assert answer.code != ResponseCode.SYSTEM_ERROR, answer.remark
        sim.wait(sim.client.send("orders", b"next"))
        sim.brokers["broker-a"].restart()
        queues = range(sim.broker.topics.table().topic_config_table["orders"].read_queue_nums)
        reader = sim.new_client("reader")
        found = [sim.wait(reader.pull("orders", queue_id=queue)).bodies for queue in queues]
        expected = [b"body"] if answer.code == ResponseCode.SUCCESS else []
        assert sorted(body for each in found for body in each) == [*expected, b"next"]


@pytest.mark.parametrize("body", [b"", b"null", b"[]", b"{", b'{"clientID":null}', b"\xff" * 9])
def test_report_8801_an_invalid_heartbeat_is_refused_and_leaves_nothing_behind(body: bytes) -> None:
    with world_with() as world:
        answer = world.ask(Heartbeat(), body)
        assert answer.code != ResponseCode.SUCCESS
        assert list(world.broker.consumers) == []
