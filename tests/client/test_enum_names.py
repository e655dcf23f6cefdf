"""Enums may be given as the names of their members, as in a configuration file."""

import asyncio
from pathlib import Path
from typing import Any, get_args

import pytest

from sparrowmq import (
    CompressionType,
    ConsumeFromWhere,
    LitePullConsumer,
    MessageModel,
    Producer,
    PullConsumer,
    PushConsumer,
    TransactionState,
)
from sparrowmq.client.group.member_settings import StrategyName
from sparrowmq.client.sending.transactional_producer import settled
from sparrowmq.client.strategies import NAMED
from sparrowmq.testing.sim_cluster import SimCluster
from tests.client.members import GROUP, TOPIC, Member, create_topic, send


@pytest.mark.parametrize("where", list(ConsumeFromWhere))
@pytest.mark.parametrize("make", [PushConsumer, LitePullConsumer])
def test_a_consumer_starts_where_a_name_says(make: Any, where: ConsumeFromWhere) -> None:
    make(GROUP, {TOPIC: "*"}, from_where=where.name)


@pytest.mark.parametrize("model", list(MessageModel))
def test_a_consumer_takes_the_name_of_its_model(model: MessageModel) -> None:
    name: Any = model.name
    PushConsumer(GROUP, {TOPIC: "*"}, model=name)
    PullConsumer(GROUP, [TOPIC], model=name)


@pytest.mark.parametrize("name", NAMED)
def test_a_consumer_takes_the_name_of_its_strategy(name: Any) -> None:
    PushConsumer(GROUP, {TOPIC: "*"}, strategy=name)
    PullConsumer(GROUP, [TOPIC], strategy=name)


def test_every_strategy_that_has_only_a_name_is_known_to_type_checkers() -> None:
    assert get_args(StrategyName) == tuple(NAMED)


@pytest.mark.parametrize("kind", list(CompressionType))
def test_a_producer_takes_the_name_of_its_compression(kind: CompressionType) -> None:
    name: Any = kind.name
    Producer("orders-svc", compression=name)


def test_a_name_counts_as_its_member_does(tmp_path: Path) -> None:
    with SimCluster(seed=1).run() as sim:
        create_topic(sim)
        send(sim, b"before the group began")
        sim.advance(1)
        members = [
            Member(
                sim,
                name=f"member-{number}",
                model="BROADCASTING",
                from_where="FIRST_OFFSET",
                offsets_dir=tmp_path,
            )
            for number in range(2)
        ]
        sim.advance(5)
        assert [member.got for member in members] == [[b"before the group began"]] * 2


@pytest.mark.parametrize("state", list(TransactionState))
def test_a_transaction_listener_may_answer_a_name(state: TransactionState) -> None:
    assert asyncio.run(settled(state.name)) is state


def test_a_listener_s_answer_that_is_not_a_state_is_refused_with_the_allowed_ones() -> None:
    with pytest.raises(ValueError, match="is 'DONE', must be one of COMMIT, ROLLBACK, UNKNOWN"):
        asyncio.run(settled("DONE"))
