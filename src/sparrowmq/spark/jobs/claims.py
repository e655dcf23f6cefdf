"""Which operator drains a topic for a group, known to the whole cluster.

Only one operator knows a journal; another operator with another journal would copy everything
again. So a drain is claimed where both look: in the key-value configuration of the name servers,
which Apache's have as well.

    namespace sparrowmq-drains, key orders@billing
    {"format": 1, "id": "5e6f7a8b…", "by": "ann@host-1", "journal": "/state/…/journal.json",
     "to": "orders-drain", "since": "2026-11-16T09:30:00Z"}

The id is written to the journal before it goes to the cluster: after a kill, only its own operator
can continue. Reading and writing are two requests, so both are made under the broker's lock of one
queue, as ordered consumers take it; a broker drops a lock after a minute (docs/decisions/0027).
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
"""Used only for locking, never by consumers."""
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
    """Read a claim as journals and name servers store it; unknown fields are left out."""
    return Claim(**{name: str(value.get(name, "?")) for name in Claim.__dataclass_fields__})


class Claims:
    """The claim on one topic and group. All name servers have to answer.

    Raises JobError if another operator holds it, ClusterUnreachable and ServerRefused.
    """

    def __init__(self, cluster: RemoteCluster, topic: str, group: str) -> None:
        self._cluster = cluster
        self._topic = topic
        self._group = group
        self._key = {"namespace": NAMESPACE, "key": f"{topic}@{group}"}

    def check_free(self, own: str | None = None) -> None:
        """Raises JobError, with a remedy, if another operator holds it."""
        for held in self._held():
            if held.id != own:
                raise JobError(
                    f"{self._what} by {held}. Continue with that journal (--state); if its operator"
                    " has given up, --take-over drains from here, and what was copied to"
                    f" {held.to} is copied once more"
                )

    def take(self, claim: Claim, *, take_over: bool = False) -> None:
        """Claim it, or continue with a claim of the same id."""
        with self._locked(claim):
            if not take_over:
                self.check_free(claim.id)
            value = json.dumps({"format": _FORMAT, **asdict(claim)}, separators=(",", ":"))
            self._at_all(RequestCode.PUT_KV_CONFIG, {"value": value})

    def check(self, claim: Claim) -> None:
        """Raises JobError if the claim is not, or no longer, this one."""
        held = self._held()
        for other in held:
            if other.id != claim.id:
                raise JobError(f"{self._what} by another operator now: {other}. This run stops")
        if not held:
            raise JobError(
                f"the claim on {self._topic} for {self._group} was taken away from the name"
                " servers. This run stops; start it again to renew the claim"
            )

    def release(self, claim: Claim) -> None:
        """Give up the claim; does nothing if another claim is in its place."""
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
