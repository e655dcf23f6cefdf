"""The maps of the code name only files, classes and functions that exist."""

import ast
import asyncio
import builtins
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import pytest

from tests.repo.tree import ROOT

MAPS = ("ARCHITECTURE.md", "CONTRIBUTING.md", "docs/where.md")
PACKAGE = ROOT / "src" / "sparrowmq"
CODE = ("src", "tests", "tools", "bench")
FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
QUOTED = re.compile(r"`([^`\n]+)`")
PATH_IN_DRAWING = re.compile(r"(?<![\w./])(?:[\w-]+/)+[\w-]+(?:\.py|/)|(?<![\w./])\w+\.py\b")
"""In drawings, where nothing is quoted: names of modules, and folders inside of folders."""

STEP_IN_DRAWING = re.compile(r"^[A-Z -]*?((?:[\w-]+/)+\w+\.py) +(\w+): ", re.MULTILINE)
"""In drawings: a file, and the function in it that takes the step."""

FILE = re.compile(r"(?:[\w.-]+/)+[\w.-]*|[\w-]+\.(?:py|toml|md)")
CLASS = re.compile(r"[A-Z]\w*[a-z]\w*")
FUNCTION = re.compile(r"([\w.]+)\(\)")
DOTTED = re.compile(r"[a-z_]\w*(?:\.\w+)+")
SNAKE = re.compile(r"[a-z]+(?:_[a-z0-9]+)+")
NO_CODE = re.compile(r'""".*?"""|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|#[^\n]*', re.DOTALL)
"""Strings and comments."""
OF_PYTHON = {*dir(builtins), *dir(asyncio), "random.Random"}


@dataclass
class Names:
    """What the code defines."""

    modules: set[str] = field(default_factory=set)
    """Dotted, with every prefix left out: client.group.rebalance, group.rebalance, rebalance."""
    classes: set[str] = field(default_factory=set)
    functions: set[str] = field(default_factory=set)
    others: set[str] = field(default_factory=set)
    """Parameters, attributes and variables."""


