"""Hooks see every send and every call of a handler, and can fail neither."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from sparrowmq import (
    Handling,
    Hooks,
    Message,
    MessageExt,
    Producer,
    RequestTimedOut,
    RetryLater,
    SendFailed,
    blocking,
)
from sparrowmq.client.consuming.push_consumer import PushConsumer
from sparrowmq.client.hooks import Sending
from sparrowmq.testing import Cluster
from sparrowmq.testing.sim_cluster import SimCluster
from tests.client.members import GROUP, TOPIC, Member, create_topic, send
from tests.client.scripted import world


class Notes(Hooks):
    """Records its calls."""

    def __init__(self, name: str = "", calls: list[str] | None = None) -> None:
        self.name = name
        self.calls = [] if calls is None else calls
        self.sent: list[Sending] = []
        self.handled: list[Handling] = []

    def before_send(self, sending: Sending) -> None:
        self.calls.append(f"before send {self.name}".strip())

    def after_send(self, sending: Sending) -> None:
        self.calls.append(f"after send {self.name}".strip())
        self.sent.append(sending)

    def before_handling(self, handling: Handling) -> None:
        self.calls.append(f"before handling {self.name}".strip())

    def after_handling(self, handling: Handling) -> None:
        self.calls.append(f"after handling {self.name}".strip())
        self.handled.append(handling)


class Failing(Hooks):
    """Raises everywhere."""

    def before_send(self, sending: Sending) -> None:
        raise ZeroDivisionError("before send")

    def after_send(self, sending: Sending) -> None:
        raise ZeroDivisionError("after send")

    def before_handling(self, handling: Handling) -> None:
        raise ZeroDivisionError("before handling")

    def after_handling(self, handling: Handling) -> None:
        raise ZeroDivisionError("after handling")


ONE = Message("orders", b"one")


@pytest.mark.parametrize(
    ("name", "results", "messages"),
    [("send", 1, 1), ("send_batch", 1, 2), ("send_oneway", 0, 1)],
)
def test_a_send_is_seen_before_and_after(name: str, results: int, messages: int) -> None:
    async def work(producer: Producer) -> None:
        what: Any = [ONE, ONE] if messages == 2 else ONE
        await getattr(producer, name)(what)

    notes = Notes()
    with world() as w:
        w.produce(work, hooks=[notes])
    (sending,) = notes.sent
    assert notes.calls == ["before send", "after send"]
    assert (sending.group, sending.error) == ("orders-svc", None)
    assert len(sending.messages) == messages
    assert [result.is_ok for result in sending.results] == [True] * results


def test_a_request_is_seen_as_the_send_that_it_is() -> None:
    async def work(producer: Producer) -> None:
        with pytest.raises(RequestTimedOut):
            await producer.request(ONE, timeout_s=1)

    notes = Notes()
    with world() as w:
        w.produce(work, hooks=[notes])
    assert [result.is_ok for result in notes.sent[0].results] == [True]


def test_a_send_that_failed_is_seen_with_its_error_and_the_time_it_took() -> None:
    async def work(producer: Producer) -> None:
        with pytest.raises(SendFailed) as caught:
            await producer.send(ONE)
        assert notes.sent[0].error is caught.value

    notes = Notes()
    with world("a") as w:
        w.brokers["a"].host.kill()
        w.produce(work, hooks=[notes], timeout_s=2)
    assert notes.sent[0].results == ()
    assert notes.sent[0].elapsed_s == pytest.approx(2, abs=1)


def test_hooks_are_called_in_turn_and_backwards_afterwards() -> None:
    calls: list[str] = []
    hooks = [Notes("one", calls), Notes("two", calls)]
    with world() as w:
        w.produce(lambda producer: producer.send(ONE), hooks=hooks)
    assert calls == ["before send one", "before send two", "after send two", "after send one"]


class Tracing(Hooks):
    """Carries a context from the sender to the handler, as tracing does."""

    def __init__(self, **properties: str) -> None:
        self.properties = properties
        self.seen: list[str | None] = []

    def before_send(self, sending: Sending) -> None:
        sending.properties.update(self.properties)

    def after_handling(self, handling: Handling) -> None:
        self.seen += [one.properties.get("traceparent") for one in handling.messages]


def sent_with(hooks: Sequence[Hooks], *messages: Message) -> list[MessageExt]:
    """What arrives of messages that a producer with these hooks sends."""
    got: list[MessageExt] = []

    async def produce() -> None:
        client = sim.client_on("producer")
        await client.start()
        async with Producer("orders-svc", client=client, hooks=hooks) as producer:
            for message in messages:
                await producer.send(message)
        await client.stop()

    async def handle(batch: Sequence[MessageExt]) -> None:
        got.extend(batch)

    with SimCluster(seed=1).run() as sim:
        create_topic(sim)
        sim.run(produce(), on=sim.host("producer"))
        Member(sim, handler=handle, hooks=hooks)
        sim.advance(3)
    return got


def test_a_hook_adds_properties_that_the_handler_s_hook_reads() -> None:
    tracing = Tracing(traceparent="00-1-2-01")
    (got,) = sent_with([tracing], Message(TOPIC, b"one", properties={"own": "kept"}))
    assert (got.properties["traceparent"], got.properties["own"]) == ("00-1-2-01", "kept")
    assert tracing.seen == ["00-1-2-01"]


def test_a_hook_does_not_overwrite_a_property_of_the_message() -> None:
    tracing = Tracing(colour="red")
    (got,) = sent_with([tracing], Message(TOPIC, b"one", properties={"colour": "blue"}))
    assert got.properties["colour"] == "blue"


def test_an_invalid_property_from_a_hook_is_left_out_and_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    (got,) = sent_with([Tracing(TAGS="reserved")], Message(TOPIC, b"one"))
    assert got.body == b"one"
    assert "add properties that no message can have" in caplog.text


def test_what_hooks_raise_fails_neither_a_send_nor_a_message(
    caplog: pytest.LogCaptureFixture,
) -> None:
    notes = Notes()
    (got,) = sent_with([Failing(), notes], Message(TOPIC, b"one"))
    assert got.body == b"one"
    assert notes.calls == ["before send", "after send", "before handling", "after handling"]
    for name in ("before_send", "after_send", "before_handling", "after_handling"):
        assert f"hook Failing.{name} of group" in caplog.text
    assert notes.handled[0].failed == ()


def test_a_hook_sees_each_handler_call_with_its_failures() -> None:
    async def handle(messages: Sequence[MessageExt]) -> None:
        if not messages[0].reconsume_times:
            raise RetryLater("the second one", done=1)

    notes = Notes()
    with SimCluster(seed=1).run() as sim:
        create_topic(sim)
        send(sim, b"a", b"b")
        Member(sim, handler=handle, hooks=[notes], batch=2)
        sim.advance(5)
        first = notes.handled[0]
        assert [message.body for message in first.messages] == [b"a", b"b"]
        assert [message.body for message in first.failed] == [b"b"]
        assert isinstance(first.error, RetryLater)
        sim.advance(15)
        again = notes.handled[1]
        assert ([message.body for message in again.messages], again.error) == ([b"b"], None)


class Async(Hooks):
    async def before_send(self, sending: Sending) -> None:  # type: ignore[override]
        raise AssertionError("it would never run")


@pytest.mark.parametrize(
    ("hooks", "fault"),
    [
        (Notes(), "must be a list such as"),
        ([print], "must be an object of a subclass of Hooks"),
        ([Notes], "must be an object of a subclass of Hooks"),
        ([Async()], "before_send of Async is async, must be a plain function"),
    ],
)
def test_an_object_that_is_not_hooks_is_refused(hooks: Any, fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        Producer("orders-svc", hooks=hooks)
    with pytest.raises(ValueError, match=fault):
        PushConsumer(GROUP, {TOPIC: "*"}, hooks=hooks)


@pytest.mark.parametrize("has_hooks", [False, True])
def test_hooks_cost_nothing_where_there_are_none(has_hooks: bool) -> None:
    called: set[str] = set()

    def note(frame: Any, event: str, argument: Any) -> None:
        code = frame.f_code
        if Path(code.co_filename).name in ("hooks.py", "hooked_sender.py"):
            called.add(code.co_name)

    hooks = [Notes()] if has_hooks else []
    sys.setprofile(note)
    try:
        with world() as w:
            w.produce(lambda producer: producer.send(ONE), hooks=hooks)
        with SimCluster(seed=1).run() as sim:
            create_topic(sim)
            send(sim, b"one")
            member = Member(sim, hooks=hooks)
            sim.advance(3)
            assert member.got == [b"one"]
    finally:
        sys.setprofile(None)
    assert "check_hooks" in called  # once, when a producer or consumer is made
    assert (called == {"check_hooks"}) is not has_hooks


def test_hooks_work_without_asyncio(sparrowmq_cluster: Cluster) -> None:
    notes = Notes()
    servers = sparrowmq_cluster.name_server
    with blocking.Producer("orders-svc", name_servers=servers, hooks=[notes]) as producer:
        producer.send(ONE)
    assert notes.calls == ["before send", "after send"]
