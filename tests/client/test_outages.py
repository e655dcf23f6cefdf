"""What a client logs about servers that are away."""

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest

from sparrowmq.client.client import Client
from sparrowmq.client.consuming.lite_pull_consumer import LitePullConsumer
from sparrowmq.client.consuming.pull_consumer import PullConsumer
from sparrowmq.client.consuming.push_consumer import PushConsumer
from sparrowmq.client.consuming.scheduled_pull import ScheduledPull, Turn
from sparrowmq.client.errors import BrokerRefused, ClientError, NoNameServer, SendFailed
from sparrowmq.client.group.broker_requests import routes
from sparrowmq.client.outage_log import Outages, in_words
from sparrowmq.client.sending.producer import Producer
from sparrowmq.net.errors import CallTimedOut, NetError, NotConnected
from sparrowmq.protocol.message import Message, MessageQueue
from sparrowmq.testing.sim_cluster import SimCluster
from tests.client.members import GROUP, TOPIC, Member, create_topic, send

REFUSED = NotConnected("10.0.0.1:10911", "connection refused")


def warnings(caplog: pytest.LogCaptureFixture, about: str) -> list[str]:
    """Lines of the client's log about a server."""
    return [
        record.getMessage()
        for record in caplog.records
        if record.name.startswith("sparrowmq.client")
        and record.levelno >= logging.INFO
        and about in record.getMessage()
    ]


def test_an_outage_is_logged_when_it_begins_once_a_minute_and_when_it_ends(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    now_s = [0.0]
    outages = Outages(logging.getLogger("sparrowmq.client"), lambda: now_s[0])
    for second in range(131):
        now_s[0] = float(second)
        for _ in range(8):  # as many queues meet it
            outages.failed("broker broker-a", REFUSED)
    outages.reached("broker broker-a")
    outages.reached("broker broker-a")
    assert warnings(caplog, "broker-a") == [
        "broker broker-a cannot be reached: connection refused; trying again",
        "broker broker-a cannot be reached for 60 s now, 481 failures: connection refused",
        "broker broker-a cannot be reached for 120 s now, 961 failures: connection refused",
        "broker broker-a answers again after 130 s",
    ]


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (REFUSED, "connection refused"),
        (CallTimedOut("a:1", "PullMessage", 30.0), "no answer within 30 s"),
        (BrokerRefused("a:1", 14, ""), "it is starting or stopping"),
        (BrokerRefused("a:1", 2, "disk is full"), "it is too busy (disk is full)"),
        (BrokerRefused("a:1", 4711, "why"), "it refused, code 4711 (why)"),
        (ValueError(), "ValueError"),
    ],
)
def test_causes_are_described_in_words(error: Exception, words: str) -> None:
    assert in_words(error) == words


