"""Index files whose header disagrees with their entries are not trusted."""

import pytest

from sparrowmq.store.index.entries import HEADER
from sparrowmq.store.index.index_recovery import IndexDamaged, open_index_file
from sparrowmq.testing.recording_disk import RecordingDisk
from tests.store.test_index import LAYOUT, files_of, requests

_, _, BEGIN_LOG_OFFSET, END_LOG_OFFSET, USED_SLOTS, COUNT = range(6)


def disk_with_a_file() -> tuple[RecordingDisk, str]:
    path, data = next(iter(files_of(requests(10)).items()))
    disk = RecordingDisk()
    disk.poke(path, data)
    return disk, path


def test_a_whole_file_is_opened() -> None:
    disk, path = disk_with_a_file()
    index = open_index_file(disk, path, LAYOUT)
    assert index.header.count > 10
    index.file.close()


@pytest.mark.parametrize(
    ("field", "wrong", "says"),
    [
        (COUNT, LAYOUT.entries + 1, "counts 41 entries, 40 fit"),
        (COUNT, 5, "used slots, 4 entries"),
        (USED_SLOTS, 0, "0 used slots"),
        (USED_SLOTS, LAYOUT.slots + 1, "17 used slots"),
        (BEGIN_LOG_OFFSET, 1, "the header says 1 to"),
        (END_LOG_OFFSET, 1, "the header says 0 to 1"),
    ],
)
def test_a_header_that_does_not_fit_is_refused(field: int, wrong: int, says: str) -> None:
    disk, path = disk_with_a_file()
    data = disk.files()[path]
    header = list(HEADER.unpack(data[: HEADER.size]))
    header[field] = wrong
    disk.poke(path, HEADER.pack(*header) + data[HEADER.size :])
    with pytest.raises(IndexDamaged, match=says):
        open_index_file(disk, path, LAYOUT)


def test_a_file_of_another_size_is_refused() -> None:
    disk, path = disk_with_a_file()
    disk.poke(path, disk.files()[path][:-1])
    with pytest.raises(IndexDamaged, match=f"must be {LAYOUT.file_size}"):
        open_index_file(disk, path, LAYOUT)
