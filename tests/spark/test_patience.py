"""Patience with servers that are away."""

import logging

import pytest

from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.spark.errors import (
    BrokerAway,
    ClusterUnreachable,
    DataLoss,
    RocketMQError,
    ServerRefused,
)
from sparrowmq.spark.wire.remoting import Patience


class Time:
    """A clock that only pauses move."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.pauses: list[float] = []

    def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now_s += seconds


def patience(time: Time, limit_s: float = 60.0) -> Patience:
    return Patience(limit_s, now=lambda: time.now_s, pause=time.pause)


def test_a_call_is_repeated_with_growing_pauses_until_it_gets_through() -> None:
    time = Time()
    failures = iter([ClusterUnreachable("a:1", "PULL_MESSAGE", "gone")] * 8)

    def attempt() -> str:
        for failure in failures:
            raise failure
        return "here"

    assert patience(time).call("reading", attempt) == "here"
    assert time.pauses == [0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0, 1.0]


def test_after_the_time_limit_the_error_names_the_request_the_time_and_the_cause() -> None:
    time = Time()

    def attempt() -> None:
        raise ClusterUnreachable("10.0.0.1:10911", "PULL_MESSAGE", "connection refused")

    with pytest.raises(BrokerAway, match=r"reading orders: given up after 59\.") as caught:
        patience(time).call("reading orders", attempt)
    assert "10.0.0.1:10911" in str(caught.value)
    assert 58 < time.now_s <= 60


def test_the_last_attempt_is_made_just_before_the_time_limit() -> None:
    time = Time()
    failures = iter([ClusterUnreachable("a:1", "PULL_MESSAGE", "gone")])

    def attempt() -> str:
        for failure in failures:
            raise failure
        return "here"

    assert patience(time, limit_s=0.05).call("reading", attempt) == "here"


@pytest.mark.parametrize(
    "code",
    [ResponseCode.SYSTEM_BUSY, ResponseCode.SERVICE_NOT_AVAILABLE, ResponseCode.FLOW_CONTROL],
)
def test_a_server_that_is_busy_is_asked_again(code: ResponseCode) -> None:
    failures = iter([ServerRefused("a:1", "SEND_BATCH_MESSAGE", code, "later")])

    def attempt() -> str:
        for failure in failures:
            raise failure
        return "here"

    time = Time()
    assert patience(time).call("sending", attempt) == "here"
    assert len(time.pauses) == 1


@pytest.mark.parametrize(
    "error",
    [
        DataLoss("gone"),
        RocketMQError("no lz4"),
        ServerRefused("a:1", "PULL_MESSAGE", ResponseCode.NO_PERMISSION, "no"),
    ],
)
def test_an_error_that_waiting_cannot_fix_is_raised_at_once(error: RocketMQError) -> None:
    def attempt() -> None:
        raise error

    time = Time()
    with pytest.raises(type(error)):
        patience(time).call("reading", attempt)
    assert time.pauses == []


@pytest.mark.parametrize(
    ("error", "away"),
    [
        (
            ClusterUnreachable("10.0.0.1:10911", "PULL_MESSAGE", "connection refused"),
            "reading: 10.0.0.1:10911 cannot be reached (connection refused), trying again for 60 s",
        ),
        (
            BrokerAway("broker broker-a does not serve topic orders"),
            "reading: broker broker-a does not serve topic orders; trying again for 60 s",
        ),
    ],
    ids=["no answer", "not registered"],
)
def test_an_outage_and_a_recovery_of_a_server_are_logged_once_each(
    error: RocketMQError, away: str, caplog: pytest.LogCaptureFixture
) -> None:
    failures = iter([error] * 3)

    def attempt() -> str:
        for failure in failures:
            raise failure
        return "here"

    assert patience(Time()).call("reading", attempt) == "here"
    assert [(record.levelno, record.getMessage()) for record in caplog.records] == [
        (logging.WARNING, away),
        (logging.WARNING, "reading: continues after 0.4 s, the server is back"),
    ]


def test_neither_a_first_success_nor_a_busy_server_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    busy = ServerRefused("a:1", "SEND_BATCH_MESSAGE", ResponseCode.FLOW_CONTROL, "later")
    failures = iter([busy])

    def attempt() -> str:
        for failure in failures:
            raise failure
        return "here"

    waiting = patience(Time())
    assert [waiting.call("sending", attempt) for _ in range(2)] == ["here", "here"]
    assert caplog.records == []
