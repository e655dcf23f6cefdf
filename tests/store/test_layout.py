"""Where the store's files lie, by RocketMQ's rules."""

import pytest

from sparrowmq.store.layout import file_name, file_offset, log_path


@pytest.mark.parametrize(
    ("start", "name"), [(0, "00000000000000000000"), (1 << 30, "00000000001073741824")]
)
def test_a_file_is_named_by_its_start_in_20_digits(start: int, name: str) -> None:
    assert file_name(start) == name
    assert log_path(start) == f"commitlog/{name}"
    assert file_offset(name) == start


@pytest.mark.parametrize("name", ["", "1073741824", "0000000000107374182x", "checkpoint"])
def test_other_names_are_not_files_of_the_log(name: str) -> None:
    assert file_offset(name) is None
