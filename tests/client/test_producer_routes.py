"""Where a producer gets its queues from: routes, route polling, and invalid routes."""

import asyncio
import gc
import sys
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

import pytest

from sparrowmq.client.errors import NoNameServer, NoRoute
from sparrowmq.client.sending.producer import Producer
from sparrowmq.protocol.message import Message
from tests.client.scripted import world


async def send_one(producer: Producer) -> Any:
    return await producer.send(Message("orders", b"x"))


def test_a_silent_name_server_costs_no_more_than_the_timeout_of_the_send() -> None:
    async def send(producer: Producer) -> None:
        await producer.send(Message("orders", b"x"), timeout_s=0.5)

    with world() as w:
        w.is_mute = True
        with pytest.raises(NoNameServer, match=r"no answer within 0.5 s"):
            w.produce(send)
        assert w.sim.now_s - w.start_s < 4


def test_the_first_send_waits_for_a_name_server_that_appears_within_its_timeout() -> None:
    async def send_first(producer: Producer) -> None:
        async with asyncio.TaskGroup() as tasks:
            sending = tasks.create_task(producer.send(Message("orders", b"x"), timeout_s=10))
            await asyncio.sleep(8)
            w.serve_routes()
            assert (await sending).is_ok

    with world() as w:
        w.stop_routes()
        w.produce(send_first)
        assert len(w.attempts) == 1


@pytest.mark.parametrize(("retries", "takes_s"), [(2, 7.0), (0, 0.0)])
def test_without_a_name_server_the_first_send_takes_its_time_unless_it_has_no_retries(
    retries: int, takes_s: float
) -> None:
    async def send(producer: Producer) -> float:
        begin_s = w.sim.now_s
        with pytest.raises(NoNameServer, match=r"no route for topic orders: .*: cannot connect to"):
            await producer.send(Message("orders", b"x"), timeout_s=7)
        return w.sim.now_s - begin_s

    with world() as w:
        w.stop_routes()
        assert w.produce(send, retries=retries) == pytest.approx(takes_s, abs=0.1)


def test_sends_one_after_the_other_each_wait_for_a_name_server() -> None:
    """The second one ends where rounding leaves a pause of 1e-15 s."""

    async def send(producer: Producer) -> list[float]:
        took = []
        for _ in range(3):
            begin_s = w.sim.now_s
            with pytest.raises(NoNameServer):
                await producer.send(Message("orders", b"x"), timeout_s=7)
            took.append(w.sim.now_s - begin_s)
            await asyncio.sleep(1)
        return took

    with world() as w:
        w.stop_routes()
        assert w.produce(send) == pytest.approx([7, 7, 7], abs=0.1)


def test_a_send_that_finds_no_name_server_releases_its_message_at_once() -> None:
    body = bytes(1_000)

    async def send(producer: Producer) -> int:
        with suppress(NoNameServer):  # what pytest catches stays until it is collected
            await producer.send(Message("orders", body), timeout_s=7)
        return sys.getrefcount(body)

    with world() as w:
        w.stop_routes()
        before = sys.getrefcount(body)
        gc.disable()
        try:
            assert w.produce(send) == before, "a cycle keeps the message"
        finally:
            gc.enable()


async def send_by_key(producer: Producer) -> Any:
    return await producer.send(Message("orders", b"x"), key="k")


@pytest.mark.parametrize("is_known", [False, True])
@pytest.mark.parametrize("send", [send_one, send_by_key])
def test_a_send_waits_for_a_master_that_takes_the_place_of_another(
    send: Callable[[Producer], Coroutine[Any, Any, Any]], is_known: bool
) -> None:
    """First a slave is left, then no broker at all, as it starts again to be the master."""

    async def send_meanwhile(producer: Producer) -> None:
        if is_known:
            await send(producer)
        with_master, w.routes["orders"] = w.routes["orders"], w.route(4, broker_id=1)
        if is_known:  # its connection ends, and the client looks where the broker is
            await asyncio.sleep(31)
        async with asyncio.TaskGroup() as tasks:
            sending = tasks.create_task(send(producer))
            await asyncio.sleep(1)
            del w.routes["orders"]
            await asyncio.sleep(1)
            assert not sending.done()
            w.routes["orders"] = with_master
            assert (await sending).is_ok

    with world("a") as w:
        w.produce(send_meanwhile)
        assert len(w.attempts) == 1 + is_known


@pytest.mark.parametrize("send", [send_one, send_by_key])
def test_a_master_that_does_not_come_back_in_time_fails_the_send(
    send: Callable[[Producer], Coroutine[Any, Any, Any]],
) -> None:
    with world("a") as w:
        w.routes["orders"] = w.route(4, broker_id=1)
        with pytest.raises(NoRoute, match="it exists, but no broker takes messages"):
            w.produce(send)
        assert w.sim.now_s - w.start_s == pytest.approx(3.0, abs=0.1)


