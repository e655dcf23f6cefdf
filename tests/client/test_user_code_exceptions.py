"""Any exception in the user's code is a failed message or a failed call and ends no consumer.

Only the end of the consumer itself passes, and KeyboardInterrupt and SystemExit in the main thread.
"""

import asyncio
import logging
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from sparrowmq import Deduplicate, MemorySeen, Message, Only, TransactionState
from sparrowmq.blocking import Producer as BlockingProducer
from sparrowmq.client.consuming.handler_calls import Handler
from sparrowmq.client.consuming.scheduled_pull import ScheduledPull, Turn
from sparrowmq.client.group.broker_requests import routes
from sparrowmq.client.sending.transactional_producer import TransactionalProducer
from sparrowmq.client.strategies import AVG, Strategy
from sparrowmq.client.subscriptions import Filter
from sparrowmq.net.workers import InlineWorkers
from sparrowmq.protocol.message import MessageQueue
from sparrowmq.protocol.message_ext import MessageExt
from sparrowmq.testing import Cluster
from sparrowmq.testing.sim_cluster import SimCluster
from tests.client.members import GROUP, TOPIC, Member, create_topic, send, stored_offset
from tests.patience import PATIENCE_S


class OfItsOwn(BaseException):
    """Frameworks have such: neither an Exception nor an end of the program."""


EVERYWHERE: list[BaseException] = [
    ValueError("wrong"),
    TimeoutError(),
    StopIteration(),
    StopAsyncIteration(),
    GeneratorExit(),
    asyncio.CancelledError(),
    OfItsOwn(),
    ExceptionGroup("many", [ValueError("one"), ValueError("two")]),
    BaseExceptionGroup("many", [OfItsOwn(), ValueError("two")]),
]
ENDS_OF_PROGRAMS: list[BaseException] = [SystemExit(3), KeyboardInterrupt()]
"""In a thread they are failures too."""


@dataclass(frozen=True)
class User:
    """Code of a user that raises when it sees `a` for the first time."""

    handler: Handler
    filter: Filter = "*"
    options: Mapping[str, Any] | None = None


Fail = Callable[[Iterable[MessageExt]], None]


def asynchronous(fail: Fail) -> User:
    async def handle(messages: Sequence[MessageExt]) -> None:
        await asyncio.sleep(0.01)
        fail(messages)

    return User(handle)


def in_order(fail: Fail) -> User:
    return User(asynchronous(fail).handler, options={"orderly": True})


def plain(fail: Fail) -> User:
    return User(lambda messages: fail(messages))


def plain_in_order(fail: Fail) -> User:
    return User(lambda messages: fail(messages), options={"orderly": True})


def awaitable(fail: Fail) -> User:
    """A plain function that returns what has to be awaited, as `partial` and mocks do."""
    handler = asynchronous(fail).handler
    return User(lambda messages: handler(messages))


def filtered(fail: Fail) -> User:
    def accepts(message: MessageExt) -> bool:
        fail([message])
        return True

    return User(lambda messages: None, filter=Only(accepts))


def keyed(fail: Fail) -> User:
    def key(message: MessageExt) -> str:
        fail([message])
        return message.msg_id

    async def handle(messages: Sequence[MessageExt]) -> None:
        pass

    return User(Deduplicate(MemorySeen(), key)(handle))


def deduplicated(fail: Fail) -> User:
    return User(Deduplicate(MemorySeen())(lambda messages: fail(messages)))


IN_THREADS = [plain, plain_in_order, filtered, deduplicated]
ON_THE_LOOP = [asynchronous, in_order, awaitable, keyed]
CASES = [
    *((kind, error) for kind in IN_THREADS for error in EVERYWHERE + ENDS_OF_PROGRAMS),
    *((kind, error) for kind in ON_THE_LOOP for error in EVERYWHERE),
]


def fails_once(error: BaseException, seen: list[bytes]) -> Fail:
    def fail(messages: Iterable[MessageExt]) -> None:
        for message in messages:
            seen.append(message.body)
            if message.body == b"a" and not message.reconsume_times:
                raise error

    return fail


