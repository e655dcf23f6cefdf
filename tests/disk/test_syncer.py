"""The helper process: it syncs, reports errors unchanged, and never outlives its parent."""

import asyncio
import contextlib
import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from sparrowmq.disk.real_disk import RealDisk
from sparrowmq.disk.syncer import MANY_FILES, InlineSyncer, ProcessSyncer, syncer_for
from sparrowmq.store.flushing import FlushPlan
from sparrowmq.testing.recording_disk import RecordingDisk
from tests.patience import PATIENCE_S
from tests.store.stores import message, open_store

PATIENCE_MS = PATIENCE_S * 1000


def plan(files: list[str], derived: list[str] | None = None) -> FlushPlan:
    return FlushPlan(files, derived or [], ["."], 0, 0, 0)


def wait_for_end(pid: int) -> None:
    """Return when the process is gone; pidfds become readable then."""
    descriptor = os.pidfd_open(pid)
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    assert poll.poll(PATIENCE_MS), f"process {pid} still runs"
    os.close(descriptor)


def test_a_stores_flushes_go_through_the_helper(tmp_path: Path) -> None:
    disk = RealDisk(tmp_path)
    store = open_store(disk)
    syncer = syncer_for(disk)
    assert isinstance(syncer, ProcessSyncer)

    async def work() -> None:
        for number in range(20):
            store.append(message(number), number * 50)
            store.tick(number * 50)
            flushing = store.begin_flush()
            assert flushing is not None
            await syncer.sync(flushing)
            store.finish_flush(flushing)
            assert store.durable_log_offset == store.max_log_offset

    asyncio.run(work())
    syncer.close()
    store.close()


def test_a_missing_log_file_is_an_error_a_missing_queue_is_not(tmp_path: Path) -> None:
    (tmp_path / "there").write_bytes(b"x")
    syncer = ProcessSyncer(RealDisk(tmp_path))

    async def work() -> None:
        await syncer.sync(plan(["there"], ["gone"]))
        await syncer.sync(plan(["there"], ["gone"] * (MANY_FILES + 1)))
        with pytest.raises(FileNotFoundError, match="gone"):
            await syncer.sync(plan(["there", "gone"]))
        await syncer.sync(plan(["there"]))

    asyncio.run(work())
    syncer.close()


def test_a_file_that_cannot_be_synced_raises_an_error_that_names_it(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    writer = os.open(tmp_path / "pipe", os.O_RDWR)
    syncer = ProcessSyncer(RealDisk(tmp_path))
    with pytest.raises(OSError, match="pipe") as failed:
        asyncio.run(syncer.sync(plan(["pipe"])))
    assert failed.value.errno
    syncer.close()
    os.close(writer)


def test_a_cancelled_wait_does_not_answer_the_next_plan(tmp_path: Path) -> None:
    (tmp_path / "there").write_bytes(b"x")
    syncer = ProcessSyncer(RealDisk(tmp_path))

    async def work() -> None:
        waiting = asyncio.ensure_future(syncer.sync(plan(["there"])))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        with pytest.raises(FileNotFoundError):
            await syncer.sync(plan(["gone"]))

    asyncio.run(work())
    syncer.close()


def test_a_failure_after_a_cancelled_wait_is_raised_for_the_next_plan(tmp_path: Path) -> None:
    (tmp_path / "there").write_bytes(b"x")
    syncer = ProcessSyncer(RealDisk(tmp_path))

    async def work() -> None:
        waiting = asyncio.ensure_future(syncer.sync(plan(["gone"])))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        # The answer is there and is read before the next plan begins.
        poll = select.poll()
        poll.register(syncer.fileno(), select.POLLIN)
        assert poll.poll(PATIENCE_MS)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        with pytest.raises(FileNotFoundError, match="gone"):
            await syncer.sync(plan(["there"]))

    asyncio.run(work())
    syncer.close()


def test_a_syncer_serves_one_loop_after_another(tmp_path: Path) -> None:
    (tmp_path / "there").write_bytes(b"x")
    syncer = ProcessSyncer(RealDisk(tmp_path))
    for _ in range(3):
        asyncio.run(syncer.sync(plan(["there"])))
    syncer.close()


def test_the_end_of_the_helper_counts_as_a_failed_sync(tmp_path: Path) -> None:
    (tmp_path / "there").write_bytes(b"x")
    syncer = ProcessSyncer(RealDisk(tmp_path))
    syncer.start()
    assert syncer.process_id is not None
    os.kill(syncer.process_id, signal.SIGKILL)
    with pytest.raises(OSError):  # broken pipe or connection reset
        asyncio.run(syncer.sync(plan(["there"])))
    syncer.close()


def test_close_ends_the_helper_process_and_signals_for_the_parent_do_not(tmp_path: Path) -> None:
    (tmp_path / "there").write_bytes(b"x")
    syncer = ProcessSyncer(RealDisk(tmp_path))
    asyncio.run(syncer.sync(plan(["there"])))
    pid = syncer.process_id
    assert pid is not None
    os.kill(pid, signal.SIGINT)
    os.kill(pid, signal.SIGTERM)
    asyncio.run(syncer.sync(plan(["there"])))
    syncer.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_the_helper_dies_with_its_parent(tmp_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path\n"
        "from sparrowmq.disk.real_disk import RealDisk\n"
        "from sparrowmq.disk.syncer import ProcessSyncer\n"
        "syncer = ProcessSyncer(RealDisk(Path(sys.argv[1])))\n"
        "syncer.start()\n"
        "print(syncer.process_id, flush=True)\n"
        "sys.stdin.read()\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert parent.stdout is not None
    assert parent.stdin is not None
    helper = int(parent.stdout.readline())
    os.kill(helper, 0)
    parent.kill()
    parent.wait()
    parent.stdin.close()
    parent.stdout.close()
    with contextlib.suppress(ProcessLookupError):  # gone already
        wait_for_end(helper)


def test_simulated_disks_are_synced_inline() -> None:
    disk = RecordingDisk()
    store = open_store(disk)
    store.append(message(1), 1)
    syncer = syncer_for(disk)
    assert isinstance(syncer, InlineSyncer)
    flushing = store.begin_flush()
    assert flushing is not None
    asyncio.run(syncer.sync(flushing))
    store.finish_flush(flushing)
    assert store.durable_log_offset == store.max_log_offset
