"""A data directory that a broker may not use is refused with the path, the user and the remedy."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from sparrowmq.cli.serve import not_permitted
from tests.cli.servers import AS_A_COMMAND, clean_environment, sparrowmq, stop, up
from tests.patience import PATIENCE_S

# Root may do everything; without capabilities it is a user like any other.
UNPRIVILEGED = ["setpriv", "--no-new-privs", "--bounding-set=-all", "--inh-caps=-all"]
needs_setpriv = pytest.mark.skipif(
    os.getuid() == 0 and shutil.which("setpriv") is None,
    reason="needs setpriv to drop root's rights",
)


def refused_broker(data: Path) -> str:
    """The error of an unprivileged broker about its directory."""
    prefix = UNPRIVILEGED if os.getuid() == 0 else []
    flags = ["--data", str(data), "--port", "0", "--name-servers", "127.0.0.1:1"]
    ended = subprocess.run(
        [*prefix, sys.executable, "-c", AS_A_COMMAND, "broker", *flags],
        env=clean_environment(),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert (ended.returncode, ended.stdout) == (1, "")
    assert "Traceback" not in ended.stderr
    return ended.stderr.splitlines()[-1]


@needs_setpriv
def test_a_directory_that_cannot_be_written_is_named_with_its_user_and_mode(
    tmp_path: Path,
) -> None:
    data = tmp_path / "data"
    data.mkdir(mode=0o555)
    said = refused_broker(data)
    owner = data.owner()
    assert said.startswith(f"sparrowmq: {data} cannot be used by user {owner}: {data} belongs to")
    assert f"user {owner}, with mode 0555; give the whole directory to the user that runs" in said
    assert "choose another directory with --data" in said
    assert list(data.iterdir()) == []


@needs_setpriv
def test_a_file_inside_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with up(tmp_path) as server:
        stop(server)
    lock = tmp_path / "lock"
    lock.chmod(0o400)
    said = refused_broker(tmp_path)
    assert said.startswith(f"sparrowmq: {lock} cannot be used by user {lock.owner()}: {lock} ")
    assert "with mode 0400" in said


def test_the_directory_that_is_in_the_way_is_named_where_the_file_does_not_exist(
    tmp_path: Path,
) -> None:
    (tmp_path / "data").mkdir(mode=0o700)
    missing = tmp_path / "data" / "commitlog" / "x"
    text = not_permitted(missing)
    assert text.startswith(f"{missing} cannot be used by user ")
    assert f": {tmp_path / 'data'} belongs to user " in text


@pytest.mark.parametrize("command", [("up", "--nameserver-port", "0", "--no-console"), ("broker",)])
def test_a_file_in_place_of_the_directory_is_named_with_the_remedy(
    command: tuple[str, ...], tmp_path: Path
) -> None:
    (tmp_path / "data").write_text("")
    refused = sparrowmq(*command, "--port", "0", "--data", "data", cwd=tmp_path)
    assert refused.returncode == 1
    text = f"sparrowmq: {tmp_path / 'data'} cannot be made a directory for messages: File exists;"
    assert refused.stderr == f"{text} choose another one with --data\n"
