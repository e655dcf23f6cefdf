"""The limit of open files: raised at the start, shared out, and shown."""

import re
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from sparrowmq.broker.config import BrokerConfig
from sparrowmq.cli.descriptors import (
    BROKER_NEEDS,
    NAMESERVER_NEEDS,
    Descriptors,
    TooFewDescriptors,
    share_out,
)
from sparrowmq.nameserver.config import NameServerConfig
from tests.cli.servers import AS_A_COMMAND, clean_environment, up, with_open_files
from tests.patience import PATIENCE_S

WANTED = 232 + 512 + 10_000


@pytest.mark.parametrize(
    ("limit", "connections", "files"),
    [
        (1_000_000, 10_000, 512),
        (WANTED, 10_000, 512),
        (WANTED - 1, 9_999, 512),
        (4096, 3352, 512),
        (1024, 594, 198),
        (320, 66, 22),
        (264, 24, 8),
    ],
)
def test_connections_get_the_descriptors_that_files_leave(
    limit: int, connections: int, files: int
) -> None:
    shares = share_out(limit, BROKER_NEEDS, connections=10_000, files=512)
    assert shares == (connections, files)


def test_what_is_wanted_less_of_is_not_lowered() -> None:
    assert share_out(1024, BROKER_NEEDS, connections=100, files=512) == (100, 512)
    assert share_out(1024, BROKER_NEEDS, connections=10_000, files=10) == (782, 10)


@pytest.mark.parametrize(("needs", "least"), [(BROKER_NEEDS, 264), (NAMESERVER_NEEDS, 96)])
def test_a_limit_too_low_for_a_server_names_the_number_needed(needs: int, least: int) -> None:
    share_out(least, needs, connections=10_000)
    with pytest.raises(TooFewDescriptors, match=f"{least - 1} files here and needs {least} at"):
        share_out(least - 1, needs, connections=10_000)


def test_two_servers_of_one_process_share_a_limit() -> None:
    names, broker = NameServerConfig(), BrokerConfig(data_dir=Path("d"))
    descriptors = Descriptors(2048, wanted=10_064 + WANTED)
    both = descriptors.fit(names).limits.max_connections, descriptors.fit(broker)
    assert both[0] == 990 - 64
    assert both[1].limits.max_connections + both[1].store.open_queue_files == 1057 - 232
    assert Descriptors(20_808, wanted=20_808).fit(names) == names


def sparrowmq_with(soft: int, hard: int, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command with a limit of open files."""
    return subprocess.run(
        [*with_open_files(soft, hard), sys.executable, "-c", AS_A_COMMAND, *arguments],
        env=clean_environment(),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


@pytest.mark.parametrize(
    ("server", "lines"),
    [
        ("broker", ["limit-max-connections 594", "store-open-queue-files 198"]),
        ("nameserver", ["nameserver-limit-max-connections 960"]),
    ],
)
def test_config_show_explains_what_the_limit_leaves(server: str, lines: list[str]) -> None:
    shown = sparrowmq_with(256, 1024, "config", "show", server).stdout
    for line in lines:
        name, value = line.split()
        wanted = "512" if "files" in name else "10000"
        reason = f"default is {wanted}; a server started here may open 1024 files"
        assert re.search(rf"^{name}\t{value}\t{reason}$", shown, re.M), shown


def test_a_limit_too_low_is_reported_before_anything_is_created(tmp_path: Path) -> None:
    data = tmp_path / "data"
    refused = sparrowmq_with(100, 100, "broker", "--data", str(data), "--port", "0")
    assert refused.returncode == 1
    assert "may open 100 files here and needs 264 at least" in refused.stderr
    assert "ulimit -n" in refused.stderr
    assert not data.exists()


def test_a_server_raises_its_limit_as_far_as_it_may(tmp_path: Path) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with up(tmp_path / "data", "--limit-max-connections", "200", soft_files=256) as server:
        raised = resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE)
    assert raised == (min(hard, 10_064 + 232 + 512 + 200), hard)
