"""Handles messages once that are delivered twice."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from sparrowmq.client.consuming.deduplicate import Deduplicate, MemorySeen, Seen, SqliteSeen
from sparrowmq.client.consuming.handler_calls import RetryLater
from sparrowmq.client.consuming.push_consumer import PushConsumer
from sparrowmq.client.group.broker_requests import routes
from sparrowmq.net.workers import InlineWorkers
from sparrowmq.protocol.message_ext import MessageExt
from sparrowmq.protocol.record import decode_record, encode_record, topic_part
from sparrowmq.testing.sim_cluster import SimCluster
from tests.client.members import Member, create_topic, send, stored_offset

HOST = bytes((127, 0, 0, 1, 0, 0, 0, 1))


class Time:
    def __init__(self) -> None:
        self.now_ms = 1_000_000

    def __call__(self) -> int:
        return self.now_ms


def message(body: bytes) -> MessageExt:
    record = encode_record(topic_part("t"), 0, 0, 0, 0, 0, 1, HOST, 2, HOST, 0, 0, body, b"")
    return MessageExt(decode_record(record), "broker-a")


def by_body(found: MessageExt) -> str:
    return found.body.decode()


@pytest.fixture(params=["memory", "sqlite"])
def seen(request: pytest.FixtureRequest, tmp_path: Path) -> Seen:
    if request.param == "memory":
        return MemorySeen()
    store = SqliteSeen(tmp_path / "seen.db")
    request.addfinalizer(store.close)
    return store


class Handled:
    """A plain handler that notes what it gets, and fails where the test chooses."""

    def __init__(self, fails: Callable[[Sequence[MessageExt]], None] | None = None) -> None:
        self.bodies: list[bytes] = []
        self._fails = fails

    def __call__(self, messages: Sequence[MessageExt]) -> None:
        self.bodies += [found.body for found in messages]
        if self._fails is not None:
            self._fails(messages)


def test_a_known_key_is_skipped(seen: Seen) -> None:
    handled = Handled()
    handle = Deduplicate(seen, by_body, clock=Time())(handled)
    handle([message(b"a"), message(b"b")])
    handle([message(b"b"), message(b"c"), message(b"c")])
    assert handled.bodies == [b"a", b"b", b"c"]


@pytest.mark.parametrize("is_async", [False, True])
def test_a_handler_of_each_message_is_wrapped_as_well(is_async: bool) -> None:
    bodies: list[bytes] = []

    def handle(one: MessageExt) -> None:
        bodies.append(one.body)

    async def handle_later(one: MessageExt) -> None:
        bodies.append(one.body)

    with SimCluster(seed=1).run() as sim:
        create_topic(sim)
        client = sim.client_on("member", routes)
        consumer = PushConsumer(
            "billing",
            {"orders": "*"},
            client=client,
            threads=InlineWorkers(),
            from_where="FIRST_OFFSET",
        )
        once = Deduplicate(MemorySeen(), by_body)

        async def start() -> None:
            await client.start()
            await consumer.start(each=once(handle_later) if is_async else once(handle))

        sim.run(start(), on=sim.host("member"))
        send(sim, b"a", b"b", b"a")
        sim.advance(10)
        assert bodies == [b"a", b"b"]
        assert stored_offset(sim) == 3


@pytest.mark.parametrize("store", ["seen.db", None, MemorySeen])
def test_what_is_no_store_is_refused(store: Any) -> None:
    with pytest.raises(ValueError, match=r"the store of Deduplicate is .*must be an object such"):
        Deduplicate(store)


def test_a_file_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    with pytest.raises(OSError, match=r"nodir/seen\.db cannot be opened"):
        SqliteSeen(tmp_path / "nodir" / "seen.db")
    (tmp_path / "text.db").write_text("not a database, but text" * 100)
    with pytest.raises(OSError, match=r"text\.db cannot be used"):
        SqliteSeen(tmp_path / "text.db")


@pytest.mark.parametrize("key", [None, "", 5])
def test_messages_without_a_key_fail_instead_of_counting_as_the_same(key: Any) -> None:
    handled = Handled()
    handle = Deduplicate(MemorySeen(), lambda message: key, clock=Time())(handled)
    with pytest.raises(ValueError, match=r"keys for Deduplicate are \[.*must be texts"):
        handle([message(b"a")])
    assert handled.bodies == []


def test_a_key_is_recorded_after_success_only(seen: Seen) -> None:
    def fail_first(messages: Sequence[MessageExt]) -> None:
        if len(handled.bodies) == 1:
            raise ValueError("not today")

    handled = Handled(fail_first)
    handle = Deduplicate(seen, by_body, clock=Time())(handled)
    with pytest.raises(ValueError, match="not today"):
        handle([message(b"a")])
    handle([message(b"a")])
    assert handled.bodies == [b"a", b"a"]


def test_a_key_is_forgotten_after_its_time(seen: Seen) -> None:
    time = Time()
    handled = Handled()
    handle = Deduplicate(seen, by_body, ttl_s=60, clock=time)(handled)
    handle([message(b"a")])
    time.now_ms += 59_000
    handle([message(b"a")])
    assert handled.bodies == [b"a"]
    time.now_ms += 1_000
    handle([message(b"a")])
    assert handled.bodies == [b"a", b"a"]


def test_an_acknowledged_front_is_recorded_and_counted_in_the_whole_batch(seen: Seen) -> None:
    def only_two(messages: Sequence[MessageExt]) -> None:
        if len(messages) > 2:
            raise RetryLater(done=2)

    handled = Handled(only_two)
    handle = Deduplicate(seen, by_body, clock=Time())(handled)
    handle([message(b"known")])
    with pytest.raises(RetryLater) as raised:
        handle([message(body) for body in (b"a", b"known", b"b", b"c", b"d")])
    assert raised.value.done == 3
    handle([message(body) for body in (b"a", b"b", b"c", b"d")])
    assert handled.bodies == [b"known", b"a", b"b", b"c", b"d", b"c", b"d"]


def test_a_handler_whose_call_is_async_is_awaited_before_its_keys_are_recorded() -> None:
    class Billing:
        def __init__(self) -> None:
            self.bodies: list[bytes] = []

        async def __call__(self, messages: Sequence[MessageExt]) -> None:
            await asyncio.sleep(0)
            self.bodies += [found.body for found in messages]
            if len(self.bodies) == 1:
                raise ValueError("not today")

    async def work() -> list[bytes]:
        billing = Billing()
        handle = Deduplicate(MemorySeen(), by_body, clock=Time())(billing)
        for _ in range(3):
            answer = handle([message(b"a")])
            if answer is not None:
                with suppress(ValueError):
                    await answer
        return billing.bodies

    assert asyncio.run(work()) == [b"a", b"a"]


def test_an_argument_that_is_not_a_handler_is_refused() -> None:
    with pytest.raises(ValueError, match="handler is 5"):
        Deduplicate(MemorySeen())(5)  # type: ignore[call-overload]
    with pytest.raises(ValueError, match="key is 5, must be a function"):
        Deduplicate(MemorySeen(), key=5)  # type: ignore[arg-type]


def test_a_duplicate_of_a_message_in_progress_is_retried_later(seen: Seen) -> None:
    may_end = asyncio.Event()
    handled: list[bytes] = []

    async def slow(messages: Sequence[MessageExt]) -> None:
        handled.extend(found.body for found in messages)
        await may_end.wait()

    async def both() -> None:
        handle = Deduplicate(seen, by_body, clock=Time())(slow)
        async with asyncio.TaskGroup() as tasks:
            first = handle([message(b"a")])
            assert first is not None
            tasks.create_task(first)  # type: ignore[arg-type]  # a coroutine, as the handler is one
            await asyncio.sleep(0)
            second = handle([message(b"a")])
            assert second is not None
            with pytest.raises(RetryLater, match="same key"):
                await second
            may_end.set()
        third = handle([message(b"a")])
        assert third is not None
        await third

    asyncio.run(both())
    assert handled == [b"a"]


def test_a_file_is_remembered_by_the_next_process(tmp_path: Path) -> None:
    first = SqliteSeen(tmp_path / "seen.db")
    first.record(["a"], 0, 1000)
    first.close()
    second = SqliteSeen(tmp_path / "seen.db")
    assert second.known([*map(str, range(2000)), "a"], 0) == {"a"}
    second.close()


def test_memory_is_bounded() -> None:
    seen = MemorySeen(max_keys=3)
    for number in range(10):
        seen.record([str(number)], 0, 1000)
    assert len(seen) == 3
    assert seen.known(["6", "7", "9"], 0) == {"7", "9"}


def test_a_time_to_live_must_be_positive() -> None:
    with pytest.raises(ValueError, match="more than 0"):
        Deduplicate(MemorySeen(), ttl_s=0)


def test_a_killed_consumer_with_deduplication_handles_no_message_twice() -> None:
    handled: list[bytes] = []
    store = MemorySeen()

    async def handle(messages: Sequence[MessageExt]) -> None:
        handled.extend(found.body for found in messages)

    with SimCluster(seed=1).run() as sim:
        create_topic(sim)
        once = Deduplicate(store, clock=sim.clock)(handle)
        delivered: list[bytes] = []

        async def handler(messages: Sequence[MessageExt]) -> None:
            delivered.extend(found.body for found in messages)
            answer = once(messages)
            assert answer is not None
            await answer

        first = Member(sim, name="a", handler=handler)
        sim.advance(3)
        for number in range(5):
            send(sim, b"%d" % number, UNIQ_KEY=f"id-{number}")
        sim.until(lambda: len(handled) == 5)
        first.host.kill()  # before its progress was stored
        Member(sim, name="b", handler=handler)
        sim.advance(5)
        assert len(delivered) > 5
        assert handled == [b"%d" % number for number in range(5)]
