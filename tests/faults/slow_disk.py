"""A slow disk: every sync of a process takes longer by the number of milliseconds in a file.

```
python -I -S slow_disk.py DESCRIPTOR     the helper that syncs for a broker, on such a disk
```

The file holds milliseconds, 8 bytes, and its path is in the environment: the helper gets nothing
but a descriptor, and cannot import our modules.
"""

import mmap
import os
import time
from collections.abc import Callable
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

VARIABLE = "SLOW_DISK"
_HELPER = Path(__file__).parents[2] / "src" / "sparrowmq" / "disk" / "sync_process.py"
_LOOK_S = 0.005


class SyncDelay:
    """The file, of the one who sets it and of those who wait."""

    def __init__(self, path: Path) -> None:
        if not path.exists():
            path.write_bytes(bytes(8))
        with path.open("r+b") as file:
            self._ms = mmap.mmap(file.fileno(), 8)

    def set(self, delay_ms: int) -> None:
        """Also for those who wait already."""
        self._ms[:] = delay_ms.to_bytes(8, "big")

    def wait(self) -> None:
        """As long as it says, and not a moment longer once it says less."""
        began_s = time.monotonic()
        while (left_s := began_s + self._delay_s() - time.monotonic()) > 0:
            time.sleep(min(left_s, _LOOK_S))

    def _delay_s(self) -> float:
        return int.from_bytes(self._ms[:], "big") / 1000


def slow_down() -> None:
    """From now on syncs of this process take longer."""
    delay = SyncDelay(Path(os.environ[VARIABLE]))

    def slowed(sync: Callable[..., None]) -> Callable[..., None]:
        def wait_and_sync(*arguments: Any) -> None:
            delay.wait()
            sync(*arguments)

        return wait_and_sync

    for name in ("fdatasync", "fsync", "sync"):
        setattr(os, name, slowed(getattr(os, name)))


def main() -> None:
    """Be the helper."""
    slow_down()
    spec = spec_from_file_location("sync_process", _HELPER)
    assert spec is not None and spec.loader is not None
    helper = module_from_spec(spec)
    spec.loader.exec_module(helper)
    helper.main()


if __name__ == "__main__":
    main()
