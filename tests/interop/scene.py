"""The environment of a scenario: a peer, a cluster, unique names, and clean-up at the end."""

import itertools
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from tests.interop import raw
from tests.interop.cluster import Cluster, Settings, wait_until
from tests.interop.handles import (
    PATIENCE_S,
    Handle,
    LitePullConsumer,
    Producer,
    PullConsumer,
    PushConsumer,
    TransactionProducer,
)
from tests.interop.peers import Peer, PeerError

CREATE_TOPIC = 17
GET_ROUTE = 105
QUERY_CONSUMER_OFFSET = 14

H = TypeVar("H", bound=Handle)


class Scene:
    """One scenario's world. Its topics and groups get a suffix, removed from the outcome."""

    def __init__(
        self,
        peer: Peer,
        cluster: Cluster,
        suffix: str,
        folder: Path,
        new_cluster: Callable[[Path, Settings], Cluster],
        say: Callable[[str], None],
    ) -> None:
        self.peer = peer
        self.cluster = cluster
        self.suffix = suffix
        self.folder = folder
        self.say = say
        """Prints a measured figure."""
        self._new_cluster = new_cluster
        self._closers: list[Callable[[], None]] = []
        self._members: list[PushConsumer] = []
        self._numbers = itertools.count()

    # ------------------------------------------------------------------ names and topics

    def name(self, word: str) -> str:
        """A topic or group name of this scenario."""
        return f"{word}-{self.suffix}"

    def topic(self, word: str = "orders", queues: int = 4) -> str:
        """Create a topic by the administration request and wait until the route shows it."""
        topic = self.name(word)
        fields = {"topic": topic, "defaultTopic": "TBW102", "perm": "6", "order": "false"}
        fields |= {"readQueueNums": str(queues), "writeQueueNums": str(queues)}
        fields |= {"topicFilterType": "SINGLE_TAG", "topicSysFlag": "0"}
        reply = raw.call(self.cluster.broker, CREATE_TOPIC, fields)
        if reply.code != 0:
            raise RuntimeError(f"topic {topic} refused: {reply.code} {reply.remark}")
        self.wait_for_route(topic)
        return topic

    def wait_for_route(self, topic: str) -> None:
        """Return when the name server hands out the topic."""
        self.wait_until(
            lambda: raw.call(self.cluster.name_server, GET_ROUTE, {"topic": topic}).code == 0,
            f"route of {topic}",
        )

    def wait_until_committed(self, topic: str, count: int, group: str = "billing") -> None:
        """Return when the broker knows that the group has consumed so many messages of a topic.

        A listener sees a message before its client counts it as consumed. Who stops a consumer
        as soon as everything was seen may stop it in between, and rightly gets messages again.
        """
        what = f"{self.name(group)} has committed {count} messages of {topic}"
        members = [one for one in self._members if one.is_open and one.group == self.name(group)]

        def is_committed() -> bool:
            for member in members:
                member.persist()
            return sum(self.committed(topic, group).values()) == count

        self.wait_until(is_committed, what)

    def committed(self, topic: str, group: str) -> dict[int, int]:
        """The group's offset of each queue that has one, as the broker knows them."""
        fields = {"topic": topic, "acceptStandardJsonOnly": "true"}
        route = raw.call(self.cluster.name_server, GET_ROUTE, fields).json()
        where = {"consumerGroup": self.name(group), "topic": topic, "setZeroIfNotFound": "false"}
        found: dict[int, int] = {}
        with raw.RawConnection(self.cluster.broker) as connection:
            for queue_id in range(route["queueDatas"][0]["readQueueNums"]):
                fields = where | {"queueId": str(queue_id)}
                reply = connection.call(QUERY_CONSUMER_OFFSET, fields)
                if reply.code == 0:
                    found[queue_id] = int(reply.fields["offset"])
        return found

    # ------------------------------------------------------------------ clients in the peer

    def producer(self, **options: Any) -> Producer:
        """A producer that is stopped with the scenario."""
        return self._keep(Producer, "producers", options)

    def transaction_producer(self, **options: Any) -> TransactionProducer:
        """A transactional producer."""
        return self._keep(TransactionProducer, "transactions", options)

    def push_consumer(self, topic: str, group: str = "billing", **options: Any) -> PushConsumer:
        """A push consumer, started from the first offset unless told otherwise."""
        options = {"from_where": "CONSUME_FROM_FIRST_OFFSET", "topic": topic} | options
        self._members.append(self._keep(PushConsumer, group, options))
        return self._members[-1]

    def pull_consumer(self, group: str = "billing", **options: Any) -> PullConsumer:
        """A pull consumer."""
        return self._keep(PullConsumer, group, options)

    def lite_consumer(self, group: str = "billing", **options: Any) -> LitePullConsumer:
        """A lite pull consumer."""
        return self._keep(LitePullConsumer, group, options)

    def _keep(self, kind: type[H], group: str, options: dict[str, Any]) -> H:
        name = f"{kind.KIND}-{next(self._numbers)}-{self.suffix}"
        options = {"group": self.name(group)} | options
        handle = kind(self.peer, name, self.cluster.name_server, **options)
        self._closers.append(handle.stop)
        return handle

    # ------------------------------------------------------------------ the rest

    def own_cluster(self, settings: Settings) -> "Scene":
        """The same scenario on a separate cluster, which ends with it."""
        return self.on(self._new_cluster(self.folder / f"cluster-{next(self._numbers)}", settings))

    def on(self, cluster: Cluster) -> "Scene":
        """The same scenario on a cluster that was started for it; both end with it."""
        self._closers.append(cluster.close)
        own = Scene(self.peer, cluster, self.suffix, self.folder, self._new_cluster, self.say)
        own._numbers = self._numbers
        self._closers.append(own.close)
        return own

    def closing(self, close: Callable[[], None]) -> None:
        """Call this at the end of the scenario."""
        self._closers.append(close)

    def admin(self, method: str, *args: Any, signature: str | None = None) -> Any:
        """Call Apache's administration client (java5 only)."""
        server = self.cluster.name_server
        return self.peer.call(
            "admin", name_server=server, method=method, args=list(args), signature=signature
        )

    def mqadmin(self, *args: str) -> str:
        """Run one mqadmin command (java5 only) and return what it printed."""
        printed = self.peer.call("mqadmin", args=[*args, "-n", self.cluster.name_server])
        return str(printed)

    def refusal(self, call: Callable[[], Any]) -> dict[str, Any]:
        """What the client raises: class and code; an answer without error is shown as such."""
        try:
            call()
        except PeerError as refused:
            return {"raises": refused.error_class, "code": refused.code}
        return {"raises": None}

    def wait_until(
        self, holds: Callable[[], bool], what: str, timeout_s: float = PATIENCE_S
    ) -> None:
        """Poll the servers; raises TimeoutError naming what never came true."""
        wait_until(holds, what, self.folder, timeout_s)

    def pause(self, seconds: float) -> None:
        """Let foreign processes act where nothing can be waited for."""
        time.sleep(seconds)

    def close(self) -> None:
        """Stop everything the scenario started, the newest first."""
        while self._closers:
            self._closers.pop()()

    def plain(self, outcome: Any) -> Any:
        """The outcome without suffixes and addresses, so that two brokers can be compared."""
        match outcome:
            case str():
                return self._plain_text(outcome)
            case dict():
                pairs = ((self._plain_text(str(k)), self.plain(v)) for k, v in outcome.items())
                return dict(sorted(pairs))
            case set() | frozenset():
                return sorted((self.plain(one) for one in outcome), key=repr)
            case list() | tuple():
                return [self.plain(one) for one in outcome]
            case _:
                return outcome

    def _plain_text(self, text: str) -> str:
        text = text.replace(f"-{self.suffix}", "")
        text = text.replace(self.cluster.broker, "<broker>")
        text = text.replace(self.cluster.name_server, "<name server>")
        return re.sub(r"\b127\.0\.0\.1:\d+", "<address>", text)
