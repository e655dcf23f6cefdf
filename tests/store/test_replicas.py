"""Raw log bytes from a master: the same log, the same queues, never half a record."""

from collections.abc import Callable
from dataclasses import replace
from random import Random

import msgspec
import pytest

from sparrowmq.protocol.names import SCHEDULE_TOPIC
from sparrowmq.protocol.record import RecordError
from sparrowmq.protocol.sys_flag import TRANSACTION_PREPARED
from sparrowmq.store.messages import PutMessage
from sparrowmq.store.store import Store
from sparrowmq.testing.recording_disk import RecordingDisk
from tests.store.stores import SMALL, message, numbers, open_store


def master_with(count: int) -> tuple[Store, RecordingDisk]:
    disk = RecordingDisk()
    store = open_store(disk)
    for number in range(count):
        store.append(message(number, queue_id=number % 3, size=20 + number % 7 * 60), number)
    return store, disk


def copy(master: Store, slave: Store, rng: Random) -> None:
    offset = slave.max_log_offset
    while data := master.read_log(offset, rng.randrange(1, 700)):
        offset = slave.append_raw(offset, data)


def logs(disk: RecordingDisk) -> dict[str, bytes]:
    return {path: data for path, data in disk.files().items() if path.startswith("commitlog/")}


@pytest.mark.parametrize("seed", range(5))
def test_a_copy_in_pieces_of_any_size_is_byte_equal(seed: int) -> None:
    rng = Random(seed)
    master, master_disk = master_with(300)
    slave_disk = RecordingDisk()
    slave = open_store(slave_disk)
    copy(master, slave, rng)
    assert slave.max_log_offset == master.max_log_offset
    for queue_id in range(3):
        assert numbers(slave, queue_id=queue_id) == list(range(queue_id, 300, 3))
    assert slave.find_by_key("orders", "k7", 0, 1_000, 8).log_offsets
    master.close()
    slave.close()
    assert logs(slave_disk) == logs(master_disk)


def changed(put: PutMessage, **fields: object) -> PutMessage:
    return msgspec.structs.replace(put, **fields)


KINDS: dict[str, Callable[[PutMessage], PutMessage]] = {
    "ordinary": lambda put: put,
    "without properties": lambda put: changed(
        put, properties=b"", uniq_key="", keys="", tags_code=0
    ),
    "from an IPv6 host": lambda put: changed(put, born_host=bytes(20)),
    "of a long topic": lambda put: changed(put, topic="t" * 127),
    "of a half transaction": lambda put: changed(put, sys_flag=TRANSACTION_PREPARED),
    "that waits for a delay level": lambda put: changed(
        put, topic=SCHEDULE_TOPIC, properties=put.properties + b"DELAY\x013\x02"
    ),
}


@pytest.mark.parametrize("record_crc", [True, False], ids=["with CRCs", "without CRCs"])
def test_a_slave_derives_the_same_queues_and_index_as_a_rebuild(record_crc: bool) -> None:
    config = replace(SMALL, record_crc=record_crc)
    disk, slave_disk = RecordingDisk(), RecordingDisk()
    master, slave = open_store(disk, config), open_store(slave_disk, config)
    rng = Random(7)
    for number in range(300):
        kind = rng.choice(list(KINDS)) if number % 3 else "ordinary"
        master.append(KINDS[kind](message(number, queue_id=number % 3)), number)
    copy(master, slave, rng)
    slave.close()
    copied = derived(slave_disk)
    for path in copied:
        slave_disk.unlink(path)
    open_store(slave_disk, config).close()
    assert derived(slave_disk) == copied


def derived(disk: RecordingDisk) -> dict[str, bytes]:
    folders = ("consumequeue/", "index/")
    return {path: data for path, data in disk.files().items() if path.startswith(folders)}


def test_half_a_record_waits_outside_the_log() -> None:
    master, _ = master_with(3)
    slave = open_store(RecordingDisk())
    data = master.read_log(0, 10_000)
    assert slave.append_raw(0, data[:250]) == 250
    assert 0 < slave.max_log_offset < 250
    assert numbers(slave) == [0]
    # The link breaks; the master begins again where the log ends.
    slave.forget_held_bytes()
    with pytest.raises(ValueError, match=f"expected {slave.max_log_offset}"):
        slave.append_raw(250, data[250:])
    copy(master, slave, Random(1))
    assert numbers(slave, queue_id=2) == [2]


def test_a_new_slave_begins_where_the_master_begins() -> None:
    master, _ = master_with(300)
    start = master.config.log_file_size
    slave = open_store(RecordingDisk())
    offset = start
    while data := master.read_log(offset, 5_000):
        offset = slave.append_raw(offset, data)
    assert slave.min_log_offset == start
    assert slave.max_log_offset == master.max_log_offset
    least, most = slave.queue_range("orders", 0)
    assert 0 < least < most == 100
    assert numbers(slave) == list(range(least * 3, 300, 3))


def test_a_topic_that_began_again_at_the_master_begins_again_at_the_slave() -> None:
    master, _ = master_with(30)
    slave = open_store(RecordingDisk())
    master.delete_topic("orders", 1)
    for number in (100, 101):
        master.append(message(number), number)
    copy(master, slave, Random(1))
    assert numbers(slave) == [100, 101]


def test_the_checkpoint_of_a_slave_has_the_store_time_of_its_last_message() -> None:
    master, _ = master_with(0)
    master.append(message(0), 1_234_567)
    disk = RecordingDisk()
    slave = open_store(disk)
    copy(master, slave, Random(1))
    slave.close()
    assert int.from_bytes(disk.files()["checkpoint"][:8], "big") == 1_234_567


def test_bytes_out_of_turn_are_refused() -> None:
    master, _ = master_with(3)
    slave = open_store(RecordingDisk())
    with pytest.raises(ValueError, match="expected 0"):
        slave.append_raw(77, master.read_log(0, 100))


def test_bytes_that_are_not_records_are_refused() -> None:
    slave = open_store(RecordingDisk())
    with pytest.raises(RecordError):
        slave.append_raw(0, b"\x00\x00\x00\x7f" + b"x" * 200)
    assert slave.max_log_offset == 0


def test_a_slave_continues_after_a_crash() -> None:
    master, _ = master_with(200)
    disk = RecordingDisk()
    slave = open_store(disk)
    offset = 0
    rng = Random(3)
    for _ in range(40):
        offset = slave.append_raw(offset, master.read_log(offset, rng.randrange(1, 700)))
    disk = disk.killed()
    slave = open_store(disk)
    copy(master, slave, rng)
    for queue_id in range(3):
        assert numbers(slave, queue_id=queue_id) == list(range(queue_id, 200, 3))
