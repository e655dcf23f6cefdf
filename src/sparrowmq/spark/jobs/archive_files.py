"""The files of an archive, wherever Hadoop reaches: a disk, HDFS, an object store."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class ArchiveFiles:
    """Names are relative to the archive's root."""

    def __init__(self, spark: "SparkSession", root: str) -> None:
        # The JVM that the session runs in has the file systems; PySpark has no public way to them.
        context: Any = spark.sparkContext
        self._jvm: Any = context._jvm
        self._gateway: Any = context._gateway
        self._hadoop: Any = self._jvm.org.apache.hadoop.fs
        conf = context._jsc.hadoopConfiguration()
        given = self._hadoop.Path(root)
        self._fs = given.getFileSystem(conf)
        if self._fs.getScheme() == "file" and not given.isAbsolute():
            # Java would take the folder that it was started in.
            given = self._hadoop.Path(str(Path.cwd() / root))
        self.root = str(self._fs.makeQualified(given).toString()).rstrip("/")
        self._context = self._hadoop.FileContext.getFileContext(self._fs.getUri(), conf)

    @property
    def local_folder(self) -> Path | None:
        """The root on this machine's disk, None for others."""
        scheme, _, path = self.root.partition(":")
        return Path("/" + path.lstrip("/")) if scheme == "file" else None

    def path(self, name: str) -> str:
        """What Spark reads or writes it by."""
        return f"{self.root}/{name}"

    def _path(self, name: str) -> Any:
        return self._hadoop.Path(self.path(name))

    def names(self, folder: str) -> list[str]:
        """The names in a folder, sorted; none where it does not exist."""
        if not self._fs.exists(self._path(folder)):
            return []
        return sorted(
            status.getPath().getName() for status in self._fs.listStatus(self._path(folder))
        )

    def data_files(self, folder: str = "") -> dict[str, int]:
        """Sizes of all Parquet files below a folder, by their names in it."""
        base = f"{self.root}/{folder}".rstrip("/") + "/"
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
        """All of a file."""
        stream = self._fs.open(self._path(name))
        try:
            return bytes(self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream))
        finally:
            stream.close()

    def create(self, name: str, data: bytes) -> bool:
        """Make a file, whole or not at all; False where there is one of that name already."""
        unfinished = self._path(f"{name}.unfinished")
        stream = self._fs.create(unfinished, True)
        stream.write(bytearray(data))
        stream.close()
        if self._fs.exists(self._path(name)):
            self._fs.delete(unfinished, False)
            return False
        rename = self._hadoop.Options.Rename
        how = self._gateway.new_array(rename, 1)
        how[0] = rename.NONE
        self._context.rename(unfinished, self._path(name), how)
        return True

    def move(self, source: str, target: str) -> None:
        """Give a file another name; one that is there is replaced."""
        to = self._path(target)
        self._fs.mkdirs(to.getParent())
        if self._fs.exists(to):
            self._fs.delete(to, False)
        if not self._fs.rename(self._path(source), to):
            raise OSError(f"{self.path(source)} cannot be renamed to {to}")

    def delete(self, name: str) -> None:
        """Delete a file, or a folder with all that is in it; nothing where there is none."""
        self._fs.delete(self._path(name), True)

    def settle(self, staging: str, version: int, folder: str = "") -> dict[str, int]:
        """Give staged files the names they keep, the same ones when it is done again.

        They go to the folders they are staged in, or all to `folder`. Returns their sizes.
        """
        added: dict[str, int] = {}
        for number, (name, size) in enumerate(self.data_files(staging).items()):
            into = folder or name.rpartition("/")[0]
            target = f"{into}/{version:010d}-{number:04d}.parquet"
            self.move(f"{staging}/{name}", target)
            added[target] = size
        self.delete(staging)
        return added
