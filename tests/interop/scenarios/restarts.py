"""A broker restarts under load: no acknowledged message is lost, and consumers resume."""

import signal
import time
from collections.abc import Callable

from tests.interop.cluster import Settings
from tests.interop.registry import Outcome, check, scenario
from tests.interop.scene import Scene

PER_SECOND = 100
RESUMES_WITHIN_S = 30.0
LOOKS_WITHIN_S = 1.0
OUTAGE_S = 8.0
"""How long the broker is away before it starts again: a supervisor waits a little, too.

A pull of the Go client that meets a killed broker waits 30 s for its answer, whatever becomes of
the connection, and then pauses for 3 s: 33 s after the kill, no broker can make it come sooner.
"""


@scenario(
    clients=("java5", "go", "python"), needs="restart", lane="quiet", compared=False, lasts_s=50
)
def a_restart_under_load_loses_nothing(scene: Scene) -> Outcome:
    own = scene.own_cluster(Settings())
    topic = own.topic(queues=4)
    consumer = own.push_consumer(topic)
    # A send that waits for a dead broker longer than that would only thin out the load.
    producer = own.producer(timeout_ms=3000)
    producer.call("load_start", topic=topic, per_second=PER_SECOND)
    own.wait_until(lambda: len(consumer.received()) > 100, "the load arrives")
    pauses = [_restart(own, consumer.bodies, sign) for sign in (signal.SIGTERM, signal.SIGKILL)]
    load = producer.call("load_stop")
    acknowledged = set(load["acknowledged"])
    own.wait_until(
        lambda: acknowledged <= set(consumer.bodies()), "everything acknowledged arrives"
    )
    repeated = len(consumer.bodies()) - len(set(consumer.bodies()))
    own.say(
        f"restart under {own.peer.name} load at {PER_SECOND}/s on {own.cluster.target}: "
        f"{len(acknowledged)} acknowledged, 0 lost, {load['failed']} failed sends, "
        f"{repeated} delivered again, consumption back after "
        f"{pauses[0]:.1f} s (SIGTERM) and {pauses[1]:.1f} s (SIGKILL)"
    )
    check(max(pauses) <= RESUMES_WITHIN_S, f"consumption was back only after {pauses} s")
    return {"lost": 0}


def _restart(own: Scene, bodies: Callable[[], list[str]], sign: signal.Signals) -> float:
    """End and start the broker; how long until the consumer gets something new again.

    Without the time in which the machine was frozen.
    """
    own.cluster.stop_broker(sign)
    own.pause(OUTAGE_S)
    seen = len(bodies())
    own.cluster.start_broker()
    ready = looked = time.monotonic()
    stood_still = 0.0

    def goes_on() -> bool:
        nonlocal looked, stood_still
        now = time.monotonic()
        stood_still += max(0.0, now - looked - LOOKS_WITHIN_S)
        looked = now
        return len(bodies()) > seen + 10

    own.wait_until(goes_on, "consumption goes on")
    pause = time.monotonic() - ready - stood_still
    own.pause(2.0)
    return pause
