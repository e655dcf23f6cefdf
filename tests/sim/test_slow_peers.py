"""Peers that do not read cost the broker a bounded buffer and do not affect other peers."""

from sparrowmq.testing.sim_cluster import RunningCluster, SimCluster

KIBIBYTE = 1024


def buffered_bytes(sim: RunningCluster) -> int:
    """The largest write buffer among the broker's connections."""
    transports = sim.network.connections(sim.host("broker-a"))
    return max(transport.get_write_buffer_size() for transport in transports)


def fill_queue(sim: RunningCluster) -> None:
    for _ in range(32):
        sim.wait(sim.client.send("orders", bytes(30 * KIBIBYTE)))


def test_a_peer_that_does_not_read_its_answers_is_not_read_either(cluster: SimCluster) -> None:
    with cluster.run() as sim:
        fill_queue(sim)
        sloth = sim.new_client("sloth")
        pulls = [sloth.pull("orders", group="sloth") for _ in range(40)]
        sim.until(lambda: buffered_bytes(sim) > 0)
        sloth.host.pause()
        sim.advance(5)
        assert buffered_bytes(sim) <= (4 * 1024 + 1024) * KIBIBYTE
        assert len(sim.wait(sim.client.pull("orders")).messages) == 32, "others are served"
        sloth.host.resume()
        for pull in pulls:
            assert len(sim.wait(pull).messages) == 32


def test_a_peer_that_never_reads_again_is_cut_off(cluster: SimCluster) -> None:
    with cluster.run() as sim:
        fill_queue(sim)
        sloth = sim.new_client("sloth")
        for _ in range(40):
            sloth.pull("orders", group="sloth")
        sim.until(lambda: buffered_bytes(sim) > 0)
        sloth.host.pause()
        sim.advance(300)
        sockets = sim.network.connections(sim.host("broker-a"))
        assert [each for each in sockets if each.peer.host is sloth.host] == []
