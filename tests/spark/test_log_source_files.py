"""Which files of a store are read: those made ahead, deleted, or gone while they are read."""

from pathlib import Path

import pytest

pytest.importorskip("pyarrow", reason="needs the spark extra: pip install sparrowmq[spark]")

from sparrowmq.spark.log_files import ranges
from sparrowmq.spark.log_files.ranges import LogFileError, log_files, log_ranges
from sparrowmq.spark.log_files.reader import read_range
from sparrowmq.store.layout import file_offset
from tests.spark.written_logs import FILE_SIZE, LogWriter, hundred_messages, offsets


@pytest.fixture
def writer(tmp_path: Path) -> LogWriter:
    return hundred_messages(tmp_path)


def test_a_preallocated_file_is_not_damage(writer: LogWriter) -> None:
    store = writer.write()
    end = max(int(path.name) for path in (store / "commitlog").iterdir()) + FILE_SIZE
    for ahead in (end, end + FILE_SIZE):
        (store / "commitlog" / f"{ahead:020d}").write_bytes(bytes(FILE_SIZE))
    assert offsets(store, onDamage="fail") == writer.offsets


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


def test_a_file_that_is_deleted_while_files_are_listed_is_not_missed(
    writer: LogWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = writer.write()
    all_files = log_files(store)

    def deleting(name: str) -> int | None:
        if int(name) == 0:
            (store / "commitlog" / name).unlink()
        return file_offset(name)

    monkeypatch.setattr(ranges, "file_offset", deleting)
    assert log_files(store) == all_files[1:]


def test_a_file_that_cannot_be_read_is_named_with_the_reason(writer: LogWriter) -> None:
    store = writer.write()
    ranges = log_ranges(log_files(store), 1 << 30)
    path = store / "commitlog" / f"{0:020d}"
    path.unlink()
    path.mkdir()
    with pytest.raises(LogFileError, match=f"{path} cannot be read: Is a directory"):
        list(read_range(ranges[0]))


def test_a_directory_that_is_not_a_store_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        LogFileError, match="is not a store: there is neither a directory commitlog"
    ):
        log_files(tmp_path)
    with pytest.raises(LogFileError, match="cannot be read: No such file"):
        log_files(tmp_path / "gone")
