"""A broker with limits, and short ways to send to it."""

from typing import Any

from sparrowmq.net.calls import Response
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.group_config import SubscriptionGroupConfig
from sparrowmq.protocol.headers.groups import CreateGroup
from sparrowmq.protocol.headers.send import SendBatchMessage, SendLimited, SendMessageV2
from sparrowmq.protocol.headers.topics import CreateTopic
from sparrowmq.protocol.limit_report import LimitReport, ListLimits, ReportedLimit
from sparrowmq.protocol.names import AUTO_CREATE_TOPIC
from sparrowmq.testing.virtual_tasks import SimTask
from sparrowmq.testing.wire_client import WireClient
from tests.broker.world import World

MESSAGES, BYTES, BACKLOG = "sparrowmq.quota.messages", "sparrowmq.quota.bytes", "sparrowmq.backlog"
CLIENT = "sparrowmq.quota.client.messages"
PRODUCER = "sparrowmq.quota.producer.messages.{}"


def signed(attributes: dict[str, object]) -> str:
    return ",".join(
        f"-{name}" if value is None else f"+{name}={value}" for name, value in attributes.items()
    )


def limit_topic(world: World, attributes: dict[str, object], topic: str = "orders") -> Response:
    """Give a topic of two queues attributes; None removes one."""
    text = signed(attributes)
    header = CreateTopic(
        topic=topic, read_queue_nums=2, write_queue_nums=2, perm=6, attributes=text
    )
    return world.ask(header)


def limit_broker(world: World, attributes: dict[str, object]) -> Response:
    """Quotas of producer groups and clients: attributes of the topic with the broker's name."""
    own = world.broker.topics.get("broker-a")
    assert own is not None
    header = CreateTopic(
        topic="broker-a",
        read_queue_nums=own.read_queue_nums,
        write_queue_nums=own.write_queue_nums,
        perm=own.perm,
        attributes=signed(attributes),
    )
    return world.ask(header)


def limit_group(world: World, attributes: dict[str, object], group: str = "billing") -> Response:
    changes = {
        f"-{name}" if value is None else f"+{name}": "" if value is None else str(value)
        for name, value in attributes.items()
    }
    config = SubscriptionGroupConfig(group_name=group, attributes=changes)
    return world.ask(CreateGroup(), config.to_json())


def send_header(kind: type[Any] = SendMessageV2, **changes: Any) -> Any:
    fields: dict[str, Any] = {
        "producer_group": "shop",
        "topic": "orders",
        "default_topic": AUTO_CREATE_TOPIC,
        "default_topic_queue_nums": 4,
        "queue_id": 0,
        "sys_flag": 0,
        "born_timestamp": 1,
        "flag": 0,
    }
    return kind(**(fields | changes))


def sending(
    world: World, count: int, body: bytes = b"x", client: WireClient | None = None, **changes: Any
) -> list[SimTask[Response]]:
    client = client or world.sim.client
    return [client.call(send_header(**changes), body) for _ in range(count)]


def codes(world: World, count: int, body: bytes = b"x", **more: Any) -> list[int]:
    """The answers to `count` sends at once."""
    return [world.sim.wait(task).code for task in sending(world, count, body, **more)]


def admitted(world: World, count: int, body: bytes = b"x", **more: Any) -> int:
    """How many of so many sends at once are stored; all others have to be refused by a limit."""
    found = codes(world, count, body, **more)
    stored = found.count(ResponseCode.SUCCESS)
    assert stored + found.count(ResponseCode.FLOW_CONTROL) == count, found
    return stored


def refusal(world: World, **changes: Any) -> tuple[str, int]:
    """The text of a refused send, and when it says to come back."""
    answer = world.ask(send_header(**changes), b"x")
    assert answer.code == ResponseCode.FLOW_CONTROL, (answer.code, answer.remark)
    return answer.remark, answer.header(SendLimited).retry_after_ms


def report(world: World) -> dict[tuple[str, str], ReportedLimit]:
    """By scope, or `backlog`, and name."""
    found = world.read(ListLimits(), LimitReport)
    return {("backlog" if each.backlog else each.scope, each.name): each for each in found.limits}


def batch(**changes: Any) -> Any:
    return send_header(SendBatchMessage, batch=True, **changes)