@cache
def defined() -> Names:
    names = Names()
    for path in sorted(file for folder in CODE for file in (ROOT / folder).rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        dotted = parts[:-1] if parts[-1] == "__init__" else parts
        names.modules.update(".".join(dotted[at:]) for at in range(len(dotted)))
        if not path.name.startswith("test_"):  # nothing else uses what is in there
            add_names(path.read_text(encoding="utf-8"), names)
    return names


def add_names(source: str, names: Names) -> None:
    """Add what a module defines or uses. Its text is searched, since trees of 800 modules take
    twenty times as long."""
    code = NO_CODE.sub(" ", source)
    names.classes.update(re.findall(r"\bclass (\w+)", code))
    names.functions.update(re.findall(r"\bdef (\w+)", code))
    names.others.update(re.findall(r"\b[A-Za-z_]\w*", code))


def misses(text: str) -> list[str]:
    """What the text names, in quotes or as a file in a drawing, and does not exist."""
    drawn = [
        found for drawing in FENCED.findall(text) for found in PATH_IN_DRAWING.findall(drawing)
    ]
    quoted = QUOTED.findall(FENCED.sub("", text))
    return sorted({name for name in [*drawn, *quoted] if not exists(name)})


def exists(name: str) -> bool:
    """True for existing names, and for other text: a command, an option, a pattern."""
    names = defined()
    if FILE.fullmatch(name):
        return any((folder / name).exists() for folder in (ROOT, PACKAGE))
    if name in OF_PYTHON:
        return True
    if CLASS.fullmatch(name):
        return name in names.classes | names.others
    if function := FUNCTION.fullmatch(name):
        return function[1].rpartition(".")[2] in names.functions | names.classes
    if DOTTED.fullmatch(name):
        module, _, last = name.rpartition(".")
        known = names.functions | names.classes | names.others
        return name in names.modules or (module in names.modules and last in known)
    if SNAKE.fullmatch(name):
        return name in names.modules | names.functions | names.others
    return True


@pytest.mark.parametrize("document", MAPS)
def test_a_map_names_only_what_exists(document: str) -> None:
    assert misses((ROOT / document).read_text(encoding="utf-8")) == []


def steps(text: str) -> list[tuple[str, str]]:
    """The functions in drawings, each with the file that is named before it."""
    return [step for drawing in FENCED.findall(text) for step in STEP_IN_DRAWING.findall(drawing)]


def has_function(path: str, name: str) -> bool:
    names = Names()
    add_names((PACKAGE / path).read_text(encoding="utf-8"), names)
    return name in names.functions


def test_the_functions_of_the_six_paths_are_in_the_files_before_them() -> None:
    drawn = steps((ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8"))
    assert len(drawn) >= 10
    assert [step for step in drawn if not has_function(*step)] == []


def test_a_step_of_a_drawing_that_is_elsewhere_is_noticed() -> None:
    drawing = (
        "```\nSEND    store/store.py    open: lock it\n        net/routes.py   sell: no\n```\n"
    )
    assert [has_function(*step) for step in steps(drawing)] == [True, False]


@pytest.mark.parametrize(
    "name",
    [
        "store/store.py",
        "tests/repo/test_map.py",
        "broker/handlers/",
        "pyproject.toml",
        "Clock",
        "StoreCorrupted",
        "CancelledError",
        "plan_rebalance()",
        "store.files",
        "random.Random",
        "timer_index",
        "size_bytes",
        "./dev check [--fix]",
        "tests/<package>/test_*.py",
        "--update",
    ],
)
def test_an_existing_name_is_found(name: str) -> None:
    assert misses(f"See `{name}`.") == []


@pytest.mark.parametrize(
    "name",
    [
        "store/shop.py",
        "shop.py",
        "broker/shops/",
        "shop.toml",
        "ShopKeeper",
        "keep_shop()",
        "store.shop",
        "store.files.keep_shop",
        "shop_keeper",
    ],
)
def test_what_does_not_exist_is_reported(name: str) -> None:
    assert misses(f"See `{name}`.") == [name]


def test_files_in_a_drawing_are_looked_for_too() -> None:
    drawing = "```\nSEND  net/connection.py  cut frames (store/shops/)  index/  shop.py\n```\n"
    assert misses(drawing) == ["shop.py", "store/shops/"]


def test_a_module_is_identified_by_the_end_of_its_path() -> None:
    path = Path(__file__).relative_to(ROOT).with_suffix("")
    assert {path.name, ".".join(path.parts)} <= defined().modules


EXCEPTIONS = "## What holds everywhere, and where it does not"
OUTSIDE = ("testing/", "cli/")
"""Where the rules about what is ambient do not hold: starting things is what these do."""


def named_exceptions(rule: str) -> set[str]:
    """The modules that the map names as exceptions to a rule."""
    section = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8").partition(EXCEPTIONS)[2]
    (text,) = (each for each in section.split("\n* ") if each.startswith(f"**{rule}"))
    return {name for name in QUOTED.findall(text) if name.endswith(".py")}


def modules_with(
    finds: Callable[[ast.AST], bool], word: str, left_out: tuple[str, ...] = ()
) -> set[str]:
    """The modules in which a node has what the function looks for; it has the word, too."""
    return {
        path
        for path, source in sources().items()
        if word in source
        if not path.startswith(left_out)
        if any(finds(node) for node in ast.walk(ast.parse(source)))
    }


@cache
def sources() -> dict[str, str]:
    return {
        path.relative_to(PACKAGE).as_posix(): path.read_text(encoding="utf-8")
        for path in sorted(PACKAGE.rglob("*.py"))
    }


def is_from(node: ast.AST, module: str, *names: str) -> bool:
    """It is `module.name`."""
    return (
        isinstance(node, ast.Attribute)
        and node.attr in names
        and isinstance(node.value, ast.Name)
        and node.value.id == module
    )


def is_lock(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and is_from(node.func, "asyncio", "Lock")


def reads_environment(node: ast.AST) -> bool:
    return is_from(node, "os", "environ", "getenv")


def swallows_anything(node: ast.AST) -> bool:
    """It catches every exception, and not only to clean up and raise it again."""
    if not isinstance(node, ast.ExceptHandler) or isinstance(node.body[-1], ast.Raise):
        return False
    caught = "BaseException" if node.type is None else ast.unparse(node.type)
    return bool({"Exception", "BaseException"} & set(re.findall(r"\w+", caught)))


def test_locks_that_are_held_across_an_await_are_named() -> None:
    named = named_exceptions("No lock is held across an `await`")
    made = modules_with(is_lock, "asyncio.Lock")
    # The lock around the list of timer files is made in the index, and held where it is saved.
    assert made - named == {"broker/delivery/timer_index.py"}


def test_modules_that_read_the_environment_are_named() -> None:
    assert modules_with(reads_environment, "os.", OUTSIDE) <= named_exceptions("Nothing is ambient")


def test_places_that_swallow_any_exception_are_named() -> None:
    swallowing = modules_with(swallows_anything, "except", ("testing/",))
    # The name server keeps its failure to raise it outside of the task group.
    assert swallowing - {"nameserver/server.py"} <= named_exceptions("`Exception` is caught")


@pytest.mark.parametrize(
    ("code", "swallows"),
    [
        ("try:\n    a()\nexcept Exception:\n    b()", True),
        ("try:\n    a()\nexcept:\n    b()", True),
        ("try:\n    a()\nexcept (BaseException, OSError) as e:\n    if b(e):\n        raise", True),
        ("try:\n    a()\nexcept Exception:\n    b()\n    raise", False),
        ("try:\n    a()\nexcept ExceptionGroup:\n    b()", False),
    ],
)
def test_a_swallowed_exception_is_noticed(code: str, swallows: bool) -> None:
    assert any(swallows_anything(node) for node in ast.walk(ast.parse(code))) is swallows
