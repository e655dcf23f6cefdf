"""All commands of mqadmin, one after the other in one JVM."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

from tests.interop.cluster import Settings
from tests.interop.mqadmin_commands import COMMANDS, UNSERVED, Command, Kind, keys_of
from tests.interop.registry import Outcome, check, scenario
from tests.interop.scenarios.administration import JAVA5, printed
from tests.interop.scene import Scene

TRACED = Settings(properties=(("traceTopicEnable", "true"),))
NOISE = (
    (r"\b\d+\.\d+\b", "<x>"),
    (r"OK, \d+", "OK"),
    (r"extendDataJson=.*", ""),
)
_LIFE = {34, 35, 40}
"""Requests of any client's life: heartbeats, and who else is there."""


@dataclass(frozen=True)
class Result:
    """What one command did."""

    command: Command
    shown: list[str]
    """What of its output must be the same on every broker."""
    codes: list[int]
    """Of the requests that it sent."""
    is_refused: bool


def run_commands(scene: Scene, kinds: tuple[Kind, ...]) -> Iterator[Result]:
    """Run all commands of these kinds on a prepared cluster."""
    names = prepared(scene)
    for command in COMMANDS:
        if command.kind in kinds:
            yield run(scene, command, names)


def run(scene: Scene, command: Command, names: dict[str, str]) -> Result:
    """Run one command."""
    args = [one.format(**names) for one in command.args.split()]
    answer = scene.peer.call(
        "mqadmin_run",
        args=[command.name, *args, "-n", scene.cluster.name_server],
        limit_ms=int(command.limit_s * 1000),
        until_code=command.until_code,
    )
    text = scene.plain(answer["printed"].replace(str(scene.folder), "<folder>"))
    for pattern, word in NOISE:
        text = re.sub(pattern, word, text)
    shown = command.show(printed(text))
    if command.writes:
        shown += sorted(keys_of(json.loads((scene.folder / command.writes).read_text())))
    return Result(
        command=command,
        shown=shown,
        codes=sorted(set(answer["codes"]) - _LIFE),
        is_refused=re.search(command.refusal, text) is not None,
    )


def prepared(scene: Scene) -> dict[str, str]:
    """A topic, a group that is behind and one that is live, files; and what they are called."""
    orders = scene.topic(queues=2)
    producer = scene.producer()
    bodies = [{"body": f"m-{n}", "keys": f"k-{n}", "tags": "A"} for n in range(4)]
    sent = producer.send(orders, bodies)
    member = scene.push_consumer(orders, "billing")
    scene.wait_until_committed(orders, 4)
    member.stop()
    scene.push_consumer(orders, "live")
    producer.send(orders, ["late"] * 2)
    words = ("orders", "billing", "live", "producers", "made", "group", "static")
    names = {word: scene.name(word) for word in words}
    names |= {"broker": scene.cluster.broker, "folder": str(scene.folder)}
    names |= {"offset_id": sent[0]["offset_id"], "unique_id": sent[1]["unique_id"], "key": "k-1"}
    scene.folder.mkdir(parents=True, exist_ok=True)
    topic = {"topicName": scene.name("listed"), "readQueueNums": 1, "writeQueueNums": 1, "perm": 6}
    (scene.folder / "topics.json").write_text(json.dumps([topic]))
    (scene.folder / "groups.json").write_text(json.dumps([{"groupName": scene.name("listed")}]))
    return names | {"traced_id": _traced(scene, orders)}


def _traced(scene: Scene, topic: str) -> str:
    """The id of a message whose trace can be found."""
    text = scene.mqadmin("sendMessage", "-t", topic, "-p", "traced", "-m", "true")
    found = re.search(r"\b[0-9A-F]{32,}\b", text)
    if found is None:
        raise AssertionError(f"mqadmin sendMessage printed no id: {text}")
    scene.wait_until(
        lambda: "success" in scene.mqadmin("queryMsgTraceById", "-i", found.group()),
        "the trace of a message is found",
    )
    return found.group()


@scenario(clients=JAVA5, needs="admin", lane="apart")
def every_served_command_of_mqadmin_works(scene: Scene) -> Outcome:
    known = scene.peer.call("mqadmin_names")
    check(sorted(one.name for one in COMMANDS) == known, f"mqadmin knows {known}")
    own = scene.own_cluster(TRACED)
    results = run_commands(own, (Kind.SERVED, Kind.LOCAL))
    return {one.command.name: one.shown for one in results}


@scenario(clients=JAVA5, needs="refusals", lane="apart", compared=False)
def every_command_of_mqadmin_that_is_refused_says_so(scene: Scene) -> Outcome:
    silent = [
        one.command.name
        for one in run_commands(scene.own_cluster(TRACED), UNSERVED)
        if not one.is_refused
    ]
    check(not silent, f"printed no refusal: {silent}")
    return {}
