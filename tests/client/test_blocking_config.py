"""Settings of the client of a producer or consumer: one keyword, with asyncio and without."""

import dataclasses
import os
from collections.abc import Callable
from typing import Any

import pytest

import sparrowmq
from sparrowmq import Client, ClientConfig, MessageExt, TransactionState, blocking
from sparrowmq.blocking import Message
from sparrowmq.blocking.facade import running_inside
from sparrowmq.client.client_core import ClientCore
from sparrowmq.client.consuming.scheduled_pull import ScheduledPull, consumer_of
from sparrowmq.client.group.group_consumer import GroupConsumer, core_of_consumer
from sparrowmq.client.sending.producer_member import GroupProducer, core_of_producer
from sparrowmq.testing import Cluster
from sparrowmq.testing.held_port import HeldPort
from tests.client.members import GROUP, TOPIC


class Bookings:
    def execute(self, half: Any) -> TransactionState:
        raise AssertionError("nothing is sent here")

    def check(self, message: MessageExt) -> TransactionState:
        raise AssertionError("nothing is sent here")


async def later(*ignored: Any) -> None:
    pass


def callback_for(make: Any) -> Callable[..., Any]:
    return later if make is sparrowmq.ScheduledPull else print


KINDS: dict[str, Callable[..., Any]] = {
    "Producer": lambda make, **more: make(GROUP, **more),
    "TransactionalProducer": lambda make, **more: make(GROUP, Bookings(), **more),
    "PushConsumer": lambda make, **more: make(GROUP, {TOPIC: "*"}, **more),
    "LitePullConsumer": lambda make, **more: make(GROUP, {TOPIC: "*"}, **more),
    "PullConsumer": lambda make, **more: make(GROUP, [TOPIC], **more),
    "ScheduledPull": lambda make, **more: make(GROUP, {TOPIC: callback_for(make)}, **more),
}
BOTH_WAYS = [
    pytest.param(home, kind, id=f"{home.__name__}.{kind}")
    for home in (sparrowmq, blocking)
    for kind in KINDS
]


def test_the_defaults_are_those_of_rocketmq(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("SPARROWMQ_NAME_SERVERS", "SPARROWMQ_CONTEXT", "NAMESRV_ADDR"):
        monkeypatch.delenv(variable, raising=False)
    assert dataclasses.asdict(ClientConfig()) == {
        "name_servers": ("127.0.0.1:9876",),
        "name_servers_from": "the default",
        "instance_name": "",
        "unit_name": "",
        "client_ip": "",
        "route_poll_s": 30,
        "heartbeat_s": 30,
        "fast_heartbeat": True,
        "rebalance_s": 20,
        "lock_renewal_s": 20,
        "pull_silence_s": 120,
        "name_server_timeout_s": 3,
        "call_timeout_s": 3,
        "connect_timeout_s": 3,
    }


@pytest.mark.parametrize(
    "name",
    ["route_poll_s", "heartbeat_s", "name_server_timeout_s", "call_timeout_s", "connect_timeout_s"],
)
def test_an_interval_of_0_is_refused(name: str) -> None:
    settings: Any = {name: 0}
    with pytest.raises(ValueError, match=f"{name} is 0, must be more than 0"):
        ClientConfig(**settings)


def core_of_any(member: GroupProducer | GroupConsumer | ScheduledPull) -> ClientCore:
    match member:
        case GroupProducer():
            return core_of_producer(member)
        case GroupConsumer():
            return core_of_consumer(member)
        case ScheduledPull():
            return core_of_consumer(consumer_of(member))


@pytest.mark.parametrize("kind", KINDS)
def test_the_client_of_a_program_without_asyncio_is_set_up_by_its_config(kind: str) -> None:
    with HeldPort() as port:
        config = ClientConfig(
            name_servers=(f"127.0.0.1:{port.port}",), client_ip="10.0.0.7", instance_name="till-3"
        )
        member = KINDS[kind](getattr(blocking, kind), config=config)
        start = [later] if kind == "PushConsumer" else []
        member.start(*start)
        try:
            inner = running_inside(member)[1]
            client = core_of_any(inner)
            assert (client.client_id, client.config) == ("10.0.0.7@till-3", config)
        finally:
            member.stop()


@pytest.mark.parametrize(("home", "kind"), BOTH_WAYS)
@pytest.mark.parametrize(
    ("settings", "fault"),
    [
        ({"config": ClientConfig(), "name_servers": "a:9876"}, "name_servers and config cannot"),
        ({"config": "a:9876"}, "config is 'a:9876', must be a ClientConfig"),
    ],
)
def test_settings_that_would_not_count_are_refused(
    home: Any, kind: str, settings: dict[str, Any], fault: str
) -> None:
    with pytest.raises(ValueError, match=fault):
        KINDS[kind](getattr(home, kind), **settings)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("name", "value"), [("name_servers", "127.0.0.1:9876"), ("config", ClientConfig())]
)
def test_a_shared_client_has_its_settings_already(kind: str, name: str, value: Any) -> None:
    shared = Client(ClientConfig())
    with pytest.raises(ValueError, match=f"client and {name} cannot be combined"):
        KINDS[kind](getattr(sparrowmq, kind), client=shared, **{name: value})


def test_a_forked_child_does_not_keep_the_client_id_that_its_parent_chose(
    sparrowmq_cluster: Cluster,
) -> None:
    servers = (sparrowmq_cluster.name_server,)
    config = ClientConfig(name_servers=servers, client_ip="127.0.0.1", instance_name="till-3")
    with blocking.Producer("p", config=config) as producer:
        child = os.fork()
        if child == 0:
            # Nothing of pytest may run in here, whatever happens
            try:
                producer.send(Message("orders", b"child"))
                client = core_of_producer(running_inside(producer)[1])
                is_right = client.client_id != "127.0.0.1@till-3"
                os._exit(0 if is_right and client.config.client_ip == "127.0.0.1" else 1)
            except BaseException:
                os._exit(2)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        assert core_of_producer(running_inside(producer)[1]).client_id == "127.0.0.1@till-3"