def test_a_broker_outage_logs_two_lines_for_all_queues(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    with SimCluster(seed=1).run() as sim:
        create_topic(sim, 8)
        Member(sim)
        sim.advance(5)
        caplog.clear()
        (node,) = sim.brokers.values()
        node.kill()
        sim.advance(40)
        node.start()
        sim.advance(60)
        begins, ends = warnings(caplog, "broker ")
        assert begins.startswith("broker broker-a cannot be reached: ")
        assert ends.startswith("broker broker-a answers again after ")


async def produces(client: Client) -> None:
    """Send twice a second; what fails is the program's own to log."""
    async with Producer("orders-svc", client=client) as producer:
        while True:
            with suppress(SendFailed):
                await producer.send(Message(TOPIC, b"x"), timeout_s=0.4)
            await asyncio.sleep(0.1)


async def subscribes(client: Client) -> None:
    """A push consumer of two topics."""
    subscriptions = {TOPIC: "*", "refunds": "*"}
    async with PushConsumer(GROUP, subscriptions, client=client) as consumer:
        await consumer.start(lambda messages: None)
        await asyncio.Event().wait()


async def polls(client: Client) -> None:
    async with LitePullConsumer(GROUP, {TOPIC: "*", "refunds": "*"}, client=client) as consumer:
        while True:
            await consumer.poll(1)


async def pulls(client: Client) -> None:
    """Pull every queue twice a second; what fails is the program's own to log."""
    async with PullConsumer(GROUP, client=client) as consumer:
        queues = await consumer.queues(TOPIC)
        while True:
            for queue in queues:
                with suppress(ClientError, NetError):
                    await consumer.pull(queue, 0)
            await asyncio.sleep(0.5)


@pytest.mark.parametrize("work", [produces, subscribes, polls, pulls])
def test_an_outage_of_the_broker_is_three_lines_for_any_kind_of_client(
    caplog: pytest.LogCaptureFixture, work: Callable[[Client], Awaitable[None]]
) -> None:
    with SimCluster(seed=1).run() as sim:
        create_topic(sim, 8)
        create_topic(sim, 8, "refunds")
        host = sim.host("member")
        client = sim.client_on("member", routes)

        async def run() -> None:
            await client.start()
            await work(client)

        running = host.start(run())
        sim.advance(5)
        caplog.clear()
        caplog.set_level(logging.INFO)
        (node,) = sim.brokers.values()
        node.kill()
        sim.advance(75)
        node.start()
        sim.advance(60)
        begins, lasts, ends = warnings(caplog, "")
        assert begins.startswith("broker broker-a cannot be reached: ")
        assert "[Errno" not in begins
        assert re.fullmatch(
            r"broker broker-a cannot be reached for 6\d s now, \d+ failures:"
            " connection refused, nothing listens there",
            lasts,
        )
        assert re.fullmatch(r"broker broker-a answers again after 7\d s", ends)
        running.cancel()
        sim.run(client.stop(), on=host)


def test_name_servers_that_are_away_are_two_lines(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    with SimCluster(seed=1).run() as sim:
        create_topic(sim, 8)
        Member(sim)
        sim.advance(5)
        caplog.clear()
        (node,) = sim.name_servers.values()
        node.kill()
        sim.advance(50)
        node.start()
        sim.advance(60)
        begins, ends = warnings(caplog, "name server")
        assert begins.startswith("the name server (")
        assert "answers again after" in ends


@pytest.mark.parametrize(
    ("is_mute", "wait_s", "failure"),
    [
        (False, 7, "cannot connect to"),
        (True, 1, "no answer within 1 s"),
        (True, 7, "did not answer"),
    ],
    ids=["away", "mute", "mute for longer than a request"],
)
def test_a_consumer_configured_to_wait_raises_when_no_name_server_answers(
    is_mute: bool, wait_s: float, failure: str
) -> None:
    with SimCluster(seed=1).run() as sim:
        (node,) = sim.name_servers.values()
        if is_mute:
            sim.host("name-server-1").pause()
        else:
            node.kill()
        start_s = sim.now_s
        with pytest.raises(NoNameServer, match="no name server answers") as raised:
            Member(sim, wait_s=wait_s)
        assert raised.value.topic == TOPIC
        assert failure in raised.value.failure
        assert sim.now_s - start_s == pytest.approx(wait_s, abs=1)


def test_a_stop_during_a_request_is_not_an_outage(caplog: pytest.LogCaptureFixture) -> None:
    with SimCluster(seed=1).run() as sim:
        create_topic(sim)
        member = Member(sim)
        sim.advance(20)
        sim.host("name-server-1").pause()
        sim.advance(10.1)  # it was just asked for routes
        member.leave()
        assert warnings(caplog, "cannot be reached") == []


def test_without_an_outage_reached_brokers_are_not_recorded_for_the_log(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    named: list[str] = []
    monkeypatch.setattr(Outages, "reached", lambda outages, server: named.append(server))
    with SimCluster(seed=1).run() as sim:
        create_topic(sim)
        member = Member(sim)
        send(sim, b"x")
        sim.advance(40)
        assert member.got == [b"x"]
    assert not [server for server in named if server.startswith("broker")]


async def callback(queue: MessageQueue, turn: Turn) -> None:
    """Nothing is pulled here."""


WAITING: dict[str, Callable[[Client], PullConsumer | LitePullConsumer | ScheduledPull]] = {
    "pull": lambda client: PullConsumer(GROUP, [TOPIC], client=client),
    "pull, without topics": lambda client: PullConsumer(GROUP, client=client),
    "lite pull": lambda client: LitePullConsumer(GROUP, {TOPIC: "*"}, client=client),
    "lite pull, without topics": lambda client: LitePullConsumer(GROUP, client=client),
    "scheduled pull": lambda client: ScheduledPull(GROUP, {TOPIC: callback}, client=client),
}


@pytest.mark.parametrize("make", WAITING.values(), ids=WAITING)
def test_a_consumer_configured_to_wait_starts_when_a_name_server_appears(
    make: Callable[[Client], PullConsumer | LitePullConsumer | ScheduledPull],
) -> None:
    with SimCluster(seed=1).run() as sim:
        create_topic(sim)
        (node,) = sim.name_servers.values()
        node.kill()
        client = sim.client_on("member", routes)
        consumer = make(client)

        async def start() -> None:
            await client.start()
            await consumer.start(wait_s=30)

        starting = sim.host("member").start(start())
        sim.advance(5)
        assert not starting.done()
        node.start()
        sim.advance(5)
        assert starting.done()
        sim.run(consumer.stop(), on=sim.host("member"))
        sim.run(client.stop(), on=sim.host("member"))


@pytest.mark.parametrize("make", WAITING.values(), ids=WAITING)
def test_a_consumer_of_any_kind_raises_when_it_has_waited_in_vain(
    make: Callable[[Client], PullConsumer | LitePullConsumer | ScheduledPull],
) -> None:
    with SimCluster(seed=1).run() as sim:
        (node,) = sim.name_servers.values()
        node.kill()
        client = sim.client_on("member", routes)
        consumer = make(client)

        async def start() -> float:
            await client.start()
            started_s = sim.now_s
            with pytest.raises(NoNameServer, match="no name server answers"):
                await consumer.start(wait_s=7)
            took_s = sim.now_s - started_s
            await consumer.stop()
            await client.stop()
            return took_s

        assert sim.run(start(), on=sim.host("member")) == pytest.approx(7, abs=1)


def test_by_default_a_consumer_starts_at_once_and_logs_what_it_waits_for(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with SimCluster(seed=1).run() as sim:
        (node,) = sim.name_servers.values()
        node.kill()
        Member(sim)
        sim.advance(1)
        (line,) = warnings(caplog, "name server")
        assert "cannot be reached" in line
