"""What the key index keeps in memory: the slots of files that it still writes, and no others."""

import subprocess
import sys
from pathlib import Path

_PROGRAM = """
import re, sys
from pathlib import Path
from sparrowmq.disk.real_disk import RealDisk
from sparrowmq.store.index.entries import IndexLayout
from sparrowmq.store.index.index_file import IndexFile

def memory_mb():
    status = Path("/proc/self/status").read_text()
    return sum(map(int, re.findall(r"Rss(?:Anon|Shmem):\\s+(\\d+) kB", status))) // 1024

disk, layout = RealDisk(Path(sys.argv[1])), IndexLayout(5_000_000, 5)
before_mb, kept, files = memory_mb(), [], []
for number in range(6):
    files.append(IndexFile.create(disk, f"index/{number}", layout))
    files[-1].slots()[:] = 1
    kept.append(bytes(200_000))  # what else a broker allocates meanwhile
    del files[:-2]
print(memory_mb() - before_mb)
"""
_SLOTS_MB = 5_000_000 * 4 // 1_048_576
_OTHER_MB = 8


def test_slots_of_full_files_go_back_to_the_system(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _PROGRAM, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert int(done.stdout) <= 2 * _SLOTS_MB + _OTHER_MB
