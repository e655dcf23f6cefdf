"""Store exchange: each broker opens the store that the other has written."""

import json
import re
import shutil
import signal
from types import ModuleType

from tests.interop import apache, sparrow
from tests.interop.cluster import Cluster, Settings
from tests.interop.handles import Message, Producer
from tests.interop.outcomes import dense
from tests.interop.peers import PeerError
from tests.interop.registry import Outcome, check, scenario
from tests.interop.scene import Scene

QUEUES = 4
LEFT, BATCH = 40, 10


@scenario(clients=("java5",), needs="exchange", lane="apart", compared=False)
def apache_opens_our_stopped_store_and_we_open_it_again(scene: Scene) -> Outcome:
    return _there_and_back(scene, sparrow, apache, signal.SIGTERM)


@scenario(clients=("java5",), needs="exchange", lane="apart", compared=False)
def apache_opens_our_killed_store_and_we_open_it_again(scene: Scene) -> Outcome:
    return _there_and_back(scene, sparrow, apache, signal.SIGKILL)


@scenario(clients=("java5",), needs="exchange", lane="apart", compared=False)
def we_open_apaches_stopped_store_and_apache_opens_it_again(scene: Scene) -> Outcome:
    return _there_and_back(scene, apache, sparrow, signal.SIGTERM)


@scenario(clients=("java5",), needs="exchange", lane="apart", compared=False)
def we_open_apaches_killed_store_and_apache_opens_it_again(scene: Scene) -> Outcome:
    return _there_and_back(scene, apache, sparrow, signal.SIGKILL)


def _there_and_back(
    scene: Scene, first: ModuleType, second: ModuleType, sign: signal.Signals
) -> Outcome:
    """Write with one, read and write with the other, read again with the first."""
    read: list[int] = []
    everything: list[str] = []
    last: Cluster | None = None
    for step, target in enumerate((first, second, first)):
        folder = scene.folder / f"{step}-{target.NAME}"
        if last is not None:
            folder.mkdir(parents=True)
            shutil.move(last.store, folder / "store")
        here = scene.on(target.start(folder, Settings()))
        everything += _use(here, step, everything)
        if sign == signal.SIGKILL:
            consumed = len(everything) - LEFT - BATCH
            here.wait_until(lambda: _saved(here) == consumed, "offsets are saved")  # noqa: B023
        here.cluster.stop_broker(sign)
        last = here.cluster
        read.append(len(everything))
    return {"messages": read}


def _use(here: Scene, step: int, before: list[str]) -> list[str]:
    """Continue at the group's progress, find old keys, read all again, and send more messages."""
    topic = here.topic(queues=QUEUES) if step == 0 else here.name("orders")
    producer = here.producer()
    if before:
        _check_old(here, topic, producer, step, before)
    consumed = [f"{step}-consumed-{n}" for n in range(60)]
    group = here.push_consumer(topic, persist_ms=500)
    sent = producer.send(topic, _messages(consumed))
    here.wait_until_committed(topic, len(before) + len(consumed))
    got = group.bodies()
    group.stop()
    check(step > 0 or dense(sent), f"offsets have gaps at step {step}")
    check(sorted(got) == sorted(consumed), f"{set(got) ^ set(consumed)} too much or too little")
    left = [f"{step}-left-{n}" for n in range(LEFT)]
    producer.send(topic, _messages(left))
    batch = [f"{step}-batch-{n}" for n in range(BATCH)]
    producer.send_batch(topic, _messages(batch))
    return [*consumed, *left, *batch]


def _saved(here: Scene) -> int:
    """How many messages the group has consumed by what consumerOffset.json says.

    It is written every 5 s, by Apache for the first time 10 s after its start. A kill before that
    loses it, and SparrowMQ then rightly refuses to start without a word from the operator.
    """
    file = here.cluster.store / "config" / "consumerOffset.json"
    # Apache writes numbers as keys. In addition to these offsets it keeps those of the last pulls.
    text = re.sub(r"([{,]\s*)(\d+)\s*:", r'\1"\2":', file.read_text())
    try:
        table = json.loads(text)["offsetTable"]
    except ValueError:
        return 0
    return sum(table.get(f"{here.name('orders')}@{here.name('billing')}", {}).values())


def _messages(bodies: list[str]) -> list[Message]:
    return [{"body": body, "keys": f"key-{body}", "tags": "paid"} for body in bodies]


def _check_old(here: Scene, topic: str, producer: Producer, step: int, before: list[str]) -> None:
    """The group gets exactly what was left to it; keys are found; a new group gets everything."""
    left = {body for body in before if body.startswith(f"{step - 1}-") and "consumed" not in body}
    group = here.push_consumer(topic, persist_ms=500)
    here.wait_until_committed(topic, len(before))
    got = group.bodies()
    group.stop()
    check(set(got) == left, f"the group got {sorted(set(got) ^ left)} too much or too little")
    check(len(got) == len(left), "the group got messages twice")
    fresh = here.push_consumer(topic, f"fresh-{step}").bodies(len(before))
    missing = sorted(set(before) - set(fresh))
    check(not missing, f"{len(missing)} of {len(before)} messages are gone, such as {missing[:5]}")
    check(len(fresh) == len(before), "a new group got messages twice")
    for body in before[:: len(before) // 10]:
        here.wait_until(lambda: _by_key(producer, topic, body) == [body], f"key-{body} is found")  # noqa: B023


def _by_key(producer: Producer, topic: str, body: str) -> list[str]:
    """What a key leads to. Java raises while nothing is found; the index may trail the queues."""
    try:
        found = producer.call("query_by_key", topic=topic, key=f"key-{body}")
    except PeerError:
        return []
    return [one["body"] for one in found]
