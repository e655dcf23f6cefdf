"""A broker that dies right after its start can be restarted."""

from sparrowmq.broker.config import Flush
from sparrowmq.testing.sim_cluster import SimCluster


def test_a_broker_killed_right_after_its_first_message_starts_again(cluster: SimCluster) -> None:
    with cluster.run() as sim:
        sim.wait(sim.client.send("orders", b"hello"))
        sim.brokers["broker-a"].restart()
        assert sim.wait(sim.client.pull("orders")).bodies == [b"hello"]


def test_a_broker_without_power_right_after_its_first_message_starts_again(seed: int) -> None:
    with SimCluster(seed, flush=Flush.SYNC).run() as sim:
        sim.wait(sim.client.send("orders", b"hello"))
        sim.brokers["broker-a"].lose_power()
        sim.brokers["broker-a"].start()
        # The first client still believes in its old connection.
        reader = sim.new_client("reader")
        assert sim.wait(reader.pull("orders")).bodies == [b"hello"]
