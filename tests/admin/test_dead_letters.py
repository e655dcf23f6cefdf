"""Dead letters: counted, read, sent again to the group that failed, and written down."""

import asyncio
import json
from collections.abc import Sequence
from datetime import UTC, datetime

import pytest

from sparrowmq import (
    Admin,
    Client,
    ConsumeFromWhere,
    Message,
    MessageExt,
    NotFound,
    NotReadable,
    PushConsumer,
    Resend,
)
from sparrowmq.admin import resend_locks, resends
from sparrowmq.admin.cluster_calls import ClusterCalls
from sparrowmq.admin.message_traces import GroupEvent, GroupState
from sparrowmq.client.argument_checks import MAX_INT
from sparrowmq.client.client import core_of
from sparrowmq.net.calls import Response
from sparrowmq.protocol.group_config import (
    CustomizedRetryPolicy,
    GroupRetryPolicy,
    SubscriptionGroupConfig,
)
from sparrowmq.protocol.headers.groups import CreateGroup
from sparrowmq.protocol.headers.send import SendMessageV2
from sparrowmq.testing.sim_cluster import SimCluster
from tests.admin.operator import Read, as_client, consuming, send

TO_GROUP = "group"


class Failing(Read):
    """A member that gives up every message it gets."""

    async def handle(self, messages: Sequence[MessageExt]) -> None:
        await super().handle(messages)
        raise ValueError("this order cannot be billed")


async def died(client: Client, *messages: Message, group: str = "billing") -> Admin:
    """A topic whose messages became dead letters of a group at the first failure."""
    admin = Admin(client=client)
    await admin.create_topic("orders", queues=1, brokers=["broker-a"])
    await admin.create_group(group, retries=0)
    await send(client, *messages)
    failing = Failing()
    async with PushConsumer(
        group,
        {"orders": "*"},
        client=client,
        max_reconsume_times=0,
        from_where=ConsumeFromWhere.FIRST_OFFSET,
    ) as consumer:
        await consumer.start(failing.handle)
        await failing.until(len(messages))
    return admin


def order(number: int) -> Message:
    return Message(
        "orders",
        b"order %d" % number,
        tags="paid",
        keys=f"o-{number}",
        properties={"shop": "Bern"},
    )


def test_dead_letters_are_counted_and_read_by_time_and_key() -> None:
    async def work(client: Client) -> None:
        admin = await died(client, order(1), order(2), order(3))
        assert await admin.dead_letter_groups() == ["billing"]
        count = await admin.count_dead_letters("billing", 0)
        assert (count.messages, count.recent, count.unreadable) == (3, 3, ())
        assert count.oldest is not None
        assert count.newest is not None
        assert count.oldest <= count.newest
        later = datetime(2200, 1, 1, tzinfo=UTC)
        assert (await admin.count_dead_letters("billing", later)).recent == 0
        newest = await admin.dead_letters("billing", limit=2)
        assert [each.body for each in newest.messages] == [b"order 2", b"order 3"]
        assert (newest.total, newest.is_cut) == (3, True)
        oldest = await admin.dead_letters("billing", limit=2, newest=False)
        assert [each.body for each in oldest.messages] == [b"order 1", b"order 2"]
        (found,) = (await admin.dead_letters("billing", key="o-2")).messages
        assert found.body == b"order 2"
        none = await admin.dead_letters("billing", since=later)
        assert (none.messages, none.total) == ((), 0)

    with SimCluster(seed=1).run() as sim:
        as_client(sim, work)


def test_a_dead_message_is_dead_for_trace_and_doctor_until_it_is_sent_again() -> None:
    async def work(client: Client) -> None:
        admin = await died(client, order(1))
        await asyncio.sleep(6)
        (letter,) = (await admin.dead_letters("billing")).messages
        sent = letter.msg_id

        async def standing() -> tuple[str, str, str]:
            (group,) = (await admin.trace(sent, "orders")).groups
            (finding,) = (await admin.doctor("message", sent, topic="orders")).findings
            assert group.state is not None
            return group.state.value, finding.id, finding.evidence

        assert (await standing())[:2] == ("dead", "dead")
        await admin.resend_dead_letters("billing", ids=[sent])
        trace, doctor, evidence = await standing()
        assert (trace, doctor) == ("retrying", "retrying")
        again = (await admin.resend_dead_letters("billing", ids=[sent]))[0].reason
        assert again.startswith("to %RETRY%billing at ")
        assert f"sent again {again}" in evidence
        async with consuming(client, "billing", "orders", 1):
            pass
        await asyncio.sleep(6)
        assert (await standing())[:2] == ("consumed", "consumed-by")

    with SimCluster(seed=1).run() as sim:
        as_client(sim, work)


