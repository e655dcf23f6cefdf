"""Every request code with every kind of nonsense: answered, and never with an internal error."""

import itertools
import logging
from collections.abc import Iterator

import msgspec
import pytest

from sparrowmq.nameserver.server import all_routes
from sparrowmq.protocol.header import RequestHeader
from tests.nameserver.world import PORT, topic, world
from tests.net.wire import Answer, Wire, request

KINDS = sorted(all_routes().handlers, key=lambda kind: int(kind.CODE))
NONSENSE = ["", " ", "-1", "0", "99999999999999999999", "1e9", "true", "\x00", "日本語", "x" * 5000]
BODIES = [b"", b"{", b"[]", b"null", b"{}", b'"text"', b"\xff", b'{"table":7,"queueDatas":7}', b"x"]
LIKELY = {
    "topic": "orders",
    "clusterName": "DefaultCluster",
    "cluster": "DefaultCluster",
    "brokerName": "broker-a",
    "brokerId": "0",
    "brokerAddr": "10.1.1.1:10911",
    "haServerAddr": "10.1.1.1:10912",
    "namespace": "rooms",
    "key": "a",
    "value": "1",
}


def hostile_frames(kind: type[RequestHeader]) -> Iterator[bytes]:
    """Likely requests with one thing wrong."""
    code = int(kind.CODE)
    names = [field.encode_name for field in msgspec.structs.fields(kind)]
    likely = {name: LIKELY[name] for name in names if name in LIKELY}
    for body, binary in itertools.product(BODIES, (False, True)):
        yield request(code, likely, body, binary=binary)
    for name in names:
        yield request(code, {each: text for each, text in likely.items() if each != name})
        for text in NONSENSE:
            yield request(code, {**likely, name: text})


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: str(kind.__name__))
def test_nonsense_is_answered_and_the_server_keeps_serving(
    kind: type[RequestHeader], caplog: pytest.LogCaptureFixture
) -> None:
    with world() as w:
        w.broker().register([topic("orders")])

        async def over_the_wire() -> list[Answer]:
            wire = await Wire.open("ns", PORT)
            answers = [await wire.ask(frame) for frame in hostile_frames(kind)]
            wire.close()
            return answers

        answers = w.sim.run(over_the_wire(), on=w.sim.host("hostile"))
        assert len(answers) >= len(BODIES)
        for answer in answers:
            assert "failed inside the server" not in answer.remark
            assert len(answer.remark) < 1000
    assert [each.getMessage() for each in caplog.records if each.levelno >= logging.ERROR] == []


def test_every_request_of_a_name_server_is_served() -> None:
    codes = {100, 101, 102, 103, 104, 105, 106, 205, 206, 216, 217, 219, 224}
    codes |= {304, 311, 312, 313, 318, 319, 322, 327, 901, 904}
    assert all_routes().codes == codes
