"""Masters and slaves, as Apache's tools see them."""

import mmap
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from sparrowmq.disk.page_cache import page_counter
from sparrowmq.testing.held_port import HeldPort
from tests.interop import raw, sparrow
from tests.interop.cluster import BROKER_NAME, GET_CLUSTER_INFO, Settings
from tests.interop.handles import Producer, PushConsumer
from tests.interop.peers import Peer, start_peer
from tests.interop.registry import Outcome, check, scenario
from tests.interop.scenarios.administration import printed
from tests.interop.scenarios.shorter_queues import Poller
from tests.interop.scene import Scene

GET_RUNTIME_INFO, GET_HA_STATUS = 28, 907
CLIENTS = ("java5", "java4", "go", "python")
ONE_OF_EACH = ("java5", "go", "python")
_OTHER_HOST = "127.0.0.2"
_LOG_FILE_BYTES, _READ_GAP = 256 * 1024, "64KiB"
_BACKLOG, _BODY_BYTES = 1500, 1000
"""Messages of each client; together they fill 25 files of the log."""
_PER_SECOND = 50
TABLES_S = 1.5
"""A slave has its master's tables less than a second later."""


@scenario(clients=("java5",), needs="replication", lane="apart", compared=False)
def mqadmin_shows_how_far_slaves_are(scene: Scene) -> Outcome:
    """Of our own brokers: what Apache's prints is in the source of its HAStatusSubCommand."""
    own = scene.on(sparrow.start(scene.folder / "master", Settings()))
    server = sparrow.start_slave(own.cluster, scene.folder / "slave")
    scene.closing(server.stop)
    own.wait_until(lambda: _slave(own) is not None, "the slave is registered")
    topic = own.topic("copied", queues=1)
    own.producer().send(topic, [f"m-{n}" for n in range(9)])
    own.wait_until(lambda: b'"diff":0' in _status(own).body, "the slave has everything")
    of_master = printed(own.mqadmin("haStatus", "-b", own.cluster.broker))
    of_cluster = printed(own.mqadmin("haStatus", "-c", "DefaultCluster"))
    slave = _slave(own) or ""
    of_slave = printed(own.mqadmin("haStatus", "-b", slave))
    check("#SlaveNum 1" in of_master and "#InSyncSlaveNum 1" in of_master, str(of_master))
    check(any(re.match(rf"{slave} \d+ 0 \S+ OK \d+", line) for line in of_master), str(of_master))
    same = _without_speed(of_cluster) == _without_speed(of_master)
    check(same, f"{of_cluster} is not {of_master}")
    check(f"#MasterAddr {own.cluster.broker}" in of_slave, str(of_slave))
    check("#MasterFlushOffset 0" in of_slave, str(of_slave))
    return {"master": len(of_master), "slave": len(of_slave)}


def _without_speed(lines: list[str]) -> list[str]:
    """The transfer speed is measured every second, so two calls may print two figures."""
    return [re.sub(r"^(\S+ \d+ \d+) \S+ (OK .*)$", r"\1 \2", line) for line in lines]


@scenario(clients=("java5",), needs="replication", lane="apart", compared=False)
def a_group_of_all_clients_reads_on_from_the_slave(scene: Scene) -> Outcome:
    """Of our own brokers. Each client holds two of eight queues, and finds messages that only the
    slave has when it goes on: Java and Go look for routes every 30 s. So do a broadcasting member
    of each client and a lite pull consumer of Java's. An ordered group of the same clients rests
    meanwhile, and gets everything in order when the master is back."""
    own = scene.on(sparrow.start(scene.folder / "master", Settings()))
    server = sparrow.start_slave(own.cluster, scene.folder / "slave")
    scene.closing(server.stop)
    own.wait_until(lambda: _slave(own) is not None, "the slave is registered")
    topic, producer = own.topic("orders", queues=8), own.producer()
    peers = [start_peer(client, Path(scene.folder) / client) for client in CLIENTS]
    for peer in peers:
        scene.closing(peer.close)
    members = [_member(own, peer, topic, "readers") for peer in peers]
    ordered = [_member(own, peer, topic, "ordered", orderly=True) for peer in peers]
    alone = [_member(own, peer, topic, "everyone", model="BROADCASTING") for peer in peers]
    lite = Poller(own.lite_consumer("lite", topic=topic, auto_commit=True))

    def each_has(bodies: Iterable[str]) -> bool:
        wanted = set(bodies)
        return wanted <= set(lite.bodies()) and all(wanted <= set(one.bodies()) for one in alone)

    def got(of: list[PushConsumer] = members) -> list[str]:
        return [body for member in of for body in member.bodies()]

    sent = [f"early-{number}" for number in range(80)]
    producer.send(topic, sent)
    own.wait_until(lambda: set(got()) >= set(sent), "the members have what came early")
    own.wait_until(lambda: set(got(ordered)) >= set(sent), "and so do the ordered ones")
    own.wait_until(lambda: each_has(sent), "and each broadcasting one, and the lite one")
    own.pause(6)  # they commit every 5 s
    for peer in peers:
        peer.pause()
    late = [f"late-{number}" for number in range(80)]
    producer.send(topic, late)
    own.wait_until(lambda: b'"diff":0' in _status(own).body, "the slave has everything")
    own.pause(TABLES_S)
    own.cluster.stop_broker(signal.SIGKILL)
    killed_s = time.monotonic()
    for peer in peers:
        peer.resume()
    own.wait_until(lambda: set(got()) >= {*sent, *late}, "the members have what the slave has")
    own.wait_until(lambda: each_has(late), "and each broadcasting one, and the lite one")
    scene.say(f"everything was read from the slave after {time.monotonic() - killed_s:.1f} s")
    own.cluster.start_broker()
    last = [f"last-{number}" for number in range(80)]
    producer.send(topic, last)
    everything = {*sent, *late, *last}
    own.wait_until(lambda: set(got()) >= everything, "the members are back")
    own.wait_until(lambda: set(got(ordered)) >= everything, "the ordered ones are back")
    own.wait_until(lambda: each_has(everything), "the broadcasting ones and the lite one are back")
    for member in ordered:
        _check_order(member)
    bodies = got()
    scene.say(f"{len(bodies) - len(set(bodies))} of {len(set(bodies))} messages came twice")
    return {"messages": len(set(bodies))}


