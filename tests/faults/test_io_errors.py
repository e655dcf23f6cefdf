"""A failing disk: no acknowledgement after the first failed sync, and nothing is lost."""

import pytest

from sparrowmq.broker import shutdown
from sparrowmq.broker.broker import Broker
from sparrowmq.broker.registration import BrokerRegistration
from sparrowmq.net.peers import Peers
from sparrowmq.net.server import Server
from tests.faults.io_errors import KINDS, RetryingRun, fail_disk
from tests.faults.stop_time import stop_after_failed_sync

SEEDS = range(8)


@pytest.mark.parametrize("sync_flush", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_a_failing_disk_ends_acknowledgements_and_loses_nothing(
    kind: str, sync_flush: bool
) -> None:
    results = [fail_disk(seed, kind, sync_flush=sync_flush) for seed in SEEDS]
    assert [str(result) for result in results if not result] == []
    assert any(result.was_met for result in results)


def test_planted_going_on_after_a_failed_sync_is_noticed() -> None:
    results = [fail_disk(seed, "sync", sync_flush=True, run_type=RetryingRun) for seed in SEEDS]
    assert any(result.verdict.lost for result in results)
    assert any(result.problems for result in results)


@pytest.mark.parametrize("sync_flush", [True, False])
def test_a_broker_is_gone_within_a_second_after_a_failed_sync(sync_flush: bool) -> None:
    results = [stop_after_failed_sync(seed, sync_flush=sync_flush) for seed in range(4)]
    assert [str(result) for result in results if not result] == []


def test_planted_unregistering_before_closing_the_server_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def drain(registration: BrokerRegistration, server: Server[Broker], peers: Peers) -> None:
        await registration.unregister()
        await shutdown.reject_pulls(server)
        await server.close()

    monkeypatch.setattr(shutdown, "drain", drain)
    results = [stop_after_failed_sync(seed, sync_flush=True) for seed in range(4)]
    assert any("gone only" in str(result) for result in results)
