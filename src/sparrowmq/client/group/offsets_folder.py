"""Which folder a broadcasting member keeps its progress in, so that its next run finds it again.

    <offsets_dir>/10.0.0.7@billing-1/<group>/     a client with an instance_name: its client id
    <offsets_dir>/10.0.0.7@DEFAULT/<group>/       without one: the same in every run, as in Java,
    <offsets_dir>/10.0.0.7@DEFAULT-2/<group>/     and where another live member has it, the next

A client id without an instance name is new in every process: progress stored under it would never
be found again. The names without an instance are claimed with a lock on `lock` in the folder, which
ends with the process, so that two live members never write one file.
"""

import itertools
import logging
import os
import weakref
from pathlib import Path
from typing import IO

from sparrowmq.client.client_core import ClientCore
from sparrowmq.disk.atomic_file import make_path

_DEFAULT = "DEFAULT"
"""Java's instance name of broadcasting members that were given none."""


class OffsetsFolder:
    """The folder `path` of one member, its own until `release`."""

    def __init__(self, path: Path, lock: IO[bytes] | None = None) -> None:
        self.path = path
        # A member that is forgotten without a stop frees its folder too.
        self._unlock = None if lock is None else weakref.finalize(self, _unlock, lock, os.getpid())

    def release(self) -> None:
        """Let another member have the folder."""
        if self._unlock is not None:
            self._unlock()


def claim_folder(home: Path, client: ClientCore, group: str) -> OffsetsFolder:
    """The folder of a client's member. If folders cannot be locked, that is logged, and the first
    one is used."""
    if client.config.instance_name:
        return OffsetsFolder(home / _as_name(client.client_id) / group)
    unit = f"@{client.config.unit_name}" if client.config.unit_name else ""
    ip = client.client_id.partition("@")[0]
    for number in itertools.count(1):
        instance = _DEFAULT if number == 1 else f"{_DEFAULT}-{number}"
        path = home / _as_name(f"{ip}@{instance}{unit}") / group
        try:
            lock = _locked(path)
        except (OSError, ImportError) as error:  # Windows has no such locks
            _report_unlocked(client.log, path, error)
            return OffsetsFolder(path)
        if lock is None:
            continue
        if number > 1:
            client.log.info(
                "group %s: another member on this host has the first folder of progress, this one"
                " uses %s; an instance_name gives each member a folder of its own",
                group,
                path,
            )
        return OffsetsFolder(path, lock)
    raise AssertionError("the numbers have no end")


def _as_name(client_id: str) -> str:
    return client_id.replace("/", "_")


def _locked(folder: Path) -> IO[bytes] | None:
    """The file that holds a lock on the folder, None if a live member has it. Raises OSError, or
    ImportError on Windows."""
    import fcntl

    make_path(folder)
    file = (folder / "lock").open("ab")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        return None
    except OSError:
        file.close()
        raise
    return file


def _unlock(file: IO[bytes], pid: int) -> None:
    # A forked child has a copy of the descriptor: closing ours alone would leave the lock, and the
    # child must not free it when it exits.
    if pid == os.getpid():
        import fcntl

        fcntl.flock(file, fcntl.LOCK_UN)
    file.close()


def _report_unlocked(log: logging.Logger, folder: Path, error: Exception) -> None:
    log.warning(
        "%s cannot be locked (%s): give each broadcasting member of this host an instance_name,"
        " or they write one file",
        folder,
        error,
    )
