"""`sparrowmq store`: exit codes for scripts, and the files the commands leave."""

import json
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest
from click.testing import CliRunner, Result

from sparrowmq.cli.commands.store import app
from sparrowmq.disk.real_disk import RealDisk
from tests.faults.store_run import CONFIG, LAYOUT, StoreRun, open_store, read_all
from tests.store.stores import in_use

SIZES = ["--index-slots", str(LAYOUT.slots), "--index-entries", str(LAYOUT.entries)]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    run = StoreRun(RealDisk(tmp_path), Random(5), sync_flush=False)
    for _ in range(30):
        run.step()
    run.store.close()
    return tmp_path


def store(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def derived(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for folder in ("consumequeue", "index")
        for path in sorted((directory / folder).rglob("*"))
        if path.is_file()
    }


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 0x10
    path.write_bytes(data)


def test_a_whole_store_exits_with_0(directory: Path) -> None:
    result = store("verify", directory, *SIZES)
    assert result.exit_code == 0, result.output
    assert "no damage" in result.output


def test_damage_exits_with_1_and_names_file_and_offset(directory: Path) -> None:
    flip(directory / "commitlog" / "00000000000000000000", 100)
    result = store("verify", directory, *SIZES)
    assert result.exit_code == 1
    assert "commitlog/00000000000000000000 at byte 0: " in result.output


def test_findings_over_the_limit_are_counted_not_printed(directory: Path) -> None:
    for path in (directory / "consumequeue").rglob("0" * 12 + "*"):
        path.unlink()
    result = store("verify", directory, *SIZES, "--show", 3)
    assert result.exit_code == 1
    assert result.output.count("no unit for") == 3
    assert "more\n" in result.output


def test_what_cannot_be_read_exits_with_2(directory: Path) -> None:
    assert store("verify", directory / "missing").exit_code == 2
    (directory / "commitlog" / "00000000000000016384").write_bytes(b"")
    (directory / "commitlog" / "00000000000000032768").write_bytes(b"")
    result = store("verify", directory, *SIZES)
    assert result.exit_code == 2
    assert "00000000000000016384" in result.output


def test_a_rebuild_brings_deleted_files_back_identical(directory: Path) -> None:
    before = derived(directory)
    for path in before:
        (directory / path).unlink()
    result = store("rebuild", directory, *SIZES)
    assert result.exit_code == 0, result.output
    assert derived(directory) == before
    assert store("verify", directory, *SIZES).exit_code == 0
    assert not (directory / "sparrowmq" / "rebuild").exists()


def test_a_rebuild_of_an_intact_store_changes_nothing(directory: Path) -> None:
    before = derived(directory)
    assert store("rebuild", directory, *SIZES).exit_code == 0
    assert derived(directory) == before
    again = open_store(RealDisk(directory), 1)
    assert sum(1 for _ in read_all(again)) > 60
    again.close()


def test_a_rebuild_is_refused_while_the_store_is_in_use(directory: Path) -> None:
    with in_use(directory):
        before = derived(directory)
        result = store("rebuild", directory, *SIZES)
        assert result.exit_code == 2
        assert "stop it first" in result.output
        assert derived(directory) == before


def test_messages_are_dumped_as_json_lines(directory: Path) -> None:
    result = store("dump", directory, "--topic", "orders", "--queue", "1", "--limit", "3")
    lines = [json.loads(line) for line in result.output.splitlines()]
    assert result.exit_code == 0
    assert [line["queueOffset"] for line in lines] == [0, 1, 2]
    assert {(line["topic"], line["queueId"]) for line in lines} == {("orders", 1)}
    assert lines[0]["msgId"].startswith("p-")
    assert lines[0]["bornHost"] == "127.0.0.1:50000"


def test_a_dump_chooses_by_key_file_and_offset(directory: Path) -> None:
    (line,) = store("dump", directory, "--key", "p-7").output.splitlines()
    found = json.loads(line)
    assert found["msgId"] == "p-7"
    at = found["logOffset"]
    assert json.loads(store("dump", directory, "--from", at, "--limit", 1).output) == found
    second = store("dump", directory, "--file", "00000000000000016384").output.splitlines()
    assert all(json.loads(each)["logOffset"] >= CONFIG.log_file_size for each in second)
    assert second


def test_a_dump_shows_damage_and_continues(directory: Path) -> None:
    flip(directory / "commitlog" / "00000000000000000000", 100)
    result = store("dump", directory)
    lines = [json.loads(line) for line in result.output.splitlines()]
    assert result.exit_code == 1
    assert lines[0]["damaged"]["path"] == "commitlog/00000000000000000000"
    assert len(lines) > 50
    assert "message id" in store("dump", directory, "--table").output


def test_a_lost_table_is_recreated_only_on_request(directory: Path) -> None:
    config = directory / "config"
    for path in config.iterdir():
        path.unlink()
    result = store("rebuild", directory, "--table", "topics.json")
    assert result.exit_code == 0, result.output
    table = json.loads((config / "topics.json").read_bytes())
    assert table["topicConfigTable"]["orders"]["readQueueNums"] == 2
    assert store("rebuild", directory, "--table", "consumerOffset.json").exit_code == 0
    again = store("rebuild", directory, "--table", "topics.json")
    assert again.exit_code == 2
    assert "still there" in again.output


@pytest.mark.parametrize("command", ["verify", "rebuild", "dump"])
def test_a_directory_without_a_store_is_not_reported_as_intact_and_stays_unchanged(
    command: str, tmp_path: Path
) -> None:
    result = store(command, tmp_path)
    assert result.exit_code == 2
    assert f"{tmp_path} holds no store: there is no commitlog in it" in result.output
    assert list(tmp_path.iterdir()) == []


def test_a_directory_of_several_brokers_names_their_stores(tmp_path: Path) -> None:
    for name in ("broker-a", "broker-b"):
        (tmp_path / name / "commitlog").mkdir(parents=True)
    result = store("verify", tmp_path)
    assert result.exit_code == 2
    assert f"; did you mean {tmp_path}/broker-a or {tmp_path}/broker-b?" in result.output


@pytest.mark.parametrize("file", ["orders", "00000000000000000007"])
def test_a_log_file_that_is_not_there_is_named_with_those_that_are(
    file: str, directory: Path
) -> None:
    result = store("dump", directory, "--file", file)
    assert result.exit_code == 2
    assert f"there is no log file {file}; there are: 00000000000000000000" in result.output


def test_a_closed_pipe_ends_a_dump_silently(directory: Path) -> None:
    command = [sys.executable, "-m", "sparrowmq", "store", "dump", str(directory)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.wait(120) == 1
        assert process.stderr.read() == b""
