"""Sends from an executor: each is repeated until a broker has stored it, or the time is up.

    begin ──▶ the next is encoded meanwhile ──▶ finish: stored
      │ no answer, or a broker that is busy or stopping
      ▼
    wait a little, ask for the route again ──▶ the same queue for rows with a sharding key,
                                                another broker's, where there is one, for the rest

A draining broker, or one that has reached a limit, has stored nothing: rows without a sharding key
go to the next broker at once, and wait when all have refused. Rows with a key wait for a limit, and
leave a draining broker as the client's messages do: when its queues have left the route, each key
goes to its hash modulo the number of remaining queues.

At-least-once: a broker that stored a send and died before it answered gets it again.
"""

import logging
import struct
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeGuard

from sparrowmq.clock import Clock, system_clock
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.names import AUTO_CREATE_TOPIC
from sparrowmq.spark.errors import (
    BrokerAway,
    ClusterUnreachable,
    NotTaken,
    RocketMQError,
    ServerRefused,
    TopicMissing,
)
from sparrowmq.spark.wire.cluster import Queue, RemoteCluster
from sparrowmq.spark.wire.remoting import Answer, Patience, Remoting

_log = logging.getLogger(__name__)

_RETRY_AFTER = "sparrowRetryAfterMs"
_ROW_SIZE = struct.Struct(">I")
"""The head of each row in a batch."""

STORED = frozenset(
    {
        ResponseCode.SUCCESS,
        ResponseCode.FLUSH_DISK_TIMEOUT,
        ResponseCode.FLUSH_SLAVE_TIMEOUT,
        ResponseCode.SLAVE_NOT_AVAILABLE,
    }
)
"""Codes that mean the rows are stored, perhaps on fewer disks than the broker is set up for."""


@dataclass(frozen=True, slots=True)
class Send:
    """One request: a batch of rows, or one row that cannot go in a batch."""

    topic: str
    queue: int
    """Its index in the topic's list of queues."""
    is_bound: bool
    """Whether a sharding key binds the send to this queue."""
    rows: int
    body: bytes
    properties: str | None = None
    """The properties of a single row; None for a batch, whose rows carry their own."""
    hashes: Sequence[int] = ()
    """Hashes of the rows' sharding keys, negative without one; empty where no row is bound."""


class UnknownTopic(RocketMQError):
    """The topic of the rows does not exist, or, if `lost` says so, none of its brokers is there."""

    def __init__(self, topic: str, name_servers: str, lost: str = "") -> None:
        super().__init__(
            f"topic {topic} at name server {name_servers}: {lost}"
            if lost
            else f"topic {topic} does not exist at name server {name_servers}; create it (sparrowmq"
            f" topic create {topic}, or the option createTopic=true), or correct the option topic"
            " or the column topic"
        )
        self.topic = topic


class NoWriteQueue(BrokerAway):
    """The topic exists, but no broker takes messages for it now."""

    def __init__(self, topic: str) -> None:
        super().__init__(
            f"no broker takes messages for topic {topic} now: each has no master, or drains, or the"
            f" topic is not writable there; look at: sparrowmq topic route {topic}"
        )


class _UnderWay(NamedTuple):
    """A send whose answer has not been read yet."""

    send: Send
    queue: Queue
    broker: Remoting | None
    """The broker it was sent to; None if sending failed already."""


