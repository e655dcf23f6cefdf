"""`./dev demo`: everything in one process, with a check of every message.

send ──▶ two brokers ──▶ member one, alone ── member two joins ──▶ both ──▶ every order checked
                   └───▶ a Spark stream ──▶ Parquet ──▶ a table and a chart ──▶ every amount checked
"""

import argparse
import asyncio
import json
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager, suppress
from pathlib import Path

from rich.console import Console
from rich.table import Table

from sparrowmq import ConsumeFromWhere, Message, MessageExt, Producer, PushConsumer, SendResult
from sparrowmq.client.errors import NoRoute, SendFailed
from sparrowmq.client.sending.producer_member import core_of_producer
from sparrowmq.console.sockets import open_listener, url_of
from sparrowmq.spark.errors import RocketMQError
from sparrowmq.testing import Cluster, cluster
from tools.demo_spark import City, cities, show, stream_to_parquet, write_chart

TOPIC = "orders"
GROUP = "billing"
TAGS = ("created", "paid")
CITIES = ("Hangzhou", "Berlin", "Nairobi", "Hangzhou", "Lisbon", "Toronto", "Berlin", "Hangzhou")
"""Some cities order more than others."""
QUEUES_PER_BROKER = 4
"""Queues of a topic that is created by its first message."""
IN_FLIGHT = 64
PATIENCE_S = 120.0
"""How long to wait for things that take milliseconds; then the demo fails instead of hanging."""

RESULTS = Path(__file__).resolve().parent.parent / "build" / "demo"
CONSOLE_PORT = 9880
SPARK_SETTINGS = {"spark.sql.shuffle.partitions": "2", "spark.driver.memory": "1g"}

console = Console(highlight=False, soft_wrap=True)


class Surprise(Exception):
    """An expected event did not happen in time; the text names it."""


class Orders:
    """Events of orders that were sent, and the members that got them.

    An order is created, and two of three are paid afterwards: one event each.
    """

    def __init__(self) -> None:
        self.sent: dict[str, bytes] = {}
        """Event → the body it was sent with."""
        self.received: dict[str, list[str]] = {}
        """Event → the members that got it, in order of arrival."""
        self.damaged: list[str] = []
        self._created = 0
        self._unpaid: dict[str, bytes] = {}
        """Orders whose payment comes next."""

    def next_message(self) -> Message:
        if self._unpaid:
            order, body = self._unpaid.popitem()
            return self._event("paid", order, body)
        number, self._created = self._created, self._created + 1
        order = f"o-{number}"
        value = {
            "order": order,
            "city": CITIES[number % len(CITIES)],
            "amount": number * 7919 % 1009 % 100,
        }
        body = json.dumps(value).encode()
        if number % 3 < 2:
            self._unpaid[order] = body
        return self._event("created", order, body)

    def _event(self, tag: str, order: str, body: bytes) -> Message:
        event = f"{order}-{tag}"
        self.sent[event] = body
        return Message(TOPIC, body, tags=tag, keys=event)

    def receiver(self, member: str) -> Callable[[Sequence[MessageExt]], None]:
        """A handler that records what the member gets."""

        def handle(messages: Sequence[MessageExt]) -> None:
            for message in messages:
                (event,) = message.keys
                self.received.setdefault(event, []).append(member)
                if self.sent.get(event) != message.body:
                    self.damaged.append(event)

        return handle

    def by_city(self) -> list[City]:
        """What Spark has to find: amounts created and paid by city, the largest first."""
        found: dict[str, City] = {}
        for event, body in self.sent.items():
            order = json.loads(body)
            city = found.get(order["city"], City(order["city"], 0, 0, 0))
            is_paid = event.endswith("-paid")
            found[city.name] = City(
                city.name,
                city.orders + (not is_paid),
                city.created + (0 if is_paid else order["amount"]),
                city.paid + (order["amount"] if is_paid else 0),
            )
        return sorted(found.values(), key=lambda city: (-city.created, city.name))

    @property
    def missing(self) -> set[str]:
        return self.sent.keys() - self.received.keys()

    @property
    def repeated(self) -> int:
        return sum(len(members) - 1 for members in self.received.values())


async def send_patiently(producer: Producer, message: Message) -> SendResult:
    """Retries when servers are busy or do not answer, as happens on a loaded machine."""
    deadline = time.perf_counter() + PATIENCE_S
    while True:
        try:
            return await producer.send(message)
        except (NoRoute, SendFailed):
            if time.perf_counter() > deadline:
                raise
        await asyncio.sleep(0.1)


