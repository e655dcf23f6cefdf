"""The facade for programs without asyncio: threads, forks, Ctrl-C."""

import asyncio
import os
import queue
import threading
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from sparrowmq import ConsumeFromWhere, MessageExt
from sparrowmq.blocking import (
    LitePullConsumer,
    Message,
    Producer,
    PushConsumer,
    TransactionalProducer,
)
from sparrowmq.blocking.facade import Facade, running_inside
from sparrowmq.client.background_loop import loop_of_process
from sparrowmq.client.errors import NotStarted
from sparrowmq.client.lifecycle import Block
from sparrowmq.client.sending.producer_member import core_of_producer
from sparrowmq.client.sending.transactional_producer import HalfMessage, TransactionState
from sparrowmq.testing import Cluster
from sparrowmq.testing.held_port import HeldPort
from tests.patience import PATIENCE_S


def test_messages_sent_without_asyncio_are_consumed_without_it(sparrowmq_cluster: Cluster) -> None:
    servers = sparrowmq_cluster.name_server
    got: queue.Queue[bytes] = queue.Queue()

    def handle(messages: Sequence[MessageExt]) -> None:
        for message in messages:
            got.put(message.body)

    with Producer("p", name_servers=servers) as producer:
        producer.send(Message("orders", b"0"))
        consumer = PushConsumer(
            "g", {"orders": "*"}, name_servers=servers, from_where=ConsumeFromWhere.FIRST_OFFSET
        )
        with consumer:
            consumer.start(handle)
            for number in range(1, 10):
                producer.send(Message("orders", b"%d" % number))
            assert {got.get(timeout=PATIENCE_S) for _ in range(10)} == {
                b"%d" % n for n in range(10)
            }


def test_several_threads_share_a_producer(sparrowmq_cluster: Cluster) -> None:
    servers = sparrowmq_cluster.name_server
    with (
        Producer("p", name_servers=servers) as producer,
        ThreadPoolExecutor(8) as threads,
    ):
        bodies = [Message("orders", b"%d" % number) for number in range(100)]
        results = list(threads.map(producer.send, bodies))
    assert all(result.is_ok for result in results)
    assert len({(result.queue, result.queue_offset) for result in results}) == 100


def test_a_forked_child_can_use_its_parents_producer(sparrowmq_cluster: Cluster) -> None:
    with Producer("p", name_servers=sparrowmq_cluster.name_server) as producer:
        producer.send(Message("orders", b"parent"))
        child = os.fork()
        if child == 0:
            # Nothing of pytest may run in here, whatever happens
            try:
                sent = all(producer.send(Message("orders", b"child")).is_ok for _ in range(10))
                os._exit(0 if sent else 1)
            except BaseException:
                os._exit(2)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        assert producer.send(Message("orders", b"parent again")).is_ok


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt])
def test_what_ends_a_task_does_not_end_the_shared_loop(kind: type[BaseException]) -> None:
    async def leave() -> None:
        raise kind

    loop = loop_of_process.get()
    with pytest.raises(kind):
        loop.begin(leave()).result(timeout=PATIENCE_S)
    assert loop.begin(asyncio.sleep(0, "alive")).result(timeout=PATIENCE_S) == "alive"


def test_run_returns_when_another_thread_stops_the_consumer(sparrowmq_cluster: Cluster) -> None:
    servers = sparrowmq_cluster.name_server
    with Producer("p", name_servers=servers) as producer:
        producer.send(Message("orders", b"x"))
    called = threading.Event()
    consumer = PushConsumer(
        "g", {"orders": "*"}, name_servers=servers, from_where=ConsumeFromWhere.FIRST_OFFSET
    )
    running = threading.Thread(target=consumer.run, args=(lambda messages: called.set(),))
    running.start()
    assert called.wait(timeout=PATIENCE_S)
    consumer.stop()
    running.join(timeout=PATIENCE_S)
    assert not running.is_alive()


