"""The files of an archive: the operations on them, for this machine's disk and for Hadoop.

On this machine Python does the work, because it can sync files and folders; Hadoop's local file
system syncs nothing. HDFS and object stores are reached through the JVM that Spark runs in.
"""

import os
import shutil
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from sparrowmq.disk.atomic_file import make_path, replace_path, sync_path

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_UNFINISHED = ".unfinished"
"""Ends the name of a draft; `archive_folder` recognizes drafts by it."""


class ArchiveFiles(Protocol):
    """File operations. Names are relative to the archive's root, with slashes; hidden files are not
    listed."""

    @property
    def root(self) -> str:
        """The path by which Spark reads and writes the archive."""

    @property
    def local_folder(self) -> Path | None:
        """The root on this machine's disk, None for others."""

    def names(self, folder: str = "") -> list[str]:
        """The names in a folder, sorted; empty if it does not exist."""

    def data_files(self, folder: str = "") -> dict[str, int]:
        """Sizes of all Parquet files below a folder, by their names in it."""

    def read(self, name: str) -> bytes:
        """The contents of a file. Raises FileNotFoundError."""

    def create(self, name: str, data: bytes) -> bool:
        """Create a file, whole or not at all; False if one of that name exists already."""

    def replace(self, name: str, data: bytes) -> None:
        """Replace the content of a file; readers see the old or the new one."""

    def move(self, names: Mapping[str, str]) -> None:
        """Rename data files; names and content survive a power cut."""

    def delete(self, name: str) -> None:
        """Delete a file, or a folder with its contents; does nothing if it is missing."""


class LocalFiles:
    """Files on this machine's disk."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @property
    def root(self) -> str:
        """The path by which Spark reads and writes the archive."""
        return f"file:{self._folder}"

    @property
    def local_folder(self) -> Path | None:
        """The root."""
        return self._folder

    def names(self, folder: str = "") -> list[str]:
        """The names in a folder, sorted; empty if it does not exist."""
        try:
            found = [path.name for path in (self._folder / folder).iterdir()]
        except FileNotFoundError:
            return []
        return sorted(name for name in found if not name.startswith("."))

    def data_files(self, folder: str = "") -> dict[str, int]:
        """Sizes of all Parquet files below a folder, by their names in it."""
        base = self._folder / folder
        return {
            path.relative_to(base).as_posix(): path.stat().st_size
            for path in sorted(base.rglob("*.parquet"))
            if path.is_file() and not path.name.startswith(".")
        }

    def read(self, name: str) -> bytes:
        """The contents of a file. Raises FileNotFoundError."""
        return (self._folder / name).read_bytes()

    def create(self, name: str, data: bytes) -> bool:
        """Create a file, whole or not at all; False if one of that name exists already.

        Only one run at a time writes here (`FolderLock`), so looking first is enough.
        """
        path = self._folder / name
        if path.exists():
            return False
        self.replace(name, data)
        return True

    def replace(self, name: str, data: bytes) -> None:
        """Replace the content of a file; readers see the old or the new one."""
        path = self._folder / name
        replace_path(path, data, draft_suffix=_UNFINISHED)

    def move(self, names: Mapping[str, str]) -> None:
        """Rename data files; names and content survive a power cut."""
        folders: set[Path] = set()
        for source, target in names.items():
            old, new = self._folder / source, self._folder / target
            sync_path(old)  # written by Spark, which syncs nothing
            make_path(new.parent)
            old.rename(new)
            folders.add(new.parent)
        for folder in sorted(folders):
            sync_path(folder)

    def delete(self, name: str) -> None:
        """Delete a file, or a folder with its contents; does nothing if it is missing."""
        path = self._folder / name
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
            return
        path.unlink(missing_ok=True)
        # Hadoop's checksum file, left by versions that moved files through Hadoop.
        path.with_name(f".{path.name}.crc").unlink(missing_ok=True)


_MISSING = "java.io.FileNotFoundException"
_EXISTS = "org.apache.hadoop.fs.FileAlreadyExistsException"
_DEFAULT_FILE_SYSTEM = "spark.hadoop.fs.defaultFS"


def archive_files(spark: "SparkSession", root: str) -> ArchiveFiles:
    """The files below a folder: on this machine's disk, or wherever Hadoop resolves the name."""
    found = HadoopFiles(spark, root)
    folder = found.local_folder
    return found if folder is None else LocalFiles(folder)


OF_HADOOP = ("HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_CONF_DIR", "SPARK_HOME")
"""Folders with the user's settings, which may name a file system other than this machine's."""


def local_files(
    root: str, settings: Mapping[str, str], environ: Mapping[str, str] = os.environ
) -> LocalFiles | None:
    """The files below a folder that is certain to be on this machine's disk, while there is no
    session yet to ask; None for any other. `settings` are for the session that will start."""
    scheme, colon, rest = root.partition(":")
    if colon and "/" not in scheme:
        return LocalFiles(Path("/" + rest.lstrip("/"))) if scheme == "file" else None
    if _DEFAULT_FILE_SYSTEM in settings or any(name in environ for name in OF_HADOOP):
        return None
    return LocalFiles(Path(root).absolute())


