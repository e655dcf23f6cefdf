"""The one checker of all fault tests: attempted, acknowledged and read messages.

A message's body and properties follow from its id, so whatever comes back can be judged by itself.

```
ok        acknowledged with SEND_OK: must be read back
unknown   a timeout, FLUSH_*, SLAVE_NOT_AVAILABLE, a lost connection: may be there or not
fail      refused: must not be there
```
"""

import subprocess
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache
from pathlib import Path
from random import Random
from typing import NamedTuple

from sparrowmq.protocol.properties import decode_properties

_SHOWN = 5


class State(Enum):
    """What the sender knows about a message."""

    UNKNOWN = "unknown"
    OK = "ok"
    FAIL = "fail"


class MessageId(NamedTuple):
    """Who sent it as his how manieth."""

    producer: str
    number: int

    def __str__(self) -> str:
        return f"{self.producer}-{self.number}"

    @staticmethod
    def parse(text: str) -> "MessageId":
        producer, _, number = text.rpartition("-")
        return MessageId(producer, int(number))


class ReadBack(NamedTuple):
    """A message as a consumer, or a look into the store, found it."""

    topic: str
    queue_id: int
    queue_offset: int
    body: bytes
    properties: bytes


def body_of(message: MessageId) -> bytes:
    """The only right body: the id, and bytes and a length that follow from it."""
    rng = Random(str(message))
    return b"%s|" % str(message).encode() + rng.randbytes(rng.choice((0, 20, 60, 200, 700)))


def properties_of(message: MessageId) -> bytes:
    """The only right properties."""
    return f"UNIQ_KEY\x01{message}\x02KEYS\x01k-{message.number % 7} all\x02".encode()


@dataclass
class Verdict:
    """What was found wrong. Empty lists are what every test wants to see."""

    attempted: int = 0
    ok: int = 0
    unknown: int = 0
    failed: int = 0
    read: int = 0
    lost: list[MessageId] = field(default_factory=list)
    phantom: list[str] = field(default_factory=list)
    refused_but_read: list[MessageId] = field(default_factory=list)
    damaged: list[str] = field(default_factory=list)
    twice: list[MessageId] = field(default_factory=list)
    out_of_order: list[str] = field(default_factory=list)
    gaps: list[str] = field(default_factory=list)

    def problems(self) -> dict[str, list[str]]:
        """Every kind of problem that occurred, with what was found."""
        kinds: dict[str, Sequence[object]] = {
            "lost": self.lost,
            "phantom": self.phantom,
            "refused but read": self.refused_but_read,
            "damaged": self.damaged,
            "twice": self.twice,
            "out of order": self.out_of_order,
            "gaps": self.gaps,
        }
        return {kind: [str(each) for each in found] for kind, found in kinds.items() if found}

    def __bool__(self) -> bool:
        return not self.problems()

    def __str__(self) -> str:
        counts = (
            f"attempted {self.attempted}, ok {self.ok}, unknown {self.unknown},"
            f" failed {self.failed}, read {self.read}"
        )
        problems = "; ".join(
            f"{len(found)} {kind}: {', '.join(found[:_SHOWN])}"
            for kind, found in self.problems().items()
        )
        return f"{counts}: {problems or 'nothing wrong'}"


class Ledger:
    """Keeps what senders know, and compares it with what is read."""

    def __init__(self) -> None:
        self.states: dict[MessageId, State] = {}

    def attempt(self, message: MessageId) -> None:
        """A message is about to be sent; until something else is known it is unknown."""
        self.states[message] = State.UNKNOWN

    def ok(self, message: MessageId) -> None:
        """It was acknowledged."""
        self.states[message] = State.OK

    def fail(self, message: MessageId) -> None:
        """It was refused."""
        self.states[message] = State.FAIL

    def count(self, state: State) -> int:
        """How many messages are in a state."""
        return sum(1 for each in self.states.values() if each is state)

    def check(self, messages: Iterable[ReadBack]) -> Verdict:
        """Judge everything that can be read; messages of a queue in the order of their offsets."""
        verdict = Verdict(
            len(self.states),
            self.count(State.OK),
            self.count(State.UNKNOWN),
            self.count(State.FAIL),
        )
        seen: set[MessageId] = set()
        ends: dict[tuple[str, int], int] = {}
        numbers: dict[tuple[str, str, int], int] = defaultdict(lambda: -1)
        for message in messages:
            verdict.read += 1
            queue = message.topic, message.queue_id
            if ends.get(queue, message.queue_offset) != message.queue_offset:
                verdict.gaps.append(f"{queue}: {message.queue_offset}, expected {ends[queue]}")
            ends[queue] = message.queue_offset + 1
            identity = self._judge(message, verdict)
            if identity is None:
                continue
            if identity in seen:
                verdict.twice.append(identity)
            seen.add(identity)
            before = numbers[identity.producer, *queue]
            if identity.number < before:
                verdict.out_of_order.append(f"{identity} behind {before} in {queue}")
            numbers[identity.producer, *queue] = max(before, identity.number)
        verdict.lost = [
            message
            for message, state in self.states.items()
            if state is State.OK and message not in seen
        ]
        return verdict

    def _judge(self, message: ReadBack, verdict: Verdict) -> MessageId | None:
        where = f"{message.topic}/{message.queue_id}@{message.queue_offset}"
        identity, is_right = _identify(message.properties, message.body)
        if identity is None:
            verdict.damaged.append(f"{where}: an id in {message.properties[:80]!r}")
            return None
        state = self.states.get(identity)
        if state is None:
            verdict.phantom.append(f"{where}: {identity}")
            return None
        if state is State.FAIL:
            verdict.refused_but_read.append(identity)
        if not is_right:
            verdict.damaged.append(f"{where}: {identity}")
        return identity


@lru_cache(maxsize=512)
def _identify(properties: bytes, body: bytes) -> tuple[MessageId | None, bool]:
    """Whose message it is, and whether all of it is right.

    Kept for a while: damage at every byte of a small store reads the same messages 145,000 times.
    """
    found = decode_properties(properties)
    try:
        identity = MessageId.parse(found.get("UNIQ_KEY", ""))
    except ValueError:
        return None, False
    expected = decode_properties(properties_of(identity))
    kept = {name: found.get(name) for name in expected}
    return identity, body == body_of(identity) and kept == expected


def commit() -> str:
    """The commit that is being tested, as far as git tells."""
    found = subprocess.run(
        ["git", "describe", "--always", "--dirty", "--abbrev=10"],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        check=False,
    )
    return found.stdout.strip() or "unknown"
