"""Messages that RocketMQ users lost in crashes or to failing disks, by the report's number."""

import errno
from random import Random

import pytest

from sparrowmq.broker.config import Flush
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.store.errors import StoreError
from sparrowmq.testing.recording_disk import RecordingDisk
from sparrowmq.testing.sim_cluster import SimCluster
from tests.broker.delivery_world import DeliveryWorld
from tests.seeds import seeds
from tests.store.stores import flush, message, numbers, open_store


@pytest.mark.parametrize("seed", range(3))
def test_report_495_messages_acknowledged_by_a_synchronous_broker_survive_a_power_cut(
    seed: int,
) -> None:
    with SimCluster(seed, flush=Flush.SYNC).run() as sim:
        for number in range(40):
            sim.wait(sim.client.send("orders", b"%d" % number))
        sim.brokers["broker-a"].lose_power()
        sim.brokers["broker-a"].start()
        found = sim.wait(sim.new_client("reader").pull("orders", count=100))
        assert found.bodies == [b"%d" % number for number in range(40)]


@pytest.mark.parametrize("seed", seeds(10))
def test_report_678_an_index_that_became_durable_first_hides_no_message(seed: int) -> None:
    disk = RecordingDisk()
    store = open_store(disk)
    for number in range(120):
        store.append(message(number), number)
    flush(store, disk)
    for number in range(120, 240):
        store.append(message(number), number)
    store.tick(1_000)  # queues and index are written, but not durable
    for path in disk.files():
        if path.startswith(("commitlog/", "index/", "checkpoint", "sparrowmq/")):
            disk.sync(path)
    for directory in ("", "commitlog", "index", "sparrowmq"):
        if disk.exists(directory):
            disk.sync_dir(directory)
    again = open_store(disk.crashed(Random(seed)))
    assert numbers(again) == list(range(240))
    assert again.find_by_key("orders", "k239", 0, 1 << 60, 8).log_offsets


def test_report_5235_a_synchronous_send_is_not_acknowledged_when_its_sync_fails() -> None:
    with DeliveryWorld(flush=Flush.SYNC) as world:
        world.send("orders", b"safe")
        world.disk.fail("sync", errno.EIO)
        with pytest.raises(StoreError, match="fsync failed, stopping"):
            world.try_send("orders", b"not safe")
        (answer,) = world.peer.replies
        assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
        world.disk.heal()
        later = world.try_send("orders", b"later")
        assert later.code != ResponseCode.SUCCESS, "an error that went away is still an error"


def test_report_7016_a_read_only_file_system_is_an_answer_to_the_sender() -> None:
    with DeliveryWorld(flush=Flush.SYNC) as world:
        world.send("orders", b"before")
        world.disk.is_read_only = True
        answers = [world.try_send("orders", b"into the void").code for _ in range(3)]
        assert ResponseCode.SUCCESS not in answers
        world.kill()
        assert [one.body for one in world.messages("orders")] == [b"before"]
