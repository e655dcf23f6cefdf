"""What a producer does when a send fails: which failures it retries, where, and for how long."""

import asyncio
import re
from collections.abc import Callable, Coroutine
from itertools import pairwise
from typing import Any

import pytest

from sparrowmq.client.errors import BrokerRefused, SendFailed
from sparrowmq.client.send_result import SendStatus
from sparrowmq.client.sending.producer import Producer
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.headers.messages import format_handle
from sparrowmq.protocol.message import Message, MessageQueue
from sparrowmq.protocol.route import BrokerData, TopicRoute
from tests.client.scripted import Answer, World, world

ERROR = ResponseCode.SYSTEM_ERROR


async def send_one(producer: Producer) -> Any:
    return await producer.send(Message("orders", b"x"))


def after_a_while(
    work: Callable[[Producer], Coroutine[Any, Any, Any]],
) -> Callable[[Producer], Coroutine[Any, Any, Any]]:
    """Not in the first moment, when every time is 0."""

    async def later(producer: Producer) -> Any:
        await asyncio.sleep(100)
        return await work(producer)

    return later


def script(w: World, **answers: list[Answer]) -> None:
    for letter, script_of_one in answers.items():
        w.brokers[letter].script = script_of_one


def test_queues_a1_a2_b1_b2_c1_c2_are_taken_in_turn() -> None:
    async def send_seven(producer: Producer) -> None:
        for _ in range(7):
            await producer.send(Message("orders", b"x"))

    with world() as w:
        w.produce(send_seven)
        assert w.attempts == ["A1", "A2", "B1", "B2", "C1", "C2", "A1"]


def test_when_a1_fails_the_next_attempt_skips_broker_a_and_the_index_continues_from_there() -> None:
    async def send_four(producer: Producer) -> None:
        for _ in range(4):
            await producer.send(Message("orders", b"x"))

    with world() as w:
        script(w, a=[ERROR])
        w.produce(send_four)
        assert w.attempts == ["A1", "B1", "B2", "C1", "C2"]


def test_two_retries_go_to_brokers_other_than_the_one_that_failed_last() -> None:
    with world() as w:
        script(w, a=[ERROR], b=[ERROR])
        result = w.produce(send_one)
        assert w.attempts == ["A1", "B1", "C1"]
        assert result.queue == MessageQueue("orders", "broker-c", 0)


def test_with_one_broker_only_the_retry_uses_it_again() -> None:
    with world("a") as w:
        script(w, a=[ERROR])
        w.produce(send_one)
        assert w.attempts == ["A1", "A2"]


@pytest.mark.parametrize(
    "code",
    [
        ResponseCode.TOPIC_NOT_EXIST,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.NO_PERMISSION,
        ResponseCode.NOT_IN_CURRENT_UNIT,
        ResponseCode.NO_BUYER_ID,
        ResponseCode.GO_AWAY,
    ],
)
def test_a_refusal_that_another_broker_may_not_repeat_is_retried(code: ResponseCode) -> None:
    with world() as w:
        script(w, a=[code])
        assert w.produce(send_one).is_ok
        assert w.attempts == ["A1", "B1"]


@pytest.mark.parametrize(
    "code",
    [
        ResponseCode.MESSAGE_ILLEGAL,
        ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
        ResponseCode.INVALID_PARAMETER,
    ],
)
def test_any_other_answer_is_raised_at_once(code: ResponseCode) -> None:
    with world() as w:
        script(w, a=[code])
        with pytest.raises(BrokerRefused, match="as the script says") as raised:
            w.produce(send_one)
        assert raised.value.code == code
        assert w.attempts == ["A1"]


def test_a_lack_of_permission_uses_up_the_retries() -> None:
    with world("a") as w:
        script(w, a=[ResponseCode.NO_PERMISSION] * 20)
        with pytest.raises(SendFailed, match=r"after 3 attempts .*NO_PERMISSION"):
            w.produce(send_one)
        assert len(w.attempts) == 3


def test_a_lost_connection_is_retried() -> None:
    with world() as w:
        script(w, a=["hang up"])
        assert w.produce(send_one).is_ok
        assert w.attempts == ["A1", "B1"]


def test_a_producer_moves_from_an_absent_broker_to_another() -> None:
    with world() as w:
        w.brokers["a"].host.kill()
        assert w.produce(send_one).is_ok
        assert w.attempts == ["B1"]


