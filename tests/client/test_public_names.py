"""What users of a class see in `dir()`, `help()` and an editor: what they call, and no more."""

import pytest

import sparrowmq
from sparrowmq import TransactionState, blocking

LIFE = {"start", "stop"}
PRODUCER = LIFE | {"group", "send", "send_batch", "send_oneway", "request", "reply", "recall"}
PRODUCER |= {"queues"}
CONSUMER = LIFE | {"group", "assignment", "queues", "offset_range", "offset_at", "failure"}
PUSH = CONSUMER | {"run", "pause", "resume", "subscribe", "unsubscribe", "waits"}
LITE = CONSUMER | {"poll", "pause", "resume", "subscribe", "unsubscribe", "assign", "position"}
LITE |= {"seek", "seek_to_begin", "seek_to_end", "seek_to_timestamp"}
LITE |= {"commit", "commit_later", "committed"}
PULL = CONSUMER | {"pull", "update_offset", "commit", "committed", "give_back"}
NAMES = {
    "Producer": PRODUCER,
    "TransactionalProducer": PRODUCER | {"send_in_transaction"},
    "PushConsumer": PUSH,
    "LitePullConsumer": LITE,
    "PullConsumer": PULL,
    "ScheduledPull": LIFE,
}
ONLY_ASYNC = {"PushConsumer": {"stopped"}}
INNER_OBJECTS = {"client", "member", "consumer"}
"""For tools and tests. A client is public; a member appears with the start."""


class Bookings:
    def execute(self, half: object) -> TransactionState:
        raise AssertionError("nothing is sent here")

    check = execute


async def turn(*ignored: object) -> None:
    raise AssertionError("nothing is pulled here")


def public(thing: object) -> set[str]:
    return {name for name in dir(thing) if not name.startswith("_")}


@pytest.mark.parametrize("name", NAMES)
def test_classes_show_what_users_call(name: str) -> None:
    assert public(getattr(blocking, name)) == NAMES[name]
    assert public(getattr(sparrowmq, name)) == NAMES[name] | ONLY_ASYNC.get(name, set())


@pytest.mark.parametrize(
    "thing",
    [
        sparrowmq.Producer("g"),
        sparrowmq.TransactionalProducer("g", Bookings()),
        sparrowmq.PushConsumer("g", {"orders": "*"}),
        sparrowmq.LitePullConsumer("g"),
        sparrowmq.PullConsumer("g"),
        sparrowmq.ScheduledPull("g", {"orders": turn}),
        blocking.Producer("g"),
        blocking.TransactionalProducer("g", Bookings()),
        blocking.PushConsumer("g", {"orders": "*"}),
        blocking.LitePullConsumer("g"),
        blocking.PullConsumer("g"),
        blocking.ScheduledPull("g", {"orders": print}),
    ],
    ids=lambda thing: f"{type(thing).__module__}.{type(thing).__name__}",
)
def test_objects_show_no_more_than_their_class(thing: object) -> None:
    assert public(thing) - public(type(thing)) <= INNER_OBJECTS


@pytest.mark.parametrize("name", NAMES)
def test_everything_that_users_call_is_documented(name: str) -> None:
    for kind in (getattr(sparrowmq, name), getattr(blocking, name)):
        assert {one for one in public(kind) if not getattr(kind, one).__doc__} == set()


def test_a_blocking_object_knows_its_group() -> None:
    assert blocking.Producer("orders-svc").group == "orders-svc"
    assert blocking.PushConsumer("billing", {"orders": "*"}).group == "billing"