def test_a_message_is_retrying_for_trace_and_doctor_until_its_handler_succeeds() -> None:
    async def work(client: Client) -> None:
        admin = Admin(client=client)
        await admin.create_topic("orders", queues=1, brokers=["broker-a"])
        (sent,) = await send(client, order(1))
        attempts: list[MessageExt] = []

        async def handle(messages: Sequence[MessageExt]) -> None:
            attempts.extend(messages)
            if len(attempts) < 3:
                raise RuntimeError("not yet")

        async def standing() -> tuple[str, str, str]:
            (group,) = (await admin.trace(sent.msg_id, "orders")).groups
            (finding,) = (await admin.doctor("message", sent.msg_id, topic="orders")).findings
            assert group.state is not None
            return group.state.value, group.source, finding.id

        async with PushConsumer(
            "billing", {"orders": "*"}, client=client, from_where=ConsumeFromWhere.FIRST_OFFSET
        ) as consumer:
            await consumer.start(handle)
            await asyncio.sleep(8)  # the first attempt failed, the second comes after 10 s
            assert (len(attempts), await standing()) == (1, ("retrying", "retries", "retrying"))
            await asyncio.sleep(20)
            assert (len(attempts), await standing()) == (2, ("retrying", "retries", "retrying"))
            await asyncio.sleep(60)
            assert (len(attempts), await standing()) == (3, ("consumed", "offsets", "consumed-by"))
        (group,) = (await admin.trace(sent.msg_id, "orders")).groups
        stored = [(each.event.value, each.copy.topic) for each in group.steps]
        assert stored == [("retried", "%RETRY%billing")] * 2
        failed = [each.copy.record.reconsume_times for each in group.steps]
        times_ms = [each.time_ms for each in group.steps]
        assert failed == [1, 2]
        assert times_ms == [each.store_timestamp for each in attempts[1:]]

    with SimCluster(seed=1).run() as sim:
        as_client(sim, work)


def test_a_message_that_its_groups_own_policy_delays_is_retrying() -> None:
    policy = GroupRetryPolicy(customized_retry_policy=CustomizedRetryPolicy(next=(7_000,)))
    config = SubscriptionGroupConfig(group_name="billing", group_retry_policy=policy)

    async def work(client: Client) -> None:
        admin = Admin(client=client)
        await admin.create_topic("orders", queues=1)
        (sent,) = await send(client, order(1))
        failing = Failing()
        async with PushConsumer(
            "billing", {"orders": "*"}, client=client, from_where=ConsumeFromWhere.FIRST_OFFSET
        ) as consumer:
            await consumer.start(failing.handle)
            await failing.until(1)
            await asyncio.sleep(5)
        (group,) = (await admin.trace(sent.msg_id, "orders")).groups
        (due,) = group.steps
        assert (group.state, due.event) == (GroupState.RETRYING, GroupEvent.DUE)
        assert due.time_ms - failing.messages[0].store_timestamp == pytest.approx(7_000, abs=500)

    with SimCluster(seed=1).run() as sim:
        sim.wait(sim.client.call(CreateGroup(), config.to_json()))
        as_client(sim, work)


