"""Key-value configuration by namespace, kept in one JSON file that Apache's name server reads."""

from sparrowmq.disk.atomic_file import AtomicFile
from sparrowmq.protocol.body import Body, KVTable

ORDER_TOPIC_CONFIG = "ORDER_TOPIC_CONFIG"
"""The namespace of fixed queue lists, by topic: `broker-a:4;broker-b:4`."""

Tables = dict[str, dict[str, str]]


class KvConfigFile(Body, frozen=True, kw_only=True):
    """The file kvConfig.json."""

    config_table: Tables


class KvConfig:
    """A change is durable in the file before it is visible; one that cannot be saved never is."""

    def __init__(self, file: AtomicFile | None = None) -> None:
        self._file = file
        self._tables: Tables = {}

    def load(self) -> None:
        """Read the file, if there is one. Raises BodyError, or OSError."""
        data = self._file.read() if self._file is not None else None
        # Apache's name server leaves an empty file behind when it dies while writing.
        self._tables = KvConfigFile.from_json(data).config_table if data and data.strip() else {}

    def get(self, namespace: str, key: str) -> str | None:
        """The value, None if there is none."""
        return self._tables.get(namespace, {}).get(key)

    def table(self, namespace: str) -> KVTable | None:
        """A whole namespace, None if there is none."""
        table = self._tables.get(namespace)
        return KVTable(table=table) if table is not None else None

    def put(self, namespace: str, key: str, value: str) -> None:
        """Set a value. Raises DiskFull or OSError, with nothing changed."""
        changed = {**self._tables.get(namespace, {}), key: value}
        self._save({**self._tables, namespace: changed})

    def delete(self, namespace: str, key: str) -> None:
        """Remove a value if it exists. Raises DiskFull or OSError, with nothing changed."""
        if self.get(namespace, key) is None:
            return
        changed = {name: value for name, value in self._tables[namespace].items() if name != key}
        self._save({**self._tables, namespace: changed})

    @property
    def size_bytes(self) -> int:
        """The approximate size of all names and values."""
        return sum(
            len(key) + len(value) for table in self._tables.values() for key, value in table.items()
        )

    def _save(self, tables: Tables) -> None:
        if self._file is not None:
            self._file.replace(KvConfigFile(config_table=tables).to_json())
        self._tables = tables
