"""Scorecard row 8 in processes: a master with synchronous replication is killed again and again.

The page cache survives a kill, so the master's own store proves nothing: after every kill the store
of the slave is opened alone, which has only what it was sent. Power cuts are simulated
(`replication_power_cuts`).
"""

import asyncio
import shutil
import tempfile
import time
from collections.abc import Awaitable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path
from random import Random

from sparrowmq.broker.config import BrokerConfig
from sparrowmq.broker.replication.log_description import LogDescription
from sparrowmq.client.consuming.pull_consumer import PullConsumer
from sparrowmq.client.errors import ClientError
from sparrowmq.disk.real_disk import RealDisk
from sparrowmq.net.errors import NetError
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.headers.replication import DescribeLog
from sparrowmq.protocol.message import MessageQueue
from sparrowmq.protocol.record import decode_record
from sparrowmq.store.config import StoreConfig
from sparrowmq.store.store import Store
from sparrowmq.testing.held_port import HeldPort
from tests.faults.broker_process import BrokerProcess, StartFailed
from tests.faults.checker import Ledger, MessageId, ReadBack, State, Verdict, body_of, properties_of
from tests.faults.kills import LOG_FILE_BYTES, QUEUES, TOPIC, KillResult, one_life
from tests.faults.nameserver_outage_servers import NameServerProcess
from tests.faults.proxy import FaultyProxy
from tests.faults.raw_wire import SEND_MESSAGE_V2, RawClient, send_fields
from tests.faults.replication_checks import differences
from tests.faults.replication_progress import GroupBeside
from tests.patience import PATIENCE_S

_LOOK_S = 0.05
_BEYOND_PROXY = "127.0.0.2"
_SEND_OK = 0


class Brokers:
    """A name server, a slave and the master of one name, in processes."""

    def __init__(self, root: Path, flush: str, module: str = "sparrowmq") -> None:
        self.root = root
        self._module = module
        self.name_server = NameServerProcess(root)
        self._options = (
            *("--flush", flush, "--replication", "sync", "--slave-timeout", "10s"),
            *("--store-log-file-size", str(LOG_FILE_BYTES)),
            *("--name-servers", self.name_server.address),
        )
        self._ports: dict[int, HeldPort] = {}
        self._running: list[BrokerProcess] = []

    def start(self, broker_id: int, *options: str) -> BrokerProcess:
        """Start a broker on its own data and port."""
        held = self._ports.get(broker_id)
        if held is None:
            held = self._ports[broker_id] = HeldPort(beside=(-2, 1))
        broker = BrokerProcess(
            self.root / f"broker-{broker_id}",
            *self._options,
            *("--broker-id", str(broker_id), "--port", str(held.port)),
            *options,
            module=self._module,
        )
        self._running.append(broker)
        return broker

    def close(self) -> None:
        """End everything."""
        for broker in self._running:
            broker.kill()
        for held in self._ports.values():
            held.close()
        self.name_server.close()

    def store(self, broker_id: int) -> AbstractContextManager[Store]:
        """The store of a broker that does not run, alone."""
        return store_in(self.root / f"broker-{broker_id}")


@contextmanager
def store_in(directory: Path) -> Iterator[Store]:
    """The store of a broker that does not run, alone."""
    config = BrokerConfig(data_dir=directory, store=StoreConfig(log_file_size=LOG_FILE_BYTES))
    store = Store.open(config.store_config(0), RealDisk(directory), 0, is_copy=True)
    try:
        yield store
    finally:
        store.abandon()


@contextmanager
def running_brokers(
    result: KillResult, flush: str, module: str, keep_in: Path | None
) -> Iterator[Brokers]:
    root = Path(tempfile.mkdtemp(prefix="sparrowmq-replicas-"))
    brokers = Brokers(root, flush, module)
    try:
        yield brokers
    except (StartFailed, OSError, TimeoutError) as error:
        result.problems.append(repr(error))
    finally:
        brokers.close()
        if not result and keep_in is not None:
            shutil.copytree(root, keep_in, dirs_exist_ok=True)
            result.problems.append(f"kept in {keep_in}")
        shutil.rmtree(root)


