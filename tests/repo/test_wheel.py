"""The distributions are complete, and the installed wheel runs with what it declares."""

import re
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from importlib import metadata
from pathlib import Path

import pytest

import sparrowmq
from tests.repo.tree import ROOT


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sdist, and the wheel made from that sdist as an index user's pip would."""
    folder = tmp_path_factory.mktemp("built")
    build = [sys.executable, "-m", "hatchling", "build", "--directory", str(folder)]
    subprocess.run([*build, "--target", "sdist"], cwd=ROOT, check=True, capture_output=True)
    (sdist,) = folder.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        # The argument filter= came with 3.11.4; without a filter 3.12 warns.
        archive.extraction_filter = getattr(tarfile, "data_filter", None)
        archive.extractall(folder / "unpacked")
    (source,) = (folder / "unpacked").iterdir()
    subprocess.run([*build, "--target", "wheel"], cwd=source, check=True, capture_output=True)
    return folder


@pytest.fixture(scope="module")
def installed(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bin folder of a new environment with the wheel and only what the wheel asks for."""
    environment = tmp_path_factory.mktemp("environment")
    venv.create(environment, with_pip=False, symlinks=True)
    (site,) = environment.glob("lib/python*/site-packages")
    (wheel,) = built.glob("*.whl")
    for distribution in _needed_by(wheel):
        _link(distribution, site)
    python = str(environment / "bin" / "python")
    uv = shutil.which("uv")
    pip = [sys.executable, "-m", "pip", "--python", python, "--disable-pip-version-check"]
    install = [uv, "pip", "install", "--python", python] if uv else [*pip, "install"]
    subprocess.run([*install, "--quiet", "--no-deps", "--no-index", str(wheel)], check=True)
    return environment / "bin"


def _needed_by(wheel: Path) -> list[metadata.Distribution]:
    """The distributions that the wheel requires, directly or through others, extras left out."""
    found: dict[str, metadata.Distribution] = {}
    waiting = _required_by(wheel)
    while waiting:
        requirement = waiting.pop()
        name = re.split(r"[^\w.-]", requirement, maxsplit=1)[0]
        if "extra ==" not in requirement and name not in found and _is_here(name):
            found[name] = metadata.distribution(name)
            waiting += metadata.requires(name) or []
    return list(found.values())


def _required_by(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        lines = archive.read(name).decode().splitlines()
    return [line.split(": ", 1)[1] for line in lines if line.startswith("Requires-Dist: ")]


def _is_here(name: str) -> bool:
    """False for what only another platform or Python needs."""
    try:
        metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return False
    return True


def _link(distribution: metadata.Distribution, site: Path) -> None:
    """Makes an installed distribution visible in another environment without copying it."""
    for top in {file.parts[0] for file in distribution.files or [] if file.parts[0] != ".."}:
        target = Path(str(distribution.locate_file(top)))
        if top != "__pycache__" and not (site / top).exists():
            (site / top).symlink_to(target)


@pytest.mark.slow
def test_the_sdist_carries_licence_documents_and_tests(built: Path) -> None:
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.split("/", 1)[1] for name in archive.getnames() if "/" in name}
    assert {
        "LICENSE",
        "README.md",
        "CHANGELOG.md",
        "dev",
        "locks/dev.txt",
        "tests/repo/tree.py",
    } <= names


def test_the_wheel_carries_every_module_and_nothing_else(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if ".dist-info/" not in name}
    source = ROOT / "src"
    expected = {
        path.relative_to(source).as_posix()
        for path in source.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert packed == expected


@pytest.mark.slow
def test_the_installed_command_tells_its_version(installed: Path) -> None:
    command = [str(installed / "sparrowmq"), "--version"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True)
    assert sparrowmq.__version__ in shown.stdout


@pytest.mark.slow
def test_the_installed_command_serves_until_it_is_stopped(installed: Path, tmp_path: Path) -> None:
    free_ports = ["--port", "0", "--nameserver-port", "0", "--data", str(tmp_path / "data")]
    with subprocess.Popen(
        [str(installed / "sparrowmq"), "up", *free_ports],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as server:
        assert server.stdout is not None
        first_line = server.stdout.readline()
        server.terminate()
        _, logged = server.communicate()
    assert first_line.startswith("sparrowmq ready"), logged
    assert server.returncode == 0, logged


@pytest.mark.slow
def test_every_module_of_the_wheel_imports_with_the_declared_dependencies(installed: Path) -> None:
    subprocess.run([str(installed / "python"), "-I", "-c", IMPORT_ALL], check=True)


IMPORT_ALL = """
import importlib, pkgutil, sparrowmq
NEEDS_MORE = ("sparrowmq.console", "sparrowmq.spark", "sparrowmq.testing.plugin")
for module in pkgutil.walk_packages(sparrowmq.__path__, "sparrowmq."):
    if not module.name.startswith(NEEDS_MORE) and not module.name.endswith("__main__"):
        importlib.import_module(module.name)
"""
