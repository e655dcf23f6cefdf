"""`python -m tests.interop.vectors`: let Apache's classes write the vectors of the codec tests."""

import subprocess
import sys
import tempfile
from pathlib import Path

from tests.interop import toolchain

VECTORS = Path(__file__).parent.parent / "protocol" / "vectors"


def main() -> int:
    """Compile what is needed, run the Java program, leave its files in the work tree."""
    missing = toolchain.missing_tools(["java5"], apache=True)
    if missing:
        print("\n".join(f"missing: {tool}" for tool in missing), file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory(prefix="vectors-") as scratch:
        classpath = toolchain.java_classpath("java5")
        command = toolchain.java_command(
            classpath, Path(scratch), "256m", "interop.vectors.Vectors", str(VECTORS)
        )
        return subprocess.run(command, stdout=subprocess.DEVNULL, timeout=300).returncode


if __name__ == "__main__":
    sys.exit(main())