def kill_master(
    seed: int,
    flush: str,
    *,
    kills: int,
    senders: int = 64,
    acknowledged_each: int = 1500,
    consumes: bool = True,
    module: str = "sparrowmq",
    keep_in: Path | None = None,
) -> KillResult:
    """Kill the master under load `kills` times; a fresh slave joins under the last load.

    The verdict is that of the slave's store alone. If a group `consumes` beside the load, its
    progress never moves back.
    """
    result, ledger, rng = KillResult(seed, flush), Ledger(), Random(seed)
    numbers = [0] * senders
    with running_brokers(result, flush, module, keep_in) as brokers:
        alone = SlaveStore(brokers, 1, ledger)
        group = GroupBeside(brokers.name_server.address)
        with ExitStack() as consuming:
            for number in range(kills):
                slave, master = brokers.start(1), brokers.start(0)
                result.slowest_start_s = max(result.slowest_start_s, master.ready_s)
                result.problems += group.moved_back(master.port)
                until_acknowledged(master.port, ledger, number)
                _until_topic(slave.port)
                if consumes and not number:
                    consuming.enter_context(group.running())
                if consumes:
                    group.until_caught_up(master.port)
                with group.watched(master.port):
                    life = one_life(master, rng, numbers, ledger, acknowledged_each)
                    read_s = asyncio.run(_read_on_after(life, brokers.name_server.address))
                result.slowest_read_s = max(result.slowest_read_s, read_s)
                master.kill()
                slave.kill()
                result.kills += 1
                result.problems += alone.lost()
            slave, master = brokers.start(1), brokers.start(0)
            result.problems += group.moved_back(master.port)
        result.compared_progress = group.compared
        until_acknowledged(master.port, ledger, kills)
        fresh = _join_under_load(brokers, master, rng, numbers, ledger, acknowledged_each)
        until_equal((master, slave, fresh))
        for broker in (fresh, slave, master):
            broker.stop()
        result.problems += alone.lost()
        result.verdict = alone.verdict()
        result.problems += slave_differences(brokers, 1) + slave_differences(brokers, 2)
    return result


def _until_topic(port: int) -> None:
    """Return when a slave has the topic: its tables are up to a second old. Raises TimeoutError."""
    limit_s = time.monotonic() + PATIENCE_S
    with RawClient(port) as client:
        while time.monotonic() < limit_s:
            head, _ = client.call(RequestCode.GET_TOPIC_CONFIG, {"topic": TOPIC})
            if head.code == ResponseCode.SUCCESS:
                return
            time.sleep(_LOOK_S)
    raise TimeoutError(f"the slave had no topic after {PATIENCE_S} s")


async def _read_on_after(life: Awaitable[None], name_server: str) -> float:
    """How many seconds after the kill that ends a life a client reads again, from the slave."""
    queue = MessageQueue(TOPIC, "broker-a", 0)
    async with PullConsumer("readers", name_servers=name_server) as reader:
        await reader.pull(queue, 0, count=1)  # it is connected to the master
        await life
        loop = asyncio.get_running_loop()
        killed_s = loop.time()
        async with asyncio.timeout(PATIENCE_S):
            while True:
                with suppress(ClientError, NetError):
                    if (await reader.pull(queue, 0, count=1)).messages:
                        return loop.time() - killed_s
                await asyncio.sleep(_LOOK_S)


def _join_under_load(
    brokers: Brokers,
    master: BrokerProcess,
    rng: Random,
    numbers: list[int],
    ledger: Ledger,
    least: int,
) -> BrokerProcess:
    async def both() -> BrokerProcess:
        async with asyncio.TaskGroup() as tasks:
            joining = tasks.create_task(asyncio.to_thread(brokers.start, 2))
            tasks.create_task(one_life(master, rng, numbers, ledger, least, kills=False))
        return joining.result()

    return asyncio.run(both())


class SlaveStore:
    """Reads a slave's store alone, piece by piece, and compares with what was acknowledged."""

    def __init__(self, brokers: Brokers, broker_id: int, ledger: Ledger) -> None:
        self._brokers = brokers
        self._broker_id = broker_id
        self._ledger = ledger
        self._queues: dict[int, list[ReadBack]] = {queue_id: [] for queue_id in range(QUEUES)}
        self._seen: set[str] = set()

    def lost(self) -> list[str]:
        """Acknowledged messages that the slave, which must not run, has not got."""
        with self._brokers.store(self._broker_id) as store:
            for queue_id, found in self._queues.items():
                new = list(messages_of(store, queue_id, len(found)))
                found += new
                self._seen |= {each.body.partition(b"|")[0].decode() for each in new}
        lost = [
            str(message)
            for message, state in self._ledger.states.items()
            if state is State.OK and str(message) not in self._seen
        ]
        return [f"{len(lost)} acknowledged, not on the slave: {lost[:3]}"] if lost else []

    def verdict(self) -> Verdict:
        """Judge everything that was read."""
        return self._ledger.check(each for found in self._queues.values() for each in found)


