"""Prepares what commands cannot do themselves, so that a transcript has something to show.

@ dead letter of billing in orders: body      a member of the group gives the message up
@ member of billing in orders                 a member that is live until the story ends
@ store in folder                             a store with a few messages, and no broker
"""

import re
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from random import Random

from sparrowmq import Message, MessageExt
from sparrowmq.blocking import Admin, Producer, PushConsumer
from sparrowmq.disk.real_disk import RealDisk
from tests.faults.store_run import StoreRun
from tests.patience import PATIENCE_S


class Stage:
    """The cluster of a story, and who takes part in it."""

    def __init__(self, name_server: str, stack: ExitStack) -> None:
        self.name_server = name_server
        self._until_the_end = stack
        self._directions: dict[str, Callable[..., None]] = {
            r"dead letter of (\S+) in (\S+): (.+)": self._dead_letter,
            r"member of (\S+) in (\S+)": self._member,
            r"store in (\S+)": self._store,
        }

    def follow(self, direction: str) -> None:
        """Do what a line says that begins with `@`."""
        for pattern, act in self._directions.items():
            found = re.fullmatch(pattern, direction)
            if found is not None:
                return act(*found.groups())
        raise AssertionError(f"unknown direction {direction!r}")

    def _dead_letter(self, group: str, topic: str, body: str) -> None:
        with Admin(self.name_server) as admin:
            admin.create_group(group, retries=0)
        with Producer("shop", name_servers=self.name_server) as producer:
            producer.send(Message(topic, body.encode(), tags="paid", keys=body.replace(" ", "-")))
        with ExitStack() as stack:
            self._consume(stack, group, topic, is_wrong=True)

    def _member(self, group: str, topic: str) -> None:
        self._consume(self._until_the_end, group, topic, is_wrong=False)

    def _consume(self, stack: ExitStack, group: str, topic: str, *, is_wrong: bool) -> None:
        came = threading.Event()

        def handle(messages: Sequence[MessageExt]) -> None:
            came.set()
            if is_wrong:
                raise ValueError("this order cannot be billed")

        consumer = PushConsumer(
            group,
            {topic: "*"},
            name_servers=self.name_server,
            from_where="FIRST_OFFSET",
            max_reconsume_times=0,
        )
        stack.enter_context(consumer).start(handle)
        assert came.wait(PATIENCE_S)

    def _store(self, folder: str) -> None:
        made = StoreRun(RealDisk(Path(folder)), Random(5), sync_flush=True)
        for _ in range(2):
            made.step()
        made.store.close()
