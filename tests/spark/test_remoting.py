"""Requests over one blocking socket."""

import json

import pytest

from sparrowmq.protocol.codes import RequestCode
from sparrowmq.protocol.frame import encode_frame
from sparrowmq.spark.errors import ClusterUnreachable, ServerRefused
from sparrowmq.spark.wire.remoting import Remoting
from sparrowmq.testing.held_port import HeldPort
from tests.patience import PATIENCE_S
from tests.spark.scripted_broker import HANG_UP, SILENCE, Said, ScriptedBroker

MAX = RequestCode.GET_MAX_OFFSET
FIELDS = {"topic": "orders", "queueId": "0"}


def test_an_answer_has_code_fields_body_and_remark() -> None:
    with ScriptedBroker() as broker, Remoting(broker.address) as remoting:
        broker.on(MAX, lambda asked: Said(19, {"seen": asked["topic"]}, b"body" * 99, "why"))
        answer = remoting.call(MAX, FIELDS)
        assert (answer.code, answer.fields, answer.remark) == (19, {"seen": "orders"}, "why")
        assert answer.body == b"body" * 99


def test_a_large_body_comes_in_pieces_and_arrives_whole() -> None:
    with ScriptedBroker() as broker, Remoting(broker.address) as remoting:
        broker.on(MAX, lambda _: Said(body=bytes(range(256)) * 20_000))
        assert remoting.call(MAX, FIELDS).body == bytes(range(256)) * 20_000


def test_ask_raises_on_a_refusal_and_names_the_server_and_the_request() -> None:
    with ScriptedBroker() as broker, Remoting(broker.address) as remoting:
        broker.on(MAX, lambda _: Said(16, remark="no permission"))
        with pytest.raises(
            ServerRefused, match=r"GET_MAX_OFFSET at .* code 16: no permission"
        ) as caught:
            remoting.ask(MAX, FIELDS)
        assert caught.value.address == broker.address


def test_an_idle_connection_that_the_server_closed_is_reopened() -> None:
    with ScriptedBroker() as broker, Remoting(broker.address) as remoting:
        answers = iter([Said(), HANG_UP, Said(7)])
        broker.on(MAX, lambda _: next(answers))
        assert remoting.call(MAX, FIELDS).code == 0
        assert remoting.call(MAX, FIELDS).code == 7


def test_a_new_connection_that_breaks_is_not_tried_again_here() -> None:
    with ScriptedBroker() as broker, Remoting(broker.address) as remoting:
        broker.on(MAX, lambda _: HANG_UP)
        with pytest.raises(
            ClusterUnreachable, match=rf"GET_MAX_OFFSET at {broker.address}.*check that"
        ):
            remoting.call(MAX, FIELDS)
        assert broker.count(MAX) == 1


def test_a_silent_call_times_out_and_its_late_answer_is_not_mistaken_for_another() -> None:
    with ScriptedBroker() as broker, Remoting(broker.address, timeout_s=0.1) as remoting:
        broker.on(MAX, lambda _: SILENCE)
        with pytest.raises(ClusterUnreachable, match=r"no answer in 0\.1 s"):
            remoting.call(MAX, FIELDS)
        broker.on(MAX, lambda _: Said(5))
        remoting.timeout_s = PATIENCE_S  # this one is answered, however busy the machine is
        assert remoting.call(MAX, FIELDS).code == 5


def test_a_request_from_the_server_is_not_mistaken_for_an_answer() -> None:
    own = {"code": RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, "flag": 0, "opaque": 1}
    notice = encode_frame(json.dumps(own).encode())
    with ScriptedBroker() as broker, Remoting(broker.address) as remoting:
        broker.on(MAX, lambda _: Said(5, before=notice))
        assert remoting.call(MAX, FIELDS).code == 5


def test_a_closed_port_is_reported_with_the_address() -> None:
    with (
        HeldPort() as held,
        Remoting(held.address) as remoting,
        pytest.raises(ClusterUnreachable, match="refused") as caught,
    ):
        remoting.call(MAX, FIELDS)
    assert caught.value.request == "GET_MAX_OFFSET"


NOT_OURS = r"does not speak RocketMQ's protocol \(frame of 1213486160 bytes"


def test_a_server_of_another_protocol_fails_at_once_and_fills_no_memory() -> None:
    with ScriptedBroker() as broker, Remoting(broker.address) as remoting:
        broker.on(MAX, lambda _: b"HTTP/1.1 400 Bad Request\r\n\r\n")
        with pytest.raises(ClusterUnreachable, match=NOT_OURS):
            remoting.call(MAX, FIELDS)
