"""What a read covers: which queues, and from where to where each is read."""

import json
from collections.abc import Iterator

import pytest

from sparrowmq.protocol.codes import RequestCode
from sparrowmq.spark.errors import DataLoss, OptionError
from sparrowmq.spark.options import parse_options
from sparrowmq.spark.read_plan import batch_ranges, find_queues, queues_at_start
from sparrowmq.spark.wire.cluster import RemoteCluster
from tests.spark.scripted_broker import Said, ScriptedBroker

TOPICS = ["%DLQ%billing", "%RETRY%billing", "TBW102", "broker-a", "c", "orders", "orders-2"]


@pytest.fixture
def cluster() -> Iterator[RemoteCluster]:
    """Topics of two queues each, which hold 3 to 10; a tenth of a second for each message."""
    with ScriptedBroker(queues=2) as broker, RemoteCluster(broker.address) as found:
        brokers = {"broker-a": {"brokerAddrs": {"0": broker.address}}}
        info = {"clusterAddrTable": {"c": ["broker-a"]}, "brokerAddrTable": brokers}
        broker.on(
            RequestCode.GET_BROKER_CLUSTER_INFO, lambda _: Said(body=json.dumps(info).encode())
        )
        broker.on(
            RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
            lambda _: Said(body=json.dumps({"topicList": TOPICS}).encode()),
        )
        broker.on(RequestCode.GET_MIN_OFFSET, lambda _: Said(fields={"offset": "3"}))
        broker.on(RequestCode.GET_MAX_OFFSET, lambda _: Said(fields={"offset": "10"}))
        broker.on(
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
            lambda asked: Said(fields={"offset": str(int(asked["timestamp"]) // 100)}),
        )
        yield found


def planned(cluster: RemoteCluster, **given: str) -> dict[int, tuple[int, int]]:
    """From where to where a batch reads each queue of orders."""
    subscribed = {} if "assign" in given else {"subscribe": "orders"}
    options = parse_options({"nameServer": "x:1", **subscribed, **given}, stream=False)
    ranges = batch_ranges(cluster, find_queues(cluster, options), options)
    return {part.queue.queue_id: (part.start, part.end) for part in ranges}


def nested(first: int, second: int) -> str:
    return json.dumps({"orders": {"broker-a": {"0": first, "1": second}}})


def test_a_batch_reads_everything_by_default(cluster: RemoteCluster) -> None:
    assert planned(cluster) == {0: (3, 10), 1: (3, 10)}


def test_offsets_are_given_per_queue_or_as_earliest_or_latest(
    cluster: RemoteCluster,
) -> None:
    given = {"startingOffsets": nested(-2, 5), "endingOffsets": nested(-1, 7)}
    assert planned(cluster, **given) == {0: (3, 10), 1: (5, 7)}


def test_times_are_given_for_all_queues_or_for_each(cluster: RemoteCluster) -> None:
    assert planned(cluster, startingTimestamp="400", endingTimestamp="900") == {
        0: (4, 9),
        1: (4, 9),
    }
    each = {
        "startingOffsetsByTimestamp": nested(400, 500),
        "endingOffsetsByTimestamp": nested(600, 900),
    }
    assert planned(cluster, **each) == {0: (4, 6), 1: (5, 9)}


def test_assigned_queues_are_read_and_no_others(cluster: RemoteCluster) -> None:
    assert planned(cluster, assign='{"orders": {"broker-a": [1]}}') == {1: (3, 10)}
    with pytest.raises(OptionError, match=r"queue 2 of broker-a does not exist, there are orders"):
        planned(cluster, assign='{"orders": {"broker-a": [1, 2]}}')


def test_a_queue_may_neither_be_left_out_nor_invented(cluster: RemoteCluster) -> None:
    with pytest.raises(OptionError, match="startingOffsets: orders queue 1 of broker-a is missing"):
        planned(cluster, startingOffsets='{"orders": {"broker-a": {"0": 5}}}')
    with pytest.raises(OptionError, match="endingOffsets: orders queue 7 of broker-a is not read"):
        planned(cluster, endingOffsets='{"orders": {"broker-a": {"0": 5, "1": 5, "7": 5}}}')
    with pytest.raises(OptionError, match="startingOffsetsByTimestamp: orders queue 1"):
        planned(cluster, startingOffsetsByTimestamp='{"orders": {"broker-a": {"0": 5}}}')


def test_an_end_that_is_not_reached_yet_is_refused(cluster: RemoteCluster) -> None:
    assert planned(cluster, endingOffsets=nested(10, 3)) == {0: (3, 10), 1: (3, 3)}
    with pytest.raises(OptionError, match=r"endingOffsets: .*ends at 10, not at 11 yet"):
        planned(cluster, endingOffsets=nested(10, 11))


def test_a_start_past_the_end_is_refused_with_the_name_of_the_option(
    cluster: RemoteCluster,
) -> None:
    both = {"startingOffsets": nested(8, 8), "endingOffsets": nested(8, 7)}
    with pytest.raises(OptionError, match=r"startingOffsets: .*start at 8, past its end 7"):
        planned(cluster, **both)
    with pytest.raises(OptionError, match=r"endingOffsets: .*start at 3, past its end 2"):
        planned(cluster, endingOffsets=nested(2, 5))


def test_a_start_that_was_deleted_is_data_loss_unless_that_is_allowed(
    cluster: RemoteCluster,
) -> None:
    assert planned(cluster, startingOffsets=nested(3, 4)) == {0: (3, 10), 1: (4, 10)}
    with pytest.raises(DataLoss, match="offset 2 was wanted, but the broker's oldest is 3: 1 mess"):
        planned(cluster, startingOffsets=nested(4, 2))
    loose = planned(cluster, startingOffsets=nested(4, 2), failOnDataLoss="false")
    assert loose == {0: (4, 10), 1: (3, 10)}


@pytest.mark.parametrize(
    ("pattern", "topics"),
    [
        ("orders.*", {"orders", "orders-2"}),
        ("orders", {"orders"}),
        (".*", {"orders", "orders-2"}),
        ("%DLQ%.*", {"%DLQ%billing"}),
    ],
)
def test_a_pattern_matches_whole_names_and_no_system_topics(
    cluster: RemoteCluster, pattern: str, topics: set[str]
) -> None:
    """Retry and dead-letter topics belong to groups: only a pattern that speaks of % means them."""
    options = parse_options({"nameServer": "x:1", "subscribePattern": pattern}, stream=False)
    assert {queue.topic for queue in find_queues(cluster, options)} == topics


@pytest.mark.parametrize(
    ("given", "warned"),
    [
        ({"subscribePattern": "ordres.*"}, True),
        ({"subscribePattern": "orders.*"}, False),
        ({"subscribe": "orders"}, False),
    ],
)
def test_a_pattern_that_matches_nothing_is_reported_with_the_existing_topics(
    cluster: RemoteCluster,
    given: dict[str, str],
    warned: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    options = parse_options({"nameServer": "x:1", **given}, stream=False)
    assert bool(queues_at_start(cluster, options)) is not warned
    text = (
        f"option subscribePattern: 'ordres.*' matches no topic of {cluster}, so there is nothing to"
        " read; its topics are orders, orders-2"
    )
    assert [record.getMessage() for record in caplog.records] == ([text] if warned else [])