def test_a_handler_cannot_wait_for_its_own_end(sparrowmq_cluster: Cluster) -> None:
    servers = sparrowmq_cluster.name_server
    with Producer("p", name_servers=servers) as producer:
        producer.send(Message("orders", b"x"))
    faults: queue.Queue[str] = queue.Queue()

    def stop(messages: Sequence[MessageExt]) -> None:
        try:
            consumer.stop()
        except RuntimeError as error:
            faults.put(str(error))

    consumer = PushConsumer(
        "g", {"orders": "*"}, name_servers=servers, from_where=ConsumeFromWhere.FIRST_OFFSET
    )
    with consumer:
        consumer.start(stop)
        assert "would wait for the handler itself" in faults.get(timeout=PATIENCE_S)


def test_a_handler_that_is_called_during_the_start_cannot_wait_for_its_own_end(
    sparrowmq_cluster: Cluster,
) -> None:
    servers = sparrowmq_cluster.name_server
    with Producer("p", name_servers=servers) as producer:
        producer.send(Message("orders", b"x"))
    called = threading.Event()
    faults: queue.Queue[str] = queue.Queue()

    class Started(PushConsumer):
        def _start(self, begin: Callable[[Any], Coroutine[Any, Any, None]]) -> Any:
            async def begin_until_called(inner: Any) -> None:
                await begin(inner)
                await asyncio.to_thread(called.wait, PATIENCE_S)

            return super()._start(begin_until_called)

    def stop(messages: Sequence[MessageExt]) -> None:
        called.set()
        try:
            consumer.stop()
        except RuntimeError as error:
            faults.put(str(error))

    consumer = Started(
        "g", {"orders": "*"}, name_servers=servers, from_where=ConsumeFromWhere.FIRST_OFFSET
    )
    consumer.start(stop)
    assert "would wait for the handler itself" in faults.get(timeout=PATIENCE_S)
    consumer.stop()


def test_a_stop_right_after_the_start_ends_run(sparrowmq_cluster: Cluster) -> None:
    servers = sparrowmq_cluster.name_server

    class Stopped(PushConsumer):
        def _start(self, *args: Any) -> Any:
            started = super()._start(*args)
            stopper = threading.Thread(target=self.stop)
            stopper.start()
            stopper.join()
            return started

    with Producer("p", name_servers=servers) as producer:
        producer.send(Message("orders", b"x"))
    Stopped("g", {"orders": "*"}, name_servers=servers).run(lambda messages: None)


def test_a_stop_while_something_starts_comes_after_the_start() -> None:
    order: list[str] = []
    begun, may_go_on = threading.Event(), threading.Event()

    class Slow(Block):
        async def stop(self) -> None:
            order.append("stopped")

    class SlowFacade(Facade[Slow]):
        async def _begin(self, inner: Slow) -> None:
            begun.set()
            await asyncio.to_thread(may_go_on.wait)
            order.append("started")

    facade = SlowFacade(Slow)
    threads = [threading.Thread(target=facade.__enter__)]
    threads[0].start()
    begun.wait()
    threads.append(threading.Thread(target=facade.stop))
    threads[1].start()
    may_go_on.set()
    for thread in threads:
        thread.join()
    assert order == ["started", "stopped"]


def test_wrong_settings_are_refused_when_the_object_is_made() -> None:
    with pytest.raises(ValueError, match="group 'a b' has characters that are not allowed"):
        Producer("a b")
    with pytest.raises(ValueError, match="at least one topic"):
        PushConsumer("g", {})


def test_using_an_unstarted_producer_raises_an_error_that_tells_how_to_start_it() -> None:
    with pytest.raises(NotStarted, match="the Producer is not running: use `with`"):
        Producer("p").send(Message("t", b"x"))


