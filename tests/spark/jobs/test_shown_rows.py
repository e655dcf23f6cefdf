"""Messages of an archive and dead letters as lines on a terminal."""

import json
from datetime import UTC, datetime

import pytest

pytest.importorskip("pyspark", reason="needs the spark extra: pip install sparrowmq[spark]")

from pyspark.sql import Row

from sparrowmq.cli.commands.pipeline_archive import show_rows, shown


def row(number: int, topic: str = "orders", **properties: str) -> Row:
    return Row(
        topic=topic,
        brokerName="broker-a",
        queueId=1,
        queueOffset=number,
        tags="paid",
        keys=[f"o-{number}"],
        body=bytearray(b"order %d" % number),
        properties=properties,
        storeTimestamp=datetime(2026, 11, 16, 12, 30, tzinfo=UTC),
    )


@pytest.mark.parametrize(
    ("count", "said"),
    [
        (0, "0 messages\n"),
        (1, "1 message\n"),
        (2, "2 messages\n"),
        (3, "2 messages; there are more, --limit shows them\n"),
    ],
)
def test_the_number_of_rows_is_shown_and_whether_there_are_more(
    count: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    show_rows([row(number) for number in range(count)], 2, "message", as_json=False)
    printed = capsys.readouterr()
    assert printed.err == said
    assert printed.out.count("\n") == min(count, 2)


@pytest.mark.parametrize(
    ("topic", "properties", "place"),
    [
        ("orders", {"RETRY_TOPIC": "refunds"}, "orders/broker-a/1/7"),
        ("%DLQ%billing", {"RETRY_TOPIC": "orders"}, "%DLQ%billing/broker-a/1/7 from orders"),
        ("%DLQ%billing", {"DLQ_ORIGIN_TOPIC": "orders"}, "%DLQ%billing/broker-a/1/7 from orders"),
        ("%DLQ%billing", {}, "%DLQ%billing/broker-a/1/7"),
    ],
)
def test_a_dead_letter_is_shown_with_the_topic_it_came_from(
    topic: str, properties: dict[str, str], place: str
) -> None:
    text = shown(row(7, topic, **properties), as_json=False)
    assert text == f"2026-11-16 12:30:00 {place} [paid] o-7: order 7"


def test_a_body_that_is_not_text_is_shown_and_kept_as_in_consume() -> None:
    binary = Row(**{**row(7).asDict(), "body": bytearray(b"\xff\x00\x1b[2J")})
    assert shown(binary, as_json=False).endswith(": \\xff\\x00\\x1b[2J")
    assert json.loads(shown(binary, as_json=True))["body_base64"] == "/wAbWzJK"
    assert json.loads(shown(row(7), as_json=True))["body"] == "order 7"
