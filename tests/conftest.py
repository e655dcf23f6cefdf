"""What holds for every test: which ones a run takes and in what order, how many examples a
property tries, and that clients of real servers are patient.

    ./dev test           tests that are not marked slow; properties try 20 examples
    ./dev test --slow    tests that are marked slow; properties again, with 200 examples
"""

from __future__ import annotations

import gc
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, is_hypothesis_test, settings

from tests.patience import be_patient

# The machine may be busy; a property that is slow is not wrong, and neither are slow examples.
PATIENT = settings(deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow])
# A test run is to say the same every time. `--hypothesis-profile explore` looks for what is new.
settings.register_profile("fast", PATIENT, derandomize=True, max_examples=20)
settings.register_profile("slow", PATIENT, derandomize=True, max_examples=200)
settings.register_profile("explore", PATIENT, max_examples=1000)
settings.load_profile("fast")

REAL_SERVERS = {"sparrowmq_cluster", "sparrowmq_session_cluster"}
LEFT_OUT = pytest.StashKey[int]()
"""How many slow tests a run without --slow has left out."""
SLOW_WEIGHT = 40
"""Cases of other tests that take as long as a test that is slow in itself."""
SPARK_TESTS = Path(__file__).parent / "spark"
SPARK_SESSION = re.compile(r"\bspark: \"?SparkSession\b")
"""The parameter of a test or fixture that uses the shared session; types are checked."""


@pytest.fixture(autouse=True)
def patient_clients(request: pytest.FixtureRequest) -> None:
    """Where time is not virtual, a client that gives up after 3 s would judge the machine."""
    if not REAL_SERVERS.isdisjoint(request.fixturenames):
        be_patient(request.getfixturevalue("monkeypatch").setitem)


# ---- which tests run


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--slow",
        action="store_true",
        help="run what is left out otherwise: tests marked slow, properties with more examples",
    )


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("slow") and not config.getoption("--hypothesis-profile"):
        settings.load_profile("slow")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Take what collecting made, half a million objects that stay, from the garbage collector.

    It would look through all of them again and again: an eighth of the run's processor time.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    slow = config.getoption("slow")
    taken = [item for item in items if _is_taken(item, slow=slow)]
    left_out = [item for item in items if not _is_taken(item, slow=slow)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
    _report_left_out(config, sum(_is_slow(item) for item in left_out))
    items[:] = _largest_first(taken, slow=slow) if _is_worker(config) else taken


def _is_taken(item: pytest.Item, *, slow: bool) -> bool:
    if not slow:
        return not _is_slow(item)
    return _is_slow(item) or is_hypothesis_test(getattr(item, "obj", None))


def _is_slow(item: pytest.Item) -> bool:
    return item.get_closest_marker("slow") is not None


def _report_left_out(config: pytest.Config, count: int) -> None:
    config.stash[LEFT_OUT] = count
    if _is_worker(config):  # the main process prints the line
        config.workeroutput["slow_left_out"] = count  # type: ignore[attr-defined]  # of xdist


def _is_worker(config: pytest.Config) -> bool:
    """True in a process that xdist has started."""
    return hasattr(config, "workeroutput")


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    """Every worker of xdist collects all tests, so that any of them knows the number."""
    if output := getattr(node, "workeroutput", None):  # none of a worker that crashed
        node.config.stash[LEFT_OUT] = output.get("slow_left_out", 0)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> Any:
    """The last line, after the summary of pytest."""
    result = yield
    count = session.config.stash.get(LEFT_OUT, 0)
    terminal = session.config.pluginmanager.get_plugin("terminalreporter")
    if count and terminal is not None and not _is_worker(session.config):
        terminal.write_line(f"slow tests left for ./dev test --slow: {count:,}")
    return result


# ---- which process runs them, and in what order


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """For `--dist loadgroup`: the groups are those of _group_of."""
    if config.getvalue("dist") != "loadgroup":
        return None
    from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]  # has none

    class Groups(LoadScopeScheduling):  # type: ignore[misc]  # a class without types
        def _split_scope(self, nodeid: str) -> str:
            path = config.rootpath / nodeid.split("::", 1)[0]
            return _group_of(path, slow=config.getoption("slow"))

    # The workers have put the groups into their order.
    config.option.loadscopereorder = False
    return Groups(config, log)


@cache
def _group_of(path: Path, *, slow: bool) -> str:
    """Tests that one process runs: a file, whose fixtures are then made once, or those of Spark.

    The tests that share a session stay together, because starting Java takes seconds. Slow ones
    that kill drivers of their own wait for these most of the time: they have a second session.
    """
    if SPARK_TESTS in path.parents and SPARK_SESSION.search(path.read_text(encoding="utf-8")):
        return "spark kills" if slow and path.stem.startswith("test_killed_") else "spark"
    return str(path)


def _largest_first(items: list[pytest.Item], *, slow: bool) -> list[pytest.Item]:
    """Spark, then the files that take longest: what comes last is short in every process."""
    groups = {item.path: _group_of(item.path, slow=slow) for item in items}
    functions = {(item.path, _function(item)): _weight(item) for item in items}
    sizes = Counter(groups[item.path] for item in items)
    for (path, _), weight in functions.items():
        sizes[groups[path]] += weight

    def rank(item: pytest.Item) -> tuple[bool, int, str, Path]:
        group = groups[item.path]
        return not group.startswith("spark"), -sizes[group], group, item.path

    return sorted(items, key=rank)


def _function(item: pytest.Item) -> str:
    return item.nodeid.split("[", 1)[0]


def _weight(item: pytest.Item) -> int:
    """What a function adds to its cases: where it is slow itself, it takes as long as dozens."""
    marks = getattr(getattr(item, "obj", None), "pytestmark", [])
    return SLOW_WEIGHT if any(mark.name == "slow" for mark in marks) else 0
