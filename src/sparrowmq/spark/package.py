"""The zip that gives executors the package: pure Python that needs only pyspark, numpy and pyarrow.

Built from the files installed here, always the same bytes for the same files, so that its name can
carry a digest that proves a cached zip to be the right one.
"""

import hashlib
import io
import os
import shlex
import zipfile
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path

from sparrowmq import __version__
from sparrowmq.disk.atomic_file import put_in_place
from sparrowmq.spark.session import cache_directory

SOURCES = ("pyspark_rocketmq", "pyspark_rocketmq_log")
"""The modules by which Spark finds our sources."""
CARRIED = (
    "__init__.py",
    "backoff.py",
    "clock.py",
    "cluster_address.py",
    "errors.py",
    "net/__init__.py",
    "net/errors.py",
    "protocol",
    "spark",
    "store/__init__.py",
    "store/layout.py",
)
"""The parts of `sparrowmq` that run on executors, and what those import."""

_OLDEST_DATE = (1980, 1, 1, 0, 0, 0)


def write_package(out: Path) -> Path:
    """Write the zip to `out`, or under its own name into a directory: an existing one, or any name
    that does not end with .zip. Returns its path."""
    data = package_bytes()
    is_file = out.suffix == ".zip" and not out.is_dir()
    path = out if is_file else out / package_name(data)
    path.parent.mkdir(parents=True, exist_ok=True)
    # Whole or not at all: another process may read it at any moment, and a package in the cache is
    # used for as long as it has its name.
    unfinished = path.with_name(f"{path.name}.{os.getpid()}")
    unfinished.write_bytes(data)
    put_in_place(unfinished, path)
    return path


def cached_package(environ: Mapping[str, str]) -> Path:
    """The zip of what is installed now, in the cache directory."""
    data = package_bytes()
    path = cache_directory(environ) / package_name(data)
    return path if path.is_file() else write_package(path)


def package_name(data: bytes) -> str:
    """Version and digest: two different packages never share a name."""
    return f"sparrowmq-{__version__}-{hashlib.sha256(data).hexdigest()[:12]}.zip"


def package_bytes() -> bytes:
    """The zip itself."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, path in sorted(_files()):
            archive.writestr(zipfile.ZipInfo(name, _OLDEST_DATE), path.read_bytes())
    return buffer.getvalue()


def submit_line(package: Path) -> str:
    """The command line that submits a job with it."""
    return (
        "spark-submit --master spark://HOST:7077"
        f" --py-files {shlex.quote(str(package.resolve()))} YOUR_JOB.py"
    )


def _files() -> Iterator[tuple[str, Path]]:
    for name in SOURCES:
        yield from _modules(_home(name), "")
    home = _home("sparrowmq")
    for part in CARRIED:
        yield from _modules(home / part, "sparrowmq")


def _modules(path: Path, inside: str) -> Iterator[tuple[str, Path]]:
    """Names in the zip and source files of one module, or of a package and all its contents."""
    base = _home(inside).parent if inside else path.parent
    found = [path] if path.is_file() else path.rglob("*.py")
    return ((file.relative_to(base).as_posix(), file) for file in found)


def _home(package: str) -> Path:
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise FileNotFoundError(f"package {package} is not installed; run: pip install sparrowmq")
    return Path(spec.submodule_search_locations[0])
