"""`import sparrowmq` is cheap: a command or a Spark worker pays only for what it uses."""

import subprocess
import sys

import pytest

MODULES = "import sys, sparrowmq; print(*sys.modules)"


@pytest.fixture(scope="module")
def loaded() -> set[str]:
    """Every module that a bare import loads."""
    shown = subprocess.run(
        [sys.executable, "-c", MODULES], capture_output=True, text=True, check=True
    )
    return set(shown.stdout.split())


@pytest.mark.parametrize(
    "heavy",
    ["asyncio", "typer", "click", "rich", "lark", "starlette", "uvicorn", "pyspark", "pyarrow"],
)
def test_importing_the_package_does_not_load(heavy: str, loaded: set[str]) -> None:
    assert heavy not in loaded


def test_the_version_is_a_semantic_version() -> None:
    import sparrowmq

    parts = sparrowmq.__version__.split(".")
    assert len(parts) == 3
    assert all(part.isdecimal() for part in parts)
