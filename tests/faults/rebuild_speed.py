"""How fast queues and index are rebuilt, in a store on the real disk without derived files."""

import shutil
import tempfile
import time
from pathlib import Path

from sparrowmq.disk.real_disk import RealDisk
from sparrowmq.store.config import StoreConfig
from sparrowmq.store.messages import PutMessage
from sparrowmq.store.store import Store

_NOW = 1_700_000_000_000


def rebuild_speed(records: int) -> float:
    """Records per second of CPU time of a start that has to rebuild all derived files.

    The log lies in the page cache, so that on an idle machine it is the time that passes.
    """
    config = StoreConfig(log_file_size=256 * 1024 * 1024)
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        _fill(config, directory, records)
        for derived in ("consumequeue", "index", "sparrowmq"):
            shutil.rmtree(directory / derived)
        began = time.process_time()
        store = Store.open(config, RealDisk(directory), _NOW)
        took = time.process_time() - began
        assert sum(store.max_offset("orders", queue_id) for queue_id in range(8)) == records
        store.close()
    return records / took


def _fill(config: StoreConfig, directory: Path, records: int) -> None:
    store = Store.open(config, RealDisk(directory), _NOW)
    body = b"x" * 128
    for number in range(records):
        unique_id = f"7F0000010B8C18B4AAC2{number >> 6:08X}{number & 0xFFFF:04X}"
        put = PutMessage(
            topic="orders",
            queue_id=number % 8,
            flag=0,
            sys_flag=0,
            born_timestamp=_NOW,
            born_host=bytes(8),
            reconsume_times=0,
            body=body,
            properties=f"UNIQ_KEY\x01{unique_id}\x02".encode(),
            uniq_key=unique_id,
        )
        store.append(put, _NOW + number // 50)
        if number % 5000 == 0:
            store.tick(_NOW + number // 50)
    store.close()
