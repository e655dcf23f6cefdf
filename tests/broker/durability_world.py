"""A store whose syncs a test completes by hand, and sends that wait for them."""

import asyncio
import logging
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from sparrowmq.broker.arrivals import Arrivals
from sparrowmq.broker.config import BrokerConfig, Flush
from sparrowmq.broker.durability import CROWD, Durability
from sparrowmq.broker.housekeeping import LoopLag
from sparrowmq.clock import cpu_clock
from sparrowmq.disk.syncer import SyncPlan
from sparrowmq.net.routes import Answered, Reply
from sparrowmq.net.tasks import Uncancellable
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.store.config import StoreConfig
from sparrowmq.store.messages import PutMessage
from sparrowmq.store.store import Store
from sparrowmq.testing.recording_disk import RecordingDisk
from sparrowmq.testing.simulation import Simulation

SMALL = StoreConfig(log_file_size=64 * 1024, reserve_bytes=4096, index_slots=10, index_entries=50)
HOST = b"\x7f\0\0\1\0\0\0\1"


class KeptRequest:
    """A request whose answer is looked at."""

    def __init__(self, *, is_oneway: bool = False) -> None:
        self.is_oneway = is_oneway
        self.body = b"a body"
        self.answers: list[Reply] = []

    @property
    def connection(self) -> "KeptRequest":
        """Each comes from a different peer."""
        return self

    def answer(self, reply: Reply) -> None:
        self.answers.append(reply)

    def write_replies(self, answers: Iterable[Answered]) -> None:
        self.answers += [reply for _, reply in answers]

    @property
    def code(self) -> int | None:
        return self.answers[0].code if self.answers else None


class Bench:
    """A store whose syncs the test completes by hand."""

    def __init__(self, sim: Simulation, flush: Flush) -> None:
        self.sim = sim
        self.store = Store.open(SMALL, RecordingDisk(), sim.clock())
        self.syncs: list[asyncio.Future[None]] = []
        self.durability = sim.run(self._make(flush))
        self.task = sim.host("broker").start(self.durability.run())

    async def _make(self, flush: Flush) -> Durability:
        config = BrokerConfig(data_dir=Path("/simulated"), flush=flush)
        self.arrivals = Arrivals(asyncio.get_running_loop(), self.store, max_waiting=10)
        return Durability(config, self.store, self, self.arrivals, Uncancellable())

    async def sync(self, plan: SyncPlan) -> None:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.syncs.append(done)
        await done

    def close(self) -> None:
        """Nothing to end."""

    def send(self, *, is_oneway: bool = False) -> KeptRequest:
        request = KeptRequest(is_oneway=is_oneway)
        put = PutMessage("orders", 0, 0, 0, 0, HOST, 0, b"x", b"", 0, "", "")
        stored = self.store.append(put, self.sim.clock())
        end = stored.log_offset + stored.size
        kept: Any = request
        reply = self.durability.reply_when_safe(kept, Reply(), end)
        if reply is not None:
            request.answer(reply)
        return request

    def answers_at_once(self, properties: str) -> bool:
        """Whether a send with such properties is answered before it is safe."""
        request: Any = KeptRequest()
        request.header = SimpleNamespace(properties=properties)
        return self.durability.answer_send(request, Reply(), 0) is not None

    def settle(self) -> None:
        self.sim.until_idle()

    def end_sync(self) -> None:
        self.syncs[-1].set_result(None)
        self.settle()

    def answer_crowd(self, count: int = CROWD) -> None:
        """So many sends share a sync, which is over."""
        first = self.send()
        self.settle()
        sends = [self.send() for _ in range(count)]
        self.end_sync()
        assert first.code == ResponseCode.SUCCESS
        self.end_sync()
        assert [send.code for send in sends] == [ResponseCode.SUCCESS] * count

    def watch_lag(self) -> Any:
        """The part of a broker that learns when to refuse sends."""
        config = SimpleNamespace(busy_lag_s=0.2)
        log = logging.getLogger("tests.durability")
        broker: Any = SimpleNamespace(
            config=config, durability=self.durability, busy_reason="", log=log
        )

        async def judge_for_ever() -> None:
            lag = LoopLag(broker, cpu_clock)
            while True:
                await asyncio.sleep(0.05)
                lag.judge()

        self.sim.host("broker").start(judge_for_ever())
        return broker
