"""Scorecard row 8 in processes: a master and its slave change roles while producers send.

The changes are those of an operator, `sparrowmq broker promote` and `demote`. No send of our client
may fail, and in the end everything that it sent is in the files of both brokers.
"""

import asyncio
import sys
from dataclasses import dataclass
from pathlib import Path

from sparrowmq.client.errors import SendFailed
from sparrowmq.client.sending.producer import Producer
from sparrowmq.protocol.message import Message
from tests.faults.kills import QUEUES, TOPIC, KillResult
from tests.faults.replication_kills import (
    Brokers,
    messages_of,
    running_brokers,
    slave_differences,
    until_equal,
)
from tests.patience import PATIENCE_S

_VERBS = ("promote", "demote")
_ROOT = Path(__file__).parents[2]


@dataclass
class ChangeResult(KillResult):
    """What a series of planned changes came to."""

    changes: int = 0
    sent: int = 0
    short: int = 0
    """Answered with a warning instead of SEND_OK: stored, and not on two copies at that moment."""
    longest_send_s: float = 0.0

    def __str__(self) -> str:
        problems = "; ".join(self.problems) or "no send failed"
        return f"{self.flush} flush, {self.changes} changes of roles, {self.sent} sent: {problems}"


class _Load:
    """Producers that send all the time."""

    def __init__(self, producer: Producer, result: ChangeResult) -> None:
        self.acknowledged: set[bytes] = set()
        self._producer = producer
        self._result = result
        self._ok = 0
        self._has_news = asyncio.Event()

    async def send_forever(self, name: str) -> None:
        """Send one message after the other."""
        loop, number = asyncio.get_running_loop(), 0
        while True:
            number += 1
            body, began_s = f"{name}-{number}".encode(), loop.time()
            try:
                sent = await self._producer.send(Message(TOPIC, body))
            except SendFailed as error:
                self._result.problems.append(f"{name}-{number} failed: {error}")
                self._has_news.set()
                return
            longest_s = max(self._result.longest_send_s, loop.time() - began_s)
            self._result.longest_send_s = longest_s
            self.acknowledged.add(body)
            self._result.short += not sent.is_ok
            self._ok += sent.is_ok
            self._has_news.set()

    async def until_ok(self, more: int) -> None:
        """Return when so many further messages have two copies, so that the slave follows, or when
        a send failed. Raises TimeoutError."""
        wanted = self._ok + more
        async with asyncio.timeout(PATIENCE_S):
            while self._ok < wanted and not self._result.problems:
                self._has_news.clear()
                await self._has_news.wait()


def change_roles(
    flush: str,
    *,
    changes: int,
    senders: int = 4,
    between: int = 1000,
    timeout_s: float = 3.0,
    retries: int = 2,
    keep_in: Path | None = None,
) -> ChangeResult:
    """Change the roles so often, an even number of times, with `between` sends after each.

    `timeout_s` and `retries` are the producers', by default those of our client.
    """
    result = ChangeResult(0, flush)
    with running_brokers(result, flush, "sparrowmq", keep_in) as brokers:
        pair = tuple(brokers.start(broker_id) for broker_id in (0, 1))

        async def change() -> set[bytes]:
            producer = Producer(
                "shop",
                name_servers=brokers.name_server.address,
                timeout_s=timeout_s,
                retries=retries,
                default_queues=QUEUES,
            )
            async with producer:
                load = _Load(producer, result)
                await _change_under(load, brokers, result, changes, senders, between)
                return load.acknowledged

        acknowledged = asyncio.run(change())
        result.sent = len(acknowledged)
        until_equal(pair)
        for broker in reversed(pair):  # the slave first: it lacks nothing
            broker.stop()
        result.problems += slave_differences(brokers, 1)
        result.problems += [
            each for number in (0, 1) for each in _lost(brokers, number, acknowledged)
        ]
    return result


async def _change_under(
    load: _Load, brokers: Brokers, result: ChangeResult, changes: int, senders: int, between: int
) -> None:
    tasks = [asyncio.create_task(load.send_forever(f"s{number}")) for number in range(senders)]
    try:
        await load.until_ok(between)
        for number in range(changes):
            if result.problems:
                return
            await _run(_VERBS[number % 2], brokers.name_server.address)
            result.changes += 1
            await load.until_ok(between)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _run(verb: str, name_server: str) -> None:
    """`sparrowmq broker promote` or `demote`. Raises OSError with what it printed if it fails."""
    command = [
        "-m",
        "sparrowmq",
        "broker",
        verb,
        "broker-a",
        "--yes",
        "--name-servers",
        name_server,
    ]
    running = await asyncio.create_subprocess_exec(
        sys.executable,
        *command,
        cwd=_ROOT,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    printed, _ = await running.communicate()
    if running.returncode != 0:
        raise OSError(f"{verb} failed: {printed.decode()[-1000:]}")


def _lost(brokers: Brokers, broker_id: int, acknowledged: set[bytes]) -> list[str]:
    """What a broker's files alone do not have."""
    with brokers.store(broker_id) as store:
        found = {each.body for queue_id in range(QUEUES) for each in messages_of(store, queue_id)}
    lost = sorted(acknowledged - found)
    return [f"{len(lost)} acknowledged, not at broker {broker_id}: {lost[:3]}"] if lost else []
