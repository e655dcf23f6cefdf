"""Log files are read in ranges: no record twice, none missed, damage told from the end."""

import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

pa = pytest.importorskip("pyarrow", reason="needs the spark extra: pip install sparrowmq[spark]")

from sparrowmq.protocol.record import (  # noqa: E402 - after the skip
    MIN_RECORD_SIZE,
    encode_blank,
    encode_record,
    topic_part,
)
from sparrowmq.spark.errors import OptionError  # noqa: E402
from sparrowmq.spark.log_source_files import (  # noqa: E402
    LogFileError,
    log_files,
    log_ranges,
)
from sparrowmq.spark.log_source_options import _OPTIONS, parse_log_options  # noqa: E402
from sparrowmq.spark.log_source_read import Damage, Run, read_range  # noqa: E402
from sparrowmq.spark.log_source_records import CRC_HEAD, CRC_SIZE  # noqa: E402
from sparrowmq.spark.log_source_rows import LogDamaged, LogRows  # noqa: E402
from sparrowmq.store.files import StoreFiles  # noqa: E402

FILE_SIZE = 4096
HOST = bytes([127, 0, 0, 1, 0, 0, 0x2A, 0x9F])
HOST_V6 = bytes(15) + b"\x01" + HOST[4:]


class LogWriter:
    """Writes log files as a broker does."""

    def __init__(self, directory: Path, file_size: int = FILE_SIZE) -> None:
        self.directory = directory
        self.file_size = file_size
        self.offsets: list[int] = []
        self._log = bytearray()

    def add(
        self,
        body: bytes,
        *,
        topic: str = "orders",
        properties: bytes = b"UNIQ_KEY\x01A1\x02",
        host: bytes = HOST,
        record_crc: bool = True,
        sys_flag: int = 0,
    ) -> int:
        """Append a record; where it lies."""
        made = self._encode(len(self._log), body, topic, properties, host, record_crc, sys_flag)
        left = self.file_size - len(self._log) % self.file_size
        if len(made) + 8 > left:
            self._log += encode_blank(left).ljust(left, b"\0")
            made = self._encode(len(self._log), body, topic, properties, host, record_crc, sys_flag)
        self.offsets.append(len(self._log))
        self._log += made
        return self.offsets[-1]

    def _encode(self, at: int, body: bytes, topic: str, properties: bytes, host: bytes,
                record_crc: bool, sys_flag: int) -> bytes:  # fmt: skip
        return encode_record(
            topic_part(topic), 1, 0, len(self.offsets), at, sys_flag, 1_700_000_000_000, host,
            1_700_000_000_001, host, 0, 0, body, properties, record_crc=record_crc,
        )  # fmt: skip

    def change(self, at: int, data: bytes) -> None:
        self._log[at : at + len(data)] = data

    def read(self, at: int, length: int) -> bytes:
        return bytes(self._log[at : at + length])

    def write(self) -> Path:
        log = self.directory / "commitlog"
        log.mkdir(parents=True, exist_ok=True)
        for start in range(0, max(1, len(self._log)), self.file_size):
            part = bytes(self._log[start : start + self.file_size])
            (log / f"{start:020d}").write_bytes(part.ljust(self.file_size, b"\0"))
        return self.directory


def rows(directory: Path, **options: str) -> Any:
    """All rows, range by range, as one table."""
    parsed = parse_log_options({"path": str(directory)} | options)
    reader = LogRows(parsed)
    ranges = log_ranges(log_files(parsed.path), parsed.max_bytes_per_partition)
    batches = [batch for one in ranges for batch in reader.batches(one)]
    return pa.Table.from_batches(batches, reader.schema)


def offsets(directory: Path, **options: str) -> list[int]:
    return rows(directory, **options)["logOffset"].to_pylist()  # type: ignore[no-any-return]


messages = st.lists(
    st.tuples(
        st.binary(min_size=1, max_size=300),
        st.sampled_from(["orders", "t" * 200]),
        st.sampled_from([HOST, HOST_V6]),
        st.booleans(),
    ),
    max_size=60,
)