class RowSender:
    """Sends what is planned. Raises RocketMQError that names topic, queue and the reason.

    Only one send is under way at a time, so the rows of a queue are stored in order.
    """

    def __init__(
        self,
        cluster: RemoteCluster,
        *,
        group: str,
        retry_timeout_s: float,
        waits_for_topics: bool = False,
        new_topic_queues: int | None = None,
        clock: Clock = system_clock,
        elapsed_s: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._cluster = cluster
        self._group = group
        self._waits = waits_for_topics
        self._new_topic_queues = new_topic_queues
        self._clock = clock
        self._patience = Patience(retry_timeout_s, now=elapsed_s, pause=pause)
        self._queues: dict[str, tuple[Queue, ...]] = {}
        """The queues that the task plans with, see `queue_count`."""
        self._left: dict[str, tuple[Queue, ...]] = {}
        """The queues of a topic that remain after draining brokers left its route."""
        self._under_way: _UnderWay | None = None

    def queue_count(self, topic: str) -> int:
        """How many queues a topic is spread over; does not change while the task runs."""
        if topic not in self._queues:
            self.finish()  # a topic may be created over the connection that a send is under way on
            self._queues[topic] = self._patience.call(
                f"asking for the route of topic {topic}",
                lambda: write_queues(
                    self._cluster, topic, waits=self._waits, new_queues=self._new_topic_queues
                ),
            )
        return len(self._queues[topic])

    def send(self, send: Send) -> None:
        """Send until it is stored."""
        self.begin(send)
        self.finish()

    def begin(self, send: Send) -> None:
        """Send once, after the previous send is stored; `finish` does the rest.

        The broker works while the caller prepares the next send.
        """
        self.finish()
        for part, queue in self._placed(send):
            self.finish()
            self._start(part, queue)

    def _start(self, send: Send, queue: Queue) -> None:
        self._under_way = _UnderWay(send, queue, None)
        with suppress(RocketMQError):  # `finish` will run into it again, and retries
            broker = self._cluster.broker(queue.topic, queue.broker_name)
            broker.start(_code(send), self._fields(queue, send), send.body)
            self._under_way = _UnderWay(send, queue, broker)

    def finish(self) -> None:
        """Retry until the send that was begun is stored."""
        if self._under_way is None:
            return
        send, queue, asked = self._under_way
        self._under_way = None

        def attempt() -> None:
            nonlocal queue, asked
            refusals: dict[str, ServerRefused] = {}
            while True:
                broker, asked = asked, None
                try:
                    return self._once(queue, send, broker)
                except RocketMQError as error:
                    failed, queue = queue, self._next(queue, send, error)
                    if not _is_certainly_not_stored(error):
                        raise
                    refusals[failed.broker_name] = error
                    if queue.broker_name in refusals:
                        raise _soonest(refusals.values()) from error

        try:
            self._patience.call(f"sending {send.rows} rows to {queue}", attempt)
        except _KeysMove:
            self.begin(send)
            self.finish()

    def _placed(self, send: Send) -> Iterator[tuple[Send, Queue]]:
        """Where a send goes: to the queue planned for it, unless a draining broker has left the
        route meanwhile."""
        planned = self._queues[send.topic][send.queue]
        queues = self._left.get(send.topic)
        if queues is None:
            yield send, planned
        elif not send.is_bound:
            yield send, planned if planned in queues else queues[send.queue % len(queues)]
        else:
            for at, part in _by_hash(send, len(queues)):
                yield part, queues[at]

    def _once(self, queue: Queue, send: Send, asked: Remoting | None) -> None:
        broker = asked or self._cluster.broker(queue.topic, queue.broker_name)
        if asked is not None:
            answer = asked.finish()
        else:
            answer = broker.call(_code(send), self._fields(queue, send), send.body)
        _check_stored(answer, broker.address, f"sending {send.rows} rows to {queue}")

    def _fields(self, queue: Queue, send: Send) -> dict[str, str]:
        """The header under Java's one-letter names, as `protocol/headers/send.py` lists them."""
        return {
            "a": self._group,
            "b": queue.topic,
            "c": AUTO_CREATE_TOPIC,
            "d": "4",
            "e": str(queue.queue_id),
            "f": "0",
            "g": str(self._clock()),
            "h": "0",
            "i": send.properties or "",
            "j": "0",
            "k": "false",
            "m": "false" if send.properties is not None else "true",
            "n": queue.broker_name,
        }

    def _next(self, failed: Queue, send: Send, error: RocketMQError) -> Queue:
        """Where to try next; the name servers may know a new address by now.

        Raises _KeysMove if this queue's broker drains and has left the route.
        """
        with suppress(RocketMQError):  # while the only broker is down they know no route at all
            now = self._cluster.route(failed.topic).write_queues
            if isinstance(error, NotTaken) and now and failed not in now:
                self._leave(failed, now, error)
                if send.is_bound:
                    raise _KeysMove
        if send.is_bound:
            return failed
        queues = self._left.get(failed.topic) or self._queues[failed.topic]
        at = queues.index(failed) if failed in queues else 0
        others = (*queues[at:], *queues[:at])
        return next((q for q in others if q.broker_name != failed.broker_name), failed)

    def _leave(self, failed: Queue, now: tuple[Queue, ...], error: NotTaken) -> None:
        if self._left.get(failed.topic) == now:
            return
        self._left[failed.topic] = now
        text = "%s of %s takes no more messages (%s): its rows go to the %d queues that are left"
        _log.warning(text, failed.topic, failed.broker_name, error.remark, len(now))


class _KeysMove(Exception):
    """Rows with sharding keys need new queues: theirs has left the route."""


def _by_hash(send: Send, count: int) -> Iterator[tuple[int, Send]]:
    """Split a send of rows with keys by which of `count` queues each row goes to. The rows of a
    queue keep their order."""
    rows: dict[int, list[int]] = {}
    for row, known in enumerate(send.hashes or (send.queue,) * send.rows):
        rows.setdefault(int(known if known >= 0 else send.queue) % count, []).append(row)
    if len(rows) == 1:
        yield next(iter(rows)), send
        return
    starts = [0]
    while len(starts) <= send.rows:
        starts.append(starts[-1] + _ROW_SIZE.unpack_from(send.body, starts[-1])[0])
    for at, chosen in rows.items():
        body = b"".join(send.body[starts[row] : starts[row + 1]] for row in chosen)
        hashes = [send.hashes[row] for row in chosen]
        yield at, replace(send, rows=len(chosen), body=body, hashes=hashes)


def _code(send: Send) -> RequestCode:
    is_batch = send.properties is None
    return RequestCode.SEND_BATCH_MESSAGE if is_batch else RequestCode.SEND_MESSAGE_V2


def _check_stored(answer: Answer, address: str, what: str) -> None:
    if answer.code in STORED:
        return
    if answer.code == ResponseCode.GO_AWAY:
        raise ClusterUnreachable(address, what, f"the broker stops ({answer.remark})")
    if answer.code == ResponseCode.NO_PERMISSION:
        raise NotTaken(address, what, answer.code, answer.remark)
    wait_ms = answer.fields.get(_RETRY_AFTER)
    retry_after_s = None if wait_ms is None else max(0, int(wait_ms)) / 1000
    raise ServerRefused(address, what, answer.code, answer.remark, retry_after_s)


def _is_certainly_not_stored(error: RocketMQError) -> TypeGuard[ServerRefused]:
    """Whether another broker may get the rows at once: this one drains, or a limit is reached."""
    return isinstance(error, ServerRefused) and (
        isinstance(error, NotTaken) or error.retry_after_s is not None
    )


def _soonest(refusals: Collection[ServerRefused]) -> ServerRefused:
    """The refusal, among those of all brokers, that is worth retrying first."""
    limits = [each for each in refusals if each.retry_after_s is not None]
    return min(limits or refusals, key=lambda each: each.retry_after_s or 0.0)


def write_queues(
    cluster: RemoteCluster, topic: str, *, waits: bool = False, new_queues: int | None = None
) -> tuple[Queue, ...]:
    """The queues a topic can be sent to. Raises UnknownTopic, BrokerAway, ClusterUnreachable.

    `waits` is for a topic that existed before: if it is not found, its broker is away.
    With `new_queues`, a missing topic is created, with that many queues on every broker.
    """
    try:
        queues = cluster.route(topic).write_queues
    except TopicMissing as missing:
        servers = str(cluster)
        if not cluster.topics():
            # A stopping broker takes its topics along; the name may still be right.
            text = f"no broker is registered at name server {servers}, so topic {topic} is unknown"
            raise BrokerAway(text) from missing
        if new_queues is not None:
            return _created(cluster, topic, new_queues)
        if waits:
            text = f"no broker that has topic {topic} is registered at name server {servers}"
            raise BrokerAway(f"{text}, or the topic does not exist") from missing
        raise UnknownTopic(topic, servers, missing.lost) from missing
    if not queues:
        raise NoWriteQueue(topic)
    return queues


_ROUTE_LOOKS = 100
_ROUTE_LOOK_S = 0.05


def _created(cluster: RemoteCluster, topic: str, queues: int) -> tuple[Queue, ...]:
    """Create a topic and wait until its route names every broker: a task keeps using the queues
    that it sees first."""
    brokers = set(cluster.create_topic(topic, queues))
    for _ in range(_ROUTE_LOOKS):
        with suppress(TopicMissing):
            found = cluster.route(topic).write_queues
            if brokers <= {queue.broker_name for queue in found}:
                return found
        time.sleep(_ROUTE_LOOK_S)
    raise BrokerAway(f"topic {topic} was created, and its brokers have not registered it yet")