def messages_of(store: Store, queue_id: int, offset: int = 0) -> Iterator[ReadBack]:
    """What a queue has from `offset` on."""
    for log_offset, _, _ in store.units(TOPIC, queue_id, offset, 10_000_000):
        data = store.read_message(log_offset)
        assert data is not None
        record = decode_record(data, 0)
        yield ReadBack(TOPIC, queue_id, record.queue_offset, record.body, record.properties)


def until_acknowledged(port: int, ledger: Ledger, number: int) -> None:
    """Send until a slave follows, which SEND_OK shows. Raises TimeoutError."""
    limit_s = time.monotonic() + PATIENCE_S
    attempt = 0
    with RawClient(port) as client:
        while time.monotonic() < limit_s:
            if _send(client, ledger, MessageId(f"probe{number}", attempt)) == _SEND_OK:
                return
            attempt += 1
            time.sleep(_LOOK_S)
    raise TimeoutError(f"no slave followed within {PATIENCE_S} s")


def _send(client: RawClient, ledger: Ledger, message: MessageId) -> int:
    ledger.attempt(message)
    fields = send_fields(TOPIC, 0, properties_of(message))
    head, _ = client.call(SEND_MESSAGE_V2, fields, body_of(message))
    if head.code == _SEND_OK:
        ledger.ok(message)
    return int(head.code)


def _send_beyond_the_proxy(port: int, ledger: Ledger, number: int) -> list[int]:
    """What a master that has lost its slave answers its clients."""
    with RawClient(port, host=_BEYOND_PROXY) as client:
        return [_send(client, ledger, MessageId(f"diverged{number}", each)) for each in range(3)]


def until_equal(brokers: tuple[BrokerProcess, ...]) -> None:
    """Return when all of them end alike. Raises TimeoutError."""
    limit_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < limit_s:
        if len({_log_end(broker.port) for broker in brokers}) == 1:
            return
        time.sleep(_LOOK_S)
    raise TimeoutError(f"the slaves did not catch up within {PATIENCE_S} s")


def _log_end(port: int) -> int:
    with RawClient(port) as client:
        _, body = client.call(DescribeLog.CODE, {})
    return LogDescription.from_json(body).claim.end


def slave_differences(brokers: Brokers, slave_id: int) -> list[str]:
    with brokers.store(0) as master, brokers.store(slave_id) as slave:
        found = differences(master, slave)
        if slave.max_log_offset != master.max_log_offset:
            found.append(
                f"it ends at {slave.max_log_offset}, its master at {master.max_log_offset}"
            )
    return [f"slave {slave_id}: {each}" for each in found[:3]]


def part_master_and_slave(
    seed: int,
    flush: str,
    *,
    partitions: int,
    module: str = "sparrowmq",
    keep_in: Path | None = None,
) -> KillResult:
    """Part a live master from its slave by a proxy, and heal it again.

    The verdict is that of the slave's store alone.
    """
    result, ledger = KillResult(seed, flush), Ledger()
    with running_brokers(result, flush, module, keep_in) as brokers:
        asyncio.run(_part(brokers, result, ledger, partitions))
    return result


async def _part(brokers: Brokers, result: KillResult, ledger: Ledger, partitions: int) -> None:
    held = HeldPort(beside=(1,))
    port, host = held.port, _BEYOND_PROXY
    held.close()
    async with (
        FaultyProxy(host, port, port) as calls,
        FaultyProxy(host, port + 1, port + 1) as feed,
    ):
        proxies = (calls, feed)
        options = ("--listen", host, "--advertise", "127.0.0.1", "--port", str(port))
        master = await asyncio.to_thread(
            brokers.start, 0, *options, "--ha-port", str(port + 1), "--slave-timeout", "1s"
        )
        slave = await asyncio.to_thread(brokers.start, 1)
        for number in range(partitions):
            await asyncio.to_thread(until_acknowledged, port, ledger, number)
            for proxy in proxies:
                proxy.partition()
            codes = await asyncio.to_thread(_send_beyond_the_proxy, port, ledger, number)
            if _SEND_OK in codes:
                result.problems.append(f"SEND_OK in partition {number}: {codes}")
            for proxy in proxies:
                proxy.heal()
        await asyncio.to_thread(until_acknowledged, port, ledger, partitions)
        master.kill()
        slave.kill()
    alone = SlaveStore(brokers, 1, ledger)
    result.problems += alone.lost()
    result.verdict = alone.verdict()
