"""Named clusters of the command line, and the one in use.

    sparrowmq context add production --name-servers 10.0.0.1:9876,10.0.0.2:9876
    sparrowmq context use production

`sparrowmq.cluster_address` describes the file and reads it for programs, which obey
`SPARROWMQ_CONTEXT` and never the context in use. The file is replaced as a whole and only its owner
can read it (0600), since not everyone on a machine needs to know the addresses of production.
"""

import fcntl
import json
import os
import re
import tempfile
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from sparrowmq.cluster_address import (
    NameServerAddresses,
    contexts_file,
    name_servers_of_context,
    read_contexts,
)
from sparrowmq.disk.atomic_file import put_in_place
from sparrowmq.net.peers import split_address

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_IN_USE = "in-use"
_HEADING = "# Kept by `sparrowmq context`, which does not keep comments.\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Contexts:
    """The contents of the file. Changes return new values; `write` stores one in the file."""

    path: Path
    clusters: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The name servers of each context."""
    in_use: str | None = None

    def find(self, name: str, named_by: str) -> NameServerAddresses:
        """A cluster's name servers. Raises ValueError that lists the existing contexts."""
        return name_servers_of_context(name, self.clusters, self.path, named_by)

    def find_used(self) -> NameServerAddresses | None:
        """The name servers of the context in use, if any. Raises ValueError if it is missing."""
        if self.in_use is None:
            return None
        found = self.find(self.in_use, f"the line {_IN_USE}")
        return found._replace(origin=f"context {self.in_use}, in use")

    def added(self, name: str, addresses: tuple[str, ...]) -> "Contexts":
        """The contexts with one more. Raises ValueError for an illegal name or address, and for a
        name that already has other addresses."""
        _check_name(name)
        if not addresses:
            raise ValueError("a context needs an address, such as --name-servers 127.0.0.1:9876")
        for address in addresses:
            split_address(address)
        known = self.clusters.get(name)
        if known not in (None, addresses):
            raise ValueError(
                f"context {name} exists, with {', '.join(known)}; to change it, first:"
                f" sparrowmq context remove {name}"
            )
        return replace(self, clusters={**self.clusters, name: addresses})

    def used(self, name: str) -> "Contexts":
        """The contexts with this one in use. Raises ValueError if it does not exist."""
        self.find(name, "the command")
        return replace(self, in_use=name)

    def removed(self, name: str) -> "Contexts":
        """The contexts without this one; if it was in use, none is now. Raises ValueError if it
        does not exist."""
        self.find(name, "the command")
        left = {each: self.clusters[each] for each in self.clusters if each != name}
        return replace(self, clusters=left, in_use=None if self.in_use == name else self.in_use)

    def write(self) -> None:
        """Replace the file durably, so that a reader sees the old one or the new one. Raises
        OSError."""
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle, draft = tempfile.mkstemp(dir=self.path.parent, prefix=".contexts-")  # mode 0600
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(self._text())
            put_in_place(Path(draft), self.path)
        except BaseException:
            Path(draft).unlink(missing_ok=True)
            raise

    def _text(self) -> str:
        # JSON strings and lists of strings are valid TOML
        lines = [_HEADING]
        if self.in_use is not None:
            lines.append(f"{_IN_USE} = {json.dumps(self.in_use)}\n")
        for name in sorted(self.clusters):
            addresses = json.dumps(list(self.clusters[name]))
            lines.append(f"\n[contexts.{json.dumps(name)}]\nname-servers = {addresses}\n")
        return "".join(lines)


def known_contexts(environment: Mapping[str, str] = os.environ) -> Contexts:
    """The user's contexts. Raises ValueError for a file that does not contain contexts."""
    path = contexts_file(environment)
    clusters = read_contexts(path)
    if not path.exists():
        return Contexts(path=path)
    in_use = tomllib.loads(path.read_text("utf-8")).get(_IN_USE)
    if not (in_use is None or isinstance(in_use, str)):
        raise ValueError(f"{path}: {_IN_USE} is {in_use!r}, must be the name of a context")
    return Contexts(path=path, clusters=clusters, in_use=in_use)


def change_contexts(
    change: Callable[[Contexts], Contexts], environment: Mapping[str, str] = os.environ
) -> Contexts:
    """Change the user's file and return its new contents. Concurrent changes wait for each other,
    so that none is lost. Raises ValueError for an impossible change, OSError."""
    folder = contexts_file(environment).parent
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)  # ends with the process at the latest
        changed = change(known_contexts(environment))
        changed.write()
    finally:
        os.close(handle)
    return changed


def _check_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise ValueError(
            f"{name!r} is not a name for a context; allowed are up to 64 letters, digits, '.', '_'"
            " and '-', beginning with a letter or digit"
        )
