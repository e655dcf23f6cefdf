"""Options: texts in, one typed value out, and a useful error for every mistake."""

import json

import pytest

from sparrowmq.spark.errors import OptionError
from sparrowmq.spark.options import At, check_has_begun, parse_options
from sparrowmq.spark.schema import READ_NAMES
from sparrowmq.spark.wire.cluster import Queue, QueuePosition

BASE = {"nameServer": "127.0.0.1:9876", "subscribe": "orders"}


def test_the_defaults_are_those_of_spark_sql_kafka() -> None:
    batch = parse_options(BASE, stream=False)
    assert (batch.starting, batch.ending) == (At(word="earliest"), At(word="latest"))
    assert batch.fail_on_data_loss
    stream = parse_options(BASE, stream=True)
    assert stream.starting == At(word="latest")
    assert stream.max_trigger_delay_s == 900


def test_names_are_case_insensitive_as_in_spark() -> None:
    assert parse_options({"NAMESERVER": "a:1", "subSCRIBE": "x, y,x"}).subscribe == ("x", "y")


def test_options_for_spark_itself_are_ignored() -> None:
    assert parse_options({**BASE, "checkpointLocation": "/x", "path": ""}) == parse_options(BASE)


def test_positions_are_words_offsets_or_times() -> None:
    offsets = '{"orders": {"broker-a": {"0": -2, "1": 7}}}'
    found = parse_options({**BASE, "startingOffsets": offsets}).starting
    assert found == At(
        positions={
            Queue("orders", "broker-a", 0): QueuePosition(-2),
            Queue("orders", "broker-a", 1): QueuePosition(7),
        }
    )
    epochs = '{"orders": {"broker-a": {"0": 3}}, "$epochs": {"orders": {"broker-a": {"0": 70}}}}'
    found = parse_options({**BASE, "startingOffsets": epochs}).starting
    assert found == At(positions={Queue("orders", "broker-a", 0): QueuePosition(3, 70)})
    assert parse_options({**BASE, "startingOffsets": "Latest"}).starting == At(word="latest")
    assert parse_options({**BASE, "endingTimestamp": "1700"}).ending == At(time_ms=1700)
    times = {**BASE, "startingOffsetsByTimestamp": '{"orders": {"broker-a": {"0": 9}}}'}
    assert parse_options(times).starting == At(times={"orders": {"broker-a": {0: 9}}})


@pytest.mark.parametrize(
    ("text", "time_ms"),
    [
        ("1700", 1700),
        ("1970-01-02", 86_400_000),
        ("1970-01-02T01:30", 91_800_000),
        ("1970-01-02T01:30+01:00", 88_200_000),
        ("1970-01-01 00:00:01.5Z", 1500),
        ("2026-11-15T13:30:00.009Z", 1_794_749_400_009),
    ],
)
def test_a_time_is_milliseconds_or_a_date(text: str, time_ms: int) -> None:
    assert parse_options({**BASE, "startingTimestamp": text}).starting == At(time_ms=time_ms)
    assert parse_options({**BASE, "endingTimestamp": text}).ending == At(time_ms=time_ms)


def test_columns_can_be_chosen_or_the_properties_left_out() -> None:
    chosen = parse_options({**BASE, "columns": "Body, topic"})
    assert [column.name for column in chosen.columns] == ["body", "topic"]
    fewer = parse_options({**BASE, "includeProperties": "false"})
    assert "properties" not in [column.name for column in fewer.columns]
    assert len(fewer.columns) == 13


def test_all_columns_are_read_unless_some_are_chosen() -> None:
    assert [column.name for column in parse_options(BASE).columns] == list(READ_NAMES)


def test_the_smallest_allowed_value_is_accepted() -> None:
    assert parse_options({**BASE, "minPartitions": "1"}).min_partitions == 1
    times = {**BASE, "startingOffsetsByTimestamp": '{"orders": {"broker-a": {"0": 0}}}'}
    assert parse_options(times).starting == At(times={"orders": {"broker-a": {0: 0}}})


def test_filters_reach_the_broker_as_they_were_written() -> None:
    assert parse_options({**BASE, "tags": "created || paid"}).tags == "created || paid"
    assert parse_options({**BASE, "sql": "amount > 5"}).sql == "amount > 5"


