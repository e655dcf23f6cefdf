"""Every server process of a campaign is watched, and what blocked its loop is named."""

from pathlib import Path

import msgspec
import pytest

from sparrowmq.testing.loop_watchdog import Stall
from tests.cli.servers import with_open_files
from tests.faults.broker_process import BrokerProcess
from tests.faults.nameserver_outage_servers import NameServerProcess
from tests.faults.watched_loops import Watched, stalls_of_service, too_long, watched
from tests.seeds import in_part

MODULES = ("sparrowmq", "tests.faults.set_clock_broker", "tests.faults.slow_disk_broker")


def is_watched(pid: int) -> bool:
    return b"--stalls" in Path(f"/proc/{pid}/cmdline").read_bytes()


@pytest.mark.parametrize("module", in_part(MODULES, few=1))
def test_brokers_of_a_campaign_are_watched_in_a_namespace_too(tmp_path: Path, module: str) -> None:
    with watched():
        # As on one of two hosts: another program runs the broker.
        broker = BrokerProcess(tmp_path / "data", module=module, prefix=with_open_files(1_024))
    assert is_watched(broker.process.pid)
    assert broker.stop() == 0


def test_brokers_under_a_tracer_are_not_watched(tmp_path: Path) -> None:
    with watched():
        broker = BrokerProcess(tmp_path / "data", is_traced=True)
    assert not is_watched(broker.process.pid)
    broker.kill()


def test_name_servers_of_a_campaign_are_watched_after_a_restart_too(tmp_path: Path) -> None:
    with watched():
        server = NameServerProcess(tmp_path)
        assert is_watched(server.pid)
        server.kill()
        server.start()
        assert is_watched(server.pid)
        server.close()


@pytest.mark.parametrize(
    ("stack", "counts"),
    [
        (("server.py:73 BrokerServer.running", "pull.py:80 pull_message"), True),
        (("server.py:73 BrokerServer.running", "server.py:160 reopen_broker"), True),
        (("server.py:120 BrokerServer.running", "server.py:154 open_broker", "a.py:1 a"), False),
        (("server.py:120 BrokerServer.running", "replication.py:75 open_in_role"), False),
        (("serve.py:74 broker_running", "syncer.py:111 ProcessSyncer.start", "a.py:1 b"), False),
        (("syncer.py:125 ProcessSyncer.begin", "syncer.py:111 ProcessSyncer.start"), True),
        (("serve.py:88 broker_running", "syncer.py:220 ProcessSyncer.close", "a.py:1 b"), False),
    ],
)
def test_a_stall_counts_unless_the_broker_was_starting_or_had_stopped_serving(
    stack: tuple[str, ...], counts: bool
) -> None:
    stall = Stall(1.0, wall_ms=130, cpu_ms=20, unscheduled_ms=50, callback="a step", stack=stack)
    line = msgspec.json.encode(stall).decode()
    found = [(80.0, " < ".join(reversed(stack)))] if counts else []
    assert stalls_of_service(f"{line}\n") == found


def test_a_row_names_what_blocked_the_brokers_event_loops_longest() -> None:
    with watched() as loops:
        assert Watched.into is not None
        with Watched.into.open("ab") as file:
            for wall_ms in (60.0, 90.0):
                stall = Stall(1.0, wall_ms, 50.0, 0.0, "a step", (f"a.py:{wall_ms:.0f} sort",))
                file.write(msgspec.json.encode(stall) + b"\n")
    assert str(loops) == "2 stalls over 50 ms, the longest 90 ms in a.py:90 sort"
    assert too_long(loops.stalls) == [str(loops)]
    with watched() as loops:
        pass
    assert too_long(loops.stalls) == []
    assert str(loops) == "no callback held a loop for 50 ms"
