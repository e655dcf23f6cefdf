"""Full disks that RocketMQ brokers of users did not survive, by the report's number."""

from sparrowmq.disk.errors import DiskFull
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.store.layout import TRASH_DIR
from sparrowmq.testing.recording_disk import RecordingDisk
from sparrowmq.testing.wire import Refused
from tests.broker.world import World, world_with
from tests.store.stores import SMALL, flush, message, open_store

MIB = 1024 * 1024


def answer_to_a_send(world: World) -> int:
    try:
        world.send("orders", b"x" * 1_000)
    except Refused as refused:
        return refused.code
    return ResponseCode.SUCCESS


def test_report_2398_a_broker_accepts_messages_after_a_full_disk_without_a_restart() -> None:
    with world_with() as world:
        disk = world.sim.brokers["broker-a"].disk
        world.send("orders", b"before")
        disk.capacity_bytes = disk.usage().total_bytes - disk.usage().free_bytes + 64 * 1024
        answers = {answer_to_a_send(world) for _ in range(200)}
        assert answers == {ResponseCode.SUCCESS, ResponseCode.SERVICE_NOT_AVAILABLE}
        assert world.sim.wait(world.sim.client.pull("orders")).bodies[0] == b"before"
        disk.capacity_bytes = int((disk.capacity_bytes - disk.usage().free_bytes) / 0.95)
        world.sim.advance(15)
        assert answer_to_a_send(world) == ResponseCode.SERVICE_NOT_AVAILABLE
        disk.capacity_bytes += 64 * MIB
        world.sim.advance(15)
        assert {answer_to_a_send(world) for _ in range(50)} == {ResponseCode.SUCCESS}


def test_report_1400_a_disk_that_fills_while_old_files_are_deleted_is_noticed_in_between() -> None:
    disk = RecordingDisk(capacity_bytes=100 * MIB)
    store = open_store(disk)
    while store.max_log_offset < 12 * SMALL.log_file_size:
        store.append(message(1), 1)
    store.tick(1)
    flush(store, disk)
    used = disk.usage().total_bytes - disk.usage().free_bytes
    disk.capacity_bytes = int(used / 0.88)

    def others_write(operation: str, path: str) -> None:
        if operation == "unlink" and path.startswith(f"{TRASH_DIR}/"):
            assert disk.capacity_bytes is not None
            disk.capacity_bytes -= 2 * SMALL.log_file_size

    disk.on_call = others_write
    store.clean(2)
    disk.on_call = None
    refused = False
    try:
        store.append(message(2), 2)
    except DiskFull:
        refused = True
    ratio = 1 - disk.usage().free_bytes / disk.usage().total_bytes
    assert refused == (ratio >= 0.90), "decided by what the disk is after the last deletion"
    assert refused
