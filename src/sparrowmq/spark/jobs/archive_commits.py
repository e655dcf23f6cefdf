"""What the commits of an archive say, and how they are written down.

    {"format":2,"version":7,"atMs":…,"rows":…,"add":{…},"remove":[…],"drop":[…],"offsets":{…},
     "check":"a1b2c3d4"}

One line of JSON that ends with a check sum (CRC-32) of all that is before it. Keys that a reader
does not know are left alone, as releases without epochs leave them in `offsets`; `format` grows
when an old reader would understand something wrong.
Commits without `format` are of the first one, which had no check sum.
"""

import json
import zlib
from dataclasses import dataclass, field
from datetime import date
from typing import Any
from urllib.parse import unquote

from sparrowmq.spark.positions import Positions, from_json, to_json

FORMAT = 2


@dataclass(frozen=True, slots=True)
class Archive:
    """What an archive holds after some commit."""

    version: int = 0
    files: dict[str, int] = field(default_factory=dict)
    """Sizes by name."""
    positions: Positions = field(default_factory=dict)
    """Up to where topics are archived."""
    rows: int = 0
    removed: dict[str, int] = field(default_factory=dict)
    """Files that no reader takes any more, and when (ms) that began."""

    def after(self, commit: dict[str, Any]) -> "Archive":
        """The same with one more commit."""
        gone = dict.fromkeys(commit["remove"], commit["atMs"])
        dropped = set(commit["drop"])
        files = {name: size for name, size in self.files.items() if name not in gone}
        removed = {name: at for name, at in self.removed.items() if name not in dropped}
        return Archive(
            commit["version"],
            files | commit["add"],
            self.positions | from_json(commit["offsets"]),
            self.rows + commit["rows"],
            removed | gone,
        )


def commit_of(
    archive: Archive,
    at_ms: int,
    *,
    add: dict[str, int] | None = None,
    remove: list[str] | None = None,
    drop: list[str] | None = None,
    positions: Positions | None = None,
    rows: int = 0,
) -> dict[str, Any]:
    """The next commit."""
    return {
        "version": archive.version + 1,
        "atMs": at_ms,
        "rows": rows,
        "add": add or {},
        "remove": remove or [],
        "drop": drop or [],
        "offsets": to_json(positions or {}),
    }


def snapshot_of(archive: Archive) -> dict[str, Any]:
    """All that holds after a commit."""
    return {
        "version": archive.version,
        "files": archive.files,
        "offsets": to_json(archive.positions),
        "rows": archive.rows,
        "removed": archive.removed,
    }


def archive_from(snapshot: dict[str, Any]) -> Archive:
    """What `snapshot_of` made. Raises KeyError for what it did not make."""
    return Archive(
        snapshot["version"],
        snapshot["files"],
        from_json(snapshot["offsets"]),
        snapshot["rows"],
        snapshot["removed"],
    )


def partition_of(name: str) -> tuple[str, date]:
    """Topic and day of a file, as its folders tell."""
    topic, day, _ = name.split("/")
    return unquote(topic.removeprefix("topic=")), date.fromisoformat(day.removeprefix("date="))


def encode_record(value: dict[str, Any]) -> bytes:
    """A commit, a snapshot or an identity as its file holds it."""
    text = _text({"format": FORMAT, **value})
    return f'{text[:-1]},"check":"{zlib.crc32(text.encode()):08x}"}}'.encode()


def decode_record(data: bytes) -> dict[str, Any]:
    """What `encode_record` made. Raises ValueError that tells a half-written file from another."""
    if not data.rstrip().endswith(b"}"):
        raise ValueError(f"was cut short: its {len(data)} bytes have no end")
    try:
        value: dict[str, Any] = json.loads(data)
    except ValueError as error:
        raise ValueError(f"is damaged: it is no JSON ({error})") from error
    found = value.pop("check", None)
    if found is not None and found != (wanted := f"{zlib.crc32(_text(value).encode()):08x}"):
        raise ValueError(f"is damaged: its check sum is {found} and should be {wanted}")
    number = value.setdefault("format", 1)
    if number > FORMAT:
        raise ValueError(
            f"is of format {number}, and this version reads formats up to {FORMAT}: use the version"
            " of SparrowMQ that wrote it, or a newer one"
        )
    return value


def _text(value: dict[str, Any]) -> str:
    return json.dumps(value, separators=(",", ":"))
