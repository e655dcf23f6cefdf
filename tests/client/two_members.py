"""Two members of a group that share four queues."""

from collections.abc import Awaitable, Callable

import pytest

from sparrowmq.protocol.message_ext import MessageExt
from sparrowmq.testing.sim_cluster import RunningCluster
from tests.client.members import Member, create_topic, owned

both_ways = pytest.mark.parametrize("orderly", [False, True])


def two_members(
    sim: RunningCluster,
    handle: Callable[[MessageExt], Awaitable[None]] | None = None,
    *,
    orderly: bool,
) -> tuple[Member, Member]:
    """Each with two of four queues."""
    create_topic(sim, queues=4)
    first = Member(sim, handle, name="a", orderly=orderly)
    second = Member(sim, handle, name="b", orderly=orderly)
    sim.until(lambda: (owned(first), owned(second)) == (2, 2))
    sim.advance(5)
    return first, second
