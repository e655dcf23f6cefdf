"""Transactions that RocketMQ forgot or checked for ever, by report number."""

import pytest

from sparrowmq.broker.live_clients import LiveMember
from sparrowmq.net.errors import ConnectionLost
from sparrowmq.protocol.header import RequestHeader
from sparrowmq.protocol.message_ext import decode_messages
from sparrowmq.protocol.sys_flag import TRANSACTION_COMMIT, TRANSACTION_ROLLBACK
from tests.broker.delivery_world import Peer, orders_world
from tests.broker.transaction_world import bodies, end, half, producer


def asked(peer: Peer) -> list[bytes]:
    return [decode_messages(body)[0].body for _, body in peer.calls]


@pytest.mark.parametrize("late_ms", [0, 1, 2, 999, 1000, 1001])
def test_report_544_a_half_message_is_checked_whichever_millisecond_its_immunity_ends(
    late_ms: int,
) -> None:
    with orders_world() as world:
        peer = producer(world)
        half(world, b"an order", CHECK_IMMUNITY_TIME_IN_SECONDS="10")
        world.pass_time(9)
        assert asked(peer) == []
        world.now_ms += 1_000 + late_ms
        world.deliver()
        assert asked(peer) == [b"an order"]


class Broken(Peer):
    """A producer whose connection is lost in the moment it is asked."""

    def send_oneway(self, header: RequestHeader, body: bytes = b"") -> None:
        raise ConnectionLost(self.name, "gone")


def test_report_9500_a_question_that_fails_holds_up_no_other() -> None:
    with orders_world() as world:
        broken = Broken("broken")
        member = LiveMember("broken", broken.connection, "JAVA", 500, world.now_ms)
        world.broker.producers.join("broken-svc", member)
        peer = producer(world)
        for number in range(20):
            world.send("orders", b"first", TRAN_MSG="true", PGROUP="broken-svc")
            half(world, b"%d" % number)
        world.pass_time(7)
        assert asked(peer) == [b"%d" % number for number in range(20)]


def test_report_5574_an_ended_transaction_is_never_checked_again() -> None:
    with orders_world() as world:
        peer = producer(world)
        for number in range(30):
            kind = TRANSACTION_ROLLBACK if number % 2 else TRANSACTION_COMMIT
            end(world, half(world, b"%d" % number), kind)
        half(world, b"open")
        world.pass_time(7)
        world.kill()
        peer = producer(world)
        world.pass_time(100)
        assert set(asked(peer)) == {b"open"}
        assert bodies(world) == [b"%d" % number for number in range(0, 30, 2)]
