"""Queues that get shorter under live members: new messages get offsets that members have passed."""

import shutil
import signal
from typing import Any

from tests.interop import raw
from tests.interop.cluster import Settings
from tests.interop.handles import LitePullConsumer, PullConsumer, PushConsumer
from tests.interop.registry import Outcome, scenario
from tests.interop.scene import Scene

DELETE_TOPIC = 215
MEMBERS: dict[str, dict[str, Any]] = {
    "concurrent": {},
    "orderly": {"orderly": True},
    "broadcasting": {"model": "BROADCASTING"},
}
COMES_S = 90.0
"""Java and Go clients drop a queue that was moved for 10 s, and take it anew in a rebalance up to
20 s later."""
LOOK_S = 0.3
"""How long a look at what there is to poll may take: it keeps the driver from other work."""


class Poller:
    """A consumer that polls: the lite pull consumer, or Go's pull consumer."""

    def __init__(self, consumer: LitePullConsumer | PullConsumer) -> None:
        self._consumer = consumer
        self._got: list[str] = []

    def bodies(self) -> list[str]:
        """Everything so far, in order of arrival."""
        self._got += [message["body"] for message in self._consumer.poll(1000, LOOK_S)]
        return self._got


Members = list[PushConsumer | Poller]


def members(scene: Scene, topic: str) -> Members:
    """One of each kind, in groups of their own."""
    group: Members = [
        scene.push_consumer(topic, group=kind, **options) for kind, options in MEMBERS.items()
    ]
    if scene.peer.name.startswith("go"):
        return [*group, Poller(scene.pull_consumer("polling", topic=topic))]
    return [*group, Poller(scene.lite_consumer("polling", topic=topic, auto_commit=True))]


def all_get(scene: Scene, group: Members, bodies: list[str], what: str) -> None:
    for member in group:
        scene.wait_until(lambda: set(bodies) <= set(member.bodies()), what, COMES_S)  # noqa: B023


@scenario(needs="restart", lane="quiet", compared=False, lasts_s=60)
def a_power_cut_under_live_members_makes_them_skip_nothing(scene: Scene) -> Outcome:
    """What is lost is everything since a copy of the store, as if nothing had been synced."""
    own = scene.own_cluster(Settings())
    topic = own.topic(queues=1)
    group, producer = members(own, topic), own.producer()
    kept = [f"kept-{number}" for number in range(10)]
    producer.send(topic, kept)
    all_get(own, group, kept, "what is kept arrives")
    own.pause(2.0)  # it is synced, and so is the progress
    copy = own.cluster.folder / "synced"
    shutil.copytree(own.cluster.store, copy)
    lost = [f"lost-{number}" for number in range(20)]
    producer.send(topic, lost)
    all_get(own, group, lost, "what will be lost arrives")
    own.cluster.stop_broker(signal.SIGKILL)
    shutil.rmtree(own.cluster.store)
    copy.rename(own.cluster.store)
    own.cluster.start_broker()
    new = [f"new-{number}" for number in range(30)]
    # A sender meets the dead connection once.
    own.wait_until(lambda: _is_sent(own, producer, topic), "sends go on")
    producer.send(topic, new[:8])
    all_get(own, group, new[:8], "new messages arrive where the queue is shorter than before")
    producer.send(topic, new[8:])
    all_get(own, group, new, "new messages arrive")
    return {"skipped": 0}


def _is_sent(scene: Scene, producer: Any, topic: str) -> bool:
    try:
        producer.send(topic, ["first"])
    except Exception as error:  # whatever a driver reports
        scene.say(f"a send after the power cut: {error}")
        return False
    return True


@scenario(lane="quiet", compared=False)
def a_topic_made_anew_under_live_members_is_consumed_from_its_beginning(scene: Scene) -> Outcome:
    own = scene.own_cluster(Settings())
    topic = own.topic(queues=1)
    group, producer = members(own, topic), own.producer()
    old = [f"old-{number}" for number in range(20)]
    producer.send(topic, old)
    all_get(own, group, old, "the old messages arrive")
    own.pause(6.0)  # progress is stored every 5 s
    raw.call(own.cluster.broker, DELETE_TOPIC, {"topic": topic})
    own.topic(queues=1)
    new = [f"new-{number}" for number in range(30)]
    producer.send(topic, new[:5])
    all_get(own, group, new[:5], "new messages arrive where the queue is shorter than before")
    producer.send(topic, new[5:])
    all_get(own, group, new, "new messages arrive")
    return {"skipped": 0}