def test_a_silent_broker_leaves_the_others_half_of_the_remaining_time() -> None:
    with world() as w:
        script(w, a=["silent"], b=["silent"])
        assert w.produce(send_one).is_ok
        assert w.attempts == ["A1", "B1", "C1"]
        assert w.times_s == [0.0, 1.5, 2.25]


def test_three_seconds_are_the_time_of_all_attempts_together() -> None:
    with world() as w:
        script(w, a=["silent"], b=["silent"], c=["silent"])
        with pytest.raises(SendFailed) as raised:
            w.produce(after_a_while(send_one))
        assert raised.value.elapsed_s == pytest.approx(3.0)
        assert raised.value.brokers == ["broker-a", "broker-b", "broker-c"]


@pytest.mark.parametrize(
    "call",
    [
        lambda producer: producer.send(Message("orders", b"x")),
        lambda producer: producer.send(Message("orders", b"x"), key="k"),
        lambda producer: producer.recall(format_handle("orders", "broker-a", 1, "id")),
    ],
)
def test_the_time_that_a_route_takes_is_part_of_the_three_seconds(
    call: Callable[[Producer], Coroutine[Any, Any, Any]],
) -> None:
    with world("a") as w:
        w.route_takes_s = 1.0
        script(w, a=["silent"])
        with pytest.raises(SendFailed) as raised:
            w.produce(after_a_while(call))
        assert raised.value.elapsed_s == pytest.approx(3.0)


def test_a_broker_that_is_alone_has_all_three_seconds_for_its_answer() -> None:
    with world("a") as w:
        script(w, a=[2.9])
        assert w.produce(send_one).is_ok
        assert w.attempts == ["A1"]


def test_the_final_error_names_attempts_time_and_brokers_tried() -> None:
    with world() as w:
        script(w, a=[ERROR], b=[ERROR], c=["hang up"])
        with pytest.raises(SendFailed) as raised:
            w.produce(send_one)
    text = str(raised.value)
    assert "sending to topic orders failed after 3 attempts in 0.000 s" in text
    assert "broker-a: " in text
    assert "SYSTEM_ERROR" in text
    assert "broker-c: connection to" in text


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (ResponseCode.FLUSH_DISK_TIMEOUT, SendStatus.FLUSH_DISK_TIMEOUT),
        (ResponseCode.FLUSH_SLAVE_TIMEOUT, SendStatus.FLUSH_SLAVE_TIMEOUT),
        (ResponseCode.SLAVE_NOT_AVAILABLE, SendStatus.SLAVE_NOT_AVAILABLE),
    ],
)
def test_a_status_other_than_ok_is_returned_and_not_retried(
    code: ResponseCode, status: SendStatus
) -> None:
    with world() as w:
        script(w, a=[code])
        result = w.produce(send_one)
        assert (result.status, result.is_ok) == (status, False)
        assert w.attempts == ["A1"]


def test_the_result_names_the_queue_that_the_broker_chose() -> None:
    with world() as w:
        w.brokers["a"].puts_in = 1
        assert w.produce(send_one).queue == MessageQueue("orders", "broker-a", 1)
        assert w.attempts == ["A1"]


def test_a_producer_with_retry_unless_ok_retries_less_safe_results() -> None:
    with world() as w:
        script(w, a=[ResponseCode.FLUSH_DISK_TIMEOUT])
        assert w.produce(send_one, retry_unless_ok=True).is_ok
        assert w.attempts == ["A1", "B1"]


def test_the_less_safe_result_is_returned_when_no_retry_does_better() -> None:
    with world() as w:
        script(w, a=[ResponseCode.FLUSH_DISK_TIMEOUT], b=[ERROR], c=[ERROR])
        result = w.produce(send_one, retry_unless_ok=True)
        assert result.status is SendStatus.FLUSH_DISK_TIMEOUT
        assert w.attempts == ["A1", "B1", "C1"]


@pytest.mark.parametrize(
    "how",
    [
        {"queue": MessageQueue("orders", "broker-a", 0)},
        {"selector": lambda queues, message: queues[0]},
        {"key": "d"},  # 100 in Java's hash: the fifth of six queues
    ],
)
def test_a_send_to_a_chosen_queue_is_not_retried(how: dict[str, Any]) -> None:
    async def send(producer: Producer) -> None:
        await producer.send(Message("orders", b"x"), **how)

    with world() as w:
        script(w, a=["hang up"], c=["hang up"])
        with pytest.raises(SendFailed, match="after 1 attempt "):
            w.produce(send)
        assert w.attempts == (["C1"] if "key" in how else ["A1"])


