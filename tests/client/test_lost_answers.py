"""Answers get lost between a broker's process and a producer: what is stored, on real sockets."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sparrowmq import Message
from sparrowmq.blocking import Admin, Producer
from sparrowmq.testing.held_port import HeldPort
from tests.cli.servers import broker, up
from tests.faults.lossy_proxy import BEYOND_PROXY, Loss, LossyProxy
from tests.patience import PATIENCE_S

REPEATS_S = 12
"""For all attempts of a send. The first one waits for its answer for a third of it."""


@contextmanager
def behind_a_proxy(data: Path) -> Iterator[tuple[str, LossyProxy]]:
    """A name server's address, and the proxy of the only broker that takes messages."""
    with up(data / "other") as server, HeldPort(beside=(-2, 1)) as held:
        place = ("--listen", BEYOND_PROXY, "--advertise", "127.0.0.1", "--port", str(held.port))
        own = ("--broker-name", "broker-b", "--name-servers", server.name_server)
        with (
            LossyProxy(BEYOND_PROXY, held.port, held.port) as proxy,
            broker(data / "own", *place, *own),
            Admin(server.name_server, timeout_s=PATIENCE_S) as admin,
        ):
            admin.create_topic("orders", queues=1, brokers=["broker-b"])
            yield server.name_server, proxy


@pytest.mark.parametrize(
    "loss",
    [Loss.WITH_ITS_CONNECTION, pytest.param(Loss.SILENTLY, marks=pytest.mark.slow)],
    ids=lambda loss: loss.name.lower(),
)
def test_an_idempotent_send_whose_answer_is_lost_is_stored_once(tmp_path: Path, loss: Loss) -> None:
    with behind_a_proxy(tmp_path) as (name_server, proxy), Admin(name_server) as admin:
        admin.update_topic("orders", attributes={"sparrowmq.dedup": "on"})
        with Producer(
            "shop", name_servers=name_server, timeout_s=REPEATS_S, idempotent=True
        ) as producer:
            producer.send(Message.text("orders", "first"))
            proxy.lose(loss)
            sent = producer.send(Message.text("orders", "second"))
            assert (proxy.lost, proxy.sends) == (1, 2), "it was repeated"
            assert sent.queue_offset == 1
            proxy.lose(loss)
            batch = [Message.text("orders", body) for body in ("third", "fourth")]
            assert all(each.is_ok for each in producer.send_batch(batch))
            assert (proxy.lost, proxy.sends) == (2, 2)
        (queue,) = admin.topic("orders").queues
        assert queue.max_offset == 4
        (window,) = admin.dedup_windows()
        assert window.duplicates == 3


def test_a_topic_without_dedup_stores_a_repeated_message_twice(tmp_path: Path) -> None:
    with behind_a_proxy(tmp_path) as (name_server, proxy), Admin(name_server) as admin:
        with Producer("shop", name_servers=name_server, timeout_s=PATIENCE_S) as producer:
            producer.send(Message.text("orders", "first"))
            proxy.lose(Loss.WITH_ITS_CONNECTION)
            assert producer.send(Message.text("orders", "second")).queue_offset == 2
            assert (proxy.lost, proxy.sends) == (1, 2)
        (queue,) = admin.topic("orders").queues
        assert queue.max_offset == 3
