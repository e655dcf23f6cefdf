"""Calls of brokers to consumers, as an operator causes them."""

import asyncio
from pathlib import Path

from sparrowmq.client.group.group_consumer import core_of_consumer, membership_of
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.connections import ConsumeDirectlyResult, ConsumerRunningInfo
from sparrowmq.protocol.header import RequestHeader
from sparrowmq.protocol.headers.consumer_calls import (
    ConsumeMessageDirectly,
    GetConsumerRunningInfo,
    InvokeConsumerStatus,
    InvokeResetOffset,
)
from sparrowmq.protocol.heartbeat import MessageModel
from sparrowmq.protocol.message import MessageQueue
from sparrowmq.protocol.message_ext import MessageExt
from sparrowmq.protocol.offsets_body import ConsumerStatus
from sparrowmq.testing.sim_cluster import RunningCluster, SimCluster
from tests.client.members import GROUP, TOPIC, Member, create_topic, send, stored_offset

QUEUE = MessageQueue(TOPIC, "broker-a", 0)


def ask(sim: RunningCluster, header: RequestHeader) -> bytes:
    response = sim.wait(sim.client.call(header))
    assert response.code == ResponseCode.SUCCESS, response.remark
    return bytes(response.body)


def test_a_reset_delivers_again_from_there() -> None:
    with SimCluster(seed=1).run() as sim:
        create_topic(sim)
        member = Member(sim)
        send(sim, b"0", b"1", b"2")
        sim.advance(7)
        ask(sim, InvokeResetOffset(topic=TOPIC, group=GROUP, timestamp=0, queue_id=0, offset=1))
        sim.advance(5)
        assert member.got == [b"0", b"1", b"2", b"1", b"2"]
        sim.advance(5)
        assert stored_offset(sim) == 3


def test_a_member_stores_the_offset_of_a_reset_itself() -> None:
    """Brokers of Apache's leave that to the members."""
    with SimCluster(seed=1).run() as sim:
        create_topic(sim)
        member = Member(sim)
        send(sim, b"0", b"1", b"2")
        sim.advance(7)
        sim.run(membership_of(member.consumer).move({QUEUE: 2}), on=member.host)
        assert stored_offset(sim) == 2
        sim.advance(3)
        assert member.got == [b"0", b"1", b"2", b"2"]


def test_a_reset_of_a_broadcasting_member_is_refused(tmp_path: Path) -> None:
    with SimCluster(seed=1).run() as sim:
        create_topic(sim)
        member = Member(sim, model=MessageModel.BROADCASTING, offsets_dir=tmp_path)
        send(sim, b"0")
        sim.advance(3)
        reset = InvokeResetOffset(topic=TOPIC, group=GROUP, timestamp=0)
        answer = sim.wait(sim.client.call(reset))
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert "BROADCASTING" in answer.remark
        sim.advance(30)
        assert member.got == [b"0"]


def test_members_report_their_offsets() -> None:
    with SimCluster(seed=1).run() as sim:
        create_topic(sim)
        member = Member(sim)
        send(sim, b"0", b"1")
        sim.advance(3)
        body = ask(sim, InvokeConsumerStatus(topic=TOPIC, group=GROUP))
        table = ConsumerStatus.from_json(body).consumer_table
        assert table == {core_of_consumer(member.consumer).client_id: {QUEUE: 2}}


def test_a_member_reports_what_it_is_doing() -> None:
    async def hang(message: MessageExt) -> None:
        if message.body == b"0":
            await never.wait()

    with SimCluster(seed=1).run() as sim:
        never = asyncio.Event()
        create_topic(sim)
        member = Member(sim, hang)
        send(sim, b"0", b"1")
        sim.advance(3)
        header = GetConsumerRunningInfo(
            consumer_group=GROUP,
            client_id=core_of_consumer(member.consumer).client_id,
            jstack_enable=True,
        )
        info = ConsumerRunningInfo.from_json(ask(sim, header))
        queue = info.mq_table[QUEUE]
        assert (queue.cached_msg_count, queue.cached_msg_min_offset, queue.commit_offset) == (
            1,
            0,
            0,
        )
        assert queue.locked
        assert info.properties["PROP_CONSUMEORDERLY"] == "false"
        assert {data.topic for data in info.subscription_set} == {TOPIC, f"%RETRY%{GROUP}"}
        assert info.status_table[TOPIC].consume_ok_tps > 0
        assert info.jstack is not None
        assert "hang" in info.jstack
        never.set()
        sim.advance(1)


def directly(sim: RunningCluster, member: Member, message: MessageExt) -> ConsumeDirectlyResult:
    header = ConsumeMessageDirectly(
        consumer_group=GROUP,
        client_id=core_of_consumer(member.consumer).client_id,
        msg_id=message.offset_msg_id,
        topic=TOPIC,
    )
    return ConsumeDirectlyResult.from_json(ask(sim, header))


def test_an_operator_lets_a_member_consume_a_message() -> None:
    seen: list[MessageExt] = []

    async def fail_the_third_time(message: MessageExt) -> None:
        seen.append(message)
        if len(seen) == 3:
            raise ValueError("not again")

    with SimCluster(seed=1).run() as sim:
        create_topic(sim)
        member = Member(sim, fail_the_third_time)
        send(sim, b"x")
        sim.advance(7)
        result = directly(sim, member, seen[0])
        assert (result.consume_result, result.remark) == ("CR_SUCCESS", None)
        assert member.got == [b"x", b"x"]
        result = directly(sim, member, seen[0])
        assert result.consume_result == "CR_THROW_EXCEPTION"
        assert "not again" in str(result.remark)
        assert stored_offset(sim) == 1