def test_a_one_way_send_is_not_retried() -> None:
    async def send(producer: Producer) -> None:
        with pytest.raises(SendFailed, match="broker-a: cannot connect to") as raised:
            await producer.send_oneway(Message("orders", b"x"))
        assert raised.value.elapsed_s == pytest.approx(0)
        await producer.send_oneway(Message("orders", b"x"), key="d")

    with world() as w:
        w.brokers["a"].host.kill()
        w.produce(after_a_while(send))
        w.sim.until_idle()
        assert w.attempts == ["C1"]


def test_no_attempt_begins_when_the_time_is_over() -> None:
    with world("a") as w:
        script(w, a=["silent"])
        with pytest.raises(SendFailed, match=r"after 1 attempt in 3\.000 s"):
            w.produce(send_one)
        assert w.attempts == ["A1"]


OUTAGES = [
    {"timeout_s": 3.0, "retries": 2, "outage_s": 2.5},
    {"timeout_s": 30.0, "retries": 50, "outage_s": 28.0},
    {"timeout_s": 30.0, "retries": 1, "outage_s": 28.0},
]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("case", OUTAGES, ids=str)
@pytest.mark.parametrize("how", [{}, {"key": "d"}], ids=["any queue", "chosen queue"])
def test_a_send_survives_an_outage_shorter_than_its_timeout(
    case: dict[str, Any], how: dict[str, Any], seed: int
) -> None:
    with world("a", seed=seed) as w:
        away = w.brokers["a"]
        away.host.kill()

        async def send(producer: Producer) -> Any:
            asyncio.get_running_loop().call_later(case["outage_s"], w.revive, away)
            message = Message("orders", b"x")
            return await producer.send(message, timeout_s=case["timeout_s"], **how)

        assert w.produce(after_a_while(send), retries=case["retries"]).is_ok
        assert len(w.attempts) == 1


def test_a_broker_that_stays_away_is_tried_less_and_less_often_and_logged_once() -> None:
    async def send(producer: Producer) -> None:
        with pytest.raises(SendFailed, match=r"\(\d+ times\)\)$") as raised:
            await producer.send(Message("orders", b"x"), timeout_s=30)
        assert 29 < raised.value.elapsed_s <= 30
        assert 25 < len(raised.value.attempts) < 70
        assert len(str(raised.value)) < 300

    with world("a") as w:
        w.brokers["a"].host.kill()
        w.produce(after_a_while(send), retries=50)


def pauses(seed: int) -> list[float]:
    """Of a send that a broker refuses for 20 s."""

    async def send(producer: Producer) -> None:
        with pytest.raises(SendFailed):
            await producer.send(Message("orders", b"x"), timeout_s=20)

    with world("a", seed=seed) as w:
        script(w, a=[ERROR] * 100)
        w.produce(after_a_while(send), retries=50)
        return [later - earlier for earlier, later in pairwise(w.times_s)]


def test_pauses_between_attempts_grow_to_a_second_and_are_chosen_by_chance() -> None:
    found = [round(pause_s, 9) for pause_s in pauses(seed=1)]  # differences of floats
    assert 0.05 <= min(found[:2]) <= max(found[:2]) <= 0.11
    for at in range(2, 8, 2):  # each length twice
        assert sum(found[at : at + 2]) > sum(found[at - 2 : at])
    later = found[8:-2]  # the last ones share what is left of the time
    assert 0.5 <= min(later) < max(later) <= 1.01
    assert max(later) - min(later) > 0.1
    assert [round(pause_s, 9) for pause_s in pauses(seed=2)] != found


def test_silent_brokers_are_each_named_once_for_any_number_of_attempts() -> None:
    async def send(producer: Producer) -> None:
        with pytest.raises(SendFailed) as raised:
            await producer.send(Message("orders", b"x"), timeout_s=30)
        assert len({reason for _, reason in raised.value.attempts}) > 4
        found = re.findall(r"(broker-\w): \S+ did not answer .+? \((\d+) times", str(raised.value))
        assert [broker for broker, _ in found] == ["broker-a", "broker-b"]
        assert sum(int(times) for _, times in found) == len(raised.value.attempts)
        assert len(str(raised.value)) < 400

    with world("ab") as w:
        script(w, a=["silent"] * 100, b=["silent"] * 100)
        w.produce(after_a_while(send), retries=50)


