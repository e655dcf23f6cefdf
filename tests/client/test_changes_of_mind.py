"""What changes while a consumer waits for somebody: plans, owners, operators, connections."""

import asyncio

import pytest

from sparrowmq.protocol.headers.consumer_calls import InvokeResetOffset
from sparrowmq.protocol.message_ext import MessageExt
from sparrowmq.testing.sim_cluster import SimCluster
from tests.client.members import GROUP, TOPIC, Member, create_topic, owned, send


@pytest.mark.parametrize("orderly", [False, True])
def test_a_queue_that_was_to_go_and_comes_back_is_consumed_on(orderly: bool) -> None:
    """Its handler runs for longer than the other member stays."""
    with SimCluster(seed=1).run() as sim:
        create_topic(sim, 2)

        async def handle(message: MessageExt) -> None:
            await asyncio.sleep(6 if message.body == b"slow" else 0)

        member = Member(sim, handle, name="a", orderly=orderly)
        sim.advance(3)
        send(sim, b"slow", queue_id=1)
        sim.until(lambda: member.got == [b"slow"])
        guest = Member(sim, name="b", orderly=orderly)
        sim.advance(2)
        assert owned(guest) == 0
        guest.leave()
        send(sim, b"next", queue_id=1)
        sim.advance(10)
        assert member.got == [b"slow", b"next"]


def test_a_queue_goes_on_although_the_connection_ends_in_the_middle_of_a_reset() -> None:
    with SimCluster(seed=1).run() as sim:
        create_topic(sim)

        async def handle(message: MessageExt) -> None:
            await asyncio.sleep(5 if message.body == b"slow" else 0)

        member = Member(sim, handle)
        send(sim, b"one", b"slow")
        sim.until(lambda: member.got == [b"one", b"slow"])
        reset = InvokeResetOffset(
            topic=TOPIC, group=GROUP, timestamp=-1, is_force=True, queue_id=0, offset=0
        )
        sim.wait(sim.client.call(reset))
        sim.advance(1)
        broker = sim.brokers["broker-a"].broker
        group = broker.consumers.group(GROUP)
        assert group is not None
        for connection in group.members:
            connection.abort()
        sim.advance(30)
        assert member.got == [b"one", b"slow", b"one", b"slow"]
