"""A broker process is killed under idempotent producers, over and over."""

import os
import signal
import threading
from collections import Counter
from pathlib import Path

import pytest

from sparrowmq import Message
from sparrowmq.blocking import Admin, Producer
from sparrowmq.testing.held_port import HeldPort
from tests.cli.servers import broker, up
from tests.patience import PATIENCE_S

KILLS = 8
SENDERS = 4
BETWEEN = 40
"""Acknowledged messages between two kills."""


class Senders:
    """Threads that send numbered messages until they are stopped."""

    def __init__(self, name_server: str) -> None:
        self.acknowledged: set[str] = set()
        self.failed: list[str] = []
        self._at = name_server
        self._stopping = threading.Event()
        self._sent = threading.Condition()
        self._threads = [threading.Thread(target=self._send, args=(n,)) for n in range(SENDERS)]

    def __enter__(self) -> "Senders":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join()

    def until_sent(self, more: int) -> None:
        """Return when `more` further messages were acknowledged."""
        with self._sent:
            wanted = len(self.acknowledged) + more
            assert self._sent.wait_for(
                lambda: self.failed or len(self.acknowledged) >= wanted, PATIENCE_S
            )
            assert self.failed == []

    def _send(self, sender: int) -> None:
        number = 0
        with Producer(
            "shop", name_servers=self._at, timeout_s=PATIENCE_S, idempotent=True
        ) as producer:
            while not self._stopping.is_set():
                bodies = [f"{sender}-{number + more}" for more in range(1 + number % 3)]
                number += len(bodies)
                messages = [Message.text("orders", body) for body in bodies]
                try:
                    if len(messages) > 1:
                        producer.send_batch(messages)
                    else:
                        producer.send(messages[0])
                except Exception as error:  # the main thread fails with it
                    with self._sent:
                        self.failed.append(repr(error))
                        self._sent.notify()
                    return
                with self._sent:
                    self.acknowledged.update(bodies)
                    self._sent.notify()


@pytest.mark.slow
def test_kills_neither_lose_a_message_nor_store_one_twice(tmp_path: Path) -> None:
    with (
        up(tmp_path / "other") as server,
        HeldPort(beside=(-2, 1)) as held,
        Admin(server.name_server, timeout_s=PATIENCE_S) as admin,
    ):
        own = (
            *("--broker-name", "broker-b", "--port", str(held.port)),
            *("--name-servers", server.name_server),
            *("--flush", "sync"),  # a kill then finds messages that are stored and not answered
        )
        with broker(tmp_path / "killed", *own) as victim:
            admin.create_topic(
                "orders", queues=2, brokers=["broker-b"], attributes={"sparrowmq.dedup": "on"}
            )
            with Senders(server.name_server) as senders:
                senders.until_sent(BETWEEN)
                os.kill(victim.pid, signal.SIGKILL)
                for _ in range(KILLS - 1):
                    with broker(tmp_path / "killed", *own) as victim:
                        senders.until_sent(BETWEEN)
                        os.kill(victim.pid, signal.SIGKILL)
                with broker(tmp_path / "killed", *own):
                    senders.until_sent(BETWEEN)
                    senders.__exit__()
                    stored = bodies_of(admin)
    assert senders.failed == []
    assert set(stored) >= senders.acknowledged
    assert {body: count for body, count in stored.items() if count > 1} == {}


def bodies_of(admin: Admin) -> Counter[str]:
    """How often each message is stored."""
    found: Counter[str] = Counter()
    for each in admin.topic("orders").queues:
        offset = each.min_offset
        while offset < each.max_offset:
            read = admin.read_messages(each.queue, offset)
            found.update(message.body.decode() for message in read)
            offset = read[-1].queue_offset + 1
    return found
