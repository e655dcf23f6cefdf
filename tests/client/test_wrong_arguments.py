"""Invalid arguments are refused at the call, and nothing is sent."""

import asyncio
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from typing import Any

import pytest

from sparrowmq import (
    Admin,
    Client,
    ClientConfig,
    FlowLimits,
    Message,
    MessageQueue,
    Only,
    RetryLater,
    blocking,
)
from sparrowmq.client.consuming.lite_pull_consumer import LitePullConsumer
from sparrowmq.client.consuming.pull_consumer import PullConsumer
from sparrowmq.client.consuming.push_consumer import PushConsumer
from sparrowmq.client.consuming.scheduled_pull import ScheduledPull
from sparrowmq.client.group.broker_requests import routes
from sparrowmq.client.group.member_settings import MemberSettings
from sparrowmq.client.sending.producer import Producer
from sparrowmq.client.sending.transactional_producer import TransactionalProducer, TransactionState
from sparrowmq.testing.local_cluster import AsyncCluster
from sparrowmq.testing.sim_cluster import SimCluster
from tests.client.members import GROUP, TOPIC, create_topic
from tests.client.scripted import world

NAN = float("nan")


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        ({"topic": "a b"}, "characters that are not allowed"),
        ({"topic": "x" * 128}, "at most 127 are allowed"),
        ({"topic": "SCHEDULE_TOPIC_XXXX"}, "belongs to the broker"),
        ({"body": b""}, "body is empty"),
        ({"body": "text"}, "body is str, must be bytes"),
        ({"properties": {"a": "b\x01"}}, r"of property 'a' 'b\\x01' holds \\x01 or \\x02"),
        ({"properties": {"a\x02": "b"}}, r"holds \\x01 or \\x02"),
        ({"properties": {"UNIQ_KEY": "mine"}}, "belongs to RocketMQ"),
        ({"properties": {"a": "x" * 40_000}}, "at most 32767 allowed"),
        ({"delay_level": -1}, "must be 0 to 18"),
        ({"delay_ms": -1}, "must be 0 or more"),
        ({"tags": "a || b"}, "a message has one tag"),
        ({"topic": None}, "topic name is None, must be a str"),
        ({"tags": 5}, "tags is 5, must be str"),
        ({"keys": None}, "keys is None, must be str or Sequence"),
        ({"keys": 5}, "keys is 5"),
        ({"properties": None}, "properties is None, must be Mapping"),
        ({"delay_level": "3"}, "delay_level is '3', must be int"),
        ({"delay_ms": 1.5}, "delay_ms is 1.5, must be int"),
        ({"deliver_time_ms": NAN}, "deliver_time_ms is nan, must be int"),
        ({"sharding_key": 5}, "sharding_key is 5, must be str"),
    ],
)
def test_a_message_that_cannot_be_sent(arguments: dict[str, Any], fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        Message(**{"topic": "orders", "body": b"x", **arguments})


@pytest.mark.parametrize(
    ("settings", "fault"),
    [
        ({"group": ""}, "group name is blank"),
        ({"group": "g" * 121}, "at most 120 are allowed"),
        ({"name_servers": ""}, "at least one host:port"),
        ({"name_servers": "localhost"}, "is not host:port"),
        ({"timeout_s": 0}, "timeout_s is 0"),
        ({"retries": -1}, "retries is -1"),
        ({"default_queues": 0}, "default_queues is 0"),
        ({"max_body_bytes": 0}, "max_body_bytes is 0"),
        ({"group": None}, "group name is None, must be a str"),
        ({"group": "DEFAULT_PRODUCER"}, "group DEFAULT_PRODUCER is what RocketMQ's clients have"),
        ({"name_servers": None}, "name_servers is None, must be host:port"),
        ({"timeout_s": NAN}, "timeout_s is nan, must be more than 0"),
        ({"timeout_s": "3"}, "timeout_s is '3', must be a number of seconds, more than 0"),
        ({"trace": "yes"}, "trace is 'yes', must be True or False"),
        ({"avoid_faults": 1}, "avoid_faults is 1, must be True or False"),
        ({"retry_unless_ok": None}, "retry_unless_ok is None, must be True or False"),
        (
            {"name_servers": "http://broker.example:9876/"},
            "is not host:port: write 'broker.example:9876', without http",
        ),
        ({"retries": 1.5}, "retries is 1.5, must be a whole number"),
        ({"retries": True}, "retries is True, must be a whole number"),
        ({"default_queues": 2**40}, "must be 1 to 2147483647"),
        ({"compress_from_bytes": -1}, "compress_from_bytes is -1, must be 0 or more"),
        ({"compression": "lz4"}, "compression is 'lz4', must be one of LZ4, ZSTD, ZLIB"),
    ],
)
def test_a_producer(settings: dict[str, Any], fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        Producer(**{"group": "orders-svc", **settings})


M = Message("orders", b"x")
Q = MessageQueue("orders", "broker-a", 0)


@pytest.mark.parametrize(
    ("call", "fault"),
    [
        (lambda producer: producer.send("x"), "message is 'x', must be a Message"),
        (lambda producer: producer.send_oneway(None), "message is None, must be a Message"),
        (lambda producer: producer.send(M, key=5), "key is 5, must be a str"),
        (lambda producer: producer.send(M, queue="q"), "queue is 'q', must be a MessageQueue"),
        (lambda producer: producer.send(M, selector=5), "selector is 5, must be a function"),
        (lambda producer: producer.send(M, selector=lambda *_: 5), "queue is 5, must be a Mess"),
        (lambda producer: producer.send(M, timeout_s="3"), "is '3', must be a number of seconds"),
        (lambda producer: producer.send_batch(M), "must be a Sequence"),
        (lambda producer: producer.send_batch([M, 5]), "a message is 5, must be a Message"),
        (lambda producer: producer.send_batch([5]), "a message is 5, must be a Message"),
    ],
)
def test_what_is_sent(call: Callable[[Any], Coroutine[Any, Any, None]], fault: str) -> None:
    with world("a") as w:
        with pytest.raises(ValueError, match=fault):
            w.produce(call)
        assert w.attempts == []


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        ({"message": 5}, "message is 5, must be a Message"),
        ({"message": M, "timeout_s": -1}, "timeout_s is -1, must be more than 0"),
        ({"message": M, "timeout_s": "3"}, "timeout_s is '3', must be a number of seconds"),
    ],
)
def test_what_is_sent_in_a_transaction(arguments: dict[str, Any], fault: str) -> None:
    class Bookings:
        def execute(self, half: Any) -> TransactionState:
            raise AssertionError("nothing is to be executed")

        check = execute

    async def on_the_host() -> None:
        client = w.client()
        await client.start()
        async with TransactionalProducer("orders-svc", Bookings(), client=client) as producer:
            with pytest.raises(ValueError, match=fault):
                await producer.send_in_transaction(**arguments)
        await client.stop()

    with world("a") as w:
        w.sim.run(on_the_host(), on=w.sim.host("producer"))


