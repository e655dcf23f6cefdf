"""A store with a hole in the middle, repaired by `sparrowmq store repair`, opened by Apache."""

import shutil
import subprocess
import sys
from pathlib import Path

from tests.interop import apache, sparrow
from tests.interop.cluster import Settings
from tests.interop.registry import Outcome, check, scenario
from tests.interop.scene import Scene

COUNT = 500
FILE = 64 * 1024
"""Bytes of a log file. Apache takes whole pages only."""
HOLE_AT, HOLE = 8_192, 4_096
"""A page of the second file that a bad disk returned as zeros: more than one record, not the last.

In the first file of a log that begins at 0 Apache skips what is left of a pull after a lost
message: no unit of a queue can name a file before it.
"""
SMALL = Settings(properties=(("mappedFileSizeCommitLog", str(FILE)), ("maxMessageSize", "32768")))


@scenario(clients=("java5",), needs="exchange", lane="apart", compared=False)
def apache_serves_what_lies_past_a_repaired_hole_in_our_store(scene: Scene) -> Outcome:
    return _repaired(scene, sparrow)


@scenario(clients=("java5",), needs="exchange", lane="apart", compared=False)
def apache_serves_what_lies_past_a_repaired_hole_in_its_own_store(scene: Scene) -> Outcome:
    return _repaired(scene, apache)


def _repaired(scene: Scene, writer: object) -> Outcome:
    first = scene.on(writer.start(scene.folder / "written", SMALL))  # type: ignore[attr-defined]
    topic = first.topic(queues=4)
    bodies = [f"message-{number}" for number in range(COUNT)]
    first.producer().send(topic, [{"body": body, "keys": body[:20]} for body in bodies])
    first.cluster.stop_broker()
    folder = scene.folder / "repaired"
    folder.mkdir(parents=True)
    shutil.move(first.cluster.store, folder / "store")
    lost = _damage_and_repair(folder / "store")
    second = scene.on(apache.start(folder, SMALL))
    kept = COUNT - lost
    got = second.push_consumer(topic, "after").bodies(kept)
    check(len(got) == kept, f"{len(got)} messages, {kept} were kept")
    strange = sorted(set(got) - set(bodies))
    check(not strange, f"messages that were never sent: {strange[:3]}")
    check(bodies[-1] in got, "what lies past the hole is not served")
    more = [f"more-{number}" for number in range(20)]
    second.producer().send(topic, [{"body": body} for body in more])
    everything = second.push_consumer(topic, "everything").bodies(kept + len(more))
    check(set(everything) == {*got, *more}, "a new group gets something else")
    second.cluster.stop_broker()
    return {"lost": lost > 0, "kept": kept == len(got)}


def _damage_and_repair(store: Path) -> int:
    """Make a hole, and fill it; how many messages were in it."""
    log = store / "commitlog" / f"{FILE:020d}"
    before = _messages(store)
    with log.open("r+b") as file:
        file.seek(HOLE_AT)
        file.write(bytes(HOLE))
    repaired = _sparrowmq("store", "repair", str(store), "--yes")
    check(repaired.returncode == 0, f"the repair failed: {repaired.stdout}{repaired.stderr}")
    verified = _sparrowmq("store", "verify", str(store))
    check(verified.returncode == 0, f"damage is left: {verified.stdout}{verified.stderr}")
    return before - _messages(store)


def _messages(store: Path) -> int:
    dumped = _sparrowmq("store", "dump", str(store)).stdout
    return sum('"body":"message-' in line for line in dumped.splitlines())


def _sparrowmq(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "sparrowmq", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
