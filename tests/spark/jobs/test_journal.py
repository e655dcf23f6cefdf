"""The journal of a job."""

import fcntl
from pathlib import Path
from typing import Any

import pytest

from sparrowmq.spark.jobs.job import JobError
from sparrowmq.spark.jobs.journal import JobJournal


def test_a_journal_returns_the_last_state_written(tmp_path: Path) -> None:
    with JobJournal(tmp_path / "job") as journal:
        assert journal.read() is None
        journal.write({"step": 1})
        journal.write({"step": 2})
    with JobJournal(tmp_path / "job") as journal:
        assert journal.read() == {"step": 2}


def test_a_second_run_of_the_same_job_is_refused_while_the_first_runs(tmp_path: Path) -> None:
    with (
        JobJournal(tmp_path / "job"),
        pytest.raises(JobError, match="another run works on this job"),
        JobJournal(tmp_path / "job"),
    ):
        pass
    with JobJournal(tmp_path / "job"):
        pass


def test_a_run_that_ends_before_its_first_entry_leaves_no_files(
    tmp_path: Path,
) -> None:
    with JobJournal(tmp_path / "state" / "job"):
        assert (tmp_path / "state" / "job").is_dir()
    assert list(tmp_path.iterdir()) == []


def test_existing_folders_and_files_of_others_stay(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    with JobJournal(tmp_path / "state" / "job"):
        pass
    assert list((tmp_path / "state").iterdir()) == []
    with JobJournal(tmp_path / "new" / "job"):
        (tmp_path / "new" / "mine").touch()
    assert list((tmp_path / "new").iterdir()) == [tmp_path / "new" / "mine"]


def test_of_two_runs_one_is_refused_though_an_earlier_one_takes_its_lock_away_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = JobJournal(tmp_path / "job"), JobJournal(tmp_path / "job")
    lock = fcntl.flock

    def ends_in_between(*arguments: Any) -> None:
        # The file is open, and before it is locked the first run ends and removes it.
        monkeypatch.setattr(fcntl, "flock", lock)
        first.__exit__(None, None, None)
        lock(*arguments)

    with first:
        monkeypatch.setattr(fcntl, "flock", ends_in_between)
        with (
            second,
            pytest.raises(JobError, match="another run works on this job"),
            JobJournal(tmp_path / "job"),
        ):
            pass


def test_a_write_that_was_cut_short_leaves_the_journal_as_it_was(tmp_path: Path) -> None:
    with JobJournal(tmp_path / "job") as journal:
        journal.write({"step": 1})
        (tmp_path / "job" / "journal.new").write_text('{"st')
        assert journal.read() == {"step": 1}


def test_a_journal_that_was_moved_aside_is_kept_and_the_next_run_starts_over(
    tmp_path: Path,
) -> None:
    with JobJournal(tmp_path / "job") as journal:
        for step in (1, 2):
            journal.write({"step": step})
            kept = journal.put_aside()
            assert kept is not None
            assert journal.read() is None
    assert len(list((tmp_path / "job").glob("journal-*.json"))) == 2


def test_a_damaged_journal_is_named_and_not_overwritten(tmp_path: Path) -> None:
    with JobJournal(tmp_path / "job") as journal:
        journal.path.write_text("not JSON")
        with pytest.raises(JobError, match="is not a journal"):
            journal.read()
