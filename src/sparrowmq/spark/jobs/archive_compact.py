"""Compaction of an archive: few large files instead of many small ones, atomic for readers.

The commit that adds the new files also removes the old ones from the log. The old files stay on the
disk for a while, for readers that have already listed them; a later run deletes them.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sparrowmq.clock import Clock
from sparrowmq.spark.jobs.archive_folder import ArchiveFolder, check_data
from sparrowmq.spark.jobs.archive_log import Archive, commit_of
from sparrowmq.spark.jobs.job import JobStep, OnStep

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionRule:
    """When files are compacted, and how large they become."""

    least_files: int = 32
    """How many small files of one topic and day are worth the work; 0 means never compact."""
    target_bytes: int = 128 * 1024 * 1024
    keep_removed_ms: int = 60 * 60 * 1000
    """How long a reader that began before a compaction may take."""


def due(archive: Archive, rule: CompactionRule, *, all_of_it: bool = False) -> dict[str, list[str]]:
    """Folders with enough small files to compact, and those files."""
    small: dict[str, list[str]] = {}
    for name, size in sorted(archive.files.items()):
        if size < rule.target_bytes // 2:
            small.setdefault(name.rpartition("/")[0], []).append(name)
    least = 2 if all_of_it else rule.least_files
    return {folder: names for folder, names in small.items() if least and len(names) >= least}


class Compactor:
    """Compacts with separate commits, one per folder."""

    def __init__(
        self,
        spark: "SparkSession",
        folder: ArchiveFolder,
        rule: CompactionRule,
        on_step: OnStep,
        clock: Clock,
    ) -> None:
        self._spark = spark
        self._folder = folder
        self._rule = rule
        self._on_step = on_step
        self._clock = clock

    def run(self, *, all_of_it: bool = False) -> None:
        """Compact what is due, and drop files that no reader can still use."""
        work = due(self._folder.archive, self._rule, all_of_it=all_of_it)
        for folder, names in work.items():
            self._compact(folder, names)
        self._drop()

    def _compact(self, folder: str, names: list[str]) -> None:
        archive, root = self._folder.archive, self._folder.files.root
        check_data(self._folder.files, {name: archive.files[name] for name in names})
        total = sum(archive.files[name] for name in names)
        wanted = -(-total // self._rule.target_bytes)
        frame = self._spark.read.parquet(*(f"{root}/{name}" for name in names)).coalesce(wanted)
        # Sorted by queue and offset: equal values are adjacent, which makes files smaller.
        frame = frame.sortWithinPartitions("brokerName", "queueId", "queueOffset")
        frame.write.parquet(f"{root}/{self._folder.stage()}")
        self._on_step(JobStep("compacted", len(names), archive.rows))
        added = self._folder.settle(folder)
        self._on_step(JobStep("compacted moved", len(names), archive.rows))
        self._folder.commit(commit_of(archive, self._clock(), add=added, remove=names))
        self._on_step(JobStep("compacted committed", len(names), archive.rows))

    def _drop(self) -> None:
        archive = self._folder.archive
        oldest = self._clock() - self._rule.keep_removed_ms
        dropped = [name for name, at_ms in archive.removed.items() if at_ms <= oldest]
        if not dropped:
            return
        for name in dropped:
            self._folder.files.delete(name)
        self._on_step(JobStep("dropped", len(dropped), archive.rows))
        self._folder.commit(commit_of(archive, self._clock(), drop=dropped))
