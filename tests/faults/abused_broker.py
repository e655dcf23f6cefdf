"""A broker that is being abused, and an honest client that uses it meanwhile."""

import json
import resource
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.cli.servers import with_open_files
from tests.faults.broker_process import BrokerProcess
from tests.faults.raw_wire import PULL_MESSAGE, SEND_MESSAGE_V2, RawClient, send_fields

HEARTBEAT, QUERY_OFFSET, UPDATE_OFFSET = 34, 14, 15
TOPIC, GROUP = "honest", "honest-members"
_WATCHED_MS = 10.0
_BUSY = 2
"""The answer of a broker that has too much to do; producers send again."""
_PATIENT_TRIES = 10_000
_MANY = 1_000_000
"""More requests than a broker answers in the seconds after which it saves progress."""
_NOT_SAVED = "consumer offsets are not saved"


def heartbeat(client_id: str, groups: list[str], topic: str = TOPIC) -> bytes:
    """The body of a heartbeat of a member of these groups."""
    subscription = {"topic": topic, "subString": "*", "expressionType": "TAG", "subVersion": 1}
    members = [
        {
            "groupName": group,
            "consumeType": "CONSUME_PASSIVELY",
            "messageModel": "CLUSTERING",
            "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
            "subscriptionDataSet": [subscription],
        }
        for group in groups
    ]
    beat = {"clientID": client_id, "consumerDataSet": members, "producerDataSet": []}
    return json.dumps(beat).encode()


def pull_fields(topic: str, offset: int, *, wait_ms: int = 0, group: str = GROUP) -> dict[str, str]:
    """A pull of all that a reply may hold; with a time it waits for a message."""
    return {
        "consumerGroup": group,
        "topic": topic,
        "queueId": "0",
        "queueOffset": str(offset),
        "maxMsgNums": "32",
        "sysFlag": "6" if wait_ms else "4",
        "commitOffset": "0",
        "suspendTimeoutMillis": str(wait_ms),
        "subVersion": "0",
        "subscription": "*",
        "expressionType": "TAG",
        "maxMsgBytes": str(4 << 20),
    }


class Honest:
    """A client that sends, pulls and stores its progress; each turn fails unless all is well."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._wire = RawClient(port)
        self._sent = 0
        self._stored = 0
        self._call(self._wire, HEARTBEAT, {}, heartbeat("honest", [GROUP]))

    def close(self) -> None:
        """Leave."""
        self._wire.close()

    def turn(self, *, freshly: bool = False) -> None:
        """Send a message, get it, store and ask for progress; `freshly` on a new connection."""
        if freshly:
            with RawClient(self._port) as wire:
                self._turn(wire)
        else:
            self._turn(self._wire)

    def _turn(self, wire: RawClient) -> None:
        body = f"message {self._sent}".encode()
        self._call(wire, SEND_MESSAGE_V2, send_fields(TOPIC, 0, b""), body)
        _, found = self._call(wire, PULL_MESSAGE, pull_fields(TOPIC, self._sent))
        assert body in found, "an honest message was not found"
        self._sent += 1
        place = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": "0"}
        self._call(wire, UPDATE_OFFSET, {**place, "commitOffset": str(self._sent)})
        head, _ = self._call(wire, QUERY_OFFSET, place)
        assert head.extFields["offset"] == str(self._sent)

    def send(self, topic: str, body: bytes, queue_id: int = 0) -> None:
        """A message that must be taken."""
        self._call(self._wire, SEND_MESSAGE_V2, send_fields(topic, queue_id, b""), body)

    def refusal(self, topic: str) -> str:
        """The text with which a message is refused; empty if it is taken."""
        head, _ = self._wire.call(SEND_MESSAGE_V2, send_fields(topic, 0, b""), b"x")
        return head.remark or "" if head.code else ""

    def store_progress(self) -> None:
        """Move its progress in another queue, so that there is something to save."""
        self._stored += 1
        place = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": "1"}
        self._call(self._wire, UPDATE_OFFSET, {**place, "commitOffset": str(self._stored)})

    @staticmethod
    def _call(wire: RawClient, code: int, fields: dict[str, str], body: bytes = b""):  # type: ignore[no-untyped-def]
        for _ in range(_PATIENT_TRIES):
            head, answer = wire.call(code, fields, body)
            if head.code != _BUSY:
                break
        assert head.code == 0, f"request {code} was answered {head.code} {head.remark}"
        return head, answer


@dataclass
class Abused:
    """The broker, its honest client, and where its files are."""

    broker: BrokerProcess
    honest: Honest
    size: int
    """How much abuse."""

    @property
    def port(self) -> int:
        """Where it listens."""
        return self.broker.port

    def limit_open_files(self, soft: int) -> None:
        """Change how many files the running broker may open."""
        limit_open_files(self.broker.process.pid, soft)

    def refusal(self) -> str:
        """Of a message to a topic that has to be created."""
        return self.honest.refusal("needs-a-file")

    def meet_it(self) -> None:
        """Until progress could not be saved."""
        for _ in range(_MANY):
            self.honest.store_progress()
            if _NOT_SAVED in self.broker.log.read_text(errors="replace"):
                break


@contextmanager
def abused_broker(
    size: int, options: tuple[str, ...], open_files: int | None, stalls: Path | None
) -> Iterator[Abused]:
    """A broker with an honest client; killed at the end if it still runs."""
    with tempfile.TemporaryDirectory(prefix="sparrowmq-abuse-") as name:
        broker = BrokerProcess(
            Path(name) / "data",
            *("--store-log-file-size", "64MiB", *options),
            prefix=with_open_files(open_files, open_files) if open_files is not None else (),
            stalls=stalls,
            stall_ms=_WATCHED_MS,
        )
        try:
            honest = Honest(broker.port)
            yield Abused(broker, honest, size)
            honest.close()
        finally:
            broker.kill()


def limit_open_files(pid: int, soft: int) -> None:
    """Change how many files a running process may open."""
    _, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (soft, hard))


def allow_open_files(count: int) -> None:
    """Let this process open as many, as far as it may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < count and hard != resource.RLIM_INFINITY:
        count = min(count, hard)
    if soft < count:
        resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))
