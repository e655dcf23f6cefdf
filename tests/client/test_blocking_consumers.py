"""Consumers for programs without asyncio that ask for messages themselves."""

import inspect
import queue
import threading
from collections.abc import Callable, Sequence

import pytest

from sparrowmq import (
    ConsumeFromWhere,
    LitePullConsumer,
    MessageExt,
    MessageQueue,
    Only,
    PushConsumer,
)
from sparrowmq import Producer as AsyncProducer
from sparrowmq import PullConsumer as AsyncPullConsumer
from sparrowmq import blocking as facade
from sparrowmq.blocking import Message, Producer, PullConsumer, ScheduledPull, Turn
from sparrowmq.blocking.consumers import LitePullSettings
from sparrowmq.client.consuming.pull_consumer import PullStatus
from sparrowmq.client.errors import NoNameServer, NotStarted
from sparrowmq.testing import Cluster
from sparrowmq.testing.held_port import HeldPort
from tests.patience import PATIENCE_S

FIRST = ConsumeFromWhere.FIRST_OFFSET


def bodies(messages: list[MessageExt]) -> list[bytes]:
    return [message.body for message in messages]


def sent(cluster: Cluster, count: int) -> MessageQueue:
    """Messages 0, 1, 2 … in one queue."""
    with Producer("p", name_servers=cluster.name_server) as producer:
        producer.send(Message("orders", b"first"))
        [target, *_] = producer.queues("orders")
        results = [
            producer.send(Message("orders", b"%d" % number), queue=target)
            for number in range(count)
        ]
        assert results[-1].queue == target
        return target


def polled(consumer: facade.LitePullConsumer, count: int) -> list[bytes]:
    got: list[bytes] = []
    while len(got) < count:
        came = bodies(consumer.poll(timeout_s=PATIENCE_S))
        assert came, f"nothing but {got} in {PATIENCE_S} s"
        got += came
    return got


def note(*ignored: object) -> None:
    """A handler or callback that is never called."""


WAITING: dict[str, Callable[[str], None]] = {
    "push": lambda servers: facade.PushConsumer("g", {"orders": "*"}, name_servers=servers).start(
        note, wait_s=0.2
    ),
    "lite pull": lambda servers: facade.LitePullConsumer(
        "g", {"orders": "*"}, name_servers=servers
    ).start(wait_s=0.2),
    "pull": lambda servers: PullConsumer("g", ["orders"], name_servers=servers).start(wait_s=0.2),
    "pull, without topics": lambda servers: PullConsumer("g", name_servers=servers).start(
        wait_s=0.2
    ),
    "scheduled pull": lambda servers: ScheduledPull(
        "g", {"orders": note}, name_servers=servers
    ).start(wait_s=0.2),
}


@pytest.mark.parametrize("start", WAITING.values(), ids=WAITING)
def test_a_start_that_waits_raises_when_no_name_server_answers(
    start: Callable[[str], None],
) -> None:
    with HeldPort() as port, pytest.raises(NoNameServer, match="no name server answers"):
        start(port.address)


def test_lite_pull_polls_seeks_and_commits(sparrowmq_cluster: Cluster) -> None:
    servers = sparrowmq_cluster.name_server
    target = sent(sparrowmq_cluster, 5)
    with facade.LitePullConsumer("g", name_servers=servers, from_where=FIRST) as consumer:
        assert target in consumer.queues("orders")
        consumer.assign([target])
        assert consumer.assignment() == [target]
        consumer.seek_to_begin(target)
        low, high = consumer.offset_range(target)
        got = polled(consumer, high - low)
        assert got[-5:] == [b"0", b"1", b"2", b"3", b"4"]
        consumer.seek(target, high - 2)
        assert polled(consumer, 2) == [b"3", b"4"]
        consumer.commit()
        assert consumer.position(target) == consumer.committed(target) == high
        consumer.pause([target])
        consumer.seek_to_timestamp(target, 0)
        consumer.seek_to_end(target)
        consumer.resume([target])
        consumer.commit_later({target: low})
        consumer.commit({target: low + 1})
        assert consumer.committed(target) == low + 1


def test_lite_pull_shares_a_subscribed_topic(sparrowmq_cluster: Cluster) -> None:
    servers = sparrowmq_cluster.name_server
    sent(sparrowmq_cluster, 3)
    settings = LitePullSettings(name_servers=servers, from_where=FIRST)
    with facade.LitePullConsumer("g", {"orders": "*"}, **settings) as consumer:
        assert sorted(polled(consumer, 4)) == [b"0", b"1", b"2", b"first"]
        consumer.unsubscribe("orders")
        consumer.subscribe("orders", "created")


