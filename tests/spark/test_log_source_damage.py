"""Damage in log files is found, distinguished from the end of the log, and costs no record."""

import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyarrow", reason="needs the spark extra: pip install sparrowmq[spark]")

from sparrowmq.protocol.record_layout import CRC_HEAD, CRC_PROPERTY_SIZE, MIN_RECORD_SIZE
from sparrowmq.spark.log_files.ranges import log_files, log_ranges
from sparrowmq.spark.log_files.reader import DamagedBytes, RecordRun, read_range
from sparrowmq.spark.log_files.rows import LogDamaged
from sparrowmq.store.files import StoreFiles
from tests.spark.written_logs import LogWriter, hundred_messages, messages, offsets, rows

# Not zero: a zero in a property is damage for the store, which knows what it was given, and a
# character for us, as Apache's brokers take it.
harm_bytes = st.binary(min_size=1, max_size=4).map(lambda data: data.replace(b"\0", b"#"))


@given(messages, st.lists(st.tuples(st.integers(0, 20_000), harm_bytes)))
def test_after_any_damage_the_source_finds_the_same_records_as_the_store(
    log: list[tuple[bytes, str, bytes, bool]], damage: list[tuple[int, bytes]]
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        writer = LogWriter(Path(directory))
        for body, _, host, _ in log:
            writer.add(body, host=host)
        for at, data in damage:
            if writer.offsets:
                writer.change(at % (writer.offsets[-1] + MIN_RECORD_SIZE), data)
        store = writer.write()
        wanted = [record.log_offset for record in StoreFiles.at(store).records()]
        assert offsets(store, maxBytesPerPartition="1000", onDamage="skip") == wanted


@pytest.fixture
def writer(tmp_path: Path) -> LogWriter:
    return hundred_messages(tmp_path)


def flip_body(writer: LogWriter, at: int) -> None:
    writer.change(writer.offsets[at] + 90, b"#")


def flip_property(writer: LogWriter, at: int) -> None:
    writer.change(writer.offsets[at + 1] - 25, b"#")


def flip_last_byte(writer: LogWriter, at: int) -> None:
    writer.change(writer.offsets[at + 1] - 1, b"#")


def flip_digits(writer: LogWriter, at: int) -> None:
    """The CRC's digits, so that they would still mean the same number."""
    low, high = writer.read(writer.offsets[at + 1] - 11, 2)
    writer.change(writer.offsets[at + 1] - 11, bytes((low + 10, high - 1)))


def flip_size(writer: LogWriter, at: int) -> None:
    writer.change(writer.offsets[at], b"\x7f")


def flip_position(writer: LogWriter, at: int) -> None:
    writer.change(writer.offsets[at] + 30, b"\x01")


def zeros(writer: LogWriter, at: int) -> None:
    writer.change(writer.offsets[at], bytes(writer.offsets[at + 1] - writer.offsets[at]))


@pytest.mark.parametrize(
    "harm",
    [
        *(flip_body, flip_property, flip_last_byte, flip_digits),
        *(flip_size, flip_position, zeros),
    ],
)
def test_a_damaged_record_becomes_a_row_with_position_and_reason(
    writer: LogWriter, harm: Callable[[LogWriter, int], None]
) -> None:
    harm(writer, 7)
    found = rows(writer.write(), onDamage="column").to_pylist()
    assert [row["logOffset"] for row in found] == writer.offsets
    [damaged] = [row for row in found if row["damage"] is not None]
    size = writer.offsets[8] - writer.offsets[7]
    assert damaged["logOffset"] == writer.offsets[7]
    assert damaged["damage"].startswith(f"{size} bytes of log file {0:020d}: ")
    assert damaged["body"] is None
    assert damaged["topic"] is None


@pytest.mark.parametrize("harm", [flip_body, flip_size, flip_position, zeros])
def test_damage_is_found_even_in_records_without_their_own_crc(
    tmp_path: Path, harm: Callable[[LogWriter, int], None]
) -> None:
    writer = LogWriter(tmp_path)
    for at in range(20):
        writer.add(b"message %03d" % at, record_crc=False)
    harm(writer, 7)
    assert offsets(writer.write(), onDamage="skip") == writer.offsets[:7] + writer.offsets[8:]


@pytest.mark.parametrize("from_end", range(1, CRC_PROPERTY_SIZE + 1))
def test_damage_in_any_byte_of_the_property_with_the_crc_is_found(
    writer: LogWriter, from_end: int
) -> None:
    place = writer.offsets[8] - from_end
    writer.change(place, bytes([writer.read(place, 1)[0] ^ 0x20]))
    assert offsets(writer.write(), onDamage="skip") == writer.offsets[:7] + writer.offsets[8:]


def test_a_crc_in_bytes_that_are_not_digits_is_damage_even_if_it_matches(writer: LogWriter) -> None:
    lowest = writer.offsets[8] - CRC_PROPERTY_SIZE + len(CRC_HEAD)
    first, second = writer.read(lowest, 2)
    assert second > ord("0"), "there has to be a ten to be carried"
    writer.change(lowest, bytes([first + 10, second - 1]))
    assert offsets(writer.write(), onDamage="skip") == writer.offsets[:7] + writer.offsets[8:]


def test_damage_is_skipped_or_fails_the_read_as_configured(writer: LogWriter) -> None:
    flip_body(writer, 7)
    store = writer.write()
    assert offsets(store, onDamage="skip") == writer.offsets[:7] + writer.offsets[8:]
    text = f"damaged at log offset {writer.offsets[7]}: .* the body's CRC is wrong; set the option"
    with pytest.raises(LogDamaged, match=text):
        rows(store)


def test_a_record_whose_body_cannot_be_decompressed_is_damage_and_those_around_it_are_not(
    tmp_path: Path,
) -> None:
    writer = LogWriter(tmp_path)
    for flag in (0, 1, 0, 1):  # 1: compressed, which these bodies are not
        writer.add(b"not zlib", sys_flag=flag)
    found = rows(writer.write(), onDamage="column").to_pylist()
    assert [row["logOffset"] for row in found] == writer.offsets
    assert [row["damage"] is None for row in found] == [True, False, True, False]


def test_a_torn_record_counts_as_damage_only_before_the_durable_mark(
    writer: LogWriter,
) -> None:
    last = writer.add(b"still being written")
    writer.change(last + 95, bytes(100))
    files = log_files(writer.write())
    [one] = [part for part in log_ranges(files, 1 << 30) if part.is_last]
    assert all(isinstance(found, RecordRun) for found in read_range(one))
    [sure] = [part for part in log_ranges(files, 1 << 30, sure=last + 1) if part.is_last]
    [damage] = [found for found in read_range(sure) if isinstance(found, DamagedBytes)]
    assert damage.begin == last


def test_a_topic_that_is_not_text_is_damage_for_any_selected_topic(tmp_path: Path) -> None:
    writer = LogWriter(tmp_path)
    for topic in ("orders", "refunds", "orders"):
        writer.add(b"body", topic=topic, record_crc=False)
    topic_at = writer.offsets[1] + MIN_RECORD_SIZE - 2 + len(b"body")
    assert writer.read(topic_at, 7) == b"refunds"
    writer.change(topic_at, b"\xff")
    found = rows(writer.write(), topic="orders", onDamage="column").to_pylist()
    assert [row["logOffset"] for row in found] == writer.offsets
    assert ["not UTF-8" in (row["damage"] or "") for row in found] == [False, True, False]


@pytest.mark.parametrize("damaged", [None, 0, 200, 399])
def test_small_records_found_together_are_split_and_checked_like_others(
    tmp_path: Path, damaged: int | None
) -> None:
    writer = LogWriter(tmp_path, file_size=1 << 20)
    for at in range(400):
        writer.add(b"message %03d" % at)
    writer.add(b"like a record: \xda\xa3\x20\xa7")
    expected = list(writer.offsets)
    if damaged is not None:
        flip_size(writer, damaged)
        del expected[damaged]
    assert offsets(writer.write(), onDamage="skip", maxBytesPerPartition="40KiB") == expected
    assert offsets(writer.write(), onDamage="skip") == expected
