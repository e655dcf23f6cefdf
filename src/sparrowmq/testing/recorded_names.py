"""The names of a RecordingDisk: what the tree looks like, and which changes to it are durable.

Every change belongs to one or two directories. Syncing a directory makes its changes durable; a
power cut keeps, of each directory's others, the first few.
"""

import errno
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random
from typing import Generic, TypeVar

Content = TypeVar("Content")


def parent_of(path: str) -> str:
    """The directory of a path; the root is the empty string."""
    return path.rpartition("/")[0]


@dataclass(slots=True)
class _Change(Generic[Content]):
    """`target` becomes `content` (None: a directory), or vanishes; `source` moves there."""

    directories: frozenset[str]
    target: str
    content: Content | None = None
    source: str | None = None
    is_removal: bool = False


class RecordedNames(Generic[Content]):
    """Paths to contents; a directory is a path without one."""

    def __init__(self) -> None:
        self._now: dict[str, Content | None] = {"": None}
        self._durable: dict[str, Content | None] = {"": None}
        self._changes: list[_Change[Content]] = []

    def exists(self, path: str) -> bool:
        return path in self._now

    def is_dir(self, path: str) -> bool:
        return path in self._now and self._now[path] is None

    def find(self, path: str) -> Content | None:
        """A file's contents; None if there is no such file."""
        content = self._now.get(path)
        if content is None and path in self._now:
            raise IsADirectoryError(path)
        return content

    def files(self) -> Iterator[tuple[str, Content]]:
        """Every file."""
        for path, content in self._now.items():
            if content is not None:
                yield path, content

    def listdir(self, path: str) -> list[str]:
        prefix = f"{path}/" if path else ""
        inside = (name[len(prefix) :] for name in self._now if name.startswith(prefix) and name)
        return sorted({name for name in inside if name and "/" not in name})

    def create(self, path: str, content: Content) -> Content:
        if not self.is_dir(parent_of(path)):
            raise FileNotFoundError(parent_of(path))
        self._change(_Change(frozenset({parent_of(path)}), path, content))
        return content

    def mkdir(self, path: str) -> None:
        if path in self._now:
            if self._now[path] is not None:
                raise FileExistsError(path)
            return
        self.mkdir(parent_of(path))
        self._change(_Change(frozenset({parent_of(path)}), path))

    def rmdir(self, path: str) -> None:
        if path and self.is_dir(path) and not self.listdir(path):
            self._change(_Change(frozenset({parent_of(path)}), path, is_removal=True))

    def unlink(self, path: str) -> None:
        if self._now.get(path) is not None:
            self._change(_Change(frozenset({parent_of(path)}), path, is_removal=True))

    def replace_fault(self, source: str, target: str) -> int:
        """The errno with which rename refuses this pair; 0 if it does not."""
        if target not in self._now:
            return 0
        if not self.is_dir(source):
            return errno.EISDIR if self.is_dir(target) else 0
        if not self.is_dir(target):
            return errno.ENOTDIR
        return errno.ENOTEMPTY if self.listdir(target) else 0

    def replace(self, source: str, target: str) -> None:
        directories = frozenset({parent_of(source), parent_of(target)})
        self._change(_Change(directories, target, source=source))

    def sync(self, path: str) -> None:
        """Make the changes of one directory, and those that they depend on, durable."""
        kept = [change for change in self._changes if path not in change.directories]
        for change in self._changes:
            if path in change.directories:
                _apply(self._durable, change)
        self._changes = kept

    def poke(self, path: str, content: Content) -> None:
        """Put a file there as if it had always existed."""
        for names in (self._now, self._durable):
            parent = parent_of(path)
            while parent not in names:
                names[parent] = None
                parent = parent_of(parent)
            names[path] = content

    def crashed(
        self, rng: Random, survive: Callable[[Content], Content]
    ) -> "RecordedNames[Content]":
        """What is left after a power cut; `survive` decides what is left of a file."""
        names = dict(self._durable)
        directories = sorted({name for change in self._changes for name in change.directories})
        kept = {name: rng.randint(0, len(self._changes)) for name in directories}
        for number, change in enumerate(self._changes):
            if all(number < kept[name] for name in change.directories):
                _apply(names, change)
        return _settled(names, survive)

    def copied(self, copy: Callable[[Content], Content]) -> "RecordedNames[Content]":
        """The same names and contents, including changes that are not durable yet."""
        made: dict[int, Content] = {}

        def once(content: Content | None) -> Content | None:
            if content is None:
                return None
            if id(content) not in made:
                made[id(content)] = copy(content)
            return made[id(content)]

        other: RecordedNames[Content] = RecordedNames()
        other._now = {path: once(content) for path, content in self._now.items()}
        other._durable = {path: once(content) for path, content in self._durable.items()}
        other._changes = [
            _Change(
                change.directories,
                change.target,
                once(change.content),
                change.source,
                change.is_removal,
            )
            for change in self._changes
        ]
        return other

    def _change(self, change: _Change[Content]) -> None:
        _apply(self._now, change)
        self._changes.append(change)


def _apply(names: dict[str, Content | None], change: _Change[Content]) -> None:
    if change.is_removal:
        names.pop(change.target, None)
    elif change.source is None:
        names[change.target] = change.content
    elif change.source in names:
        names[change.target] = names.pop(change.source)
        prefix = f"{change.source}/"
        for path in [path for path in names if path.startswith(prefix)]:
            names[f"{change.target}/{path[len(prefix) :]}"] = names.pop(path)


def _settled(
    names: dict[str, Content | None], survive: Callable[[Content], Content]
) -> RecordedNames[Content]:
    after: RecordedNames[Content] = RecordedNames()
    for path in sorted(names):
        parents_exist = path == "" or parent_of(path) in after._now
        if parents_exist:
            content = names[path]
            after._now[path] = None if content is None else survive(content)
    after._durable = dict(after._now)
    return after
