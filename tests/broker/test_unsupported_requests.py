"""Unsupported requests are answered clearly, and the connection stays."""

from typing import ClassVar

import pytest

from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.header import RequestHeader
from sparrowmq.protocol.headers.statistics import GetTopicStats
from tests.broker.world import World


class PopMessage(RequestHeader, frozen=True, kw_only=True):
    CODE: ClassVar[RequestCode] = RequestCode.POP_MESSAGE


class SuspendConsumer(RequestHeader, frozen=True, kw_only=True):
    CODE: ClassVar[RequestCode] = RequestCode.SUSPEND_CONSUMER


class CreateStaticTopic(RequestHeader, frozen=True, kw_only=True):
    CODE: ClassVar[RequestCode] = RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC


class CreateUser(RequestHeader, frozen=True, kw_only=True):
    CODE: ClassVar[RequestCode] = RequestCode.AUTH_CREATE_USER


class NoTopicNamed(RequestHeader, frozen=True, kw_only=True):
    CODE: ClassVar[RequestCode] = RequestCode.GET_TOPIC_STATS_INFO


@pytest.mark.parametrize("header", [PopMessage, SuspendConsumer, CreateStaticTopic, CreateUser])
def test_a_request_that_is_not_served_is_named_in_the_answer(
    world: World, header: type[RequestHeader]
) -> None:
    client = world.client("a")
    answer = client.ask(header())
    assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    assert header.CODE.name in answer.remark
    world.topic("orders")
    assert client.ask(GetTopicStats(topic="orders")).code == ResponseCode.SUCCESS


def test_a_request_that_lacks_a_field_is_answered_with_its_name(world: World) -> None:
    answer = world.ask(NoTopicNamed())
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "topic" in answer.remark
