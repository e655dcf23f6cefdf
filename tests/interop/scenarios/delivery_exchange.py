"""Pending messages in a store that moves from one broker to the other and back."""

import shutil
import signal
from types import ModuleType

from sparrowmq.clock import system_clock
from tests.interop import apache, sparrow
from tests.interop.cluster import Cluster, Settings
from tests.interop.handles import Message
from tests.interop.registry import Outcome, check, scenario
from tests.interop.scene import Scene

LEVELS = {1: 1_000, 4: 30_000, 5: 60_000}
"""A level and its delay in milliseconds, for now, the next step and the one after it."""
EARLY_MS = {"timer": 1_000, "level": 0}
"""Apache may deliver a timer a second early."""


@scenario(clients=("java5",), needs="exchange", lane="apart", compared=False)
def pending_messages_move_to_apache_and_back(scene: Scene) -> Outcome:
    return _there_and_back(scene, (sparrow, apache, sparrow), signal.SIGTERM)


@scenario(clients=("java5",), needs="exchange", lane="apart", compared=False)
def pending_messages_come_from_apache_and_return_to_it(scene: Scene) -> Outcome:
    return _there_and_back(scene, (apache, sparrow, apache), signal.SIGTERM)


@scenario(clients=("java5",), needs="exchange", lane="apart", compared=False)
def pending_messages_of_a_killed_store_move_to_apache_and_back(scene: Scene) -> Outcome:
    return _there_and_back(scene, (sparrow, apache, sparrow), signal.SIGKILL)


def _there_and_back(scene: Scene, targets: tuple[ModuleType, ...], sign: signal.Signals) -> Outcome:
    """At each stop some messages become due, others stay pending for the stops to come.

    After stops in order nothing comes twice; after a kill progress may be a little behind.
    """
    due_ms: dict[str, int] = {}
    places: dict[str, set[int]] = {}
    last: Cluster | None = None
    for step, target in enumerate(targets):
        folder = scene.folder / f"{step}-{target.NAME}"
        if last is not None:
            folder.mkdir(parents=True)
            shutil.move(last.store, folder / "store")
        here = scene.on(target.start(folder, Settings()))
        topic = here.topic(queues=1) if step == 0 else here.name("orders")
        due_ms |= _send(here, topic, step)
        for message in _received(here, topic, step, due_ms):
            early_ms = due_ms[message["body"]] - message["stored_at"]
            kind = message["body"].split("-")[0]
            check(early_ms <= EARLY_MS[kind], f"{message['body']} came {early_ms} ms early")
            places.setdefault(message["body"], set()).add(message["queue_offset"])
        here.cluster.stop_broker(sign)
        last = here.cluster
    twice = sorted(body for body, offsets in places.items() if len(offsets) > 1)
    check(sign == signal.SIGKILL or not twice, f"delivered twice: {twice}")
    check(places.keys() == due_ms.keys(), f"lost: {due_ms.keys() - places.keys()}")
    return {"delivered": sorted(places)}


def _send(here: Scene, topic: str, step: int) -> dict[str, int]:
    """Messages `kind-due-sent` by steps, and when each is due."""
    now_ms = system_clock()
    wanted: list[Message] = []
    due_ms: dict[str, int] = {}
    for later, (level, delay_ms) in zip(range(step, 3), LEVELS.items(), strict=False):
        timer, delayed = f"timer-{later}-{step}", f"level-{later}-{step}"
        due_ms[timer] = now_ms + delay_ms + 2_500
        due_ms[delayed] = now_ms + delay_ms
        time = {"TIMER_DELIVER_MS": str(due_ms[timer])}
        wanted.append({"body": timer, "system_properties": time})
        wanted.append({"body": delayed, "delay_level": level})
    here.producer().send(topic, wanted)
    return due_ms


def _received(here: Scene, topic: str, step: int, due_ms: dict[str, int]) -> list[Message]:
    """Everything in the topic, as soon as all that is due by this step is among it."""
    group = here.push_consumer(topic, f"step-{step}")
    expected = {body for body in due_ms if int(body.split("-")[1]) <= step}
    here.wait_until(lambda: expected <= set(group.bodies()), f"what is due at step {step}")
    here.pause(1.0)  # what comes twice comes at once
    got = group.received()
    group.stop()
    return got