@scenario(clients=("java5",), needs="replication", lane="apart", compared=False, lasts_s=35)
def groups_go_on_when_brokers_change_roles_and_change_back(scene: Scene) -> Outcome:
    """Of our own brokers, by `sparrowmq broker promote` and `demote`. No send of our producer
    fails. Java's and Go's members look for the new master every 30 s."""
    own = _with_a_slave_on_a_port(scene)
    topic = own.topic("orders", queues=6)
    peers = [start_peer(client, Path(scene.folder) / client) for client in ONE_OF_EACH]
    for peer in peers:
        scene.closing(peer.close)
    groups = {
        "readers": [_member(own, peer, topic, "readers") for peer in peers],
        "ordered": [_member(own, peer, topic, "ordered", orderly=True) for peer in peers],
    }
    python, at = peers[-1], own.cluster.name_server
    load = Producer(python, own.name("load"), at, group=own.name("shop"))
    producer = Producer(python, own.name("watched"), at, group=own.name("shop"))
    load.call("load_start", topic=topic, per_second=_PER_SECOND)
    expected: list[str] = []
    for verb in ("promote", "demote"):
        own.pause(6)  # they commit every 5 s
        _change_roles(own, verb, topic)
        bodies = [f"after {verb} {number}" for number in range(60)]
        producer.send(topic, bodies)
        expected += bodies
        _all_get(own, groups, bodies, f"members go on after {verb}")
    sent = load.call("load_stop")
    check(sent["failed"] == 0, f"{sent['failed']} sends failed")
    expected += sent["acknowledged"]
    _all_get(own, groups, expected, "the groups get everything")
    for member in groups["ordered"]:
        _check_order(member)
    again = {name: len(bodies := _bodies(of)) - len(set(bodies)) for name, of in groups.items()}
    own.say(f"two changes of roles: {len(expected)} acknowledged, 0 lost, delivered again: {again}")
    return {"lost": 0}


def _with_a_slave_on_a_port(scene: Scene) -> Scene:
    """A master and a slave that keep their ports when they change their roles."""
    own = scene.on(sparrow.start(scene.folder / "master", Settings()))
    held = HeldPort(beside=(1,))
    scene.closing(held.close)
    ports = ("--port", str(held.port), "--ha-port", str(held.port + 1))
    server = sparrow.start_slave(own.cluster, scene.folder / "slave", *ports)
    scene.closing(server.stop)
    own.wait_until(lambda: _slave(own) is not None, "the slave is registered")
    return own


def _change_roles(own: Scene, verb: str, topic: str) -> None:
    """By the command; no progress moves back by it, and the old master follows the new one."""
    new, old, before = _slave(own), own.cluster.broker, _progress(own, topic)
    at = ("--name-servers", own.cluster.name_server)
    command = [sys.executable, "-m", "sparrowmq", "broker", verb, BROKER_NAME, "--yes", *at]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    check(done.returncode == 0, f"{verb}: {done.stdout}{done.stderr}")
    own.cluster.broker = new or ""
    after = _progress(own, topic)
    back = {queue: (one, after.get(queue, -1)) for queue, one in before.items()}
    back = {queue: (one, other) for queue, (one, other) in back.items() if other < one}
    check(not back, f"{verb} moved progress back: {back}")
    own.wait_until(lambda: _slave(own) == old, "the old master is the slave")
    own.wait_until(lambda: b'"diff":' in _status(own).body, "it follows the new one")


def _progress(own: Scene, topic: str) -> dict[tuple[str, int], int]:
    """Of both groups, as the master knows it."""
    return {
        (group, queue_id): offset
        for group in ("readers", "ordered")
        for queue_id, offset in own.committed(topic, group).items()
    }


