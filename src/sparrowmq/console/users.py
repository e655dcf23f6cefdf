"""The users file: who may log in, with which role; passwords as scrypt hashes.

    # name:role:hash
    ada:operator:scrypt$16384$8$1$SALT$HASH
    bob:reader:scrypt$16384$8$1$SALT$HASH

Salt and hash are base64. The standard library computes scrypt, so that a console needs no extra
dependency for it.
"""

import base64
import binascii
import hashlib
import hmac
import logging
import os
import re
import secrets
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from sparrowmq.console.config import ConsoleError
from sparrowmq.disk.atomic_file import put_in_place

_N, _R, _P = 2**14, 8, 1
"""scrypt parameters: 16 MiB and about 50 ms for each attempt."""
_MOST_MEMORY = 256 * 1024 * 1024
_SALT_BYTES = 16
_NAME = re.compile(r"[A-Za-z0-9._@-]{1,64}")
LEAST_PASSWORD = 8

log = logging.getLogger("sparrowmq.console")


class UserRole(StrEnum):
    """What a user may do."""

    READER = "reader"
    OPERATOR = "operator"


@dataclass(frozen=True, slots=True)
class User:
    """A user of the console."""

    name: str
    role: UserRole


@dataclass(frozen=True, slots=True)
class PasswordHash:
    """A password that can be checked but not read."""

    n: int
    r: int
    p: int
    salt: bytes
    digest: bytes

    @classmethod
    def of(cls, password: str) -> "PasswordHash":
        """Hash a password with a new salt."""
        salt = secrets.token_bytes(_SALT_BYTES)
        return cls(_N, _R, _P, salt, _scrypt(password, salt, _N, _R, _P))

    @classmethod
    def parse(cls, text: str) -> "PasswordHash":
        """Raises ValueError."""
        kind, n, r, p, salt, digest = text.split("$")
        if kind != "scrypt":
            raise ValueError(f"hash is {kind}, must be scrypt")
        found = cls(int(n), int(r), int(p), _bytes(salt), _bytes(digest))
        if 128 * found.n * found.r > _MOST_MEMORY:
            raise ValueError("the hash asks for more than 256 MiB")
        return found

    def __str__(self) -> str:
        salt, digest = (base64.b64encode(each).decode() for each in (self.salt, self.digest))
        return f"scrypt${self.n}${self.r}${self.p}${salt}${digest}"

    def matches(self, password: str) -> bool:
        """Whether the password is right. Takes as long as making the hash did."""
        found = _scrypt(password, self.salt, self.n, self.r, self.p)
        return hmac.compare_digest(found, self.digest)


def _bytes(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError(f"{text!r} is not base64") from error


def _scrypt(password: str, salt: bytes, n: int, r: int, p: int) -> bytes:
    return hashlib.scrypt(password.encode(), salt=salt, n=n, r=r, p=p, maxmem=_MOST_MEMORY * 2)


class Users:
    """The users of a file."""

    def __init__(self, entries: Mapping[str, tuple[UserRole, PasswordHash]]) -> None:
        self._entries = dict(entries)
        self._nobody = PasswordHash.of(secrets.token_hex())

    @classmethod
    def read(cls, path: Path) -> "Users":
        """Read a users file. Raises ConsoleError if it cannot be read or has no users."""
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or error
            raise ConsoleError(
                f"users file {path} cannot be read: {reason}; sparrowmq console --users {path}"
                " --add-user NAME makes one"
            ) from error
        entries = dict(_entries(path, text))
        if not entries:
            raise ConsoleError(
                f"users file {path} has no users; add one with:"
                f" sparrowmq console --users {path} --add-user NAME"
            )
        return cls(entries)

    def check(self, name: str, password: str) -> User | None:
        """The user, if the password is right. An unknown name takes as long as a known one."""
        entry = self._entries.get(name)
        role, wanted = (None, self._nobody) if entry is None else entry
        if not wanted.matches(password) or role is None:
            return None
        return User(name, role)


class UsersFile:
    """The users of a file that may change while the console runs."""

    def __init__(self, path: Path) -> None:
        """Raises ConsoleError as `Users.read`."""
        self._path = path
        self._seen = _stamp(path)
        self._users = Users.read(path)

    def check(self, name: str, password: str) -> User | None:
        """As `Users.check`, with the users of now. A file that cannot be used is logged once, and
        the last users stay."""
        now = _stamp(self._path)
        if now != self._seen:
            self._seen = now
            try:
                self._users = Users.read(self._path)
            except ConsoleError as error:
                log.warning("the previous users stay: %s", error)
        return self._users.check(name, password)


def _stamp(path: Path) -> tuple[int, int, int] | None:
    """What differs when a file was written or replaced; None where there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def _entries(path: Path, text: str) -> Iterable[tuple[str, tuple[UserRole, PasswordHash]]]:
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        try:
            name, role, password = line.strip().split(":")
            yield check_name(name), (UserRole(role), PasswordHash.parse(password))
        except ValueError as error:
            raise ConsoleError(
                f"{path} line {number}: {error}; a line is name:reader:HASH or name:operator:HASH"
            ) from error


def check_name(name: str) -> str:
    """Raises ValueError for an illegal user name."""
    if not _NAME.fullmatch(name):
        raise ValueError(f"user name {name!r} must be 1 to 64 letters, digits or . _ @ -")
    return name


def write_user(path: Path, name: str, role: UserRole, password: str) -> None:
    """Add a user to a file, or replace one. Raises ConsoleError, ValueError."""
    check_name(name)
    if len(password) < LEAST_PASSWORD:
        raise ValueError(f"the password has {len(password)} characters, at least {LEAST_PASSWORD}")
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    kept = [line for line in lines if not line.startswith(f"{name}:")]
    # A draft of its own: one with a fixed name may be a file of others, which all may read.
    handle, draft = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")  # mode 0600
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write("\n".join([*kept, f"{name}:{role}:{PasswordHash.of(password)}", ""]))
        put_in_place(Path(draft), path)
    except BaseException:
        Path(draft).unlink(missing_ok=True)
        raise
