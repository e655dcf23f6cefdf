"""The answer to a send is lost: unmodified clients send again, and the broker stores it once."""

from tests.faults.lossy_proxy import BEYOND_PROXY, Loss, LossyProxy
from tests.interop import sparrow
from tests.interop.cluster import Cluster, Settings, accepts
from tests.interop.registry import JAVA, Outcome, check, scenario
from tests.interop.scenarios.python_admin import admin_of
from tests.interop.scene import Scene

ONE_ANSWER_MS = 2000
"""How long Java's producers wait for one answer; Go's always wait 3 s."""
CASES = (
    (Loss.SILENTLY, True),
    (Loss.WITH_ITS_CONNECTION, True),
    (Loss.WITH_ITS_CONNECTION, False),
)
"""What a client notices, and whether the topic is de-duplicated."""


def behind_a_proxy(scene: Scene) -> tuple[Scene, LossyProxy]:
    """The same scenario on a cluster whose clients meet a proxy in front of the broker."""
    settings = Settings(properties=(("bindAddress", BEYOND_PROXY),))
    start = sparrow.start_name_server
    own = scene.on(Cluster(sparrow.NAME, scene.folder / "behind", start, None, settings))
    proxy = LossyProxy(BEYOND_PROXY, own.cluster.broker_port, own.cluster.broker_port)
    own.closing(lambda: proxy.__exit__(None, None, None))
    proxy.__enter__()
    server = sparrow.start_broker(own.cluster)
    own.closing(server.stop)
    own.wait_until(lambda: accepts(f"{BEYOND_PROXY}:{own.cluster.broker_port}"), "it listens")
    admin = admin_of(own)
    own.wait_until(lambda: bool(admin.brokers()), "it is registered")
    return own, proxy


@scenario(clients=(*JAVA, "go"), needs="limits", lane="apart", compared=False)
def a_send_that_is_repeated_after_a_lost_answer_is_stored_once(scene: Scene) -> Outcome:
    own, proxy = behind_a_proxy(scene)
    admin = admin_of(own)
    for number, (loss, is_once) in enumerate(CASES):
        topic = own.name(f"orders-{number}")
        attributes = {"sparrowmq.dedup": "on"} if is_once else {}
        admin.create_topic(topic, queues=1, attributes=attributes)
        _lose(own, proxy, topic, loss, 1 if is_once else 2)
        (queue,) = admin.topic(topic).queues
        check(queue.max_offset == (2 if is_once else 3), f"{queue.max_offset} stored of {topic}")
    return {}


def _lose(own: Scene, proxy: LossyProxy, topic: str, loss: Loss, offset: int) -> None:
    """Lose one answer; the message is stored again, or answered as the first time."""
    options, times = {}, 1
    if own.peer.name.startswith("java4"):
        # It waits for an answer as long as for a whole send: the application sends again.
        options, times = {"timeout_ms": ONE_ANSWER_MS}, 2
    elif loss is Loss.SILENTLY:
        options = {"per_request_ms": ONE_ANSWER_MS}
    producer = own.producer(**options)
    producer.send(topic, ["first"])
    proxy.lose(loss)
    (sent,) = producer.send(topic, ["second"], times=times)
    # Three on a busy machine, where the second answer may be late for a client of 2 s.
    check(proxy.sends in (2, 3), f"{loss}: {proxy.sends} sends, {sent}")
    check(sent["status"] == "SEND_OK", f"{loss}: {sent}")
    check(sent["queue_offset"] == offset, f"{loss}: {sent}")
