"""A Python as executors have it: pyspark, numpy and pyarrow, and no module of this project."""

import importlib.util
import shlex
import sys
from pathlib import Path

KNOWN_THERE = ("pyspark", "py4j", "numpy", "numpy.libs", "pyarrow")


def bare_python(directory: Path) -> Path:
    """A `python` script in `directory` that sees only these packages and the standard library.

    Without the module `site` Python reads no .pth files, by which an editable install is found.
    """
    site = directory / "site"
    if not site.exists():
        site.mkdir()
        spec = importlib.util.find_spec("numpy")
        assert spec is not None and spec.origin is not None
        packages = Path(spec.origin).parent.parent
        for name in KNOWN_THERE:
            if (packages / name).exists():
                (site / name).symlink_to(packages / name)
    script = directory / "python"
    script.write_text(
        "#!/bin/sh\n"
        f'export PYTHONPATH="$PYTHONPATH:"{shlex.quote(str(site))}\n'
        f'exec {shlex.quote(sys.executable)} -S "$@"\n'
    )
    script.chmod(0o755)
    return script
