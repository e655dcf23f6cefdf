"""A consumer asks whether its filter will be accepted before it starts."""

import pytest

from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.connections import CheckClientRequest
from sparrowmq.protocol.headers.clients import CheckClientConfig
from sparrowmq.protocol.subscription import SubscriptionData
from tests.broker.world import World


def check(world: World, expression: str, kind: str) -> int:
    wanted = SubscriptionData(topic="orders", sub_string=expression, expression_type=kind)
    body = CheckClientRequest(client_id="a", group="billing", subscription_data=wanted)
    return world.ask(CheckClientConfig(), body.to_json()).code


@pytest.mark.parametrize(
    ("expression", "kind", "code"),
    [
        ("a || b", "TAG", ResponseCode.SUCCESS),
        ("whatever", "", ResponseCode.SUCCESS),
        ("price > 5 AND colour IS NOT NULL", "SQL92", ResponseCode.SUCCESS),
        ("price >", "SQL92", ResponseCode.SUBSCRIPTION_PARSE_FAILED),
        ("price > 5", "GROOVY", ResponseCode.SUBSCRIPTION_PARSE_FAILED),
    ],
)
def test_a_filter_is_accepted_or_refused_as_in_a_pull(
    world: World, expression: str, kind: str, code: int
) -> None:
    assert check(world, expression, kind) == code


def test_a_request_without_subscription_is_fine_and_nonsense_is_not(world: World) -> None:
    assert world.ask(CheckClientConfig(), b"{}").code == ResponseCode.SUCCESS
    assert world.ask(CheckClientConfig(), b"?").code == ResponseCode.SYSTEM_ERROR
