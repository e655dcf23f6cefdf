"""`.ci/run`: required checks are not skipped if a tool could not be installed."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.repo.tree import ROOT

DEV = '#!/bin/sh\necho "dev $1, browser required: ${SPARROWMQ_REQUIRE_BROWSER:-no}"\n'
APT = "#!/bin/sh\necho 'E: no mirror answers' >&2\nexit 100\n"


@pytest.mark.parametrize(
    ("tools", "user", "required"),
    [
        ({"apt-get": APT}, 0, "1"),
        ({"apt-get": APT, "chromium": DEV}, 0, "1"),
        ({"chromium": DEV}, 1000, "1"),
        ({"apt-get": APT}, 1000, "no"),
        ({}, 0, "no"),
    ],
    ids=["cannot install", "root has it", "has it", "may not install", "no apt-get"],
)
def test_a_browser_is_required_where_there_is_one_or_one_could_be_installed(
    tools: dict[str, str], user: int, required: str, tmp_path: Path
) -> None:
    (tmp_path / ".ci").mkdir()
    shutil.copy(ROOT / ".ci" / "run", tmp_path / ".ci" / "run")
    bin_dir = tmp_path / "bin"
    bin_dir.mkdir()
    scripts = {"id": f"#!/bin/sh\necho {user}\n", **tools}
    for path, text in ((tmp_path / "dev", DEV), *((bin_dir / n, t) for n, t in scripts.items())):
        path.write_text(text)
        path.chmod(0o755)
    for name in ("bash", "sh", "dirname"):
        (bin_dir / name).symlink_to(str(shutil.which(name)))
    run = subprocess.run(
        [str(tmp_path / ".ci" / "run")],
        env={"PATH": str(bin_dir)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert f"dev test, browser required: {required}" in run.stdout
    is_shown = "E: no mirror answers" in run.stdout
    assert is_shown == (user == 0 and "apt-get" in tools and "chromium" not in tools)
