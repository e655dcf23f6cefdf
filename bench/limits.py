"""CPU time that limits and de-duplication add to a send, and the memory of a window.

A send with and without are timed in turn on the path of `hot_path`, in one process: the machine's
moods meet both, and differences of the least of each are what is compared.
"""

import asyncio
import time
import tracemalloc
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from statistics import median

from bench.contest import Effort, say
from bench.figures import Figure, at_most
from bench.machine import process_cpu_s
from sparrowmq.broker.traffic.dedup_window import TopicWindow
from sparrowmq.clock import monotonic_clock, system_clock
from sparrowmq.protocol.batch import encode_batch
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.dedup import MOST_IDS, DedupRule
from sparrowmq.protocol.header_encoding import ext_fields_of
from sparrowmq.protocol.headers.topics import CreateTopic
from tests.faults.broker_process import BrokerProcess
from tests.faults.raw_wire import RawClient, send_fields
from tests.guard import frames
from tests.guard.workload import QUEUES, Wired, wired

_ROUNDS = 40
_REQUESTS = 2_000
_KNOWN = 100_000
"""Messages of a window by default."""
_KILLS = 3
_SEND_S = 3.0
"""What clients give a send."""
_WINDOW_READ_S = 0.2
"""Of an empty topic."""
_WINDOW = f"10m/{_KNOWN}"


@dataclass(frozen=True)
class Limits:
    """What limits a send: attributes of its topic, and quotas of all senders."""

    topic: dict[str, str] = field(default_factory=dict)
    senders: dict[str, str] = field(default_factory=dict)


Kinds = dict[str, Limits]
"""By their names in the report."""

_PLENTY = {"messages": str(10**6), "bytes": str(10**9)}
"""More a second than a broker takes."""
_TOPIC, _CLIENT, _GROUP = "{}", "client.{}", f"producer.{{}}.{frames.PRODUCER_GROUP}"


def _limits(units: str, *scopes: str) -> Limits:
    """Quotas that are never reached: of these units, of the topic and of these senders."""

    def quotas(of: Iterable[str]) -> dict[str, str]:
        return {
            f"sparrowmq.quota.{scope.format(unit)}": _PLENTY[unit]
            for scope in of
            for unit in units.split()
        }

    of_topic = {_TOPIC} & {*scopes}
    return Limits(quotas(of_topic), quotas({*scopes} - of_topic))


QUOTAS = {
    "messages/s of the topic": _limits("messages", _TOPIC),
    "messages/s and bytes/s of the topic": _limits("messages bytes", _TOPIC),
    "messages/s of each client": _limits("messages", _CLIENT),
    "messages/s of the producer group": _limits("messages", _GROUP),
    "messages/s of all three": _limits("messages", _TOPIC, _CLIENT, _GROUP),
    "messages/s and bytes/s of all three": _limits("messages bytes", _TOPIC, _CLIENT, _GROUP),
}


def quota(folder: Path, effort: Effort) -> list[Figure]:
    """What quotas add to a send that they let pass."""
    say("sends with and without quotas")
    folder.mkdir(parents=True)
    took = asyncio.run(_in_turn(folder, {"off": Limits(), **QUOTAS}))
    work, off = "a send with a quota, in process", took["off"]
    return [
        Figure(work, "without a quota", "µs CPU", off),
        *(
            Figure(work, f"{kind}: on top", "µs CPU", _more(took[kind], off), None, at_most(1))
            for kind in QUOTAS
        ),
    ]


def dedup(folder: Path, effort: Effort) -> list[Figure]:
    """What de-duplication adds to a send, how much it remembers in how much memory, and how long
    the first send after a kill waits for it."""
    say("sends with and without de-duplication")
    kinds: Kinds = {"off": Limits(), "on": Limits({"sparrowmq.dedup": _WINDOW})}
    sends = folder / "sends"
    sends.mkdir(parents=True)
    took = asyncio.run(_in_turn(sends, kinds, before=_KNOWN))
    say(f"brokers that are killed with {_KNOWN:,} and {MOST_IDS:,} messages in a window")
    waited_s, cpu_s, plain_s = _after_a_kill(folder / "killed", _KNOWN)
    longest_s, _, _ = _after_a_kill(folder / "largest", MOST_IDS)
    work = "de-duplication, in process"
    after = f"the first send after a kill, {_KNOWN:,} messages known"
    return [
        Figure(work, "a send without it", "µs CPU", took["off"]),
        Figure(work, "on top, its window full", "µs CPU", _more(took["on"], took["off"])),
        Figure(work, "a send with it ÷ without it", "", took["on"] / took["off"]),
        Figure(work, "memory for an id", "bytes", _bytes_an_id(), None, at_most(170)),
        Figure(after, "waits for its window", "s", waited_s, None, at_most(1)),
        Figure(after, "… of these CPU of the broker", "s", cpu_s),
        Figure(after, "to a topic without one", "s", plain_s),
        Figure(after, f"with {MOST_IDS:,} known", "s", longest_s, None, at_most(_SEND_S)),
    ]


def _more(with_it: float, without: float) -> float:
    return max(0.0, with_it - without)


# ---- sends in process


