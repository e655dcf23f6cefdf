"""Bad schemas and options are refused by name before anything is sent."""

import pytest

from sparrowmq.spark.errors import OptionError
from sparrowmq.spark.schema import ColumnError, check_columns
from sparrowmq.spark.sink_options import (
    SinkOptions,
    parse_batch_sink_options,
    parse_sink_options,
)

SERVER = {"nameServer": "127.0.0.1:9876"}


def test_columns_are_found_in_any_case_and_order() -> None:
    fields = [("TAGS", "string"), ("Body", "binary"), ("shardingkey", "string")]
    found = check_columns(fields, has_topic=True)
    assert found == {"tags": 0, "body": 1, "shardingKey": 2}


def test_columns_that_only_a_read_message_has_are_passed_over() -> None:
    fields = [("queueId", "int"), ("msgId", "string"), ("body", "binary"), ("topic", "string")]
    assert check_columns(fields, has_topic=False) == {"body": 2, "topic": 3}


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ([("vaule", "binary")], "column vaule: unknown to the sink, allowed are body, topic, tags"),
        ([("value", "binary")], r"value: unknown to the sink \(Kafka's value is body here\), allo"),
        (
            [("KEY", "string")],
            r"KEY: unknown to the sink \(Kafka's KEY is shardingKey here where rows of a key must"
            r" keep their order, and keys where the message is to be found by it\), allowed",
        ),
        ([("headers", "string")], "Kafka's headers is properties here"),
        (
            [("partition", "int")],
            r"partition: unknown to the sink \(a queue is not chosen by number, but rows of one"
            r" shardingKey share one\)",
        ),
        (
            [("vaule", "binary"), ("tags", "string"), ("id", "int")],
            "columns vaule and id: unknown to the sink, allowed are .*uniqueId; and body is miss",
        ),
        (
            [("value", "binary"), ("id", "int"), ("body", "binary")],
            r"columns value and id: unknown to the sink \(Kafka's value is body here\), allowed are"
            r" body, [A-Za-z, ]*uniqueId$",
        ),
        ([("topic", "string")], "column body: missing; the sink needs it, as binary or string"),
        ([("body", "int")], "column body: has type int, allowed is binary or string"),
        ([("body", "binary"), ("keys", "array<int>")], "allowed is array<string> or string"),
        ([("body", "binary"), ("delayLevel", "string")], "column delayLevel: has type string"),
        ([("body", "binary"), ("BODY", "binary")], "column body: is there twice"),
    ],
)
def test_a_schema_that_makes_no_message_is_refused(
    fields: list[tuple[str, str]], text: str
) -> None:
    with pytest.raises(ColumnError, match=text):
        check_columns(fields, has_topic=True)


def test_without_any_topic_both_places_for_it_are_named() -> None:
    with pytest.raises(OptionError, match="option topic: missing; give it, or a column topic"):
        check_columns([("body", "binary")], has_topic=False)


def test_options_are_case_insensitive() -> None:
    options = {"nameserver": "a:9876; b:9876", "MAXROWSPERSECOND": "500", "retryTimeout": "500ms"}
    assert parse_sink_options(options) == SinkOptions(
        name_server="a:9876;b:9876", max_rows_per_second=500, retry_timeout_s=0.5
    )


def test_a_write_without_any_option_may_be_that_of_a_table_and_is_refused() -> None:
    """Spark keeps a table's options to itself: its rows would go to another cluster."""
    with pytest.raises(OptionError, match=r"option nameServer: missing, .* If this is a table"):
        parse_batch_sink_options({})
    assert parse_batch_sink_options({"topic": "orders"}).topic == "orders"


def test_options_that_spark_adds_for_itself_are_accepted() -> None:
    added = {"checkpointLocation": "/x", "queryName": "orders-copy"}
    assert parse_sink_options(SERVER | added).topic is None


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"nameServer": "here"}, "option nameServer: must be host:port"),
        (SERVER | {"topics": "a"}, "option topics: unknown to the sink; did you mean topic?"),
        (SERVER | {"colour": "a"}, "option colour: unknown to the sink; allowed are nameServer,"),
        (SERVER | {"path": "a"}, "option path: a topic is no path: use the option topic"),
        (SERVER | {"subscribe": "a"}, "option subscribe: is for reading; the sink's is topic"),
        (SERVER | {"topic": "a b"}, "option topic: topic 'a b' has characters"),
        (SERVER | {"topic": "SCHEDULE_TOPIC_XXXX"}, "option topic: .* belongs to the broker"),
        (SERVER | {"maxRowsPerSecond": "0"}, "option maxRowsPerSecond: must be a whole number"),
        (SERVER | {"retryTimeout": "5 weeks"}, "option retryTimeout: .* such as 60s, 500ms"),
        (SERVER | {"maxBatchBytes": "5MiB"}, "option maxBatchBytes: must be at most maxMessageB"),
        (SERVER | {"createTopicQueues": "4"}, "option createTopicQueues: goes with createTopic="),
        (SERVER | {"createTopic": "4"}, "option createTopic: must be true or false"),
        (SERVER | {"jobId": " "}, "option jobId: must not be empty"),
    ],
)
def test_a_wrong_option_is_refused_with_what_is_allowed(options: dict[str, str], text: str) -> None:
    with pytest.raises(OptionError, match=text):
        parse_sink_options(options)
