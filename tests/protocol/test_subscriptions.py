"""Tag expressions and subscriptions."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparrowmq.protocol.java import java_hash
from sparrowmq.protocol.subscription import SQL92, SubscriptionData
from sparrowmq.protocol.tags import parse_tags, tag_code
from tests.protocol.java_vectors import cases

tags = st.text("abcdeé-_1", min_size=1, max_size=6)


@given(st.lists(tags, min_size=1, unique=True))
def test_tags_come_out_of_an_expression_in_their_order(wanted: list[str]) -> None:
    assert parse_tags(" || ".join(wanted)) == tuple(wanted)
    assert parse_tags("||".join(wanted)) == tuple(wanted)


@pytest.mark.parametrize("expression", ["*", "", None])
def test_all_messages_have_three_spellings(expression: str | None) -> None:
    subscription = SubscriptionData.build("orders", expression, version=5)
    assert subscription == SubscriptionData(topic="orders", sub_version=5)
    assert subscription.takes_all
    assert subscription.takes_code(12345)
    assert subscription.takes_tag(None)


def test_blanks_empty_parts_and_repetitions_do_not_count() -> None:
    assert parse_tags(" A ||  || B||A ") == ("A", "B")


@pytest.mark.parametrize("expression", ["||", " ", " || || "])
def test_an_expression_without_a_tag_is_refused(expression: str) -> None:
    with pytest.raises(ValueError, match=r"write \* for all"):
        SubscriptionData.build("orders", expression, version=0)


@pytest.mark.parametrize("case", cases("hashes"), ids=lambda case: str(case["text"])[:20])
def test_tag_codes_are_javas(case: dict[str, Any]) -> None:
    assert tag_code(case["text"]) == case["tags_code"]


def test_no_tag_has_code_zero() -> None:
    assert tag_code(None) == tag_code("") == 0


def test_the_broker_chooses_by_code_and_the_client_by_text() -> None:
    subscription = SubscriptionData.build("orders", "Aa || paid", version=1)
    assert subscription.sub_string == "Aa || paid"
    assert subscription.takes_code(java_hash("BB")), "collides with Aa"
    assert not subscription.takes_tag("BB")
    assert subscription.takes_tag("paid")
    assert not subscription.takes_tag(None)
    assert not subscription.takes_code(0)


def test_a_condition_on_properties_has_no_tags() -> None:
    subscription = SubscriptionData.build("orders", "a > 3", version=1, expression_type=SQL92)
    assert subscription.sub_string == "a > 3"
    assert not subscription.is_tag
    assert SubscriptionData(topic="orders").is_tag
    assert SubscriptionData(topic="orders", expression_type="").is_tag, "older clients"
    assert subscription.takes_tag("anything"), "the condition decides, not the tag"
    with pytest.raises(ValueError, match="SQL92 subscription needs an expression"):
        SubscriptionData.build("orders", "", version=1, expression_type=SQL92)


@given(st.lists(tags, max_size=4, unique=True), st.integers(0, 2**62))
def test_a_subscription_survives_json(wanted: list[str], version: int) -> None:
    subscription = SubscriptionData.build("orders", "||".join(wanted), version=version)
    assert SubscriptionData.from_json(subscription.to_json()) == subscription


def test_hashes_that_go_writes_as_strings_are_numbers() -> None:
    read = SubscriptionData.from_json(
        b'{"topic":"t","subString":"A","tagsSet":["A"],"codeSet":["65"]}'
    )
    assert read.code_set == {65}