@given(messages, st.integers(100, 2 * FILE_SIZE))
def test_however_the_log_is_cut_every_record_is_read_once(
    log: list[tuple[bytes, str, bytes, bool]], max_bytes: int
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        writer = LogWriter(Path(directory))
        for body, topic, host, crc in log:
            writer.add(body, topic=topic, host=host, record_crc=crc)
        store = writer.write()
        found = rows(store, maxBytesPerPartition=str(max_bytes), onDamage="column")
        assert found["logOffset"].to_pylist() == writer.offsets
        assert found["body"].to_pylist() == [body for body, *_ in log]
        assert found["damage"].null_count == len(log)


# Not zero: a zero in a property is damage for the store, which knows what it was given, and a
# character for us, as Apache's brokers take it.
harm_bytes = st.binary(min_size=1, max_size=4).map(lambda data: data.replace(b"\0", b"#"))


@given(messages, st.lists(st.tuples(st.integers(0, 20_000), harm_bytes)))
def test_behind_any_damage_the_same_records_are_found_as_by_the_store_itself(
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
    made = LogWriter(tmp_path)
    for at in range(100):
        made.add(b"message %03d" % at, topic="orders" if at % 4 else "refunds")
    return made


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
def test_a_damaged_record_becomes_a_row_that_says_where_and_why(
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
def test_damage_is_found_in_records_without_a_crc_of_their_own_too(
    tmp_path: Path, harm: Callable[[LogWriter, int], None]
) -> None:
    writer = LogWriter(tmp_path)
    for at in range(20):
        writer.add(b"message %03d" % at, record_crc=False)
    harm(writer, 7)
    assert offsets(writer.write(), onDamage="skip") == writer.offsets[:7] + writer.offsets[8:]


@pytest.mark.parametrize("from_end", range(1, CRC_SIZE + 1))
def test_damage_in_any_byte_of_the_property_with_the_crc_is_found(
    writer: LogWriter, from_end: int
) -> None:
    place = writer.offsets[8] - from_end
    writer.change(place, bytes([writer.read(place, 1)[0] ^ 0x20]))
    assert offsets(writer.write(), onDamage="skip") == writer.offsets[:7] + writer.offsets[8:]


def test_a_crc_in_bytes_that_are_no_digits_is_damage_even_if_it_adds_up(writer: LogWriter) -> None:
    lowest = writer.offsets[8] - CRC_SIZE + len(CRC_HEAD)
    first, second = writer.read(lowest, 2)
    assert second > ord("0"), "there has to be a ten to be carried"
    writer.change(lowest, bytes([first + 10, second - 1]))
    assert offsets(writer.write(), onDamage="skip") == writer.offsets[:7] + writer.offsets[8:]


@pytest.mark.parametrize("record_crc", [True, False])
def test_sound_records_are_checked_together_and_none_of_them_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, record_crc: bool
) -> None:
    def fail(*_: object) -> str:
        raise AssertionError("a sound record was looked at alone")

    writer = LogWriter(tmp_path)
    for at in range(20):
        writer.add(b"message %03d" % at, record_crc=record_crc)
    monkeypatch.setattr("sparrowmq.spark.log_source_read.record_fault", fail)
    assert offsets(writer.write()) == writer.offsets


def test_damage_is_left_out_or_fails_the_read_as_asked(writer: LogWriter) -> None:
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


def test_a_torn_record_at_the_end_is_no_damage_and_one_before_the_durable_mark_is(
    writer: LogWriter,
) -> None:
    last = writer.add(b"still being written")
    writer.change(last + 95, bytes(100))
    files = log_files(writer.write())
    [one] = [part for part in log_ranges(files, 1 << 30) if part.is_last]
    assert all(isinstance(found, Run) for found in read_range(one))
    [sure] = [part for part in log_ranges(files, 1 << 30, sure=last + 1) if part.is_last]
    [damage] = [found for found in read_range(sure) if isinstance(found, Damage)]
    assert damage.begin == last


def test_a_file_that_was_made_ahead_of_time_is_no_damage(writer: LogWriter) -> None:
    store = writer.write()
    end = max(int(path.name) for path in (store / "commitlog").iterdir()) + FILE_SIZE
    for ahead in (end, end + FILE_SIZE):
        (store / "commitlog" / f"{ahead:020d}").write_bytes(bytes(FILE_SIZE))
    assert offsets(store, onDamage="fail") == writer.offsets


def test_a_record_that_is_larger_than_the_window_is_read(tmp_path: Path) -> None:
    writer = LogWriter(tmp_path, file_size=1 << 20)
    for size in (10, 200_000, 20):
        writer.add(bytes([65]) * size)
    [one] = log_ranges(log_files(writer.write()), 1 << 30)
    runs = [found for found in read_range(one, window=1000) if isinstance(found, Run)]
    found = [run.log_offset + int(start) for run in runs for start in run.starts]
    assert found == writer.offsets


def test_only_the_wanted_topics_and_columns_are_given(writer: LogWriter) -> None:
    store = writer.write()
    found = rows(store, topic="refunds", columns="body,logOffset")
    assert found.column_names == ["body", "logOffset"]
    assert found["logOffset"].to_pylist() == writer.offsets[::4]
    assert set(rows(store)["brokerName"].to_pylist()) == {None}
    assert set(rows(store, brokerName="broker-a")["brokerName"].to_pylist()) == {"broker-a"}


def test_what_is_appended_after_the_cutting_is_not_read(writer: LogWriter) -> None:
    ranges = log_ranges(log_files(writer.write()), 1 << 30)
    known = list(writer.offsets)
    for _ in range(3):
        writer.add(b"later")
    writer.write()
    found = [
        run.log_offset + int(start)
        for one in ranges
        for run in read_range(one)
        if isinstance(run, Run)
        for start in run.starts
    ]
    assert found == known


def test_the_log_directory_itself_and_an_empty_store_can_be_read(
    writer: LogWriter, tmp_path: Path
) -> None:
    assert offsets(writer.write() / "commitlog") == writer.offsets
    (tmp_path / "empty" / "commitlog").mkdir(parents=True)
    assert offsets(tmp_path / "empty") == []


def test_files_that_were_deleted_by_retention_are_not_missed(writer: LogWriter) -> None:
    store = writer.write()
    (store / "commitlog" / f"{0:020d}").unlink()
    assert offsets(store) == [at for at in writer.offsets if at >= FILE_SIZE]


def test_a_file_that_goes_while_it_is_read_is_named_with_the_remedy(writer: LogWriter) -> None:
    store = writer.write()
    ranges = log_ranges(log_files(store), 1 << 30)
    (store / "commitlog" / f"{0:020d}").unlink()
    with pytest.raises(LogFileError, match="00000000 is gone: the broker deletes old files"):
        list(read_range(ranges[0]))


def test_a_directory_that_is_no_store_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LogFileError, match="is no store: there is neither a directory commitlog"):
        log_files(tmp_path)
    with pytest.raises(LogFileError, match="cannot be read: No such file"):
        log_files(tmp_path / "gone")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({}, "option path: missing; give the directory of a store"),
        ({"path": "here"}, "option path: must be an absolute path"),
        ({"path": "/x", "onDamage": "cry"}, "option onDamage: must be one of fail, column, skip"),
        ({"path": "/x", "columns": "damage"}, "option columns: there is no column 'damage'"),
        ({"path": "/x", "topics": "a"}, "option topics: unknown to the log source; did you mean"),
    ],
)
def test_a_wrong_option_is_refused_with_what_is_allowed(options: dict[str, str], text: str) -> None:
    with pytest.raises(OptionError, match=text):
        parse_log_options(options)


def test_the_guide_names_every_option() -> None:
    guide = (Path(__file__).resolve().parents[2] / "docs" / "spark.md").read_text(encoding="utf-8")
    part = guide.partition("\n## Log files\n")[2].partition("\n## ")[0]
    assert re.findall(r"^\| `(\w+)` \|", part, re.MULTILINE) == list(_OPTIONS)


def test_records_that_are_decoded_alone_are_chosen_by_topic_too(tmp_path: Path) -> None:
    writer = LogWriter(tmp_path)
    for topic, host in (("a", HOST), ("b", HOST_V6), ("a", HOST_V6), ("b", HOST)):
        writer.add(b"body", topic=topic, host=host)
    found = rows(writer.write(), topic="a")
    assert found["logOffset"].to_pylist() == [writer.offsets[0], writer.offsets[2]]
    assert found["topic"].to_pylist() == ["a", "a"]


def test_a_topic_that_is_no_text_is_damage_whatever_topic_is_wanted(tmp_path: Path) -> None:
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
def test_small_records_that_are_found_together_are_cut_and_checked_as_others_are(
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
