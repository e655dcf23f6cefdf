"""`./dev` sets itself up, repairs itself and reports what is missing, tried on a tiny project."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.repo.tree import ROOT

# A build backend without dependencies: the copy installs from nothing, with no network.
BACKEND = """
import os, signal, zipfile

def build_editable(folder, config_settings=None, metadata_directory=None):
    if victim := os.environ.get("VICTIM"):
        os.kill(int(victim), signal.SIGKILL)
    info = "tiny-1.dist-info"
    with zipfile.ZipFile(os.path.join(folder, "tiny-1-py3-none-any.whl"), "w") as wheel:
        wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\\nName: tiny\\nVersion: 1\\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\\nTag: py3-none-any\\n")
        wheel.writestr(f"{info}/RECORD", "")
        wheel.writestr("tiny.pth", os.getcwd())
    return "tiny-1-py3-none-any.whl"
"""
PYPROJECT = """
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
"""
SET_UP = "from tools.environment import ensure; ensure('dev')"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A copy of `./dev` around a project that needs no packages."""
    return make_project(tmp_path)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Such a project after its first set-up, made once because that takes seconds; its output."""
    folder = make_project(tmp_path_factory.mktemp("finished"))
    return folder, output_of(start(folder))


@pytest.fixture
def ready(finished: tuple[Path, str], tmp_path: Path) -> Path:
    """A copy of the finished project that the test may change."""
    folder = tmp_path / "ready"
    shutil.copytree(finished[0], folder, symlinks=True)
    return folder


def make_project(folder: Path) -> Path:
    leave_out = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "tools", folder / "tools", ignore=leave_out)
    shutil.copy(ROOT / "dev", folder)
    (folder / "locks").mkdir()
    for lock in ("dev.txt", "spark.txt", "browser.txt"):
        (folder / "locks" / lock).write_text("# nothing\n")
    (folder / "pyproject.toml").write_text(PYPROJECT)
    (folder / "backend.py").write_text(BACKEND)
    return folder


def start(project: Path, code: str = SET_UP) -> subprocess.Popen[str]:
    """Python code in the project's root, on a PATH where there is no uv."""
    return subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=project,
        env={"PATH": os.defpath, "HOME": str(project), "PIP_NO_INDEX": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def output_of(process: subprocess.Popen[str], expected_code: int = 0) -> str:
    output, _ = process.communicate()
    assert process.returncode == expected_code, output
    return output


@pytest.mark.slow
def test_the_second_set_up_finds_everything_done_until_the_lock_changes(
    finished: tuple[Path, str], ready: Path
) -> None:
    assert "making .venv" in finished[1]
    assert output_of(start(ready)) == ""
    (ready / "locks" / "dev.txt").write_text("# still nothing\n")
    again = output_of(start(ready))
    assert "installing locks/dev.txt" in again
    assert "making .venv" not in again


@pytest.mark.slow
def test_a_killed_set_up_is_done_again_from_the_beginning(ready: Path) -> None:
    (ready / "pyproject.toml").write_text(PYPROJECT + "# changed\n")
    kill_me = "import os; os.environ['VICTIM'] = str(os.getpid()); " + SET_UP
    output_of(start(ready, kill_me), expected_code=-signal.SIGKILL)
    half_done = ready / ".venv" / "half-done"
    half_done.touch()
    assert "making .venv" in output_of(start(ready))
    assert not half_done.exists()
    assert output_of(start(ready)) == ""


@pytest.mark.slow
def test_two_set_ups_at_once_replace_a_broken_environment_by_one(ready: Path) -> None:
    (ready / ".venv" / "bin" / "python").unlink()  # as after an upgrade of the system's Python
    outputs = [output_of(process) for process in [start(ready), start(ready)]]
    assert sum("making .venv" in output for output in outputs) == 1
    assert sum("environment ready" in output for output in outputs) == 1
    assert output_of(start(ready)) == ""


@pytest.mark.slow
def test_a_failed_install_shows_the_output_of_pip_and_exits_with_an_error(ready: Path) -> None:
    (ready / "locks" / "dev.txt").write_text("nothing-of-that-name==1 --hash=sha256:00\n")
    run = "import sys; from tools.verbs import run; sys.exit(run(['check']))"
    output = output_of(start(ready, run), expected_code=1)
    assert "installing locks/dev.txt failed" in output
    assert "nothing-of-that-name" in output


def test_a_python_without_ensurepip_gets_an_error_that_names_the_missing_package(
    project: Path,
) -> None:
    hide = "import sys; sys.modules['ensurepip'] = None; "
    run = hide + "from tools.verbs import run; sys.exit(run(['test']))"
    output = output_of(start(project, run), expected_code=1)
    assert "apt-get install python3-venv" in output


def test_an_old_python_gets_an_error_that_names_the_required_version(project: Path) -> None:
    pretend = (
        "import os, runpy, sys; os.environ['PATH'] = '/nowhere'; sys.version_info = (3, 8, 0); "
        "runpy.run_path('dev', run_name='__main__')"
    )
    assert "needs Python 3.11 or newer" in output_of(start(project, pretend), expected_code=1)


def test_without_a_verb_dev_prints_them_and_sets_nothing_up(project: Path) -> None:
    verbs = output_of(start(project, "import runpy; runpy.run_path('dev', run_name='__main__')"))
    for verb in ("demo", "up", "test", "check", "interop", "bench", "faults"):
        assert f"\n  {verb} " in verbs
    assert not (project / ".venv").exists()


def test_an_unknown_verb_is_an_error_that_lists_the_known_ones(project: Path) -> None:
    run = "import sys; from tools.verbs import run; sys.exit(run(['tset']))"
    output = output_of(start(project, run), expected_code=2)
    assert "no verb 'tset'" in output
    assert "check" in output
