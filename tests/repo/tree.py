"""The repository as the tests about it see it."""

import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LEFT_OUT = {".git", ".venv", ".cache", "build", "dist", "node_modules", "target"}


def tracked_files() -> list[Path]:
    """Every file git tracks; in an unpacked sdist, which has no git, every file."""
    listed = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files", "-z"], capture_output=True, text=True, check=False
    )
    if listed.returncode == 0 and listed.stdout:
        paths = [ROOT / name for name in listed.stdout.split("\0") if name]
    else:
        paths = [path for path in ROOT.rglob("*") if not LEFT_OUT.intersection(path.parts)]
    return [path for path in paths if path.is_file()]


def markdown_files() -> list[Path]:
    """The documents among the tracked files."""
    return [path for path in tracked_files() if path.suffix == ".md"]


def text_of(path: Path) -> str | None:
    """The file's text, None for a binary file."""
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return None