@pytest.mark.parametrize(
    ("text", "size"),
    [("7", 7), ("7b", 7), ("2kb", 2048), ("2KiB", 2048), ("3mb", 3 << 20), ("1.5MiB", 3 << 19)],
)
def test_sizes_are_counted_in_powers_of_two(text: str, size: int) -> None:
    assert parse_options({**BASE, "pullBytes": text}).pull_bytes == size


def test_durations_and_sizes_have_units() -> None:
    found = parse_options({**BASE, "retryTimeout": "500ms", "pullBytes": "1MiB"})
    assert (found.retry_timeout_s, found.pull_bytes) == (0.5, 1 << 20)


WRONG = {
    "unknown, with a hint": ({"startingOffset": "earliest"}, "did you mean startingOffsets?"),
    "unknown, with what there is": ({"colour": "red"}, "allowed are nameServer, subscribe"),
    "no number": ({"minPartitions": "many"}, "minPartitions: must be a whole number above 0"),
    "zero": ({"maxOffsetsPerTrigger": "0"}, "must be a whole number above 0, not '0'"),
    "no truth": ({"failOnDataLoss": "maybe"}, "failOnDataLoss: must be true or false"),
    "no unit": ({"retryTimeout": "10"}, "must be a number with its unit such as 60s"),
    "a time before 1970": (
        {"startingOffsetsByTimestamp": '{"orders": {"broker-a": {"0": -1}}}'},
        "has -1 in it, at least 0 is allowed",
    ),
    "no topic": ({"subscribe": " , "}, "must name a topic"),
    "bad topic": ({"subscribe": "a b"}, "has characters that are not allowed"),
    "bad group": ({"group": "a b"}, "group: group 'a b' has characters"),
    "bad server": ({"nameServer": "here"}, "nameServer: must be host:port"),
    "a server as a URL": (
        {"nameServer": "http://localhost:9876"},
        "address 'http://localhost:9876' is not host:port: write 'localhost:9876', without http",
    ),
    "two ways": ({"assign": '{"orders": {"a": [0]}}'}, "assign: contradicts subscribe"),
    "two ways to start": (
        {"startingOffsets": "earliest", "startingTimestamp": "1"},
        "startingTimestamp: contradicts startingOffsets",
    ),
    "two filters": ({"tags": "a", "sql": "b = 1"}, "sql: contradicts tags"),
    "half a condition": (
        {"sql": "amount >"},
        "sql: SQL92 expression, line 1, column 9: expected a property, a value, NOT or (, found",
    ),
    "a condition that brokers read in part": (
        {"sql": "amount > 3 created"},
        "sql: SQL92 expression, line 1, column 12: brokers would ignore 'created'; join",
    ),
    "no time": (
        {"startingTimestamp": "yesterday"},
        "startingTimestamp: must be a time from 1970 on such as 2026-11-15, 2026-11-15T13:30 (UTC)",
    ),
    "a date before 1970": ({"endingTimestamp": "1969-12-31"}, "must be a time from 1970 on"),
    "Kafka's name of an option": (
        {"kafka.bootstrap.servers": "a:9092"},
        "option kafka.bootstrap.servers: unknown to the source; did you mean nameServer?",
    ),
    "Kafka's name of a column": (
        {"columns": "key,value"},
        "columns: there is no column 'key' (Kafka's key is keys here), allowed are topic",
    ),
    "no tags": ({"tags": " || "}, "tags: is '||', which has no name at place 1; must be names"),
    "tags with commas": (
        {"tags": "created,paid"},
        "tags: is 'created,paid', and tags are separated by ||, not by commas: write"
        " 'created || paid', or the option sql with TAGS = 'a,b' for a tag that has a comma in it",
    ),
    "no columns": ({"columns": " , "}, "columns: must name a column, several with commas"),
    "no column": ({"columns": "boddy"}, "no column 'boddy', allowed are topic"),
    "properties yes and no": (
        {"columns": "properties", "includeProperties": "false"},
        "includeProperties: false contradicts properties in columns",
    ),
    "least above most": (
        {"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"},
        "minOffsetsPerTrigger: must be at most maxOffsetsPerTrigger, 8, not 9",
    ),
}


@pytest.mark.parametrize(("options", "text"), WRONG.values(), ids=WRONG)
def test_a_wrong_option_is_named_with_what_is_allowed(options: dict[str, str], text: str) -> None:
    with pytest.raises(OptionError) as caught:
        parse_options({**BASE, **options})
    assert text in str(caught.value)