def test_a_hundred_sends_to_a_new_topic_are_one_question_to_the_name_server() -> None:
    async def send_many(producer: Producer) -> None:
        await asyncio.gather(*(producer.send(Message("orders", b"x")) for _ in range(100)))

    with world() as w:
        w.produce(send_many)
        assert w.asked.count("orders") == 1
        assert len(w.attempts) == 100


def test_sends_that_borrow_a_route_together_share_it() -> None:
    async def send_many(producer: Producer) -> None:
        sends = (producer.send(Message("new", b"x")) for _ in range(8))
        assert all(result.is_ok for result in await asyncio.gather(*sends))

    with world("ab") as w:
        w.routes["TBW102"] = w.route(8)
        w.produce(send_many)
        assert w.asked == ["new", "TBW102"]
        assert sorted(w.attempts) == ["A1", "A2", "A3", "A4", "B1", "B2", "B3", "B4"]


def test_routes_are_polled_ten_milliseconds_after_the_start_and_then_every_thirty_seconds() -> None:
    async def watch(producer: Producer) -> list[int]:
        await producer.send(Message("orders", b"x"))
        counts = []
        for pause_s in (0.009, 0.002, 29.98, 0.02, 29.98, 0.02):
            await asyncio.sleep(pause_s)
            counts.append(len(w.asked))
        return counts

    with world("a") as w:
        assert w.produce(watch) == [1, 2, 2, 3, 3, 4]


def test_name_servers_that_do_not_answer_are_asked_ever_more_seldom() -> None:
    async def watch(producer: Producer) -> list[int]:
        await producer.send(Message("orders", b"x"))
        w.is_mute = True
        counts = []
        for _ in range(3):
            before = len(w.asked)
            await asyncio.sleep(60)
            counts.append(len(w.asked) - before)
        return counts

    with world("a") as w:
        first, second, third = w.produce(watch)
        # 3 s for each question, and then 1, 2, 4 … 30 s, or half of that
        assert 6 <= first <= 7
        assert 1 <= second <= 4
        assert 1 <= third <= 4


def test_a_send_continues_when_the_one_sharing_its_route_request_times_out() -> None:
    async def send_two(producer: Producer) -> None:
        async with asyncio.TaskGroup() as tasks:
            hasty = tasks.create_task(failure(producer, timeout_s=0.5))
            patient = tasks.create_task(producer.send(Message("orders", b"x")))
            await asyncio.sleep(0.25)
            w.is_mute = False
            assert isinstance(await hasty, NoRoute)
            assert (await patient).is_ok

    async def failure(producer: Producer, timeout_s: float) -> Exception | None:
        try:
            await producer.send(Message("orders", b"x"), timeout_s=timeout_s)
        except NoRoute as error:
            return error
        return None

    with world() as w:
        w.is_mute = True
        w.produce(send_two)
        assert w.asked == ["orders", "orders"]
        assert w.attempts == ["A1"]


def test_a_topic_that_no_broker_lets_write_is_refused_without_borrowing_a_route() -> None:
    with world() as w:
        w.routes["orders"] = w.route(2, perm=4)
        w.routes["TBW102"] = w.route(8)
        with pytest.raises(NoRoute, match="it exists, but no broker takes messages"):
            w.produce(send_one)
        assert w.attempts == []


def test_an_order_configuration_keeps_a_dead_brokers_queues_and_sends_there_fail() -> None:
    async def send_by_key(producer: Producer) -> None:
        found = await producer.queues("orders")
        assert [f"{q.broker_name[-1]}{q.queue_id}" for q in found] == ["a0", "a1", "z0", "z1"]
        with pytest.raises(
            NoRoute, match=r"broker broker-z has no master now; topic orders is on broker-a, b"
        ):
            await producer.send(Message("orders", b"x"), queue=found[-1])

    with world() as w:
        w.routes["orders"] = w.route(2, order="broker-a:2;broker-z:2")
        w.produce(send_by_key)


@pytest.mark.parametrize("order", ["broker-a", "broker-a:", "broker-a:many", "broker-a:2;broker-b"])
def test_an_order_configuration_that_cannot_be_read_is_named(order: str) -> None:
    with world() as w:
        w.routes["orders"] = w.route(2, order=order)
        with pytest.raises(NoRoute, match=f"order configuration '{order}' must be like"):
            w.produce(send_one)
        assert w.attempts == []


def test_a_changed_route_is_used_after_the_next_poll() -> None:
    async def send_for_a_minute(producer: Producer) -> None:
        await producer.send(Message("orders", b"x"))
        w.routes["orders"] = w.route(1)
        await asyncio.sleep(31)
        for _ in range(3):
            await producer.send(Message("orders", b"x"))

    with world("ab") as w:
        w.produce(send_for_a_minute)
        assert w.attempts[0] == "A1"
        assert sorted(w.attempts[1:]) in (["A1", "A1", "B1"], ["A1", "B1", "B1"])
