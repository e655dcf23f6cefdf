"""Which operator drains a topic for a group, known to the whole cluster.

A journal is known to one operator; another one with a journal of its own would copy everything
again. So a drain is claimed where both look: in the key-value configuration of the name servers,
which Apache's have as well.

    namespace sparrowmq-drains, key orders@billing
    {"format": 1, "id": "5e6f7a8b…", "by": "ann@host-1", "journal": "/state/…/journal.json",
     "to": "orders-drain", "since": "2026-11-16T09:30:00Z"}

The id is in the journal before it is in the cluster: after a kill its operator can go on, and no
other. Reading and writing are two requests, so they are made under a lock of one queue at its
broker, as ordered consumers take it; a broker forgets a lock after a minute (docs/decisions/0027).
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.json_reader import parse_json
from sparrowmq.spark.errors import ServerRefused
from sparrowmq.spark.jobs.job import JobError
from sparrowmq.spark.wire.cluster import RemoteCluster
from sparrowmq.spark.wire.remoting import Remoting

NAMESPACE = "sparrowmq-drains"
LOCK_GROUP = "sparrowmq-drains"
"""Never a group of consumers: its only use is to lock."""
_FORMAT = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """One operator's drain."""

    id: str
    by: str
    """User and machine."""
    journal: str
    to: str
    since: str

    def __str__(self) -> str:
        return f"{self.by} since {self.since}, to {self.to}, journal {self.journal}"


def claim_from(value: dict[str, Any]) -> Claim:
    """A claim as journals and name servers keep it; what it does not know is left out."""
    return Claim(**{name: str(value.get(name, "?")) for name in Claim.__dataclass_fields__})


class Claims:
    """The claim on one topic and group. All name servers have to answer.

    Raises JobError where another operator has it, Unreachable and ServerRefused.
    """

    def __init__(self, cluster: RemoteCluster, topic: str, group: str) -> None:
        self._cluster = cluster
        self._topic = topic
        self._group = group
        self._key = {"namespace": NAMESPACE, "key": f"{topic}@{group}"}

    def check_free(self, own: str | None = None) -> None:
        """Raises JobError where another operator has it, with what can be done."""
        for held in self._held():
            if held.id != own:
                raise JobError(
                    f"{self._what} by {held}. Go on with that journal (--state); if its operator"
                    " has given up, --take-over drains from here, and what was copied to"
                    f" {held.to} is copied once more"
                )

    def take(self, claim: Claim, *, take_over: bool = False) -> None:
        """Claim it, or go on with a claim of the same id."""
        with self._locked(claim):
            if not take_over:
                self.check_free(claim.id)
            value = json.dumps({"format": _FORMAT, **asdict(claim)}, separators=(",", ":"))
            self._at_all(RequestCode.PUT_KV_CONFIG, {"value": value})

    def check(self, claim: Claim) -> None:
        """Raises JobError where the claim is not, or no longer, this one."""
        held = self._held()
        for other in held:
            if other.id != claim.id:
                raise JobError(f"{self._what} by another operator now: {other}. This run stops")
        if not held:
            raise JobError(
                f"the claim on {self._topic} for {self._group} was taken away from the name"
                " servers. This run stops; run it again to claim it anew"
            )

    def release(self, claim: Claim) -> None:
        """Give it up; nothing where it is not this one's."""
        with self._locked(claim):
            if any(held.id == claim.id for held in self._held()):
                self._at_all(RequestCode.DELETE_KV_CONFIG, {})

    @property
    def _what(self) -> str:
        return f"{self._topic} is being drained for {self._group}"

    def _held(self) -> list[Claim]:
        found: list[Claim] = []
        for server in self._servers():
            try:
                answer = server.ask(RequestCode.GET_KV_CONFIG, self._key)
            except ServerRefused as refused:
                if refused.code != ResponseCode.QUERY_NOT_FOUND:
                    raise
                continue
            found.append(claim_from(json.loads(answer.fields["value"])))
        return found

    def _at_all(self, code: RequestCode, more: dict[str, str]) -> None:
        for server in self._servers():
            server.ask(code, {**self._key, **more})

    def _servers(self) -> list[Remoting]:
        return [self._cluster.name_server(address) for address in self._cluster.name_servers]

    @contextmanager
    def _locked(self, claim: Claim) -> Iterator[None]:
        queue = self._cluster.queues(self._topic)[0]
        broker = self._cluster.broker(queue.topic, queue.broker_name)
        wanted = {
            "topic": queue.topic,
            "brokerName": queue.broker_name,
            "queueId": queue.queue_id,
        }
        body = json.dumps(
            {"consumerGroup": LOCK_GROUP, "clientId": claim.id, "mqSet": [wanted]}
        ).encode()
        answer = broker.ask(RequestCode.LOCK_BATCH_MQ, {}, body)
        if not parse_json(answer.body).get("lockOKMQSet"):
            raise JobError(
                f"another run claims a drain of {self._topic} at this moment, or was killed while"
                " it did: run this again in a minute"
            )
        try:
            yield
        finally:
            broker.ask(RequestCode.UNLOCK_BATCH_MQ, {}, body)