def test_only_the_group_that_failed_gets_a_dead_letter_again_and_only_once() -> None:
    async def work(client: Client) -> None:
        admin = await died(client, order(1))
        async with consuming(client, "audit", "orders", 1) as audit:
            (dry,) = await admin.resend_dead_letters("billing", dry_run=True)
            (sent,) = await admin.resend_dead_letters("billing")
            (again,) = await admin.resend_dead_letters("billing")
            assert [dry.result, sent.result] == [Resend.SENT, Resend.SENT]
            assert sent.target == "%RETRY%billing"
            assert again.result is Resend.SENT_BEFORE
            assert again.reason.startswith("to %RETRY%billing at ")
            async with consuming(client, "billing", "orders", 1) as billing:
                (got,) = billing.messages
            assert len(audit.messages) == 1
        assert (got.body, got.tags, got.keys) == (b"order 1", "paid", ("o-1",))
        assert got.user_properties == {"shop": "Bern", "RESENT": "1"}
        assert got.original_topic == "orders"
        assert got.msg_id == sent.message_id == audit.messages[0].msg_id
        assert got.reconsume_times == 0

    with SimCluster(seed=1).run() as sim:
        as_client(sim, work)


def test_a_dead_letter_that_died_again_may_be_sent_again() -> None:
    async def work(client: Client) -> None:
        admin = await died(client, order(1))
        await admin.resend_dead_letters("billing")
        failing = Failing()
        async with PushConsumer(
            "billing", {"orders": "*"}, client=client, max_reconsume_times=0
        ) as consumer:
            await consumer.start(failing.handle)
            await failing.until(1)
        results = await admin.resend_dead_letters("billing")
        assert [each.result for each in results] == [Resend.SENT_BEFORE, Resend.SENT]
        last = await admin.message(results[1].message_id, "%DLQ%billing")
        assert last.properties["RESENT"] in ("1", "2")

    with SimCluster(seed=1).run() as sim:
        as_client(sim, work)


@pytest.mark.parametrize("to", ["group", "topic"])
def test_two_operators_at_once_send_each_dead_letter_once(to: str) -> None:
    async def work(client: Client) -> None:
        admin = await died(client, *map(order, range(1, 6)))
        operators = [Admin(client=client), Admin(client=client), Admin(client=client)]
        results = await asyncio.gather(
            *(each.resend_dead_letters("billing", to=to) for each in operators)
        )
        became = [each.result for one in results for each in one]
        assert became.count(Resend.SENT) == 5
        assert became.count(Resend.SENT_BEFORE) == 10
        target = {"group": "%RETRY%billing", "topic": "orders"}[to]
        copies = [len(await admin.find_messages(target, f"o-{each}")) for each in range(1, 6)]
        assert copies == [1 if to == "group" else 2] * 5  # the topic has the first ones as well

    with SimCluster(seed=1).run() as sim:
        as_client(sim, work)


def test_dead_letters_of_a_queue_that_an_operator_keeps_locked_are_refused() -> None:
    async def work(client: Client) -> None:
        admin = await died(client, order(1))
        (letter,) = (await admin.dead_letters("billing")).messages
        calls = ClusterCalls(core_of(client), origin="a test", timeout_s=5)
        async with resend_locks.locked(calls, letter):
            other = asyncio.create_task(admin.resend_dead_letters("billing"))
            (refused,) = await other
        assert refused.result is Resend.REFUSED
        assert refused.reason.startswith("another operator sends dead letters of this queue now")
        (sent,) = await admin.resend_dead_letters("billing")
        assert sent.result is Resend.SENT

    with SimCluster(seed=1).run() as sim:
        as_client(sim, work)


def test_dead_letters_are_resent_to_their_topic_or_to_a_chosen_one() -> None:
    async def work(client: Client) -> None:
        admin = await died(client, order(1), order(2))
        await admin.create_topic("repaired", queues=2)
        # which still knows both messages, and accepts them under new keys
        await admin.update_topic("orders", attributes={"sparrowmq.dedup": "on"})
        first = (await admin.dead_letters("billing", newest=False)).messages[0]
        (elsewhere,) = await admin.resend_dead_letters("billing", ids=[first.msg_id], to="repaired")
        assert (elsewhere.result, elsewhere.target) == (Resend.SENT, "repaired")
        results = await admin.resend_dead_letters("billing", to="topic")
        assert {each.target for each in results} == {"orders"}
        assert {each.result for each in results} == {Resend.SENT}
        # The group got them with the topic, so that sending them to it would be a second time
        again = await admin.resend_dead_letters("billing")
        assert {each.result for each in again} == {Resend.SENT_BEFORE}
        copy = await admin.find_messages("repaired", "o-1")
        assert "RETRY_TOPIC" not in copy[0].properties
        async with consuming(client, "audit", "orders", 4) as audit:
            assert len({each.msg_id for each in audit.messages}) == 2

    with SimCluster(seed=1).run() as sim:
        as_client(sim, work)


