"""A task of the sink encodes its next rows while a broker stores the last ones."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow", reason="needs the spark extra: pip install sparrowmq[spark]")

from sparrowmq.protocol.codes import RequestCode, ResponseCode  # noqa: E402 - after the skip
from sparrowmq.spark.errors import ServerRefused  # noqa: E402
from sparrowmq.spark.sink_options import SinkOptions  # noqa: E402
from sparrowmq.spark.wire.cluster import RemoteCluster  # noqa: E402
from sparrowmq.spark.wire.sender import RowSender, Send  # noqa: E402
from sparrowmq.spark.write_task import write_rows  # noqa: E402
from tests.spark.scripted_broker import HANG_UP, Said, ScriptedBroker  # noqa: E402

SENDING = RequestCode.SEND_BATCH_MESSAGE
DEADLINE_S = 60.0
"""Only a failure waits for so long."""


@pytest.fixture
def broker() -> Iterator[ScriptedBroker]:
    with ScriptedBroker() as started:
        yield started


def sender(cluster: RemoteCluster, pauses: list[float]) -> RowSender:
    one = RowSender(cluster, group="test", retry_timeout_s=DEADLINE_S, pause=pauses.append)
    one.queue_count("orders")
    return one


def batch_of(body: bytes) -> Send:
    return Send("orders", 0, True, 1, body)


def test_rows_are_encoded_before_the_send_of_the_last_ones_is_answered(
    broker: ScriptedBroker,
) -> None:
    asked_for_more = threading.Event()
    was_early: list[bool] = []

    def store(_: dict[str, str]) -> object:
        # Without the overlap the second batch is asked for only after this has answered.
        was_early.append(asked_for_more.wait(DEADLINE_S))
        return Said()

    def batches() -> Iterator[Any]:
        yield pa.record_batch({"body": pa.array([b"first"])})
        asked_for_more.set()
        yield pa.record_batch({"body": pa.array([b"second"])})

    broker.on(SENDING, store)
    options = SinkOptions(
        name_server=broker.address, topic="orders", request_timeout_s=2 * DEADLINE_S
    )
    sent = write_rows(batches(), options, {"body": 0}, "job 1", 0)
    assert was_early == [True, True]
    assert (sent.rows, sent.sends) == (2, 2)


def test_a_send_that_got_no_answer_is_sent_again_before_the_next_one(
    broker: ScriptedBroker,
) -> None:
    answers: list[object] = [HANG_UP, Said(), Said()]
    broker.on(SENDING, lambda _: answers.pop(0))
    pauses: list[float] = []
    with RemoteCluster(broker.address, DEADLINE_S) as cluster:
        one = sender(cluster, pauses)
        one.begin(batch_of(b"first"))
        one.begin(batch_of(b"second"))
        assert len(pauses) == 1
        one.finish()
    assert not answers
    assert broker.count(SENDING) == 3


def test_a_refusal_is_raised_by_the_next_send_or_at_the_end(broker: ScriptedBroker) -> None:
    broker.on(SENDING, lambda _: Said(code=ResponseCode.MESSAGE_ILLEGAL, remark="no"))
    with RemoteCluster(broker.address, DEADLINE_S) as cluster:
        one = sender(cluster, [])
        one.begin(batch_of(b"first"))
        with pytest.raises(ServerRefused, match="sending 1 rows to orders queue 0 of broker-a"):
            one.begin(batch_of(b"second"))
        one.finish()
    assert broker.count(SENDING) == 1


def test_a_task_fails_when_its_last_send_is_refused(broker: ScriptedBroker) -> None:
    broker.on(SENDING, lambda _: Said(code=ResponseCode.MESSAGE_ILLEGAL, remark="no"))
    options = SinkOptions(name_server=broker.address, topic="orders")
    rows = pa.record_batch({"body": pa.array([b"only"])})
    with pytest.raises(ServerRefused, match="code 13: no"):
        write_rows([rows], options, {"body": 0}, "job 1", 0)
