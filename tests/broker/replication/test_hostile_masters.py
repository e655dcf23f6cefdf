"""A master that sends invalid data: the slave reports it, keeps its log, and follows again."""

import struct
from collections.abc import Callable

import pytest

from sparrowmq.broker.config import ReplicationMode
from sparrowmq.broker.replication import slave_link
from sparrowmq.broker.replication.slave_link import SlaveLink
from sparrowmq.protocol.ha import encode_chunk_head
from sparrowmq.protocol.record_layout import BLANK, BLANK_MAGIC
from sparrowmq.testing.sim_cluster import RunningCluster, SimCluster

TOPIC = "orders"
Spoil = Callable[[bytes], bytes]
_HEAD = struct.Struct(">qi")


def follows(sim: RunningCluster) -> bool:
    return 1 in sim.brokers["broker-a"].broker.replication.feed.links


def ends_alike(sim: RunningCluster) -> bool:
    ends = {node.broker.store.max_log_offset for node in sim.brokers.values()}
    return len(ends) == 1


def log_of(sim: RunningCluster, name: str) -> bytes:
    store = sim.brokers[name].broker.store
    return store.read_log(0, store.max_log_offset)


def check_recovers(
    sim: RunningCluster, caplog: pytest.LogCaptureFixture, spoil: Callable[[], None], text: str
) -> None:
    """Send one message, spoil what the slave gets of the next, and let it follow again."""
    sim.until(lambda: follows(sim))
    sim.wait(sim.client.send(TOPIC, b"first"))
    sim.until(lambda: ends_alike(sim))
    before = log_of(sim, "broker-a.1")
    spoil()
    sim.wait(sim.client.send(TOPIC, b"second"))
    sim.until(lambda: text in caplog.text)
    assert log_of(sim, "broker-a.1").startswith(before)
    sim.wait(sim.client.send(TOPIC, b"third"))
    sim.until(lambda: follows(sim) and ends_alike(sim))
    assert log_of(sim, "broker-a.1") == log_of(sim, "broker-a")


Change = Callable[[int, int], tuple[int, int]]
HEADS: dict[str, tuple[Change, str]] = {
    "a later offset": (lambda at, size: (at + 8, size), "got log offset"),
    "an earlier offset": (lambda at, size: (at - 8, size), "got log offset"),
    "a negative offset": (lambda at, size: (-at, size), "a chunk of"),
    "a giant length": (lambda at, size: (at, 1 << 30), "a chunk of 1073741824 bytes"),
    "a negative length": (lambda at, size: (at, -size), "a chunk of"),
}


@pytest.mark.parametrize("name", HEADS)
def test_a_head_that_cannot_be_ends_the_connection(
    name: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    change, text = HEADS[name]
    encode = encode_chunk_head
    spoiled: list[int] = []

    def encode_once(log_offset: int, size: int) -> bytes:
        if size and not spoiled:
            spoiled.append(log_offset)
            return _HEAD.pack(*change(log_offset, size))
        return encode(log_offset, size)

    with SimCluster(slaves=1).run() as sim:
        check_recovers(
            sim,
            caplog,
            lambda: monkeypatch.setattr(slave_link, "encode_chunk_head", encode_once),
            text,
        )
    assert spoiled


def _flipped(body: bytes) -> bytes:
    return body[:-30] + bytes([body[-30] ^ 1]) + body[-29:]


BODIES: dict[str, tuple[Spoil, str]] = {
    "garbage": (lambda body: b"\xa5" * len(body), "stop it and run sparrowmq store repair"),
    "zeros": (lambda body: bytes(len(body)), "sent no record for log offset"),
    "bytes of another log": (_flipped, "not following"),
    "the middle of a record": (lambda body: body[10:] + body[:10], "not following"),
    "the end of a file where there is none": (
        lambda body: BLANK.pack(100, BLANK_MAGIC) + body[BLANK.size :],
        "a blank record of 100 bytes",
    ),
}


@pytest.mark.parametrize("name", BODIES)
def test_bytes_that_are_not_records_are_rejected(
    name: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    change, text = BODIES[name]
    send = SlaveLink.send
    spoiled: list[bytes] = []

    def send_once(link: SlaveLink, body: bytes) -> None:
        if body and not spoiled:
            spoiled.append(body)
            body = change(body)
        send(link, body)

    with SimCluster(slaves=1).run() as sim:
        check_recovers(sim, caplog, lambda: monkeypatch.setattr(SlaveLink, "send", send_once), text)
    assert spoiled


def test_half_a_head_is_waited_for_until_the_master_counts_as_gone(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    with SimCluster(slaves=1).run() as sim:
        sim.until(lambda: follows(sim))
        encode = encode_chunk_head
        halves = iter([encode(0, 0)[:5]])
        monkeypatch.setattr(slave_link, "encode_chunk_head", lambda at, size: next(halves, b""))
        sim.until(lambda: "the master was silent for 20 s" in caplog.text)
        monkeypatch.setattr(slave_link, "encode_chunk_head", encode)
        sim.wait(sim.client.send(TOPIC, b"after"))
        sim.until(lambda: follows(sim) and ends_alike(sim))


@pytest.mark.parametrize("replication", list(ReplicationMode))
def test_a_slave_disconnects_from_a_silent_master_after_twenty_seconds(
    replication: ReplicationMode, caplog: pytest.LogCaptureFixture
) -> None:
    with SimCluster(slaves=1, replication=replication).run() as sim:
        sim.until(lambda: follows(sim))
        sim.brokers["broker-a"].host.pause()
        began_s = sim.now_s
        sim.until(lambda: "the master was silent for 20 s" in caplog.text)
        assert 14 <= sim.now_s - began_s <= 26
        sim.brokers["broker-a"].host.resume()
        sim.advance(10.0)
        sim.wait(sim.client.send(TOPIC, b"after"))
        sim.until(lambda: ends_alike(sim))


def test_a_slave_is_milliseconds_late_where_no_send_waits_for_it() -> None:
    with SimCluster(slaves=1, replication=ReplicationMode.ASYNC).run() as sim:
        sim.until(lambda: follows(sim))
        sim.advance(2.0)
        sim.wait(sim.client.send(TOPIC, b"a message"))
        began_s = sim.now_s
        sim.until(lambda: ends_alike(sim))
        assert sim.now_s - began_s < 0.05