async def _in_turn(folder: Path, kinds: Kinds, before: int = _REQUESTS) -> dict[str, float]:
    """Microseconds of CPU of a send of each kind, the least of many rounds in turn. So many sends
    are made before the first round."""
    numbers = count()
    took: dict[str, list[float]] = {kind: [] for kind in kinds}
    async with wired(folder, monotonic_clock, system_clock) as client:
        topics = {kind: f"{frames.TOPIC[:-1]}{number}" for number, kind in enumerate(kinds)}
        client.receive(frames.producer_heartbeat(next(numbers)))
        _all_taken(client, 1)
        for kind, limits in kinds.items():
            client.configure(limits.topic, topics[kind])
            client.feed(_sends(topics[kind], numbers, 1))
            await asyncio.sleep(_WINDOW_READ_S)  # its first send waits until a window is read
            _all_taken(client, 1)
            for _ in range(0, before, _REQUESTS):
                await _timed(client, topics[kind], numbers)
        for _ in range(_ROUNDS):
            for kind, topic in topics.items():
                client.configure(kinds[kind].senders, client.broker.config.broker_name)
                client.feed(_sends(topic, numbers, 1))  # which looks up what applies now
                _all_taken(client, 1)
                took[kind].append(await _timed(client, topic, numbers))
    return {kind: min(times) for kind, times in took.items()}


def _sends(topic: str, numbers: "count[int]", many: int) -> list[bytes]:
    # Of the same length, so that the lengths in the frames stay right.
    plain, own = frames.TOPIC.encode(), topic.encode()
    return [frames.send(next(numbers), n % QUEUES).replace(plain, own) for n in range(many)]


async def _timed(client: Wired, topic: str, numbers: "count[int]") -> float:
    requests = _sends(topic, numbers, _REQUESTS)
    await client.broker.durability.flush()
    began = time.thread_time()
    client.feed(requests)
    client.broker.store.tick(client.broker.clock())
    took = time.thread_time() - began
    _all_taken(client, _REQUESTS)
    await asyncio.sleep(0)
    return took / _REQUESTS * 1e6


def _all_taken(client: Wired, requests: int) -> None:
    answers = client.answers()
    assert answers == [ResponseCode.SUCCESS] * requests, f"answered with {set(answers)}"


# ---- what a window costs to keep


def _bytes_an_id() -> float:
    """With ids as long as those that clients with IPv4 addresses make."""
    tracemalloc.start()
    try:
        window = TopicWindow(DedupRule(ids=_KNOWN))
        before, _ = tracemalloc.get_traced_memory()
        for number in range(_KNOWN):
            window.add(f"7F00000152DB5FFD2B274A8C{number:08X}", 400 * number, 1)
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return (after - before) / _KNOWN


def _after_a_kill(folder: Path, known: int) -> tuple[float, float, float]:
    """Seconds until the first send is answered to a topic with a window, CPU of the broker until
    then, and the former without a window; medians of some kills."""
    folder.mkdir(parents=True)
    data = folder / "data"
    broker = BrokerProcess(data)
    waits: list[float] = []
    cpus: list[float] = []
    plain: list[float] = []
    try:
        with RawClient(broker.port) as client:
            _create(client, "Window", f"+sparrowmq.dedup=10m/{known}")
            _create(client, "Plain", "")
            for number in range(known // frames.BATCHED):
                parts = [(0, b"x" * 128, _identity(number, one)) for one in range(frames.BATCHED)]
                _send(client, "Window", number % QUEUES, 320, "", encode_batch(parts))
        for number in range(_KILLS):
            broker.kill()
            broker = BrokerProcess(data)
            with RawClient(broker.port) as client:
                plain.append(_send(client, "Plain", 0, 310, f"UNIQ_KEY\x01p-{number}\x02"))
                before_s = process_cpu_s(broker.process.pid)
                waits.append(_send(client, "Window", 0, 310, f"UNIQ_KEY\x01w-{number}\x02"))
                cpus.append(process_cpu_s(broker.process.pid) - before_s)
    finally:
        broker.kill()
    return median(waits), median(cpus), median(plain)


def _identity(number: int, one: int) -> bytes:
    return b"UNIQ_KEY\x01" + frames.UNIQUE_ID % (number * frames.BATCHED + one) + b"\x02"


def _create(client: RawClient, topic: str, attributes: str) -> None:
    header = CreateTopic(
        topic=topic,
        read_queue_nums=QUEUES,
        write_queue_nums=QUEUES,
        perm=6,
        attributes=attributes or None,
    )
    head, _ = client.call(CreateTopic.CODE, ext_fields_of(header))
    assert head.code == ResponseCode.SUCCESS, head.remark


def _send(
    client: RawClient, topic: str, queue: int, code: int, properties: str, body: bytes = b"x"
) -> float:
    """How many seconds it took."""
    fields = send_fields(topic, queue, properties.encode())
    fields["m"] = "true" if code == 320 else "false"
    began = time.perf_counter()
    head, _ = client.call(code, fields, body)
    took_s = time.perf_counter() - began
    assert head.code == ResponseCode.SUCCESS, head.remark
    return took_s
