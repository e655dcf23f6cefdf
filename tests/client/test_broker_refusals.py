"""Members whose broker does not lock, unlock or store: they keep running and try again."""

from types import ModuleType
from typing import NoReturn

import pytest

from sparrowmq.client.consuming import send_back
from sparrowmq.client.errors import NoRoute
from sparrowmq.client.group import lock_requests, offsets
from sparrowmq.net.errors import ConnectionLost
from sparrowmq.protocol.errors import BodyError
from sparrowmq.protocol.message_ext import MessageExt
from sparrowmq.testing.sim_cluster import SimCluster
from tests.client.members import TOPIC, Member, create_topic, owned, send, stored_offset

ERRORS = [NoRoute(TOPIC, "gone"), ConnectionLost("broker-a", "gone"), BodyError("nonsense")]


def break_down(
    monkeypatch: pytest.MonkeyPatch, module: ModuleType, name: str, error: Exception
) -> None:
    async def fail(*_: object) -> NoReturn:
        raise error

    monkeypatch.setattr(module, name, fail)


def kind(error: Exception) -> str:
    return type(error).__name__


@pytest.mark.parametrize("error", ERRORS, ids=kind)
def test_a_lock_that_cannot_be_renewed_now_is_renewed_later(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    with SimCluster(seed=1).run() as sim:
        create_topic(sim)
        member = Member(sim, orderly=True)
        sim.advance(15)
        break_down(monkeypatch, lock_requests, "call", error)
        sim.advance(10)
        monkeypatch.undo()
        sim.advance(20)
        send(sim, b"x")
        sim.advance(2)
        assert member.got == [b"x"]


@pytest.mark.parametrize("error", ERRORS[:2], ids=kind)
def test_a_member_leaves_although_its_queues_cannot_be_unlocked(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    with SimCluster(seed=1).run() as sim:
        create_topic(sim)
        first = Member(sim, name="a")
        sim.advance(3)
        break_down(monkeypatch, lock_requests, "call", error)
        first.leave()
        monkeypatch.undo()
        second = Member(sim, name="b")
        sim.advance(3)
        assert owned(second) == 1


@pytest.mark.parametrize("error", ERRORS[:2], ids=kind)
def test_progress_that_cannot_be_stored_now_is_stored_later(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    with SimCluster(seed=1).run() as sim:
        create_topic(sim)
        member = Member(sim)
        send(sim, b"x")
        sim.until(lambda: member.got == [b"x"])
        break_down(monkeypatch, offsets, "commit_offset", error)
        sim.advance(12)
        monkeypatch.undo()
        sim.advance(6)
        assert stored_offset(sim) == 1
        assert not member.task.done()


@pytest.mark.parametrize("error", ERRORS[:2], ids=kind)
def test_a_message_that_cannot_be_sent_back_now_is_handled_again(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail_once(message: MessageExt) -> None:
        if not message.reconsume_times:
            raise ValueError("not today")

    with SimCluster(seed=1).run() as sim:
        create_topic(sim)
        break_down(monkeypatch, send_back, "call", error)
        member = Member(sim, fail_once)
        send(sim, b"x")
        sim.advance(8)
        assert member.got == [b"x", b"x"]


def test_a_failing_queue_listener_does_not_stop_the_consumer() -> None:
    def listen(*_: object) -> NoReturn:
        raise ValueError("what now?")

    with SimCluster(seed=1).run() as sim:
        create_topic(sim)
        member = Member(sim, listener=listen)
        sim.advance(25)
        send(sim, b"x")
        sim.advance(2)
        assert member.got == [b"x"]
        assert not member.task.done()
