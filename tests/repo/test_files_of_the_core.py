"""The core touches files in a few listed places only; the linter sees `open`, this sees `Path`."""

import ast

import pytest

from tests.repo.tree import ROOT

PACKAGE = ROOT / "src" / "sparrowmq"
CORE = ("protocol", "store", "net", "broker", "nameserver", "client")
MAY_OPEN = {
    "disk/real_disk.py": "the real Disk",
    "client/group/offsets.py": "progress of a broadcasting member, on its own machine",
    "client/group/offsets_folder.py": "the same: its lock",
}
PATH_CALLS = {"read_text", "write_text", "read_bytes", "write_bytes"}


def file_accesses(source: str) -> list[int]:
    """The lines that open a file by its path, whatever the path is called."""
    calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    return [call.lineno for call in calls if _opens_a_path(call)]


def _opens_a_path(call: ast.Call) -> bool:
    if not isinstance(call.func, ast.Attribute):
        return False
    if call.func.attr != "open":
        return call.func.attr in PATH_CALLS
    # Path.open takes a mode first, a Disk's open takes a path.
    mode = [call.args[0]] if call.args else [k.value for k in call.keywords if k.arg == "mode"]
    return any(isinstance(node, ast.Constant) and _is_mode(node.value) for node in mode)


def _is_mode(value: object) -> bool:
    return isinstance(value, str) and 0 < len(value) <= 3 and set(value) <= set("rwaxbt+")


@pytest.mark.parametrize("package", CORE)
def test_a_package_of_the_core_opens_files_only_where_it_is_listed(package: str) -> None:
    found = {
        path.relative_to(PACKAGE).as_posix()
        for path in (PACKAGE / package).rglob("*.py")
        if file_accesses(path.read_text(encoding="utf-8"))
    }
    assert found <= MAY_OPEN.keys(), "go through a Disk, or list the file above with its reason"


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ("path.read_text()", [1]),
        ("(folder / 'a').write_bytes(b'')", [1]),
        ("with path.open('wb') as file: pass", [1]),
        ("path.open(mode='r')", [1]),
        ("disk.open(path, create=True)", []),
        ("calls.open(loop, peer)", []),
    ],
)
def test_opening_a_path_is_distinguished_from_opening_anything_else(
    source: str, lines: list[int]
) -> None:
    assert file_accesses(source) == lines
