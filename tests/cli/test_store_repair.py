"""`sparrowmq store repair`: what it prints, when it asks, and the files it leaves."""

import json
import signal
from pathlib import Path
from random import Random

import pytest

from sparrowmq.disk.real_disk import RealDisk
from tests.cli.in_process import Ran, run
from tests.faults.store_run import LAYOUT, StoreRun, open_store, read_all
from tests.store.stores import in_use

SIZES = ("--index-slots", str(LAYOUT.slots), "--index-entries", str(LAYOUT.entries))
LOG = "commitlog/00000000000000000000"


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    store = StoreRun(RealDisk(tmp_path), Random(5), sync_flush=False)
    for _ in range(30):
        store.step()
    store.store.close()
    config = tmp_path / "config"
    config.mkdir(exist_ok=True)
    (config / "topics.json").write_text('{"topicConfigTable":{}}')
    return tmp_path


def repair(directory: Path, *more: str) -> Ran:
    return run("store", "repair", str(directory), *SIZES, *more)


def verify(directory: Path) -> Ran:
    return run("store", "verify", str(directory), *SIZES)


def damage(directory: Path, at: int = 150, size: int = 40) -> None:
    path = directory / LOG
    data = path.read_bytes()
    path.write_bytes(data[:at] + b"\xee" * size + data[at + size :])


def content(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }


def test_a_repair_lists_what_it_did_with_bytes_and_leaves_a_whole_store(directory: Path) -> None:
    before = open_store(RealDisk(directory), 1)
    messages = sum(1 for _ in read_all(before))
    before.close()
    damage(directory)
    assert verify(directory).returncode == 1
    done = repair(directory, "--yes")
    assert done.returncode == 0, done.stderr
    header, hole, derived = done.stdout.splitlines()
    assert header == "PLACE\tBYTE\tBYTES\tWRONG\tDONE\tKEPT IN"
    path, start, size, reason, action, kept = hole.split("\t")
    assert (path, action) == (LOG, "filled; all after it stays")
    assert kept == f"sparrowmq/quarantine/{int(start):020d}-{size}"
    assert (directory / kept).stat().st_size == int(size)
    assert reason
    assert derived.split("\t")[4] == "queues and index are built from the log again"
    assert done.stderr.splitlines() == [
        f"messages kept: {messages - 1}",
        f"bytes quarantined: {size}",
        f"{directory} is repaired; nothing was deleted",
    ]
    assert verify(directory).returncode == 0
    after = open_store(RealDisk(directory), 1)
    assert sum(1 for _ in read_all(after)) == messages - 1
    after.close()


@pytest.mark.parametrize("verb", [("repair", "--yes"), ("rebuild",)], ids=["repair", "rebuild"])
def test_one_that_a_signal_ends_is_finished_by_running_it_again(
    directory: Path, verb: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    if verb[0] == "repair":
        damage(directory)
    command = ("store", verb[0], str(directory), *SIZES, *verb[1:])

    def stop(*_: object, **__: object) -> None:
        signal.raise_signal(signal.SIGTERM)

    with monkeypatch.context() as patch:  # the log is filled by then
        patch.setattr("sparrowmq.store.recovery.repair.rebuild_locked", stop)
        patch.setattr("sparrowmq.store.recovery.rebuild.rebuild_locked", stop)
        ended = run(*command)
    assert (ended.returncode, ended.stdout) == (143, "")
    assert ended.stderr.splitlines() == [
        "sparrowmq: stopped before it ended: what was changed stays changed; run it again, which"
        " finishes it"
    ]
    assert run(*command).returncode == 0
    assert verify(directory).returncode == 0


def test_a_dry_run_shows_the_same_and_changes_nothing(directory: Path) -> None:
    damage(directory)
    before = content(directory)
    shown = repair(directory, "--dry-run", "--json")
    assert shown.returncode == 1
    found = json.loads(shown.stdout)
    assert [each["path"] for each in found["items"]] == [LOG, "consumequeue, index"]
    assert found["items"][0]["bytes"] > 90
    assert found["items"][0]["kept"] == []
    assert (found["bytesQuarantined"], found["truncated"]) == (0, False)
    assert content(directory) == before


def test_without_a_terminal_it_needs_yes(directory: Path) -> None:
    damage(directory)
    before = content(directory)
    asked = repair(directory)
    assert asked.returncode == 1
    assert "nothing was changed; --yes does it without asking" in asked.stderr
    assert content(directory) == before


def test_a_whole_store_needs_no_repair(directory: Path) -> None:
    whole = repair(directory, "--yes")
    assert whole.returncode == 0
    assert whole.stderr.endswith(f"quarantined: 0\n{directory} needs no repair\n")


def test_a_directory_that_a_broker_has_open_is_refused(directory: Path) -> None:
    damage(directory)
    with in_use(directory):
        before = content(directory)
        for more in ("--yes", "--dry-run"):
            refused = repair(directory, more)
            assert refused.returncode == 2
            assert "stop it first" in refused.stderr
        assert content(directory) == before


def test_a_directory_that_is_not_a_store_is_refused(tmp_path: Path) -> None:
    refused = repair(tmp_path, "--yes")
    assert refused.returncode == 2
    assert "holds no store: there is no commitlog in it" in refused.stderr


BROKEN = "{broken"
TABLES = [
    pytest.param(
        {"topics.json": BROKEN, "topics.json.bak": '{"a":1}'},
        {"topics.json": '{"a":1}', "topics.json.bak": '{"a":1}'},
        id="a table comes from its backup",
    ),
    pytest.param(
        {"topics.json": '{"b":2}', "topics.json.bak": BROKEN},
        {"topics.json": '{"b":2}', "topics.json.bak": '{"b":2}'},
        id="a backup comes from its table",
    ),
    pytest.param(
        {"subscriptionGroup.json": BROKEN, "subscriptionGroup.json.bak": BROKEN},
        {"subscriptionGroup.json": "{}", "subscriptionGroup.json.bak": None},
        id="groups that nothing else knows are empty",
    ),
    pytest.param({"mine.json": BROKEN}, {"mine.json": None}, id="a foreign file is moved away"),
]


@pytest.mark.parametrize(("before", "after"), TABLES)
def test_unreadable_tables_are_replaced_and_kept_aside(
    directory: Path, before: dict[str, str], after: dict[str, str | None]
) -> None:
    for name, text in before.items():
        (directory / "config" / name).write_text(text)
    done = repair(directory, "--yes", "--json")
    assert done.returncode == 0, done.stderr
    for name, expected in after.items():
        path = directory / "config" / name
        assert (path.read_text() if path.exists() else None) == expected
    kept = [path for each in json.loads(done.stdout)["items"] for path in each["kept"]]
    assert [(directory / path).read_text() for path in kept] == [
        text for text in before.values() if text == BROKEN
    ]
    assert verify(directory).returncode == 0


def test_topics_come_from_the_queues_when_both_copies_are_broken(directory: Path) -> None:
    for name in ("topics.json", "topics.json.bak"):
        (directory / "config" / name).write_text(BROKEN)
    assert repair(directory, "--yes").returncode == 0
    topics = json.loads((directory / "config" / "topics.json").read_text())
    assert "orders" in topics["topicConfigTable"]
