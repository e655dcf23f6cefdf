"""The journal of a job, which survives kill -9: one JSON file, replaced as a whole.

    with JobJournal(directory / "drain-orders-billing") as journal:
        plan = journal.read()              # None the first time
        journal.write({...})

One run at a time: the lock ends with the process that holds it, however the process ends.
"""

import fcntl
import json
import os
import uuid
from contextlib import suppress
from io import TextIOWrapper
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from sparrowmq.disk.atomic_file import replace_path, sync_path
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.spark.errors import ClusterUnreachable, ServerRefused
from sparrowmq.spark.jobs.job import JobError
from sparrowmq.spark.wire.cluster import RemoteCluster

LOCK = "_lock"


class FolderLock:
    """Keeps other runs on this machine out of a folder, which it creates.

    A run that ends before it has put anything there removes what it created.
    """

    def __init__(self, folder: Path, what: str) -> None:
        self._folder = folder
        self._what = what
        self._made: list[Path] = []
        self._file: TextIOWrapper | None = None

    def __enter__(self) -> Self:
        self._made = [path for path in (self._folder, *self._folder.parents) if not path.exists()]
        while self._file is None:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._file = self._locked()
        return self

    def _locked(self) -> TextIOWrapper | None:
        """The locked file; None if a run that was ending has removed the file meanwhile."""
        path = self._folder / LOCK
        try:
            file = path.open("a")  # another program's file of this name keeps its content
        except FileNotFoundError:
            return None
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            text = f"another run works on {self._what} ({self._folder}); wait until it has ended"
            raise JobError(text) from None
        if _is_still_there(file, path):
            return file
        file.close()
        return None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._file is None:
            return
        lock = self._folder / LOCK
        if list(self._folder.iterdir()) == [lock] and lock.stat().st_size == 0:
            lock.unlink()  # while it is locked: a run that waits for it looks again
            self._remove_made()
        self._file.close()
        self._file = None

    def _remove_made(self) -> None:
        for path in self._made:
            try:
                path.rmdir()
            except OSError:  # another program uses it by now
                return


def _is_still_there(file: TextIOWrapper, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


class JobJournal(FolderLock):
    """A folder with the journal of one job."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, "this job")
        self.path = folder / "journal.json"

    def read(self) -> dict[str, Any] | None:
        """The value written last, None if there is none."""
        try:
            text = self.path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return None
        try:
            found: dict[str, Any] = json.loads(text)
        except ValueError as error:
            text = f"{self.path} is not a journal of a job ({error}); look at it, then remove it"
            raise JobError(text) from error
        return found

    def write(self, value: dict[str, Any]) -> None:
        """Replace the journal; it is on the disk when this returns."""
        replace_path(self.path, json.dumps(value, indent=1).encode())

    def discard(self) -> None:
        """Remove what this run wrote."""
        self.path.unlink(missing_ok=True)

    def put_aside(self) -> Path | None:
        """Rename the journal, so that the next run starts over."""
        if not self.path.exists():
            return None
        kept = {path.name for path in self.path.parent.iterdir()}
        number = next(n for n in count(1) if f"journal-{n}.json" not in kept)
        aside = self.path.rename(self.path.with_name(f"journal-{number}.json"))
        sync_path(self.path.parent)
        return aside

    def put_aside_before(self) -> int:
        """How many earlier journals of this folder were put aside."""
        return len(list(self.path.parent.glob("journal-*.json")))


# ---- which cluster a journal is about
#
# Name servers have many addresses, and clusters in different places often share a name and the
# names of their brokers. So a cluster gets an id, which its name servers keep like the claims of
# drains (`claims`). A journal records it, and the topic's brokers with their addresses, for name
# servers that lost the id or cannot keep one. Either is enough to recognise the cluster.

BROKERS = "brokers"
CLUSTER = "cluster"
_ID = {"namespace": "sparrowmq-pipelines", "key": "cluster-id"}


def cluster_id(cluster: RemoteCluster) -> str | None:
    """The id that the name servers keep, set by the first job; None if they cannot keep one."""
    ids = {address: _kept_id(cluster, address) for address in cluster.name_servers}
    known = sorted(found for found in ids.values() if found)
    chosen = known[0] if known else uuid.uuid4().hex
    for address, found in ids.items():
        if found == "":
            with suppress(ServerRefused, ClusterUnreachable):
                server = cluster.name_server(address)
                server.ask(RequestCode.PUT_KV_CONFIG, {**_ID, "value": chosen})
                # Read back: another job may have set one meanwhile.
                chosen = _kept_id(cluster, address) or chosen
                known.append(chosen)
    return known[0] if known else None


def _kept_id(cluster: RemoteCluster, address: str) -> str | None:
    """The id that a name server keeps, empty if it has none yet, None if it does not answer."""
    try:
        answer = cluster.name_server(address).call(RequestCode.GET_KV_CONFIG, _ID)
    except ClusterUnreachable:
        return None
    return answer.fields.get("value", "") if answer.code == ResponseCode.SUCCESS else ""


def journal_place(folder: Path, cluster: RemoteCluster, topic: str) -> Path:
    """`folder`, or the next one (`folder~2`, …) whose journal is not about another cluster.

    So the same job on two clusters has two journals. Raises TopicMissing.
    """
    places = (folder if n == 1 else folder.with_name(f"{folder.name}~{n}") for n in count(1))
    for place in places:
        saved = JobJournal(place).read()
        if saved is None or is_about(saved, cluster, topic):
            return place
    raise AssertionError("places have no end")


def cluster_facts(cluster: RemoteCluster, topic: str) -> dict[str, Any]:
    """For a journal: the cluster's id, the brokers that serve a topic, and where."""
    facts: dict[str, Any] = {BROKERS: brokers_of(cluster, topic)}
    known = cluster_id(cluster)
    # Left out if no name server keeps it: an id already in the journal stays.
    return facts if known is None else {**facts, CLUSTER: known}


def cluster_names(cluster: RemoteCluster, topic: str) -> list[str]:
    """The clusters that serve a topic, usually one. Raises TopicMissing."""
    return sorted({found.cluster for found in cluster.brokers(topic)})


def brokers_of(cluster: RemoteCluster, topic: str) -> dict[str, list[str]]:
    """For a journal: the brokers that serve a topic, and where."""
    return {found.name: list(found.addresses) for found in cluster.brokers(topic)}


def is_about(saved: dict[str, Any], cluster: RemoteCluster, topic: str) -> bool:
    """Whether a journal is about this cluster.

    It is if the id is the same, or if some broker still has its address: a cluster may grow, shrink
    and move bit by bit.
    """
    before: dict[str, list[str]] | None = saved.get(BROKERS)
    if before is None:
        return True
    now = brokers_of(cluster, topic)
    if any(set(addresses) & set(before.get(name, ())) for name, addresses in now.items()):
        return True
    known = saved.get(CLUSTER)
    return known is not None and known == cluster_id(cluster)


def check_same_cluster(
    saved: dict[str, Any], cluster: RemoteCluster, topic: str, journal: object
) -> None:
    """Raises JobError for a journal that is about another cluster."""
    if is_about(saved, cluster, topic):
        return
    before, now = saved[BROKERS], brokers_of(cluster, topic)
    raise JobError(
        f"{journal} belongs to a cluster with {_shown(before)}, and this one has {_shown(now)}. If"
        f" it is another cluster, name another folder with --state; if all its brokers and name"
        f' servers moved, remove "{BROKERS}" from that file'
    )


def _shown(brokers: dict[str, list[str]]) -> str:
    return ", ".join(f"{name} at {' '.join(at)}" for name, at in sorted(brokers.items()))
