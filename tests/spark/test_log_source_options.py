"""Options of the log source: which topics and columns are given, and what is refused."""

import re
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="needs the spark extra: pip install sparrowmq[spark]")

from sparrowmq.spark.errors import OptionError, RocketMQError
from sparrowmq.spark.log_files.options import LOG_OPTIONS, parse_log_options
from sparrowmq.spark.log_source import LogSource
from tests.spark.written_logs import HOST, HOST_V6, LogWriter, hundred_messages, rows


@pytest.fixture
def writer(tmp_path: Path) -> LogWriter:
    return hundred_messages(tmp_path)


def test_only_the_selected_topics_and_columns_are_returned(writer: LogWriter) -> None:
    store = writer.write()
    found = rows(store, topic="refunds", columns="body,logOffset")
    assert found.column_names == ["body", "logOffset"]
    assert found["logOffset"].to_pylist() == writer.offsets[::4]
    assert set(rows(store)["brokerName"].to_pylist()) == {None}
    assert set(rows(store, brokerName="broker-a")["brokerName"].to_pylist()) == {"broker-a"}


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({}, "option path: missing; give the directory of a store"),
        ({"path": "here"}, "option path: must be an absolute path"),
        ({"path": "/x", "onDamage": "cry"}, "option onDamage: must be one of fail, column, skip"),
        ({"path": "/x", "columns": "damage"}, "option columns: there is no column 'damage'"),
        ({"path": "/x", "columns": " , "}, "option columns: must name a column, several with"),
        ({"path": "/x", "topics": "a"}, "option topics: unknown to the log source; did you mean"),
    ],
)
def test_a_wrong_option_is_refused_with_what_is_allowed(options: dict[str, str], text: str) -> None:
    with pytest.raises(OptionError, match=text):
        parse_log_options(options)


def test_a_stream_of_log_files_is_refused_with_the_formats_that_there_are() -> None:
    source = LogSource({"path": "/x"})
    stream = source.streamReader(source.schema())
    with pytest.raises(RocketMQError, match=r"reads files once .* use spark\.read, or the format"):
        stream.initialOffset()


def planned(store: Path, topic: str) -> int:
    """How many tasks would read a topic: one for each file."""
    source = LogSource({"path": str(store), "topic": topic})
    return len(source.reader(source.schema()).partitions())


def test_a_topic_that_the_store_does_not_have_is_refused_with_those_it_has(
    writer: LogWriter,
) -> None:
    store = writer.write()
    for topic in ("orders", "refunds", "SCHEDULE_TOPIC_XXXX"):
        (store / "consumequeue" / topic / "0").mkdir(parents=True)
    (store / "config").mkdir()
    table = '{"topicConfigTable": {"orders": {}, "made-and-empty": {}}}'
    (store / "config" / "topics.json").write_text(table)
    for path in (store, store / "commitlog"):
        with pytest.raises(OptionError) as caught:
            planned(path, "orders,ordres")
        assert str(caught.value) == (
            f"option topic: there is no topic ordres in the store {path}; did you mean orders? it"
            " has made-and-empty, orders, refunds. For messages of a topic that was deleted, leave"
            " out this option and filter by the column topic"
        )
    assert planned(store, "orders,made-and-empty,SCHEDULE_TOPIC_XXXX") == 4


@pytest.mark.parametrize("config", [None, "[]", "{"], ids=["none", "a list", "no JSON"])
def test_a_log_without_the_rest_of_its_store_is_read_for_any_topic(
    writer: LogWriter, config: str | None
) -> None:
    store = writer.write()
    if config is not None:
        (store / "config").mkdir()
        (store / "config" / "topics.json").write_text(config)
    assert planned(store, "ordres") == 4


def test_the_guide_names_every_option_with_its_default() -> None:
    guide = (Path(__file__).resolve().parents[2] / "docs" / "spark.md").read_text(encoding="utf-8")
    part = guide.partition("\n## Log files\n")[2].partition("\n## ")[0]
    found = dict(re.findall(r"^\| `(\w+)` \| *`?(.*?)`? *\|", part, re.MULTILINE))
    assert list(found) == list(LOG_OPTIONS)
    given = {name: text for name, text in found.items() if text and text != "all"}
    assert set(given) == {"onDamage", "maxBytesPerPartition"}
    assert parse_log_options({"path": "/x", **given}) == parse_log_options({"path": "/x"})


def test_records_that_are_decoded_alone_are_chosen_by_topic_too(tmp_path: Path) -> None:
    writer = LogWriter(tmp_path)
    for topic, host in (("a", HOST), ("b", HOST_V6), ("a", HOST_V6), ("b", HOST)):
        writer.add(b"body", topic=topic, host=host)
    found = rows(writer.write(), topic="a")
    assert found["logOffset"].to_pylist() == [writer.offsets[0], writer.offsets[2]]
    assert found["topic"].to_pylist() == ["a", "a"]
