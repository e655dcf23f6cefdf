"""Errors about files that a server may not use: which file, which user, its owner, and a remedy."""

import errno
import os
from pathlib import Path

NOT_PERMITTED = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})
"""Errors that another owner, mode or mount would fix."""


def not_permitted(path: Path) -> str:
    """Why a server cannot use a file, and what to do: its error names only the path."""
    me = _user(os.geteuid())
    nearest = next(each for each in (path, *path.parents) if _exists(each))
    if _is_read_only(nearest):
        return (
            f"{path} cannot be written: it is on a file system that is mounted read-only; mount it"
            " for writing, or choose another directory with --data"
        )
    status = nearest.stat()
    return (
        f"{path} cannot be used by user {me}: {nearest} belongs to user {_user(status.st_uid)},"
        f" with mode {status.st_mode & 0o7777:04o}; give the whole directory to the user that runs"
        f" the server (chown -R {me} …), run the server as another user, or choose another"
        " directory with --data"
    )


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # one of its parents cannot be searched
        return False


def _is_read_only(path: Path) -> bool:
    return bool(os.statvfs(path).f_flag & getattr(os, "ST_RDONLY", 1))


def _user(number: int) -> str:
    try:
        import pwd

        return pwd.getpwuid(number).pw_name
    except (ImportError, KeyError):
        return str(number)
