"""Producers and consumers inside a peer, as Python objects."""

from typing import Any

from tests.interop.peers import Peer

Sent = dict[str, Any]
Message = dict[str, Any]

PATIENCE_S = 240.0
"""How long anything may take; it costs time only where something is broken.

The Go client looks at its share of a group every 20 s and sends a heartbeat every 30 s. A Java
client that connects twice, as on a busy machine, is two members to Apache's broker until the dead
one is dropped after 120 s: half of the queues wait for that.
"""


def messages(bodies: list[str] | list[Message]) -> list[Message]:
    """Plain texts become messages with nothing but a body."""
    return [{"body": one} if isinstance(one, str) else one for one in bodies]


class Handle:
    """Something that lives in the driver under a name."""

    KIND = ""

    def __init__(self, peer: Peer, name: str, name_server: str, **options: Any) -> None:
        self.peer = peer
        self.name = name
        self.group: str = options.get("group", "")
        self.is_open = False
        self.call(f"{self.KIND}_start", name_server=name_server, **options)
        self.is_open = True

    def call(self, op: str, **args: Any) -> Any:
        """An operation on this very object."""
        return self.peer.call(op, name=self.name, **args)

    def stop(self) -> None:
        """End it as an application would; a second call does nothing."""
        if self.is_open:
            self.is_open = False
            self.call(f"{self.KIND}_stop")


class Producer(Handle):
    """A producer of the peer."""

    KIND = "producer"

    def send(
        self, topic: str, bodies: list[str] | list[Message], how: str = "send", **args: Any
    ) -> list[Sent]:
        """Send one after the other: how = send, send_async, send_selected, send_to_queue."""
        return list(self.call(how, topic=topic, messages=messages(bodies), **args))

    def send_one_way(self, topic: str, bodies: list[str]) -> None:
        """Send without an answer."""
        self.call("send_one_way", topic=topic, messages=messages(bodies))

    def send_batch(self, topic: str, bodies: list[str] | list[Message]) -> Sent:
        """Send all of them in one request."""
        result: Sent = self.call("send_batch", topic=topic, messages=messages(bodies))
        return result

    def offset(self, op: str, topic: str, queue_id: int, **args: Any) -> int:
        """min_offset, max_offset, search_offset or earliest_store_time of a queue."""
        return int(self.call(op, topic=topic, queue_id=queue_id, **args))


class TransactionProducer(Handle):
    """A transactional producer; each message carries what it answers in its properties."""

    KIND = "transaction"

    def send(self, topic: str, bodies: list[Message]) -> list[Sent]:
        """Send half messages; the driver executes and ends them."""
        return list(self.call("transaction_send", topic=topic, messages=bodies))

    def checks(self) -> dict[str, int]:
        """How often the broker asked back, by body."""
        return dict(self.call("transaction_checks"))


class PushConsumer(Handle):
    """A push consumer that remembers what it was given."""

    KIND = "push"

    def received(self, count: int = 0, timeout_s: float = PATIENCE_S) -> list[Message]:
        """Everything so far; raises TimeoutError unless it is at least `count` messages in time."""
        timeout_ms = int(timeout_s * 1000) if count else 0
        got: list[Message] = self.call("push_received", count=count, timeout_ms=timeout_ms)
        if len(got) < count:
            raise TimeoutError(f"{self.name} got {len(got)} of {count} messages in {timeout_s} s")
        return got

    def persist(self) -> None:
        """Have Java's client store its progress now: it begins to do so 10 s after its start."""
        if self.peer.name.startswith("java"):
            self.call("push_persist")

    def bodies(self, count: int = 0, timeout_s: float = PATIENCE_S) -> list[str]:
        """The bodies of `received`, in order of arrival."""
        return [message["body"] for message in self.received(count, timeout_s)]


class PullConsumer(Handle):
    """A pull consumer: the scenario keeps the offsets."""

    KIND = "pull"

    def pull(self, topic: str, queue_id: int, offset: int, **args: Any) -> dict[str, Any]:
        """One pull from a queue."""
        args |= {"topic": topic, "queue_id": queue_id, "offset": offset}
        result: dict[str, Any] = self.call("pull", **args)
        return result

    def commit(self, topic: str, queue_id: int, offset: int) -> None:
        """Store an offset at the broker."""
        self.call("pull_commit", topic=topic, queue_id=queue_id, offset=offset)

    def committed(self, topic: str, queue_id: int) -> int:
        """The offset stored at the broker."""
        return int(self.call("pull_committed", topic=topic, queue_id=queue_id))

    def poll(self, count: int, timeout_s: float = PATIENCE_S) -> list[Message]:
        """Go only: take what the subscription brings and acknowledge it."""
        return list(self.call("poll", count=count, timeout_ms=int(timeout_s * 1000)))


class LitePullConsumer(Handle):
    """Java's lite pull consumer."""

    KIND = "lite"

    def poll(self, count: int, timeout_s: float = PATIENCE_S) -> list[Message]:
        """Poll until `count` messages came or the time is over."""
        return list(self.call("lite_poll", count=count, timeout_ms=int(timeout_s * 1000)))

    def on_queue(self, op: str, topic: str, queue_id: int, **args: Any) -> Any:
        """seek, seek_to_begin, seek_to_end, committed or offset_for_timestamp of a queue."""
        return self.call(f"lite_{op}", topic=topic, queue_id=queue_id, **args)