def test_messages_polled_before_an_exception_are_redelivered(sparrowmq_cluster: Cluster) -> None:
    settings = LitePullSettings(name_servers=sparrowmq_cluster.name_server, from_where=FIRST)
    sent(sparrowmq_cluster, 1)
    with (
        pytest.raises(ZeroDivisionError),
        facade.LitePullConsumer("g", {"orders": "*"}, **settings) as consumer,
    ):
        last = polled(consumer, 2)[-1]
        raise ZeroDivisionError
    with facade.LitePullConsumer("g", {"orders": "*"}, **settings) as consumer:
        # The other message is of another queue and may come again before it, or not at all.
        again = polled(consumer, 1)
        assert last in again or last in polled(consumer, 1)


def test_pull_goes_through_a_queue_and_keeps_progress(sparrowmq_cluster: Cluster) -> None:
    target = sent(sparrowmq_cluster, 3)
    with PullConsumer("g", name_servers=sparrowmq_cluster.name_server) as consumer:
        low, high = consumer.offset_range(target)
        found = consumer.pull(target, high - 3, count=2)
        assert (found.status, bodies(found.messages)) == (PullStatus.FOUND, [b"0", b"1"])
        assert consumer.committed(target) is None
        consumer.update_offset(target, found.next_offset)
        consumer.commit([target])
        assert consumer.committed(target) == found.next_offset
        assert consumer.offset_at(target, 0) == low


def test_scheduled_pull_calls_plain_functions_in_threads(sparrowmq_cluster: Cluster) -> None:
    target = sent(sparrowmq_cluster, 3)
    got: queue.Queue[bytes] = queue.Queue()
    callers: set[str] = set()

    def archive(which: MessageQueue, turn: Turn) -> None:
        callers.add(threading.current_thread().name)
        at = turn.consumer.committed(which) or 0
        found = turn.consumer.pull(which, at)
        turn.consumer.update_offset(which, found.next_offset)
        turn.consumer.commit([which])
        # Only now: having all of them stops us, and nothing is committed any more.
        for message in found.messages:
            got.put(message.body)
        turn.next_delay_s = 0.01

    servers = sparrowmq_cluster.name_server
    with ScheduledPull("archive", {"orders": archive}, name_servers=servers):
        received = {got.get(timeout=PATIENCE_S) for _ in range(4)}
    assert received == {b"first", b"0", b"1", b"2"}
    assert all(name.startswith("scheduled-pull") for name in callers)
    with PullConsumer("archive", name_servers=servers) as consumer:
        assert (consumer.committed(target) or 0) >= 3


@pytest.mark.parametrize("place", ["filter", "plain handler", "async handler"])
@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), GeneratorExit()], ids=repr)
def test_what_user_code_raises_in_real_threads_is_a_failed_message(
    place: str, error: BaseException, sparrowmq_cluster: Cluster
) -> None:
    done: queue.Queue[int] = queue.Queue()

    def fail_once(message: MessageExt) -> bool:
        if not message.reconsume_times:
            raise error
        return True

    def handle(messages: Sequence[MessageExt]) -> None:
        if place != "filter":
            fail_once(messages[0])
        done.put(messages[0].reconsume_times)

    async def handle_async(messages: Sequence[MessageExt]) -> None:
        handle(messages)

    sent(sparrowmq_cluster, 1)
    consumer = facade.PushConsumer(
        "g",
        {"orders": Only(fail_once) if place == "filter" else "*"},
        name_servers=sparrowmq_cluster.name_server,
        from_where=FIRST,
        orderly=True,  # so that it comes again at once
        suspend_s=0.01,
    )
    with consumer:
        consumer.start(handle_async if place == "async handler" else handle)
        assert done.get(timeout=PATIENCE_S) == 1
        assert consumer.failure is None


def test_a_callback_that_would_never_be_awaited_is_refused() -> None:
    async def archive(at: MessageQueue, turn: Turn) -> None:
        pass

    with pytest.raises(ValueError, match="callback of topic orders is async, must be a plain"):
        ScheduledPull("archive", {"orders": archive})  # type: ignore[dict-item]


def test_using_an_unstarted_consumer_raises_an_error_that_tells_how_to_start_it() -> None:
    with pytest.raises(NotStarted, match="use `with`"):
        facade.LitePullConsumer("g").poll()


def test_facades_have_every_method_of_the_class_they_wrap() -> None:
    inner_business = {
        *("consumer_data", "topics", "members_changed", "reset_offsets", "offsets_of", "group"),
        *("running_info", "consume_directly", "check_transaction", "take_reply", "queue_freed"),
        *("is_broadcasting", "is_orderly", "is_in_handler", "stopped", "member"),
    }
    for kind in (AsyncProducer, PushConsumer, LitePullConsumer, AsyncPullConsumer):
        calls = {name for name, _ in inspect.getmembers(kind) if not name.startswith("_")}
        blocking = getattr(facade, kind.__name__)
        assert calls - inner_business - set(dir(blocking)) == set(), kind
        for name in calls & set(dir(blocking)):
            assert getattr(blocking, name).__doc__, name
