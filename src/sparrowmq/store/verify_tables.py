"""Checking the small files: RocketMQ's checkpoint and the tables in config/."""

from typing import Any

from sparrowmq.protocol.errors import BodyError
from sparrowmq.protocol.json_reader import parse_json
from sparrowmq.store.disk import Disk
from sparrowmq.store.layout import CHECKPOINT, CONFIG_DIR
from sparrowmq.store.marks import load_checkpoint
from sparrowmq.store.verify_queues import FoundDamage

_CHECKPOINT_SIZE = 4096


def check_checkpoint(disk: Disk, found: FoundDamage, last_timestamp: int) -> None:
    """No time in the checkpoint may be ahead of the log: Apache trusts them."""
    if not disk.exists(CHECKPOINT):
        return
    size = disk.size(CHECKPOINT)
    if size != _CHECKPOINT_SIZE:
        found(CHECKPOINT, 0, f"{size} bytes long, must be {_CHECKPOINT_SIZE}", True)
    names = ("last message", "last queue unit", "last index entry")
    for number, (name, time) in enumerate(zip(names, load_checkpoint(disk), strict=True)):
        if time > last_timestamp:
            reason = f"time of the {name} is {time}, the youngest message is of {last_timestamp}"
            found(CHECKPOINT, 8 * number, reason, True)


def check_tables(disk: Disk, found: FoundDamage) -> int:
    """Every table and backup must be JSON, as Java writes it; returns how many there are."""
    names = [name for name in disk.listdir(CONFIG_DIR) if name.endswith((".json", ".json.bak"))]
    for name in names:
        path = f"{CONFIG_DIR}/{name}"
        try:
            _decode(disk, path)
        except BodyError as error:
            found(path, 0, f"is no JSON: {error}", True)
    return len(names)


def _decode(disk: Disk, path: str) -> Any:
    file = disk.open(path, write=False)
    try:
        return parse_json(file.read(0, file.size()))
    finally:
        file.close()