def test_dead_letters_are_written_down_as_lines_of_json() -> None:
    async def work(client: Client) -> None:
        admin = await died(client, order(1), Message("orders", b"\xff"))
        lines: list[str] = []
        assert await admin.export_dead_letters("billing", lines.append) == 2
        first, second = map(json.loads, lines)
        assert (first["body"], first["topic"], first["keys"]) == ("order 1", "orders", ["o-1"])
        assert first["properties"]["shop"] == "Bern"
        assert second["bodyBase64"] == "/w=="

    with SimCluster(seed=1).run() as sim:
        as_client(sim, work)


def test_what_cannot_be_selected_or_read_is_refused_before_anything_is_sent() -> None:
    async def work(client: Client) -> None:
        admin = await died(client, order(1))
        with pytest.raises(NotFound, match="group nope does not exist"):
            await admin.dead_letters("nope")
        with pytest.raises(NotFound, match=r"dead letter 00FF.* sparrowmq dlq show billing"):
            await admin.resend_dead_letters("billing", ids=["00FF"])
        with pytest.raises(NotFound, match="topic nope does not exist"):
            await admin.resend_dead_letters("billing", to="nope")
        with pytest.raises(
            ValueError,
            match=r"since \(.*00\.002Z\) is not before until \(.*00\.001Z\)",
        ):
            await admin.resend_dead_letters("billing", since=2, until=1)
        with pytest.raises(ValueError, match="limit is 0, must be 1"):
            await admin.dead_letters("billing", limit=0)
        await admin.update_topic("%DLQ%billing", perm=2)
        text = r"%DLQ%billing cannot be read on broker-a .* topic update '%DLQ%billing' --perm 6"
        with pytest.raises(NotReadable, match=text):
            await admin.resend_dead_letters("billing")
        counted = await admin.count_dead_letters("billing", 0)
        assert (counted.messages, counted.unreadable) == (1, ("broker-a",))

    with SimCluster(seed=1).run() as sim:
        as_client(sim, work)


def test_apaches_brokers_store_a_dead_letter_for_live_members_themselves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def no(*_: object) -> bool:
        return False

    monkeypatch.setattr(resends, "is_sparrow", no)

    async def work(client: Client) -> None:
        admin = await died(client, order(1))
        read = Read()
        async with PushConsumer("billing", {"orders": "*"}, client=client) as consumer:
            await consumer.start(read.handle)
            await core_of(client).heartbeats.send_everywhere()
            (sent,) = await admin.resend_dead_letters("billing")
            await read.until(1)
        assert (sent.result, read.messages[0].body) == (Resend.SENT, b"order 1")
        (again,) = await admin.resend_dead_letters("billing")
        assert again.result is Resend.SENT_BEFORE
        assert (await admin.count_dead_letters("billing", 0)).messages == 1

    with SimCluster(seed=1).run() as sim:
        as_client(sim, work)


@pytest.mark.parametrize(
    ("missing", "result", "reason"),
    [
        ("transactionId", Resend.SENT, ""),  # as release 4.9 answers for a retry topic
        ("msgId", Resend.REFUSED, "it is not known whether it was sent"),
    ],
)
def test_the_command_succeeds_although_an_answer_lacks_a_field(
    missing: str, result: Resend, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    call = ClusterCalls.call

    async def cut(self: ClusterCalls, address: str, header: object, body: bytes = b"") -> Response:
        answer = await call(self, address, header, body)  # type: ignore[arg-type]
        if isinstance(header, SendMessageV2):
            assert header.max_reconsume_times == MAX_INT, "4.9 would make it a dead letter"
            kept = dict(answer.ext_fields or {})
            del kept[missing]
            return Response(answer.code, answer.remark, kept, answer.body)
        return answer

    monkeypatch.setattr(ClusterCalls, "call", cut)

    async def work(client: Client) -> None:
        admin = await died(client, order(1))
        (sent,) = await admin.resend_dead_letters("billing")
        assert sent.result is result
        assert reason in sent.reason

    with SimCluster(seed=1).run() as sim:
        as_client(sim, work)