def test_causes_that_differ_in_more_than_numbers_are_listed_separately() -> None:
    causes = ["no answer within 3 s", "no answer within 1.5 s", "lost", "lost", "no answer in 2 s"]
    failed = SendFailed("orders", [("a", cause) for cause in causes] + [("b", "lost")], 5.0)
    assert (
        "(a: no answer within 3 s (2 times, with other numbers); a: lost (2 times);"
        " a: no answer in 2 s; b: lost)"
    ) in str(failed)


def test_without_retries_a_send_is_tried_once() -> None:
    async def send(producer: Producer) -> None:
        with pytest.raises(SendFailed, match="after 1 attempt ") as raised:
            await producer.send(Message("orders", b"x"))
        assert raised.value.elapsed_s == pytest.approx(0)

    with world("a") as w:
        w.brokers["a"].host.kill()
        w.produce(after_a_while(send), retries=0)


def test_the_first_round_over_the_brokers_does_not_wait() -> None:
    async def send(producer: Producer) -> Any:
        start_s = asyncio.get_running_loop().time()
        result = await producer.send(Message("orders", b"x"))
        return result, asyncio.get_running_loop().time() - start_s

    with world() as w:
        w.brokers["a"].host.kill()
        w.brokers["b"].host.kill()
        result, took_s = w.produce(after_a_while(send))
        assert result.queue.broker_name == "broker-c"
        assert took_s == pytest.approx(0, abs=0.01)


def test_a_busy_broker_has_stored_nothing_and_costs_no_retry() -> None:
    with world("a") as w:
        script(w, a=[ResponseCode.SYSTEM_BUSY] * 4)
        assert w.produce(send_one).is_ok
        assert len(w.attempts) == 5


def test_a_busy_broker_is_retried_for_a_message_with_a_fixed_queue() -> None:
    with world("a") as w:
        script(w, a=[ResponseCode.SYSTEM_BUSY] * 2)
        assert w.produce(send_in_order).is_ok
        assert len(w.attempts) == 3


async def send_in_order(producer: Producer) -> Any:
    return await producer.send(Message("orders", b"x", sharding_key="one"))


def only(w: World, master: str) -> TopicRoute:
    """Broker a alone, with this one as its master."""
    queues = tuple(each for each in w.route(2).queue_datas if each.broker_name == "broker-a")
    addresses = {0: w.brokers[master].address}
    broker = BrokerData(cluster="c", broker_name="broker-a", broker_addrs=addresses)
    return TopicRoute(queue_datas=queues, broker_datas=(broker,))


BUSY = ResponseCode.SYSTEM_BUSY


@pytest.mark.parametrize("first", [[BUSY], [BUSY, ResponseCode.SUCCESS]], ids=["same", "another"])
def test_a_message_on_its_way_to_a_master_that_hands_over_goes_to_the_next_one(
    first: list[ResponseCode],
) -> None:
    """Also where another message was refused before, and this one met a closing connection only."""

    async def send_meanwhile(producer: Producer) -> None:
        if len(first) > 1:
            assert (await send_in_order(producer)).is_ok
        async with asyncio.TaskGroup() as tasks:
            sending = tasks.create_task(send_in_order(producer))
            await asyncio.sleep(1)
            assert not sending.done()
            w.routes["orders"] = only(w, "b")
            assert (await sending).is_ok

    with world("ab") as w:
        w.routes["orders"] = only(w, "a")
        script(w, a=[*first, "hang up"])
        w.produce(send_meanwhile)
        assert [each[0] for each in w.attempts] == ["A"] * (len(first) + 1) + ["B"]


@pytest.mark.parametrize(
    ("answers", "takes_s"),
    [(["hang up"], 0.0), ([BUSY, "hang up"], 3.0), ([BUSY, ResponseCode.SYSTEM_ERROR], 0.1)],
    ids=["it was not refused before", "no other master comes", "it was answered"],
)
def test_another_message_in_order_is_handed_over_once(
    answers: list[Answer], takes_s: float
) -> None:
    with world("a") as w:
        script(w, a=list(answers))
        with pytest.raises((SendFailed, BrokerRefused)) as raised:
            w.produce(send_in_order)
        if isinstance(raised.value, SendFailed):
            assert raised.value.may_be_stored
        assert len(w.attempts) == len(answers)
        assert w.sim.now_s - w.start_s == pytest.approx(takes_s, abs=0.15)
