"""Choosing messages: tags, SQL92 conditions on the broker, functions in the consumer."""

from typing import Any

import pytest

from sparrowmq.client.consuming.pull_consumer import PullConsumer
from sparrowmq.client.subscriptions import Only, Sql, Subscriptions
from sparrowmq.protocol.message import MessageQueue
from sparrowmq.protocol.message_ext import MessageExt
from sparrowmq.testing.sim_cluster import SimCluster
from tests.client.members import TOPIC, Member, create_topic, send, stored_offset


def test_tags_choose_by_text_although_hashes_collide() -> None:
    with SimCluster(seed=1).run() as sim:
        create_topic(sim)
        for tag in ("Aa", "BB", "paid"):  # Java's hashes of Aa and BB are equal
            send(sim, tag.encode(), TAGS=tag)
        member = Member(sim, subscriptions={TOPIC: "Aa || paid"})
        sim.advance(7)
        assert member.got == [b"Aa", b"paid"]
        assert stored_offset(sim) == 3


def test_a_tag_that_has_a_comma_is_chosen_by_a_condition() -> None:
    with SimCluster(seed=1).run() as sim:
        create_topic(sim)
        for tag in ("created,paid", "created"):
            send(sim, tag.encode(), TAGS=tag)
        member = Member(sim, subscriptions={TOPIC: Sql("TAGS = 'created,paid'")})
        sim.advance(7)
        assert member.got == [b"created,paid"]


def test_a_condition_chooses_by_properties() -> None:
    with SimCluster(seed=1).run() as sim:
        create_topic(sim)
        for amount in range(6):
            send(sim, b"%d" % amount, amount=str(amount))
        send(sim, b"none")
        member = Member(sim, subscriptions={TOPIC: Sql("amount BETWEEN 2 AND 4")})
        sim.advance(7)
        assert member.got == [b"2", b"3", b"4"]


def test_messages_that_a_filter_function_rejects_count_as_consumed() -> None:
    def even(message: MessageExt) -> bool:
        return int(message.body) % 2 == 0

    with SimCluster(seed=1).run() as sim:
        create_topic(sim)
        send(sim, *(b"%d" % number for number in range(6)))
        member = Member(sim, subscriptions={TOPIC: Only(even)}, batch=4)
        sim.advance(7)
        assert member.got == [b"0", b"2", b"4"]
        assert stored_offset(sim) == 6


def test_a_message_whose_function_raises_counts_as_failed() -> None:
    asked: list[tuple[bytes, int]] = []

    def fail_once(message: MessageExt) -> bool:
        asked.append((message.body, message.reconsume_times))
        if message.body == b"bad" and not message.reconsume_times:
            raise ValueError("not today")
        return True

    with SimCluster(seed=1).run() as sim:
        create_topic(sim)
        send(sim, b"a", b"bad", b"c")
        member = Member(sim, subscriptions={TOPIC: Only(fail_once)}, batch=3)
        sim.advance(5)
        assert member.got == [b"a", b"c"]
        sim.advance(10)
        assert member.got == [b"a", b"c", b"bad"]
        assert asked[-1] == (b"bad", 1)


def test_a_wrong_condition_is_refused_before_anything_is_sent() -> None:
    with pytest.raises(ValueError, match="column"):
        Sql("amount BETWEEN AND ((")


@pytest.mark.parametrize(
    ("choice", "fault"),
    [
        ("", "'', which is empty"),
        ("  ", "which is empty; must be names such as 'created || paid', or * for all"),
        (" || ", "has no name at place 1"),
        ("created ||", "has no name at place 2"),
        ("created || || paid", "has no name at place 2"),
        ("created || *", r"\* stands alone"),
        ("created | paid", r"by \|\|, not by \|: write 'created \|\| paid', or Sql"),
        (
            "a|b",
            r"by \|: write 'a \|\| b', or Sql\(\"TAGS = 'a\|b'\"\) for a tag that has \| in it",
        ),
        ("a || b|c", r"write 'a \|\| b \|\| c'"),
        ("|", r"write 'created \|\| paid'"),
        ("created && paid", r"separated by \|\|, not by &&: write 'created \|\| paid', or Sql"),
        ("created, paid", r"by \|\|, not by commas: write 'created \|\| paid', or Sql"),
        ("created,paid", r"not by commas: write 'created \|\| paid'"),
        ("a || b, c,", r"not by commas: write 'a \|\| b \|\| c'"),
    ],
)
def test_invalid_tags_are_refused_at_the_call(choice: str, fault: str) -> None:
    with pytest.raises(ValueError, match=f"filter of topic {TOPIC} is .*{fault}"):
        Subscriptions({TOPIC: choice})
    with pytest.raises(ValueError, match=f"tags of Only is .*{fault}"):
        Only(lambda message: True, choice)


@pytest.mark.parametrize(
    "choice", ["*", "created", "created||paid", " created || paid ", "a b", "a&b"]
)
def test_valid_tags_are_accepted(choice: str) -> None:
    data = Subscriptions({TOPIC: choice}).get(TOPIC)
    assert data is not None
    assert data.sub_string == choice


@pytest.mark.parametrize(
    ("expression", "fault"),
    [
        ("", "column 1: expected a property"),
        ("amount >", "column 9: expected a property, a value"),
        ("amount > 1 region = 'EU'", "column 12: brokers would ignore \"region = 'EU'\""),
        ("amount > 1)", "column 11: brokers would ignore"),
        (None, "the expression of Sql is None, must be a str"),
    ],
)
def test_a_condition_that_is_not_read_to_its_end_is_refused_with_the_place(
    expression: Any, fault: str
) -> None:
    with pytest.raises(ValueError, match=fault):
        Sql(expression)


def test_a_pull_with_malformed_tags_asks_no_broker() -> None:
    async def pull() -> None:
        client = sim.client_on("member")
        await client.start()
        async with PullConsumer("audit", client=client) as consumer:
            with pytest.raises(ValueError, match="choice is '', which is empty"):
                await consumer.pull(MessageQueue("unknown", "broker-a", 0), 0, choice="")
        await client.stop()

    with SimCluster(seed=1).run() as sim:
        sim.run(pull(), on=sim.host("member"))


def test_a_new_version_keeps_the_filter() -> None:
    subscriptions = Subscriptions({TOPIC: Sql("a > 1")})
    subscriptions.renew([TOPIC], 17)
    data = subscriptions.get(TOPIC)
    assert data is not None
    assert (data.sub_version, data.expression_type, data.sub_string) == (17, "SQL92", "a > 1")


def test_an_illegal_topic_is_refused() -> None:
    with pytest.raises(ValueError, match="not allowed"):
        Subscriptions({"a b": "*"})