def test_a_producer_is_stopped_at_the_end_of_its_block() -> None:
    with HeldPort() as port, Producer("p", name_servers=f"127.0.0.1:{port.port}") as producer:
        inner = running_inside(producer)[1]
    assert not core_of_producer(inner).is_running
    with pytest.raises(NotStarted, match="the Producer is not running"):
        producer.send(Message("t", b"x"))


def test_a_forked_child_must_start_its_own_consumers() -> None:
    with HeldPort() as port:
        servers = f"127.0.0.1:{port.port}"
        with LitePullConsumer("g", {"orders": "*"}, name_servers=servers) as consumer:
            child = os.fork()
            if child == 0:
                try:
                    consumer.poll(0)
                    os._exit(1)
                except NotStarted as error:
                    os._exit(0 if "runs in another process: start one here" in str(error) else 2)
                except BaseException:
                    os._exit(3)
            _, status = os.waitpid(child, 0)
            assert os.waitstatus_to_exitcode(status) == 0


def test_a_request_is_answered_from_a_handler_without_asyncio(sparrowmq_cluster: Cluster) -> None:
    servers = sparrowmq_cluster.name_server
    with Producer("p", name_servers=servers) as producer:
        producer.send(Message("questions", b"so that the topic is there"))

        def handle(messages: Sequence[MessageExt]) -> None:
            for message in messages:
                if message.properties.get("CORRELATION_ID"):
                    producer.reply(message, message.body.upper())

        consumer = PushConsumer(
            "g", {"questions": "*"}, name_servers=servers, from_where=ConsumeFromWhere.FIRST_OFFSET
        )
        with consumer:
            consumer.start(handle)
            reply = producer.request(Message("questions", b"how many?"), timeout_s=PATIENCE_S)
        assert reply.body == b"HOW MANY?"


def test_transactions_run_in_threads_that_may_block(sparrowmq_cluster: Cluster) -> None:
    main = threading.current_thread()

    class Bookings:
        def execute(self, half: HalfMessage) -> TransactionState:
            assert threading.current_thread() is not main
            # Blocking calls are allowed here: the loop is another thread's
            with Producer("other", name_servers=servers) as other:
                other.send(Message("bookings", half.message.body))
            return half.argument  # type: ignore[no-any-return]

        def check(self, message: MessageExt) -> TransactionState:
            raise AssertionError("nothing is open")

    servers = sparrowmq_cluster.name_server
    with TransactionalProducer("p", Bookings(), name_servers=servers) as producer:
        for state in (TransactionState.COMMIT, TransactionState.ROLLBACK):
            result = producer.send_in_transaction(Message("orders", b"x"), state)
            assert (result.state, result.is_ok) == (state, True)


def test_threads_of_a_forked_child_that_send_together_start_one_producer(
    sparrowmq_cluster: Cluster,
) -> None:
    with Producer("p", name_servers=sparrowmq_cluster.name_server) as producer:
        producer.send(Message("orders", b"parent"))
        child = os.fork()
        if child == 0:
            try:
                with ThreadPoolExecutor(8) as threads:
                    clients = set(threads.map(lambda _: client_id(producer), range(64)))
                os._exit(0 if len(clients) == 1 else 1)
            except BaseException:
                os._exit(2)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0


def client_id(producer: Producer) -> str:
    producer.send(Message("orders", b"child"))
    return core_of_producer(running_inside(producer)[1]).client_id


def test_a_call_uses_the_instance_it_found_although_another_thread_stops_it() -> None:
    loop, inner = loop_of_process.get(), object()

    class StoppedMeanwhile(Producer):
        def __init__(self) -> None:
            super().__init__("p")
            self._loop: Any = loop
            self._inner: Any = inner

        def __getattribute__(self, name: str) -> Any:
            value = super().__getattribute__(name)
            if name == "_inner":
                super().__setattr__(name, None)
            return value

    producer = StoppedMeanwhile()
    assert running_inside(producer) == (loop, inner)
    with pytest.raises(NotStarted):
        running_inside(producer)