def test_a_transactional_producer_refuses_a_class_as_its_listener() -> None:
    class Bookings:
        def execute(self, half: Any) -> Any: ...

        def check(self, message: Any) -> Any: ...

    listener: Any = Bookings
    with pytest.raises(ValueError, match=r"the class Bookings, must be an object of it: Bookings"):
        TransactionalProducer("orders-svc", listener)


@pytest.mark.parametrize("listener", [None, object(), lambda half: None])
def test_a_transactional_producer_refuses_a_listener_of_none(listener: Any) -> None:
    with pytest.raises(ValueError, match="execute of the listener is None"):
        TransactionalProducer("orders-svc", listener)


@pytest.mark.parametrize(
    ("settings", "fault"),
    [
        ({"group": "DEFAULT_CONSUMER"}, "group DEFAULT_CONSUMER is what RocketMQ's clients have"),
        ({"subscriptions": {TOPIC: None}}, f"filter of topic {TOPIC} is None, must be tags"),
        ({"model": "BROADCAST"}, "is 'BROADCAST', must be one of BROADCASTING, CLUSTERING"),
        ({"from_where": "FIRST"}, "must be one of LAST_OFFSET, FIRST_OFFSET, TIMESTAMP"),
        ({"from_where": "first"}, r"TIMESTAMP; did you mean FIRST_OFFSET\?"),
        ({"model": "brodcasting"}, r"CLUSTERING; did you mean BROADCASTING\?"),
        ({"from_where": "soon"}, "TIMESTAMP$"),
        ({"from_timestamp_ms": -1}, "from_timestamp_ms is -1, must be 0 or more"),
        (
            {"from_timestamp_ms": 5, "from_where": "FIRST_OFFSET"},
            "from_timestamp_ms is given, but from_where is FIRST_OFFSET, which would ignore it",
        ),
        (
            {"from_time": datetime(2026, 1, 1, tzinfo=UTC), "from_where": "LAST_OFFSET"},
            "from_time is given, but from_where is LAST_OFFSET, .* or give TIMESTAMP",
        ),
        (
            {"from_time": datetime(2026, 1, 1, tzinfo=UTC).replace(tzinfo=None)},
            "has no time zone: add tzinfo=UTC",
        ),
        ({"from_time": 5}, "from_time is 5, must be a datetime; from_timestamp_ms takes ms"),
        (
            {"from_time": datetime(2026, 1, 1, tzinfo=UTC), "from_timestamp_ms": 5},
            "cannot be combined, give one",
        ),
        (
            {"strategy": "AVERAGE"},
            "no strategy is named 'AVERAGE': there are AVG, AVG_BY_CIRCLE, C",
        ),
        ({"strategy": 5}, "is 5, must be AVG, AVG_BY_CIRCLE, .*STICKY or another Strategy"),
        ({"listener": 5}, "listener is 5, must be a function"),
        ({"batch": 1.5}, "batch is 1.5, must be a whole number"),
        ({"workers": 0}, "workers is 0, must be 1 or more"),
        ({"orderly": "no"}, "orderly is 'no', must be True or False"),
        ({"suspend_s": "1"}, "suspend_s is '1', must be a number, 0 or more"),
        ({"pull_batch": 2**31}, "must be 1 to 2147483647"),
        ({"max_reconsume_times": -2}, "max_reconsume_times is -2, must be -1 or more"),
        ({"consume_timeout_s": 0}, "consume_timeout_s is 0, must be more than 0"),
        ({"consume_timeout_s": NAN}, "consume_timeout_s is nan"),
        ({"suspend_s": -1}, "suspend_s is -1, must be 0 or more"),
        ({"stop_within_s": None}, "stop_within_s is None, must be a number, 0 or more"),
        ({"limits": 5}, "limits is 5, must be a FlowLimits"),
        ({"offsets_dir": 5}, "offsets_dir is 5, must be a path"),
        ({"model": "BROADCASTING", "offsets_dir": 5}, "offsets_dir is 5, must be a path"),
    ],
)
def test_a_push_consumer(settings: dict[str, Any], fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        PushConsumer(**{"group": GROUP, "subscriptions": {TOPIC: "*"}, **settings})


async def yielding(messages: Any) -> Any:
    yield messages


def generating(messages: Any) -> Any:
    yield messages


@pytest.mark.parametrize(
    ("handler", "fault"),
    [
        (5, "must be a function that takes messages"),
        (yielding, "a generator, which would never run"),
        (generating, "a generator, which would never run"),
        (lambda: None, r"handler takes \(\), must take one argument"),
        (lambda one, two: None, r"handler takes \(one, two\), must take one argument"),
    ],
)
def test_a_handler_that_cannot_take_a_message_is_refused(handler: Any, fault: str) -> None:
    consumer = PushConsumer(GROUP, {TOPIC: "*"})
    with pytest.raises(ValueError, match=fault):
        asyncio.run(consumer.start(handler))


async def turn(*ignored: Any) -> None:
    pass


@pytest.mark.parametrize(
    ("make", "fault"),
    [
        (lambda: Client("127.0.0.1:9876"), "config is '127.0.0.1:9876', must be a ClientConfig"),  # type: ignore[arg-type]
        (
            lambda: Producer("orders-svc", client=ClientConfig()),  # type: ignore[arg-type]
            r"client is ClientConfig\(.*, must be a Client",
        ),
        (lambda: LitePullConsumer(GROUP, TOPIC), "must give a filter for each topic"),  # type: ignore[arg-type]
        (
            lambda: LitePullConsumer(GROUP, auto_commit="no"),  # type: ignore[arg-type]
            "auto_commit is 'no', must be True or False",
        ),
        (lambda: Admin(timeout_s="3"), "timeout_s is '3', must be a number of seconds"),  # type: ignore[arg-type]
        (lambda: blocking.Admin(timeout_s=0), "timeout_s is 0, must be more than 0"),
        (lambda: Admin("https://a:9876"), "is not host:port: write 'a:9876', without https"),
        (lambda: LitePullConsumer(GROUP, limit_all=0), "limit_all is 0, must be 1 or more"),
        (lambda: PullConsumer(GROUP, TOPIC), f"topics is '{TOPIC}', must be a list of names"),
        (lambda: ScheduledPull(GROUP, {TOPIC: turn}, workers=0), "workers is 0"),
        (
            lambda: ScheduledPull(GROUP, [TOPIC]),  # type: ignore[arg-type]
            r"callbacks are \['orders'\], must give a function for each topic, such as {",
        ),
        (
            lambda: blocking.ScheduledPull(GROUP, [TOPIC]),  # type: ignore[arg-type]
            r"callbacks are .*, must give a function for each topic",
        ),
        (lambda: AsyncCluster(data_dir=5), "data_dir is 5, must be a path"),  # type: ignore[arg-type]
        (
            lambda: blocking.ScheduledPull(GROUP, {TOPIC: None}),  # type: ignore[dict-item]
            f"callback of topic {TOPIC} is None, must be a function",
        ),
        (lambda: FlowLimits(messages=-1), "messages is -1, must be 1 or more"),
        (lambda: FlowLimits(topic_mib=0), "topic_mib is 0, must be 1 or more"),
        (lambda: Only(5), "filter of Only is 5, must be a function"),  # type: ignore[arg-type]
        (lambda: RetryLater("later", done=-1), "done is -1, must be 0 or more"),
        (lambda: RetryLater("later", delay_level=-2), "delay_level is -2, must be -1 or more"),
        (lambda: RetryLater("later", delay_level=99), "delay_level is 99, must be -1 to 18"),
    ],
)
def test_other_settings(make: Callable[[], object], fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        make()


@pytest.mark.parametrize(
    "make",
    [
        lambda client: blocking.Producer("orders-svc", client=client),  # type: ignore[call-arg]
        lambda client: blocking.PushConsumer(GROUP, {TOPIC: "*"}, client=client),  # type: ignore[call-arg]
        lambda client: blocking.LitePullConsumer(GROUP, client=client),  # type: ignore[call-arg]
        lambda client: blocking.PullConsumer(GROUP, client=client),  # type: ignore[call-arg]
        lambda client: blocking.ScheduledPull(GROUP, {TOPIC: print}, client=client),  # type: ignore[call-arg]
    ],
)
def test_a_client_of_another_loop_is_refused(make: Callable[[Any], object]) -> None:
    with pytest.raises(ValueError, match="belongs to its event loop"):
        make(Client(ClientConfig()))


@pytest.mark.parametrize(
    ("settings", "fault"),
    [
        ({"name_servers": None}, "name_servers is None"),
        ({"name_servers": ""}, "at least one host:port"),
        ({"connect_timeout_s": 0}, "connect_timeout_s is 0, must be more than 0"),
        ({"route_poll_s": NAN}, "route_poll_s is nan"),
        ({"heartbeat_s": "30"}, "heartbeat_s is '30'"),
        ({"rebalance_s": 0.9}, "rebalance_s is 0.9, must be 1 to 3600"),
        ({"rebalance_s": 3_601}, "rebalance_s is 3601, must be 1 to 3600"),
        ({"rebalance_s": "20"}, "rebalance_s is '20', must be a number"),
        ({"lock_renewal_s": 0}, "lock_renewal_s is 0, must be 1 to 25"),
        ({"lock_renewal_s": 26}, "is 26, must be 1 to 25: brokers free a lock after 60 s"),
        ({"pull_silence_s": 59}, "is 59, must be 60 to 86400: a pull may wait for 30 s"),
        ({"pull_silence_s": NAN}, "pull_silence_s is nan, must be a number"),
        ({"instance_name": 5}, "instance_name is 5, must be a text"),
        (
            {"instance_name": "till 3"},
            "is 'till 3', must have no @ and no blanks: it is a part of t",
        ),
        ({"instance_name": "a@b"}, "instance_name is 'a@b', must have no @"),
        ({"client_ip": "10.0.0.7@x"}, "client_ip is '10.0.0.7@x', must have no @"),
        ({"client_ip": " 10.0.0.7"}, "client_ip is ' 10.0.0.7', must have no @ and no blanks"),
    ],
)
def test_a_client(settings: dict[str, Any], fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        ClientConfig(**settings)


@pytest.mark.parametrize(
    ("name", "seconds"),
    [
        *(("rebalance_s", 1), ("rebalance_s", 3_600), ("lock_renewal_s", 1)),
        *(("lock_renewal_s", 25), ("pull_silence_s", 60), ("pull_silence_s", 86_400)),
    ],
)
def test_the_smallest_and_largest_intervals_of_a_client_are_accepted(
    name: str, seconds: float
) -> None:
    settings: Any = {name: seconds}
    assert getattr(ClientConfig(**settings), name) == seconds


def test_name_servers_of_a_client_may_come_as_a_text() -> None:
    servers: Any = "a:9876; b:9876"
    assert ClientConfig(name_servers=servers).name_servers == ("a:9876", "b:9876")


@pytest.mark.parametrize("offset", [-1, 2**63, 1.5, "1", None])
def test_an_offset_that_no_broker_can_store_is_not_noted(offset: Any) -> None:
    queue = MessageQueue(TOPIC, "broker-a", 0)

    async def commit() -> None:
        client = sim.client_on("member", routes)
        await client.start()
        async with LitePullConsumer(GROUP, client=client) as lite:
            with pytest.raises(ValueError, match="the offset of"):
                await lite.commit({queue: offset})
            with pytest.raises(ValueError, match="the offset of"):
                lite.commit_later({queue: offset})
            with pytest.raises(ValueError, match="timeout_s is '3', must be a number, 0 or more"):
                await lite.poll("3")  # type: ignore[arg-type]
            with pytest.raises(ValueError, match="offsets is 'x', must be a Mapping"):
                await lite.commit("x")  # type: ignore[arg-type]
            with pytest.raises(ValueError, match="a queue is 'q'"):
                await lite.assign(["q"])  # type: ignore[list-item]
            for read in (lite.assign, lite.pause, lite.resume):
                with pytest.raises(ValueError, match="must be a list of queues, such as"):
                    await read(queue)  # type: ignore[misc,arg-type]
            with pytest.raises(ValueError, match="subscribe to a topic or assign queues first"):
                await lite.poll()
        async with PullConsumer(GROUP, client=client) as pull:
            with pytest.raises(ValueError, match="the offset of"):
                pull.update_offset(queue, offset)
            assert await pull.committed(queue) in (None, 0)
        await client.stop()

    with SimCluster(seed=1).run() as sim:
        create_topic(sim)
        sim.run(commit(), on=sim.host("member"))


@pytest.mark.parametrize(
    ("call", "fault"),
    [
        (lambda pull: pull.pull("q", 0), "queue is 'q', must be a MessageQueue"),
        (lambda pull: pull.pull(Q, -1), "offset is -1, must be 0 or more"),
        (lambda pull: pull.pull(Q, 0, count=0), "count is 0, must be 1 or more"),
        (lambda pull: pull.pull(Q, 0, choice="a, b"), "separated by"),
        (lambda pull: pull.committed("q"), "queue is 'q', must be a MessageQueue"),
        (lambda pull: pull.commit("q"), "a queue is 'q', must be a MessageQueue"),
        (lambda pull: pull.give_back("m"), "message is 'm', must be a MessageExt"),
        (lambda pull: pull.offset_at(Q, "2026"), "must be a datetime or milliseconds since 1970"),
    ],
)
def test_what_is_pulled(call: Callable[[Any], Coroutine[Any, Any, None]], fault: str) -> None:
    async def use() -> None:
        async with (
            sim.client_on("member", routes) as client,
            PullConsumer(GROUP, client=client) as pull,
        ):
            with pytest.raises(ValueError, match=fault):
                await call(pull)

    with SimCluster(seed=1).run() as sim:
        sim.run(use(), on=sim.host("member"))


def test_progress_of_broadcasting_members_goes_where_a_text_says(tmp_path: Any) -> None:
    directory: Any = str(tmp_path)
    assert MemberSettings(group=GROUP, offsets_dir=directory).offsets_dir == tmp_path
