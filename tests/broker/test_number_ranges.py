"""Numbers that do not fit Java's types or the files."""

from typing import Any

import pytest

from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.header import RequestHeader
from sparrowmq.protocol.headers.groups import CreateGroup
from sparrowmq.protocol.headers.offsets import UpdateConsumerOffset
from sparrowmq.protocol.headers.pull import PullMessage
from sparrowmq.protocol.headers.send import SendMessage
from sparrowmq.testing.sim_cluster import SimCluster
from tests.client.members import GROUP, TOPIC, Member, create_topic, send, stored_offset

LONG = 2**63 - 1


def a_send(**fields: int) -> SendMessage:
    numbers: dict[str, Any] = {"sys_flag": 0, "born_timestamp": 0, "flag": 0} | fields
    return SendMessage(
        producer_group="p",
        topic=TOPIC,
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=0,
        **numbers,
    )


@pytest.mark.parametrize(
    ("name", "number", "says"),
    [
        ("sys_flag", 2**31, "<= 2147483647 - at `$.extFields.sysFlag`"),
        ("flag", -(2**31) - 1, ">= -2147483648 - at `$.extFields.flag`"),
        ("reconsume_times", 10**40, "<= 2147483647 - at `$.extFields.reconsumeTimes`"),
        ("born_timestamp", LONG + 1, f"<= {LONG} - at `$.extFields.bornTimestamp`"),
    ],
)
def test_a_send_refused_for_a_number_out_of_range_is_answered_with_the_range(
    name: str, number: int, says: str, caplog: pytest.LogCaptureFixture
) -> None:
    with SimCluster(seed=1).run() as sim:
        create_topic(sim)
        answer = sim.wait(sim.client.call(a_send(**{name: number}), b"x"))
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert says in answer.remark
        assert sim.broker.store.max_offset(TOPIC, 0) == 0
        assert sim.wait(sim.client.call(a_send(born_timestamp=LONG), b"x")).code == 0
    assert "Traceback" not in caplog.text


def test_an_offset_that_no_queue_can_have_is_not_stored() -> None:
    commit = UpdateConsumerOffset(
        consumer_group=GROUP, topic=TOPIC, queue_id=0, commit_offset=LONG + 1
    )
    pull = PullMessage(
        consumer_group=GROUP,
        topic=TOPIC,
        queue_id=0,
        queue_offset=0,
        max_msg_nums=1,
        sys_flag=1,
        commit_offset=10**40,
        suspend_timeout_millis=0,
        sub_version=0,
    )
    with SimCluster(seed=1).run() as sim:
        create_topic(sim)
        send(sim, b"0")
        Member(sim)
        sim.advance(10)
        headers: tuple[RequestHeader, ...] = (commit, pull)
        for header in headers:
            answer = sim.wait(sim.client.call(header))
            assert f"<= {LONG} - at `$.extFields.commitOffset`" in answer.remark
        assert stored_offset(sim) == 1


@pytest.mark.parametrize("name", ["retryMaxTimes", "retryQueueNums", "brokerId"])
def test_a_group_that_apache_could_not_read_is_not_stored(name: str) -> None:
    with SimCluster(seed=1).run() as sim:
        body = f'{{"groupName":"{GROUP}","{name}":{LONG + 1}}}'.encode()
        answer = sim.wait(sim.client.call(CreateGroup(), body))
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert f"`$.{name}`" in answer.remark
        assert GROUP not in sim.broker.groups
