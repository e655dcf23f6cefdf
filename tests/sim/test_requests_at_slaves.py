"""What a slave answers to the requests of clients, while its master is there and while it is away.

Apache's rules: what reads is answered from the copy, what writes messages is refused. Locks are an
exception in part, see `SlaveReads.check_locking`.
"""

from collections.abc import Callable

import msgspec
import pytest

from sparrowmq.net.calls import Response
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.header import RequestHeader
from sparrowmq.protocol.headers.clients import GetConsumerList, Heartbeat, LockBatch, UnlockBatch
from sparrowmq.protocol.headers.offsets import (
    GetMaxOffset,
    GetMinOffset,
    OffsetFound,
    QueryConsumerOffset,
    SearchOffset,
    UpdateConsumerOffset,
)
from sparrowmq.protocol.headers.pull import LitePullMessage
from sparrowmq.protocol.headers.send import SendBack
from sparrowmq.protocol.headers.transactions import EndTransaction
from sparrowmq.protocol.heartbeat import ConsumerData, HeartbeatData
from sparrowmq.protocol.locks import LockBatchRequest, LockBatchResponse
from sparrowmq.protocol.message import MessageQueue
from sparrowmq.protocol.sys_flag import TRANSACTION_COMMIT
from sparrowmq.testing.sim_cluster import RunningCluster
from tests.sim.replicated import TOPIC, follows
from tests.sim.slaves import MASTER, SLAVE, pull_header, send, with_slave

GROUP = "billing"
QUEUE = MessageQueue(TOPIC, "broker-a", 0)
OK = ResponseCode.SUCCESS
BODIES = (b"0", b"1", b"2")


def heartbeat(client_id: str) -> bytes:
    member = ConsumerData(group_name=GROUP)
    return HeartbeatData(client_id=client_id, consumer_data_set=(member,)).to_json()


def lock_body(client_id: str) -> bytes:
    return LockBatchRequest(
        consumer_group=GROUP, client_id=client_id, mq_set=frozenset({QUEUE})
    ).to_json()


def offset(response: Response) -> int:
    return response.header(OffsetFound).offset


REQUESTS: dict[RequestCode, tuple[RequestHeader, bytes]] = {
    header.CODE: (header, body)
    for header, body in (
        (pull_header(0), b""),
        (LitePullMessage(**msgspec.structs.asdict(pull_header(0))), b""),
        (QueryConsumerOffset(consumer_group=GROUP, topic=TOPIC, queue_id=0), b""),
        (UpdateConsumerOffset(consumer_group=GROUP, topic=TOPIC, queue_id=0, commit_offset=3), b""),
        (SearchOffset(topic=TOPIC, queue_id=0, timestamp=0), b""),
        (GetMaxOffset(topic=TOPIC, queue_id=0), b""),
        (GetMinOffset(topic=TOPIC, queue_id=0), b""),
        (Heartbeat(), heartbeat("member")),
        (SendBack(offset=0, group=GROUP, delay_level=0), b""),
        (
            EndTransaction(
                producer_group="p",
                tran_state_table_offset=0,
                commit_log_offset=0,
                commit_or_rollback=TRANSACTION_COMMIT,
            ),
            b"",
        ),
        (GetConsumerList(consumer_group=GROUP), b""),
        (LockBatch(), lock_body("member")),
        (UnlockBatch(), lock_body("member")),
    )
}
ANSWERS: dict[RequestCode, tuple[ResponseCode, ResponseCode, Callable[[Response], object], object]]
ANSWERS = {
    # request: with a master, without one, and a part of the answer with what it has to be
    RequestCode.PULL_MESSAGE: (OK, OK, lambda answer: answer.body.count(b"orders"), 3),
    RequestCode.LITE_PULL_MESSAGE: (OK, OK, lambda answer: answer.body.count(b"orders"), 3),
    RequestCode.QUERY_CONSUMER_OFFSET: (OK, OK, offset, 2),
    RequestCode.UPDATE_CONSUMER_OFFSET: (OK, OK, lambda answer: answer.remark, ""),
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: (OK, OK, offset, 0),
    RequestCode.GET_MAX_OFFSET: (OK, OK, offset, 3),
    RequestCode.GET_MIN_OFFSET: (OK, OK, offset, 0),
    RequestCode.HEART_BEAT: (OK, OK, lambda answer: answer.remark, ""),
    RequestCode.GET_CONSUMER_LIST_BY_GROUP: (
        *(OK, OK),
        *(lambda answer: answer.body, b'{"consumerIdList":["member"]}'),
    ),
    RequestCode.CONSUMER_SEND_MSG_BACK: (
        *(ResponseCode.SYSTEM_BUSY, ResponseCode.SYSTEM_BUSY),
        *(lambda answer: "is a slave and takes no messages" in answer.remark, True),
    ),
    RequestCode.END_TRANSACTION: (
        *(ResponseCode.SLAVE_NOT_AVAILABLE, ResponseCode.SLAVE_NOT_AVAILABLE),
        *(lambda answer: "is a slave and takes no messages" in answer.remark, True),
    ),
    RequestCode.LOCK_BATCH_MQ: (
        *(ResponseCode.SYSTEM_ERROR, OK),
        *(lambda answer: bool(answer.remark) != bool(answer.body), True),
    ),
    RequestCode.UNLOCK_BATCH_MQ: (OK, OK, lambda answer: answer.remark, ""),
}


def ask(sim: RunningCluster, code: RequestCode) -> Response:
    header, body = REQUESTS[code]
    return sim.wait(sim.client.call(header, body, address=sim.brokers[SLAVE].address))


def with_a_member(sim: RunningCluster) -> None:
    """A group has consumed two of three messages, and has a member that both brokers know."""
    for node in sim.brokers.values():
        beat = sim.client.call(Heartbeat(), heartbeat("member"), address=node.address)
        assert sim.wait(beat).code == OK
    send(sim, *BODIES)
    commit = UpdateConsumerOffset(consumer_group=GROUP, topic=TOPIC, queue_id=0, commit_offset=2)
    assert sim.wait(sim.client.call(commit)).code == OK
    sim.advance(2)  # the slave has it, too


@pytest.mark.parametrize("code", ANSWERS, ids=lambda code: code.name)
def test_a_slave_answers_as_apaches_does(code: RequestCode) -> None:
    with_master, without, part, expected = ANSWERS[code]
    with with_slave() as sim:
        with_a_member(sim)
        answer = ask(sim, code)
        assert (answer.code, part(answer)) == (with_master, expected)
    with with_slave() as sim:
        with_a_member(sim)
        sim.brokers[MASTER].kill()
        sim.advance(6)
        answer = ask(sim, code)
        assert (answer.code, part(answer)) == (without, expected)


def lock(sim: RunningCluster, client_id: str) -> frozenset[MessageQueue]:
    to = sim.brokers[SLAVE].address
    response = sim.wait(sim.client.call(LockBatch(), lock_body(client_id), address=to))
    return LockBatchResponse.from_json(response.body).lock_ok_mq_set


def test_locks_of_a_slave_end_when_a_master_is_there_again() -> None:
    with with_slave() as sim:
        master = sim.brokers[MASTER]
        for first, second in (("one", "two"), ("two", "one")):
            master.kill()
            sim.advance(6)
            assert lock(sim, first) == {QUEUE}
            assert lock(sim, second) == set(), "another member has it"
            master.start()
            sim.until(lambda: follows(sim))
