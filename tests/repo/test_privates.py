"""Code uses only the privates of its own module: functions may use those of classes beside them,
which the linter cannot tell apart (SLF001)."""

import ast

import pytest

from tests.repo.tree import ROOT

PACKAGE = ROOT / "src" / "sparrowmq"
PUBLIC = {"_replace", "_asdict", "_exit", "_current_frames"}
"""Documented parts of namedtuples, os and sys."""
OF_LIBRARIES = {
    "spark/jobs/archive_files.py": {"_jsc"},
    "testing/loop_watchdog.py": {"_get_running_loop", "_run"},
    "testing/virtual_time.py": {"_log_destroy_pending", "_log_traceback"},
}
"""Where PySpark and asyncio have no public way."""


def foreign_privates(source: str) -> set[str]:
    """The privates that a module uses and does not define."""
    nodes = list(ast.walk(ast.parse(source)))
    used = [node for node in nodes if isinstance(node, ast.Attribute) and _is_private(node.attr)]
    own = {node.attr for node in used if ast.unparse(node.value) in {"self", "cls", "super()"}}
    own |= {n.name for n in nodes if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)}
    return {node.attr for node in used} - own - PUBLIC


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def test_no_module_uses_the_privates_of_another() -> None:
    found = {
        path.relative_to(PACKAGE).as_posix(): foreign
        for path in PACKAGE.rglob("*.py")
        if (foreign := foreign_privates(path.read_text(encoding="utf-8")))
    }
    assert found == OF_LIBRARIES


@pytest.mark.parametrize(
    ("source", "foreign"),
    [
        ("def core_of(client):\n    return client._core\n", {"_core"}),
        ("class A:\n    def f(self):\n        self._x = 1\ndef g(a):\n    a._x = 2\n", set()),
        ("class A:\n    def f(self, other):\n        return other._x\n", {"_x"}),
        ("class A(B):\n    def f(self):\n        return super()._f()\n", set()),
        ("value._replace(x=1).__class__\n", set()),
    ],
)
def test_a_foreign_private_is_noticed(source: str, foreign: set[str]) -> None:
    assert foreign_privates(source) == foreign
