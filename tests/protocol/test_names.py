"""Topic and group names: legal, reserved, derived."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparrowmq.protocol.names import (
    SYSTEM_TOPICS,
    UNSENDABLE_TOPICS,
    check_consumer_group,
    check_group,
    check_producer_group,
    check_topic,
    dlq_topic,
    group_fault,
    is_dlq_topic,
    is_retry_topic,
    is_system_group,
    is_system_topic,
    retry_topic,
    send_fault,
    topic_fault,
)

legal = st.text("abcXYZ019_-%|", min_size=1, max_size=120)


@given(legal)
def test_legal_names_pass(name: str) -> None:
    assert group_fault(name) is None
    assert check_group(name) == name
    assert topic_fault(retry_topic(name)) is None
    assert topic_fault(dlq_topic(name)) is None
    assert check_topic(name) == name


@given(st.text(max_size=200))
def test_a_name_passes_exactly_when_the_pattern_and_the_length_allow_it(name: str) -> None:
    legal = re.fullmatch(r"[%|a-zA-Z0-9_-]+", name, re.ASCII) is not None
    limit = 255 if name.startswith(("%RETRY%", "%DLQ%")) else 127
    assert (topic_fault(name) is None) == (legal and len(name) <= limit)
    assert (group_fault(name) is None) == (legal and len(name) <= 120)


@pytest.mark.parametrize("name", ["../etc", "a b", "a.b", "a/b", "naïve", "a\n", "a\x00"])
def test_illegal_characters_are_named_with_what_is_allowed(name: str) -> None:
    fault = topic_fault(name)
    assert fault is not None
    assert repr(name) in fault
    assert fault.endswith("letters a to z and A to Z, digits, %, |, _ and -")
    with pytest.raises(ValueError, match="not allowed"):
        check_topic(name)


@pytest.mark.parametrize("name", ["", " ", "\t\n"])
def test_blank_names_are_refused(name: str) -> None:
    assert topic_fault(name) == "the topic name is blank"
    assert group_fault(name) == "the group name is blank"


def test_lengths_are_limited_by_kind() -> None:
    assert topic_fault("t" * 127) is None
    assert topic_fault("t" * 128) == (
        f"topic {'t' * 128} has 128 characters, at most 127 are allowed"
    )
    assert topic_fault("%RETRY%" + "g" * 248) is None
    assert "at most 255" in (topic_fault("%DLQ%" + "g" * 251) or "")
    assert group_fault("g" * 120) is None
    assert "at most 120" in (group_fault("g" * 121) or "")


def test_a_huge_name_does_not_make_a_huge_text() -> None:
    assert len(topic_fault("t" * 1_000_000) or "") < 300
    assert len(topic_fault("é" * 1_000_000) or "") < 1_000


def test_clients_may_send_to_traces_and_benchmarks_but_not_to_the_brokers_topics() -> None:
    for topic in (*UNSENDABLE_TOPICS, "rmq_sys_wheel_timer", "rmq_sys_REVIVE_LOG_a"):
        assert "clients cannot send" in (send_fault(topic) or "")
    assert send_fault("RMQ_SYS_TRACE_TOPIC") is None
    assert send_fault("BenchmarkTest") is None
    assert send_fault("orders") is None
    assert send_fault("../orders") == topic_fault("../orders")


def test_system_topics_are_the_listed_ones_and_those_with_the_prefix() -> None:
    assert all(map(is_system_topic, SYSTEM_TOPICS))
    assert UNSENDABLE_TOPICS < SYSTEM_TOPICS
    assert is_system_topic("rmq_sys_wheel_timer")
    assert is_system_topic("RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC")
    assert not is_system_topic("orders")
    assert not is_system_topic("%RETRY%orders")


def test_system_groups_are_the_listed_ones_and_those_with_the_prefix() -> None:
    assert is_system_group("TOOLS_CONSUMER")
    assert is_system_group("CID_RMQ_SYS_TRANS")
    assert not is_system_group("billing")


@pytest.mark.parametrize("group", ["%RETRY%billing", "%DLQ%billing", "TBW102", "SELF_TEST_TOPIC"])
def test_a_group_may_be_named_like_a_topic_as_in_apache_s_validators(group: str) -> None:
    assert check_consumer_group(group) == check_producer_group(group) == group


def test_a_group_has_a_retry_and_a_dead_letter_topic() -> None:
    assert retry_topic("billing") == "%RETRY%billing"
    assert dlq_topic("billing") == "%DLQ%billing"
    assert is_retry_topic("%RETRY%billing")
    assert not is_retry_topic("%DLQ%billing")
    assert is_dlq_topic("%DLQ%billing")
    assert not is_dlq_topic("billing")
