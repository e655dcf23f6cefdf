"""The journal of resets: a group's progress before each reset, so that it can be undone.

    folder/20261118-133506-3f9a.json     one file per reset, written before the first offset moves

    {"id": …, "kind": "reset", "state": "done", "cluster": …, "nameServers": […], "addresses": […],
     "who": …, "whenMs": …, "group": …, "topic": …, "undoneBy": "",
     "queues": [{"broker": …, "queue": 0, "before": 17, "after": 0}, …]}

`before` is null if the group had no progress. A record that was written and never became `done`
belongs to a reset that was interrupted: some of its queues may have moved.

One journal holds the resets of all clusters that its owner works with, and most of them have the
same name: a reset belongs to a cluster that still has one of the broker addresses it had then.
"""

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from hashlib import blake2b
from pathlib import Path
from typing import Any

from sparrowmq.admin.errors import AdminError, NotFound, shown
from sparrowmq.admin.offsets import OffsetMove
from sparrowmq.disk.atomic_file import replace_path
from sparrowmq.protocol.message import MessageQueue

RESET = "reset"
UNDO = "undo"
STARTED = "started"
DONE = "done"
PARTLY = "partly"


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetCluster:
    """Where a reset was made."""

    names: str
    """Names of the clusters that the name servers knew, separated by commas."""
    name_servers: tuple[str, ...] = ()
    addresses: frozenset[str] = frozenset()
    """Addresses of all brokers. Records of earlier releases have none."""

    def may_be(self, other: "ResetCluster") -> bool:
        """Whether both may be the same cluster: brokers may have come and gone since."""
        if not self.addresses or not other.addresses:
            return self.names == other.names
        return self.names == other.names and not self.addresses.isdisjoint(other.addresses)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetRecord:
    """One reset, as the journal keeps it."""

    id: str
    kind: str
    """`reset` or `undo`."""
    state: str
    """`started`, `done`, or `partly` where a broker failed meanwhile."""
    cluster: ResetCluster
    who: str
    when: datetime
    group: str
    topic: str
    moves: tuple[OffsetMove, ...]
    undone_by: str = ""
    """Id of the undo."""


class ResetJournal:
    """Records of resets in a folder, which is created when the first one is written."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, record: ResetRecord) -> None:
        """Write a record, or replace it. Raises AdminError if that is not possible."""
        text = json.dumps(_plain(record), indent=2, ensure_ascii=False)
        try:
            replace_path(self._path(record.id), f"{text}\n".encode())
        except OSError as error:
            raise AdminError(
                f"the reset cannot be written down in {self.folder}: {error}; free space there, or"
                " name another folder with XDG_STATE_HOME"
            ) from error

    def forget(self, record: ResetRecord) -> None:
        """Remove a record of a reset that moved nothing, if the folder can still be written: the
        reason why it moved nothing matters more."""
        with suppress(OSError):
            self._path(record.id).unlink(missing_ok=True)

    def records(self, group: str | None = None) -> list[ResetRecord]:
        """The records of a group, or all, newest first. Files that are not records are skipped."""
        if not self.folder.is_dir():
            return []
        found = [_read(path) for path in self.folder.glob("*.json")]
        kept = [each for each in found if each is not None and group in (None, each.group)]
        return sorted(kept, key=lambda each: (each.when, each.id), reverse=True)

    def last(self, group: str, cluster: ResetCluster) -> ResetRecord | None:
        """The last reset of a group in a cluster that has not been undone."""
        found = (each for each in self.records(group) if each.kind == RESET)
        left = (each for each in found if not each.undone_by)
        return next((each for each in left if each.cluster.may_be(cluster)), None)

    def has_cut_undo(self, record: ResetRecord) -> bool:
        """Whether an undo of this reset may have started without finishing."""
        return any(
            each.kind == UNDO
            and each.state != DONE
            and each.topic == record.topic
            and each.when >= record.when
            for each in self.records(record.group)
        )

    def find(self, group: str, reset_id: str | None, cluster: ResetCluster) -> ResetRecord:
        """The record with an id, from any cluster, or the last reset of a group in this cluster
        that has not been undone. Raises NotFound."""
        if reset_id is None:
            if (record := self.last(group, cluster)) is not None:
                return record
            hint = (
                f"{self.folder} has no reset of group {group} in this cluster that can still be"
                f" undone; look at: sparrowmq group undo {group} --list"
            )
            raise NotFound("reset to undo", f"of group {group}", hint)
        known = self.records(group)
        for record in known:
            if record.id == reset_id:
                return record
        hint = f"those of group {group} in {self.folder}: {shown(each.id for each in known)}"
        raise NotFound("reset", reset_id, hint)

    def _path(self, reset_id: str) -> Path:
        return self.folder / f"{reset_id}.json"


def new_record(
    *,
    kind: str,
    cluster: ResetCluster,
    who: str,
    when_ms: int,
    group: str,
    topic: str,
    moves: Sequence[OffsetMove],
) -> ResetRecord:
    """A record of a reset that is about to begin. Its id is the time plus a digest of the reset."""
    when = datetime.fromtimestamp(when_ms / 1000, UTC)
    content = f"{when_ms} {cluster} {who} {group} {topic} {moves}"
    digest = blake2b(content.encode(), digest_size=2).hexdigest()
    return ResetRecord(
        id=f"{when:%Y%m%d-%H%M%S}-{digest}",
        kind=kind,
        state=STARTED,
        cluster=cluster,
        who=who,
        when=when,
        group=group,
        topic=topic,
        moves=tuple(moves),
    )


def ended(record: ResetRecord, state: str) -> ResetRecord:
    """The record of a reset that has ended."""
    return replace(record, state=state)


def undone(record: ResetRecord, by: str) -> ResetRecord:
    """The record of a reset that was undone."""
    return replace(record, undone_by=by)


# ---- files


def _plain(record: ResetRecord) -> dict[str, Any]:
    return {
        "id": record.id,
        "kind": record.kind,
        "state": record.state,
        "cluster": record.cluster.names,
        "nameServers": list(record.cluster.name_servers),
        "addresses": sorted(record.cluster.addresses),
        "who": record.who,
        "when": record.when.isoformat(timespec="milliseconds"),
        "whenMs": round(record.when.timestamp() * 1000),
        "group": record.group,
        "topic": record.topic,
        "queues": [
            {
                "broker": move.queue.broker_name,
                "queue": move.queue.queue_id,
                "before": move.before,
                "after": move.after,
                "oldest": move.oldest,
            }
            for move in record.moves
        ],
        "undoneBy": record.undone_by,
    }


def _read(path: Path) -> ResetRecord | None:
    try:
        value = json.loads(path.read_bytes())
        topic = str(value["topic"])
        return ResetRecord(
            id=str(value["id"]),
            kind=str(value["kind"]),
            state=str(value["state"]),
            cluster=ResetCluster(
                names=str(value["cluster"]),
                name_servers=tuple(map(str, value.get("nameServers", ()))),
                addresses=frozenset(map(str, value.get("addresses", ()))),
            ),
            who=str(value["who"]),
            when=datetime.fromtimestamp(int(value["whenMs"]) / 1000, UTC),
            group=str(value["group"]),
            topic=topic,
            moves=tuple(
                OffsetMove(
                    MessageQueue(topic, str(each["broker"]), int(each["queue"])),
                    None if each["before"] is None else int(each["before"]),
                    int(each["after"]),
                    None if each.get("oldest") is None else int(each["oldest"]),
                )
                for each in value["queues"]
            ),
            undone_by=str(value["undoneBy"]),
        )
    except (OSError, ValueError, TypeError, KeyError):
        return None