def test_a_topic_given_as_a_path_is_no_subscription() -> None:
    with pytest.raises(OptionError, match="option path: a topic is no path: use the option subscr"):
        parse_options({"nameServer": "a:1", "path": "orders"})


def test_a_missing_subscription_is_named() -> None:
    with pytest.raises(OptionError, match="give subscribe, subscribePattern or assign"):
        parse_options({"nameServer": "a:1"})


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"startingOffsets": "latest"}, "startingOffsets: a batch cannot start at latest"),
        ({"endingOffsets": "earliest"}, "endingOffsets: a batch cannot end at earliest"),
        ({"startingOffsets": '{"t": {"a": {"0": -1}}}'}, "cannot start at latest (-1)"),
        ({"endingOffsets": '{"t": {"a": {"0": -2}}}'}, "cannot end at earliest (-2)"),
        ({"group": "billing"}, "group: has no meaning in a batch read"),
    ],
)
def test_what_a_batch_cannot_do_is_refused(options: dict[str, str], text: str) -> None:
    with pytest.raises(OptionError) as caught:
        parse_options({**BASE, **options}, stream=False)
    assert text in str(caught.value)


def times(**of_queue: int) -> str:
    return json.dumps({"orders": {"broker-a": of_queue}})


@pytest.mark.parametrize(
    ("start", "end", "text"),
    [
        (
            {"startingTimestamp": "2026-11-16"},
            {"endingTimestamp": "2026-11-15"},
            "startingTimestamp: 2026-11-16T00:00:00+00:00 (1794787200000 ms) is after the end,"
            " 2026-11-15T00:00:00+00:00 (1794700800000 ms); must be earlier",
        ),
        (
            {"startingTimestamp": "1700000000000000"},
            {"endingTimestamp": "1700000000000"},
            "startingTimestamp: 1700000000000000 ms is after the end, 2023-11-14T22:13:20+00:00",
        ),
        (
            {"startingOffsetsByTimestamp": times(**{"0": 5, "1": 8})},
            {"endingOffsetsByTimestamp": times(**{"0": 5, "1": 7})},
            "startingOffsetsByTimestamp: 1970-01-01T00:00:00.008000+00:00 (8 ms) is after the end"
            " of orders queue 1 of broker-a, ",
        ),
        (
            {"startingOffsetsByTimestamp": times(**{"0": 8})},
            {"endingTimestamp": "7"},
            "startingOffsetsByTimestamp: ",
        ),
        (
            {"startingTimestamp": "8"},
            {"endingOffsetsByTimestamp": times(**{"0": 7})},
            "startingTimestamp: ",
        ),
    ],
)
def test_a_batch_that_would_start_after_its_end_is_refused(
    start: dict[str, str], end: dict[str, str], text: str
) -> None:
    with pytest.raises(OptionError) as caught:
        parse_options({**BASE, **start, **end}, stream=False)
    assert f"option {text}" in str(caught.value)


def test_a_batch_may_end_when_it_starts() -> None:
    same = {"startingTimestamp": "7", "endingTimestamp": "7"}
    assert parse_options({**BASE, **same}, stream=False).ending == At(time_ms=7)


def test_a_stream_has_no_end() -> None:
    with pytest.raises(OptionError, match="endingOffsets: a stream has no end"):
        parse_options({**BASE, "endingOffsets": "latest"}, stream=True)


@pytest.mark.parametrize(
    "option",
    [
        {"startingTimestamp": "1700000100000000"},
        {"startingTimestamp": "2023-11-15"},
        {"startingOffsetsByTimestamp": '{"orders": {"broker-a": {"0": 1700000100000}}}'},
    ],
    ids=["microseconds", "another zone", "of a queue"],
)
def test_a_batch_that_would_start_in_the_future_is_refused(option: dict[str, str]) -> None:
    now_ms = 1_700_000_000_000
    given = {"nameServer": "a:1", "subscribe": "orders"} | option
    options = parse_options(given, stream=False)
    with pytest.raises(OptionError, match=r"is in the future.*; times without a zone are UTC"):
        check_has_begun(options, now_ms)
    check_has_begun(options, 1_700_000_100_000_000)
    check_has_begun(parse_options({"nameServer": "a:1", "subscribe": "orders"}), now_ms)
