"""Log files are read in ranges: no record twice, and none missed."""

import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyarrow", reason="needs the spark extra: pip install sparrowmq[spark]")

from sparrowmq.spark.log_files.ranges import log_files, log_ranges
from sparrowmq.spark.log_files.reader import RecordRun, read_range
from tests.spark.written_logs import FILE_SIZE, LogWriter, hundred_messages, messages, offsets, rows


@given(messages, st.integers(100, 2 * FILE_SIZE))
def test_every_record_is_read_once_for_any_cut_of_the_log(
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


@pytest.fixture
def writer(tmp_path: Path) -> LogWriter:
    return hundred_messages(tmp_path)


@pytest.mark.parametrize("record_crc", [True, False])
def test_intact_records_are_checked_together_and_not_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, record_crc: bool
) -> None:
    def fail(*_: object) -> str:
        raise AssertionError("a sound record was looked at alone")

    writer = LogWriter(tmp_path)
    for at in range(20):
        writer.add(b"message %03d" % at, record_crc=record_crc)
    monkeypatch.setattr("sparrowmq.spark.log_files.reader.record_fault", fail)
    assert offsets(writer.write()) == writer.offsets


def test_a_record_that_is_larger_than_the_window_is_read(tmp_path: Path) -> None:
    writer = LogWriter(tmp_path, file_size=1 << 20)
    for size in (10, 200_000, 20):
        writer.add(bytes([65]) * size)
    [one] = log_ranges(log_files(writer.write()), 1 << 30)
    runs = [found for found in read_range(one, window=1000) if isinstance(found, RecordRun)]
    found = [run.log_offset + int(start) for run in runs for start in run.starts]
    assert found == writer.offsets


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
        if isinstance(run, RecordRun)
        for start in run.starts
    ]
    assert found == known