def consume(user: User, seen: list[bytes], caplog: pytest.LogCaptureFixture) -> None:
    """`a` fails once and is retried, the others are handled, and the stop is clean."""
    options = dict(user.options or {})
    with SimCluster(seed=1).run() as sim:
        create_topic(sim)
        member = Member(
            sim, handler=user.handler, subscriptions={TOPIC: user.filter}, workers=1, **options
        )
        send(sim, b"a", b"b")
        sim.advance(20)
        assert sorted(seen) == [b"a", b"a", b"b"]
        assert member.consumer.failure is None
        member.leave()
        assert stored_offset(sim) == 2
        first = sim.wait(sim.client.pull(TOPIC)).messages[0]
    told = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert len(told) == 1
    assert told[0].exc_info is not None
    assert all(part in told[0].getMessage() for part in (GROUP, TOPIC, first.msg_id))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "error"), CASES, ids=lambda part: getattr(part, "__name__", type(part).__name__)
)
def test_any_exception_of_user_code_fails_only_its_message(
    kind: Callable[[Fail], User], error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[bytes] = []
    consume(kind(fails_once(error, seen)), seen, caplog)


@pytest.mark.parametrize("error", ENDS_OF_PROGRAMS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("kind", ON_THE_LOOP, ids=lambda kind: kind.__name__)
def test_exceptions_that_end_programs_do_not_end_a_loop_in_another_thread(
    kind: Callable[[Fail], User], error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    failures: list[BaseException] = []

    def work() -> None:
        seen: list[bytes] = []
        try:
            consume(kind(fails_once(error, seen)), seen, caplog)
        except BaseException as failure:
            failures.append(failure)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(PATIENCE_S)
    assert failures == []


@pytest.mark.parametrize("error", ENDS_OF_PROGRAMS, ids=lambda error: type(error).__name__)
def test_what_ends_programs_passes_in_the_main_thread(error: BaseException) -> None:
    with pytest.raises(type(error)), SimCluster(seed=1).run() as sim:
        create_topic(sim)
        Member(sim, handler=asynchronous(fails_once(error, [])).handler)
        send(sim, b"a")
        sim.advance(1)


async def cancel_an_inner_task() -> None:
    async with asyncio.timeout(1):
        inner = asyncio.ensure_future(asyncio.sleep(1000))
        inner.cancel()
        await inner


async def cancel_its_own_task() -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await asyncio.sleep(0)


async def cancel_its_own_task_and_return() -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()


@pytest.mark.parametrize("orderly", [False, True])
@pytest.mark.parametrize(
    "cancel", [cancel_an_inner_task, cancel_its_own_task, cancel_its_own_task_and_return]
)
def test_a_handler_that_cancels_its_own_task_ends_no_worker(
    cancel: Callable[[], Awaitable[None]], orderly: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def handle(message: MessageExt) -> None:
        if not message.reconsume_times:
            await cancel()

    with SimCluster(seed=1).run() as sim:
        create_topic(sim)
        member = Member(sim, handle, workers=1, orderly=orderly)
        send(sim, b"a", b"b")
        sim.advance(60)
        assert set(member.got) == {b"a", b"b"}
        assert "ERROR" in caplog.text
        member.leave()
        assert stored_offset(sim) == 2


def test_a_handler_that_answers_its_end_with_an_error_ends_all_the_same() -> None:
    async def handle(message: MessageExt) -> None:
        try:
            await asyncio.sleep(1000)
        except asyncio.CancelledError:
            raise ValueError("clumsy") from None

    with SimCluster(seed=1).run() as sim:
        create_topic(sim)
        member = Member(sim, handle, stop_within_s=1)
        send(sim, b"a")
        sim.advance(2)
        member.leave()
        assert stored_offset(sim) == 0


# ---- callbacks other than message handlers


@pytest.mark.parametrize("error", EVERYWHERE, ids=lambda error: type(error).__name__)
def test_a_queue_listener_may_raise_anything(
    error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    def listen(*_: object) -> None:
        raise error

    with SimCluster(seed=1).run() as sim:
        create_topic(sim)
        member = Member(sim, listener=listen)
        send(sim, b"a")
        sim.advance(2)
        assert member.got == [b"a"]
        member.leave()
    assert "listener" in caplog.text


@pytest.mark.parametrize("error", EVERYWHERE, ids=lambda error: type(error).__name__)
def test_a_strategy_may_raise_anything_and_is_asked_again(error: BaseException) -> None:
    asked: list[int] = []

    def allocate(*given: Any) -> list[MessageQueue]:
        asked.append(1)
        if len(asked) < 4:
            raise error
        return AVG(*given)

    with SimCluster(seed=1).run() as sim:
        create_topic(sim)
        member = Member(sim, strategy=Strategy("MINE", allocate))
        send(sim, b"a")
        sim.advance(10)
        assert member.got == [b"a"]
        member.leave()


@pytest.mark.parametrize("given", [None, 7, [["a list"]], [None]], ids=str)
def test_a_strategy_may_return_anything_and_the_consumer_lives_on(given: Any) -> None:
    answers = [given, given]

    def allocate(*asked: Any) -> list[MessageQueue]:
        return answers.pop() if answers else AVG(*asked)

    with SimCluster(seed=1).run() as sim:
        create_topic(sim)
        member = Member(sim, strategy=Strategy("MINE", allocate))
        send(sim, b"a")
        sim.advance(10)
        assert member.got == [b"a"]
        member.leave()


def raised(error: BaseException) -> Callable[[Turn], None]:
    def fail(turn: Turn) -> None:
        raise error

    return fail


def set_delay(given: Any) -> Callable[[Turn], None]:
    def fail(turn: Turn) -> None:
        turn.next_delay_s = given

    return fail


@pytest.mark.parametrize(
    "fail",
    [*map(raised, EVERYWHERE), *map(set_delay, ["soon", None, float("inf")])],
)
def test_a_scheduled_callback_may_do_anything(
    fail: Callable[[Turn], None], caplog: pytest.LogCaptureFixture
) -> None:
    turns: list[MessageQueue] = []

    async def callback(queue: MessageQueue, turn: Turn) -> None:
        turns.append(queue)
        if len(turns) == 1:
            fail(turn)

    async def work() -> None:
        client = sim.client_on("member", routes)
        await client.start()
        async with ScheduledPull(GROUP, {TOPIC: callback}, client=client):
            await asyncio.sleep(5)
        await client.stop()

    with SimCluster(seed=1).run() as sim:
        create_topic(sim, queues=1)
        sim.run(work(), on=sim.host("member"))
    assert len(turns) > 2
    assert [record.levelname for record in caplog.records].count("ERROR") == 1


@pytest.mark.slow
@pytest.mark.parametrize("is_async", [False, True], ids=["plain", "async"])
@pytest.mark.parametrize("error", EVERYWHERE, ids=lambda error: type(error).__name__)
def test_a_transaction_stays_open_if_its_listener_raises_anything(
    error: BaseException, is_async: bool, caplog: pytest.LogCaptureFixture
) -> None:
    class Plain:
        def execute(self, half: object) -> TransactionState:
            raise error

        check = execute

    class Async:
        async def execute(self, half: object) -> TransactionState:
            raise error

        check = execute

    async def work() -> TransactionState:
        client = sim.client_on("member")
        await client.start()
        listener = Async() if is_async else Plain()
        threads = InlineWorkers()
        async with TransactionalProducer(GROUP, listener, client=client, threads=threads) as sender:
            ended = await sender.send_in_transaction(Message(TOPIC, b"x"))
            await asyncio.sleep(100)  # the broker asks, and is answered
            await sender.send(Message(TOPIC, b"the producer lives on"))
        await client.stop()
        return ended.state

    with SimCluster(seed=1).run() as sim:
        create_topic(sim)
        assert sim.run(work(), on=sim.host("member")) is TransactionState.UNKNOWN
    assert [record.levelname for record in caplog.records].count("ERROR") >= 2


def cancel_task(*_: object) -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()


def test_a_scheduled_callback_that_cancels_its_task_has_further_turns() -> None:
    turns: list[MessageQueue] = []

    async def callback(queue: MessageQueue, turn: Turn) -> None:
        turns.append(queue)
        if len(turns) == 1:
            cancel_task()

    async def work() -> None:
        client = sim.client_on("member", routes)
        await client.start()
        async with ScheduledPull(GROUP, {TOPIC: callback}, client=client):
            await asyncio.sleep(5)
        counts.append(len(turns))
        await asyncio.sleep(5)
        counts.append(len(turns))
        await client.stop()

    counts: list[int] = []
    with SimCluster(seed=1).run() as sim:
        create_topic(sim, queues=1)
        sim.run(work(), on=sim.host("member"))
    assert counts[0] > 2
    assert counts[1] == counts[0]


def test_a_queue_listener_that_cancels_its_task_does_not_end_the_rebalance() -> None:
    with SimCluster(seed=1).run() as sim:
        create_topic(sim)
        member = Member(sim, listener=cancel_task)
        sim.advance(5)
        create_topic(sim, topic="returns")
        sim.wait(member.host.start(member.consumer.subscribe("returns")))
        sim.advance(25)
        assert {queue.topic for queue in member.consumer.assignment()} >= {TOPIC, "returns"}
        member.leave()


# ---- a whole program

PROGRAM = """
import asyncio, sys
from sparrowmq import ConsumeFromWhere, PushConsumer

async def handle(messages):
    sys.exit(7)

async def main():
    consumer = PushConsumer(
        "g", {{"orders": "*"}}, name_servers={servers!r}, from_where=ConsumeFromWhere.FIRST_OFFSET
    )
    {begin}

asyncio.run(main())
"""
RUN = "async with consumer: await consumer.run(handle)"
START = "await consumer.start(handle); await asyncio.Event().wait()"


@pytest.mark.parametrize("begin", [RUN, START], ids=["run", "start"])
def test_a_program_whose_async_handler_exits_ends_with_its_exit_code(
    begin: str, sparrowmq_cluster: Cluster
) -> None:
    servers = sparrowmq_cluster.name_server
    with BlockingProducer("p", name_servers=servers) as producer:
        producer.send(Message("orders", b"x"))
    program = PROGRAM.format(servers=servers, begin=begin)
    command = [sys.executable, "-c", program]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert (ended.returncode, ended.stderr) == (7, "")
