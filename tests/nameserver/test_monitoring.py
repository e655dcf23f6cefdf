"""The pages of a name server: what it knows of brokers, and whether it gives out routes."""

import asyncio

from prometheus_client.parser import text_string_to_metric_families as parse

from sparrowmq.metrics.families import NAME_SERVER_FAMILIES
from sparrowmq.nameserver.monitoring import monitored
from sparrowmq.testing.sim_cluster import RunningCluster, SimCluster
from sparrowmq.testing.sim_nodes import NameServerNode
from tests.broker.scraping import get

PORT = 5558


def page(sim: RunningCluster, path: str) -> tuple[int, str]:
    """A page of the cluster's first name server."""
    (node,) = sim.name_servers.values()
    if not node.server.metrics_port:
        node.host.start(_monitor(node), name="monitoring")
        sim.until(lambda: node.server.metrics_port != 0)
    return sim.run(get(path, PORT), on=node.host)


async def _monitor(node: NameServerNode) -> None:
    async with monitored(node.server):
        await asyncio.Event().wait()


def test_brokers_topics_and_silences_are_counted() -> None:
    with SimCluster(seed=1, brokers=2).run() as sim:
        page(sim, "/healthz")
        sim.advance(100)
        sim.brokers["broker-b"].host.process.stop()
        sim.advance(50)
        status, text = page(sim, "/metrics")
        assert status == 200
        found = {
            (sample.name, sample.labels.get("cluster"), sample.labels.get("broker_name")): sample
            for family in parse(text)
            for sample in family.samples
        }
        assert found["sparrowmq_nameserver_brokers", "DefaultCluster", None].value == 2
        silence = "sparrowmq_nameserver_broker_silence_seconds"
        assert found[silence, None, "broker-a"].value <= 30
        assert found[silence, None, "broker-b"].value >= 50
        assert found["sparrowmq_nameserver_topics", None, None].value > 0
        assert found["sparrowmq_ready", None, None].value == 1
        declared = {name for family in NAME_SERVER_FAMILIES for name in family.names}
        assert {family.name for family in parse(text)} == declared
        assert 'request_code="register_broker"' in text


def test_a_name_server_that_still_waits_for_brokers_is_alive_and_not_ready() -> None:
    waiting = {"need_wait_for_service": True, "wait_seconds_for_service": 45}
    with SimCluster(seed=1, name_server_settings=waiting).run() as sim:
        assert page(sim, "/healthz")[0] == 200
        status, text = page(sim, "/readyz")
        assert (status, text.splitlines()[0]) == (503, "not ready")
        sim.advance(60)
        assert page(sim, "/readyz") == (200, "ready\nok  it gives out routes\n")