def _bodies(members: list[PushConsumer]) -> list[str]:
    return [body for member in members for body in member.bodies()]


def _all_get(
    own: Scene, groups: dict[str, list[PushConsumer]], bodies: list[str], what: str
) -> None:
    for members in groups.values():
        own.wait_until(lambda: set(bodies) <= set(_bodies(members)), what)  # noqa: B023


@scenario(clients=("java5",), needs="replication", lane="apart", compared=False)
def every_client_reads_a_backlog_from_the_slave_and_comes_back(scene: Scene) -> Outcome:
    """Of our own brokers. The backlog is on the master's device and no longer in its memory, so its
    first answer suggests the slave. That has another address: readers are not sent to a slave on
    the master's host."""
    conf = (("mappedFileSizeCommitLog", str(_LOG_FILE_BYTES)),)
    gap = ("--slave-read-gap", _READ_GAP)
    started = sparrow.start(scene.folder / "master", Settings(properties=conf), flags=gap)
    own = scene.on(started)
    server = sparrow.start_slave(started, scene.folder / "slave", *gap, host=_OTHER_HOST)
    scene.closing(server.stop)
    own.wait_until(lambda: _slave(own) is not None, "the slave is registered")
    slave, producer = _slave(own) or "", own.producer()
    topics = {client: own.topic(f"backlog-{client}", queues=1) for client in CLIENTS}
    for topic in topics.values():
        producer.send_one_way(topic, [f"m-{n} {'.' * _BODY_BYTES}" for n in range(_BACKLOG)])
    stored = _BACKLOG * len(topics)
    own.wait_until(lambda: _counted(own.cluster.broker, "msgPutTotalTodayNow") >= stored, "stored")
    own.wait_until(lambda: b'"diff":0' in _status(own).body, "the slave has everything")
    own.wait_until(lambda: _in_memory(own.cluster.store, drop=True) == 0, "it is in no memory", 30)
    members = {}
    for client, topic in topics.items():
        peer = start_peer(client, Path(scene.folder) / client)
        scene.closing(peer.close)
        members[client] = _member(own, peer, topic, f"readers-{client}")
        members[client].received(_BACKLOG)
    # Whatever the master had read would be in memory again, with some that follows it.
    by_master = _in_memory(own.cluster.store)
    own.say(f"of a backlog of {stored} messages, {by_master:.0%} were read from the master")
    check(by_master < 0.3, f"the master has read {by_master:.0%} of its log")
    rounds = 0

    def are_back() -> bool:
        nonlocal rounds
        rounds += 1
        for client, topic in topics.items():
            producer.send(topic, [f"late-{rounds}"])
            members[client].received(_BACKLOG + rounds)
        # Each waits for its topic and for what is given back.
        waiting = [_counted(broker, "waitingPulls") for broker in (own.cluster.broker, slave)]
        return waiting == [2 * len(members), 0]

    own.wait_until(are_back, "the members read from the master")
    return {"backlog": stored}


def _in_memory(store: Path, *, drop: bool = False) -> float:
    """The share of the log that is in memory, without the file that is written and the next one,
    which the broker has mapped; with `drop` after it was dropped from there."""
    *old, _, _ = sorted((store / "commitlog").iterdir())
    held = 0
    for path in old:
        with path.open("rb") as file:
            if drop:
                os.fdatasync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            pages_held = page_counter(file.fileno())
            held += (pages_held and pages_held(0, _LOG_FILE_BYTES)) or 0
    return held * mmap.PAGESIZE / (len(old) * _LOG_FILE_BYTES)


def _counted(broker: str, name: str) -> int:
    """A figure of a broker's runtime information."""
    return int(raw.call(broker, GET_RUNTIME_INFO).json()["table"][name])


def _member(own: Scene, peer: Peer, topic: str, group: str, **options: Any) -> PushConsumer:
    return PushConsumer(
        peer,
        f"{group}-{peer.name}-{own.suffix}",
        own.cluster.name_server,
        group=own.name(group),
        topic=topic,
        from_where="CONSUME_FROM_FIRST_OFFSET",
        **options,
    )


def _check_order(member: PushConsumer) -> None:
    """Of each queue, no message came before an earlier one; some may have come again."""
    by_queue: dict[int, list[int]] = {}
    for message in member.received():
        by_queue.setdefault(message["queue_id"], []).append(message["queue_offset"])
    for queue_id, offsets in by_queue.items():
        firsts = list(dict.fromkeys(offsets))
        check(firsts == sorted(firsts), f"{member.name}: queue {queue_id} came as {offsets}")


def _status(scene: Scene) -> raw.RawReply:
    return raw.call(scene.cluster.broker, GET_HA_STATUS)


def _slave(scene: Scene) -> str | None:
    """The address of broker 1, as the name server knows it."""
    body = raw.call(scene.cluster.name_server, GET_CLUSTER_INFO).body.decode()
    found = re.search(r'"?1"?:"([^"]+)"', body)
    return found.group(1) if found else None
