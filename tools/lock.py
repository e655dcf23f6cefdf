"""Regenerates the lock files: `python3 -m tools.lock [--upgrade]`.

One lock covers every platform and Python we support, has a hash for each file, and names no package
index, so that it also installs from a mirror. The spark lock extends the dev lock and agrees with
it; it is separate because Spark is a download of hundreds of megabytes. So is the browser lock:
what drives a browser in tests is large as well, and installed only where there is one.
"""

import shutil
import subprocess
import sys
import venv
from pathlib import Path

from tools.environment import ROOT, lock_file, packages_in

OLDEST_PYTHON = "3.11"
COMMAND = "python3 -m tools.lock"
LOCKS = {
    "dev": ["--group", "dev"],
    "spark": ["--extra", "spark", "--constraints", "locks/dev.txt"],
    "browser": ["--group", "browser", "--constraints", "locks/dev.txt"],
}


def main(arguments: list[str]) -> None:
    """Writes every lock; arguments (such as --upgrade) go to `uv pip compile`."""
    uv = shutil.which("uv") or str(_own_uv())
    for name, contents in LOCKS.items():
        subprocess.run(
            [
                *(uv, "pip", "compile", "pyproject.toml", "--output-file", f"locks/{name}.txt"),
                *("--universal", "--python-version", OLDEST_PYTHON, "--generate-hashes"),
                *("--no-emit-index-url", "--no-annotate", "--custom-compile-command", COMMAND),
                *("--quiet", *contents, *arguments),
            ],
            cwd=ROOT,
            check=True,
        )
        print(f"locks/{name}.txt: {packages_in(lock_file(name))} packages")


def _own_uv() -> Path:
    """A private uv for machines without one; `./dev` itself never needs it."""
    folder = ROOT / ".cache" / "uv"
    uv = folder / "bin" / "uv"
    if not uv.exists():
        venv.create(folder, with_pip=True, clear=True)
        subprocess.run([folder / "bin" / "pip", "install", "--quiet", "uv"], check=True)
    return uv


if __name__ == "__main__":
    main(sys.argv[1:])