async def send(producer: Producer, orders: Orders, count: int) -> None:
    """Sends `count` orders, several at a time, and prints the rate."""
    statuses: Counter[str] = Counter()
    started = time.perf_counter()
    for first in range(0, count, IN_FLIGHT):
        messages = [orders.next_message() for _ in range(min(IN_FLIGHT, count - first))]
        sends = [send_patiently(producer, message) for message in messages]
        statuses.update(str(result.status) for result in await asyncio.gather(*sends))
    per_second = count / (time.perf_counter() - started)
    answers = ", ".join(f"{number:,} {status}" for status, number in statuses.items())
    console.print(f"   sent {count:,} events of orders: {answers}, {per_second:,.0f} a second")


async def join(stack: AsyncExitStack, name_server: str, name: str, orders: Orders) -> PushConsumer:
    """Starts a member of the group."""
    member = PushConsumer(
        GROUP,
        {TOPIC: " || ".join(TAGS)},
        name_servers=name_server,
        from_where=ConsumeFromWhere.FIRST_OFFSET,
    )
    await stack.enter_async_context(member)
    await member.start(orders.receiver(name))
    return member


def new_loop() -> asyncio.AbstractEventLoop:
    """uvloop where it is installed."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


async def until(what: str, happened: Callable[[], Awaitable[bool]]) -> float:
    """Waits until `happened`; returns the seconds that took. Raises Surprise."""
    started = time.perf_counter()
    while not await happened():
        if time.perf_counter() - started > PATIENCE_S:
            raise Surprise(f"waited {PATIENCE_S:.0f} s for {what}")
        await asyncio.sleep(0.005)
    return time.perf_counter() - started


def share(member: PushConsumer) -> list[str]:
    """The queues of the topic that a member holds, such as a0 b3."""
    held = [queue for queue in member.assignment() if queue.topic == TOPIC]
    return [f"{queue.broker_name.removeprefix('broker-')}{queue.queue_id}" for queue in held]


def show_shares(members: dict[str, PushConsumer], orders: Orders) -> None:
    """Prints the queues that each member holds, and how many orders it got."""
    got = Counter(member for members in orders.received.values() for member in members)
    table = Table("", "member", "queues", "orders", box=None, padding=(0, 1))
    for name, member in members.items():
        table.add_row("", name, " ".join(share(member)), f"{got[name]:,}")
    console.print(table)


async def open_shop(producer: Producer, orders: Orders, brokers: int) -> None:
    """Sends one order to each queue of a topic that does not exist; the brokers create it."""
    queues = brokers * QUEUES_PER_BROKER
    await send(producer, orders, queues)

    async def is_everywhere() -> bool:
        await core_of_producer(producer).route_table.refresh(TOPIC)
        return len(await producer.queues(TOPIC)) == queues

    await until("the topic on every broker", is_everywhere)
    console.print(f"   topic {TOPIC} has {queues} queues on {brokers} brokers")


async def tell(running: Cluster, count: int) -> Orders:
    """Sends and consumes; returns the orders with what each member received."""
    orders, at = Orders(), running.name_server
    members: dict[str, PushConsumer] = {}

    async def all_arrived() -> bool:
        return not orders.missing

    async def shares_are_equal() -> bool:
        return len({len(share(member)) for member in members.values()}) == 1

    async with AsyncExitStack() as stack:
        producer = await stack.enter_async_context(Producer("shop", name_servers=at))
        console.print("[bold]2  The first orders[/] create their topic")
        await open_shop(producer, orders, len(running.broker_addresses))

        console.print("[bold]3  One member[/] of the group consumes alone")
        members["one"] = await join(stack, at, "one", orders)
        await send(producer, orders, count // 4)
        await until("the first orders", all_arrived)
        show_shares(members, orders)

        console.print("[bold]4  A second member joins[/], and the queues are rebalanced")
        members["two"] = await join(stack, at, "two", orders)
        took_s = await until("equal shares", shares_are_equal)
        console.print(f"   settled after {took_s * 1000:,.0f} ms")
        await send(producer, orders, count - len(orders.sent))
        await until("the other orders", all_arrived)
        show_shares(members, orders)
    return orders


def conclude(orders: Orders) -> int:
    """Prints the result; 0 if every order arrived undamaged."""
    good = not orders.missing and not orders.damaged
    console.print(
        f"[bold]5  Checked[/]: {len(orders.sent):,} sent, {len(orders.received):,} consumed, "
        f"{len(orders.missing)} missing, {len(orders.damaged)} damaged"
    )
    if orders.repeated:
        console.print(
            f"   {orders.repeated:,} were delivered twice: a queue that changes its owner is read "
            "again from its last stored progress (at least once)"
        )
    console.print(
        "[bold green]Nothing is missing.[/]" if good else "[bold red]The check failed.[/]"
    )
    return 0 if good else 1


def analyse(name_server: str, orders: Orders) -> int:
    """Streams the orders through Spark; 0 if it finds every order and every amount."""
    from sparrowmq.cli.commands.pipeline_session import pipeline_session

    console.print("[bold]6  Spark[/] streams the orders into Parquet and sums them up")
    shutil.rmtree(RESULTS, ignore_errors=True)
    started = time.perf_counter()
    with pipeline_session("demo", "local[2]", SPARK_SETTINGS) as spark:
        ready_s = time.perf_counter() - started
        frame = stream_to_parquet(spark, name_server, TOPIC, RESULTS)
        rows, found = frame.count(), cities(frame)
    took_s = time.perf_counter() - started
    console.print(f"   ready after {ready_s:.1f} s, done after {took_s:.1f} s")
    show(console, found)
    console.print(f"   Parquet  {RESULTS / 'orders'}")
    console.print(f"   chart    {write_chart(found, RESULTS / 'orders.svg')}")
    return conclude_spark(rows, found, orders)


def conclude_spark(rows: int, found: list[City], orders: Orders) -> int:
    """Prints the result; 0 if Spark has everything that was sent."""
    good = rows == len(orders.sent) and found == orders.by_city()
    created, paid = sum(city.created for city in found), sum(city.paid for city in found)
    sent = orders.by_city()
    console.print(
        f"[bold]7  Checked[/]: {len(orders.sent):,} sent, {rows:,} rows in Parquet,"
        f" {created:,} of {sum(city.created for city in sent):,} € created,"
        f" {paid:,} of {sum(city.paid for city in sent):,} € paid"
    )
    console.print("[bold green]Spark agrees.[/]" if good else "[bold red]Spark disagrees.[/]")
    return 0 if good else 1


@contextmanager
def console_beside(name_server: str) -> Iterator[str]:
    """The address of a web console that runs in a separate process meanwhile."""
    with open_listener("127.0.0.1", CONSOLE_PORT, or_next=True) as listener:
        number = listener.fileno()
        command = [sys.executable, "-m", "sparrowmq", "console", "--fd", str(number)]
        command += ["--name-servers", name_server, "--with-parent"]
        command += ["--state", str(RESULTS / "console")]
        with subprocess.Popen(
            command, pass_fds=[number], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL
        ) as process:
            try:
                yield url_of("127.0.0.1", listener.getsockname()[1])
            finally:
                assert process.stdin is not None
                process.stdin.close()  # it ends then; a Ctrl-C has reached it as well


def stay(page: str) -> None:
    """Waits for Ctrl-C."""
    with suppress(KeyboardInterrupt):
        console.print(f"[bold]The console stays open[/] at {page} until Ctrl-C")
        signal.pause()


def main(arguments: Sequence[str]) -> int:
    """Runs the demo; returns the exit code."""
    parser = argparse.ArgumentParser(prog="./dev demo", description=__doc__.splitlines()[0])
    parser.add_argument("--messages", type=int, default=4000, help="number of orders (4000)")
    parser.add_argument("--without-spark", action="store_true", help="skip the Spark pipeline")
    parser.add_argument(
        "--stay", action="store_true", help="leave servers and console open until Ctrl-C"
    )
    given = parser.parse_args(arguments)
    count = given.messages
    if count < 100:
        parser.error(f"--messages is {count}, must be 100 or more")
    try:
        with cluster(brokers=2, loop_factory=new_loop) as running:
            console.print(
                "[bold]1  Servers[/] run in this process, with data in a temporary folder"
            )
            addresses = {"name server": running.name_server, **running.broker_addresses}
            for name, address in addresses.items():
                console.print(f"   {name:12} {address}")
            with console_beside(running.name_server) as page:
                console.print(f"   {'console':12} {page}")
                with asyncio.Runner(loop_factory=new_loop) as runner:
                    orders = runner.run(tell(running, count))
                code = conclude(orders)
                if code == 0 and not given.without_spark:
                    code = analyse(running.name_server, orders)
                if given.stay:
                    stay(page)
            return code
    except (Surprise, NoRoute, SendFailed, RocketMQError) as error:
        console.print(f"[bold red]The demo failed[/]: {error}")
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
