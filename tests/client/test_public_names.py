"""What users of a class see in `dir()`, `help()` and an editor: what they call, and no more."""

import pytest

import sparrowmq
from sparrowmq import Message, TransactionState, blocking
from sparrowmq.testing.sim_cluster import SimCluster

LIFE = {"start", "stop"}
PRODUCER = LIFE | {"group", "send", "send_batch", "send_oneway", "request", "reply", "recall"}
PRODUCER |= {"queues", "diverted"}
CONSUMER = LIFE | {"group", "assignment", "queues", "offset_range", "offset_at", "failure"}
CONSUMER |= {"limit_rate"}
PUSH = CONSUMER | {"run", "pause", "resume", "subscribe", "unsubscribe", "waits"}
LITE = CONSUMER | {"poll", "pause", "resume", "subscribe", "unsubscribe", "assign", "position"}
LITE |= {"seek", "seek_to_begin", "seek_to_end", "seek_to_timestamp"}
LITE |= {"commit", "commit_later", "committed", "waits"}
PULL = CONSUMER | {"pull", "update_offset", "commit", "committed", "give_back", "waits"}
NAMES = {
    "Producer": PRODUCER,
    "TransactionalProducer": PRODUCER | {"send_in_transaction"},
    "PushConsumer": PUSH,
    "LitePullConsumer": LITE,
    "PullConsumer": PULL,
    "ScheduledPull": LIFE | {"limit_rate", "waits"},
}
ONLY_ASYNC = {"PushConsumer": {"stopped"}}
CLIENT = LIFE | {"client_id", "config", "failure", "is_running"}
SEEN = {"known", "record"}
DELAYS = {"delay", "delay_level", "delay_ms", "deliver_at", "deliver_time_ms"}
CARRIED = {"topic", "body", "tags", "keys", "properties", "flag", "sharding_key", "json", "text"}
MESSAGE = CARRIED | DELAYS | {"wait_store_ok", "tag"}  # the last is refused with what is meant
TIMES = {"born_at", "born_timestamp", "stored_at", "store_timestamp"}
PLACE = {"broker_name", "queue", "queue_id", "queue_offset", "log_offset", "store_size", "place"}
IDS = {"msg_id", "offset_msg_id", "transaction_id", "prepared_transaction_offset"}
ARRIVED = CARRIED | TIMES | PLACE | IDS | {"born_host", "store_host", "original_topic"}
ARRIVED |= {"delay_level", "reconsume_times", "sys_flag", "user_properties", "record"}
QUEUE = {"topic", "broker_name", "queue_id", "place"}
ASYNC_NAMES = {"Client": CLIENT, "Deduplicate": set(), "MemorySeen": SEEN}
ASYNC_NAMES |= {"Message": MESSAGE, "MessageExt": ARRIVED, "MessageQueue": QUEUE}
ASYNC_NAMES |= {"SqliteSeen": SEEN | {"close"}, "Sql": {"expression"}, "Only": {"accepts", "tags"}}


class Bookings:
    def execute(self, half: object) -> TransactionState:
        raise AssertionError("nothing is sent here")

    check = execute


async def turn(*ignored: object) -> None:
    raise AssertionError("nothing is pulled here")


def public(thing: object) -> set[str]:
    return {name for name in dir(thing) if not name.startswith("_")}


@pytest.mark.parametrize("name", NAMES)
def test_classes_list_only_public_members(name: str) -> None:
    assert public(getattr(blocking, name)) == NAMES[name]
    assert public(getattr(sparrowmq, name)) == NAMES[name] | ONLY_ASYNC.get(name, set())


@pytest.mark.parametrize("name", ASYNC_NAMES)
def test_classes_shared_by_both_apis_list_only_public_members(name: str) -> None:
    assert public(getattr(sparrowmq, name)) == ASYNC_NAMES[name]


@pytest.mark.parametrize(
    "thing",
    [
        sparrowmq.Client(),
        sparrowmq.Admin(),
        sparrowmq.Deduplicate(sparrowmq.MemorySeen()),
        sparrowmq.RetryLater("later"),
        blocking.Admin(),
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
def test_objects_list_no_more_than_their_class(thing: object) -> None:
    assert public(thing) == public(type(thing))


def test_using_a_producer_of_a_stopped_client_names_the_cause() -> None:
    async def use() -> None:
        client = sim.client_on("producer")
        await client.start()
        producer = sparrowmq.Producer("orders-svc", client=client)
        await producer.start()
        await client.stop()
        with pytest.raises(sparrowmq.NotStarted, match="the client was stopped before its prod"):
            await producer.send(Message("orders", b"x"))

    with SimCluster(seed=1).run() as sim:
        sim.run(use(), on=sim.host("producer"))


def test_a_client_is_started_and_stopped_by_its_block() -> None:
    async def use() -> None:
        client = sim.client_on("producer")
        was_running = [client.is_running]
        async with client:
            was_running.append(client.is_running)
            assert client.client_id.endswith("@producer")
            async with sparrowmq.Producer("orders-svc", client=client) as producer:
                assert (await producer.send(Message("orders", b"x"))).is_ok
        was_running.append(client.is_running)
        assert was_running == [False, True, False]
        assert client.failure is None

    with SimCluster(seed=1).run() as sim:
        sim.run(use(), on=sim.host("producer"))


@pytest.mark.parametrize("name", NAMES)
def test_everything_that_users_call_is_documented(name: str) -> None:
    for kind in (getattr(sparrowmq, name), getattr(blocking, name)):
        assert {one for one in public(kind) if not getattr(kind, one).__doc__} == set()


def test_a_blocking_object_knows_its_group() -> None:
    assert blocking.Producer("orders-svc").group == "orders-svc"
    assert blocking.PushConsumer("billing", {"orders": "*"}).group == "billing"