class HadoopFiles:
    """Files reached through the JVM that the session runs in: HDFS, object stores.

    A commit is synced where the file system can do that (HDFS); object stores keep closed files.
    Spark's executors write and close data files: on HDFS a power cut of all machines that hold a
    block can lose them, unless `dfs.datanode.synconclose` is set.
    """

    def __init__(self, spark: "SparkSession", root: str) -> None:
        # PySpark has no public API for the JVM's file systems.
        context: Any = spark.sparkContext
        self._jvm: Any = context._jvm
        self._gateway: Any = context._gateway
        self._hadoop: Any = self._jvm.org.apache.hadoop.fs
        conf = context._jsc.hadoopConfiguration()
        given = self._hadoop.Path(root)
        self._fs = given.getFileSystem(conf)
        if self._fs.getScheme() == "file" and not given.isAbsolute():
            # Java would resolve it against the folder in which Java was started.
            given = self._hadoop.Path(str(Path.cwd() / root))
        self._root = str(self._fs.makeQualified(given).toString()).rstrip("/")
        self._context = self._hadoop.FileContext.getFileContext(self._fs.getUri(), conf)

    @property
    def root(self) -> str:
        """The path by which Spark reads and writes the archive."""
        return self._root

    @property
    def local_folder(self) -> Path | None:
        """The root on this machine's disk, None for others."""
        scheme, _, path = self._root.partition(":")
        return Path("/" + path.lstrip("/")) if scheme == "file" else None

    def _path(self, name: str) -> Any:
        return self._hadoop.Path(f"{self._root}/{name}".rstrip("/"))

    def names(self, folder: str = "") -> list[str]:
        """The names in a folder, sorted; empty if it does not exist."""
        if not self._fs.exists(self._path(folder)):
            return []
        listed = self._fs.listStatus(self._path(folder))
        found = [str(status.getPath().getName()) for status in listed]
        return sorted(name for name in found if not name.startswith("."))

    def data_files(self, folder: str = "") -> dict[str, int]:
        """Sizes of all Parquet files below a folder, by their names in it."""
        base = f"{self._root}/{folder}".rstrip("/") + "/"
        if not self._fs.exists(self._hadoop.Path(base)):
            return {}
        found: dict[str, int] = {}
        listed = self._fs.listFiles(self._hadoop.Path(base), True)
        while listed.hasNext():
            status = listed.next()
            name = str(status.getPath().toString()).removeprefix(base)
            if name.endswith(".parquet"):
                found[name] = int(status.getLen())
        return dict(sorted(found.items()))

    def read(self, name: str) -> bytes:
        """The contents of a file. Raises FileNotFoundError."""
        with _raised_as(_MISSING, FileNotFoundError(f"{self._root}/{name}")):
            stream = self._fs.open(self._path(name))
        try:
            return bytes(self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream))
        finally:
            stream.close()

    def create(self, name: str, data: bytes) -> bool:
        """Create a file, whole or not at all; False if one of that name exists already."""
        if self._fs.exists(self._path(name)):
            return False
        try:
            with _raised_as(_EXISTS, FileExistsError(name)):
                self._rename(self._draft(name, data), name, "NONE")
        except FileExistsError:
            return False
        return True

    def replace(self, name: str, data: bytes) -> None:
        """Replace the content of a file; readers see the old or the new one."""
        self._rename(self._draft(name, data), name, "OVERWRITE")

    def _draft(self, name: str, data: bytes) -> Any:
        # No lock keeps other machines out, so each run has its own draft names.
        draft = self._path(f"{name}.{uuid.uuid4().hex[:8]}{_UNFINISHED}")
        stream = self._fs.create(draft, True)
        try:
            stream.write(bytearray(data))
            if stream.hasCapability("hsync"):
                stream.hsync()
        finally:
            stream.close()
        return draft

    def _rename(self, draft: Any, name: str, option: str) -> None:
        kind = self._hadoop.Options.Rename
        how = self._gateway.new_array(kind, 1)
        how[0] = getattr(kind, option)
        self._context.rename(draft, self._path(name), how)

    def move(self, names: Mapping[str, str]) -> None:
        """Rename data files; the class says what survives a power cut."""
        for source, target in names.items():
            to = self._path(target)
            self._fs.mkdirs(to.getParent())
            if not self._fs.rename(self._path(source), to):
                raise OSError(f"{self._root}/{source} cannot be renamed to {to}")

    def delete(self, name: str) -> None:
        """Delete a file, or a folder with its contents; does nothing if it is missing."""
        self._fs.delete(self._path(name), True)


@contextmanager
def _raised_as(java: str, error: Exception) -> Iterator[None]:
    from py4j.protocol import Py4JJavaError

    try:
        yield
    except Py4JJavaError as found:
        if found.java_exception.getClass().getName() == java:
            raise error from found
        raise
