"""How a server answers: every request code, every way a handler can end."""

import logging
from collections.abc import Callable

import pytest

from sparrowmq.net.routes import Answered, Reply, answer_all
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.frame import encode_frame
from sparrowmq.protocol.header import ONEWAY_FLAG
from tests.net.wire import Answer, Wire, request
from tests.net.world import PORT, Echo, Fail, Keep, Wait, World, world

ECHO, WAIT, KEEP, FAIL = (int(kind.CODE) for kind in (Echo, Wait, Keep, Fail))


def ask(w: World, frame: bytes, host: str = "client") -> Answer:
    async def over_the_wire() -> Answer:
        wire = await Wire.open("server", PORT)
        answer = await wire.ask(frame)
        wire.close()
        return answer

    answer: Answer = w.run(over_the_wire(), host)
    return answer


@pytest.mark.parametrize("binary", [False, True])
def test_a_request_is_answered_in_the_serialisation_it_came_in(binary: bool) -> None:
    with world() as w:
        answer = ask(w, request(ECHO, {"text": "hi ✓"}, b"body", opaque=-7, binary=binary))
        assert answer.binary is binary
        assert answer.header.is_response
        assert (answer.code, answer.header.opaque, answer.body) == (0, -7, b"body")
        assert answer.header.ext_fields == {"text": "hi ✓"}
        assert answer.header.language == "PYTHON"


@pytest.mark.parametrize("binary", [False, True])
def test_an_unknown_code_is_answered_not_supported(binary: bool) -> None:
    with world() as w:
        answer = ask(w, request(31_000, binary=binary))
        assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        assert "31000" in answer.remark
        assert answer.binary is binary


def test_a_known_code_that_is_not_served_here_is_named() -> None:
    with world() as w:
        answer = ask(w, request(RequestCode.SEND_MESSAGE))
        assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        assert "10 (SEND_MESSAGE)" in answer.remark


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({}, "text"),
        ({"text": "a", "number": "eleven"}, "number"),
        ({"text": "a", "number": "1.5"}, "number"),
        ({"text": "a", "number": ""}, "number"),
    ],
)
@pytest.mark.parametrize("binary", [False, True])
def test_a_missing_or_malformed_field_is_named(
    fields: dict[str, str], says: str, binary: bool
) -> None:
    with world() as w:
        answer = ask(w, request(ECHO, fields, opaque=5, binary=binary))
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert says in answer.remark
        assert answer.header.opaque == 5
        assert w.log.seen == []


@pytest.mark.parametrize("text", ["null", "[1]", "{}", "5"])
def test_a_field_that_is_not_text_is_named_and_the_connection_stays(text: str) -> None:
    header = f'{{"code":{ECHO},"opaque":5,"extFields":{{"text":{text},"number":1}}}}'

    async def over_the_wire() -> tuple[Answer, Answer]:
        wire = await Wire.open("server", PORT)
        answers = (
            await wire.ask(encode_frame(header.encode(), b"")),
            await wire.ask(request(ECHO, {"text": "a"})),
        )
        wire.close()
        return answers

    with world() as w:
        answer, next_answer = w.run(over_the_wire(), "client")
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert "text" in answer.remark
        assert next_answer.code == ResponseCode.SUCCESS


def test_undeclared_fields_are_ignored() -> None:
    with world() as w:
        answer = ask(w, request(ECHO, {"text": "a", "bname": "broker-a", "ReqT": "1"}))
        assert answer.code == ResponseCode.SUCCESS


def test_a_refusal_becomes_its_code_and_text() -> None:
    with world() as w:
        answer = ask(w, request(FAIL, {"how": "refuse"}))
        assert (answer.code, answer.remark) == (ResponseCode.NO_PERMISSION, "you may not")


@pytest.mark.parametrize("how", ["bug", "late", "unencodable", "unencodable late"])
def test_a_bug_in_a_handler_is_logged_and_not_disclosed_to_the_peer(
    how: str, caplog: pytest.LogCaptureFixture
) -> None:
    with world() as w:
        answer = ask(w, request(FAIL, {"how": how}))
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert answer.remark == "Fail failed inside the server; its log says why"
        (record,) = [each for each in caplog.records if each.levelno == logging.ERROR]
        assert record.exc_info is not None
        assert ask(w, request(ECHO, {"text": "still here"})).code == ResponseCode.SUCCESS


def test_a_one_way_request_is_never_answered() -> None:
    with world() as w:

        async def over_the_wire() -> Answer:
            wire = await Wire.open("server", PORT)
            flag = ONEWAY_FLAG
            wire.send(
                request(ECHO, {"text": "a"}, opaque=1, flag=flag),
                request(ECHO, {}, opaque=2, flag=flag),
                request(31_000, opaque=3, flag=flag),
                request(FAIL, {"how": "bug"}, opaque=4, flag=flag),
                request(FAIL, {"how": "late"}, opaque=5, flag=flag),
                request(WAIT, {"delayMs": "10"}, opaque=6, flag=flag),
                request(WAIT, {"delayMs": "500"}, opaque=7),
            )
            answer = await wire.answer()
            wire.close()
            return answer

        assert w.run(over_the_wire()).header.opaque == 7
        assert len(w.log.seen) == 1


def one_by_one(answers: list[Answered]) -> None:
    for kept, reply in answers:
        kept.answer(reply)


@pytest.mark.parametrize("answer_kept", [one_by_one, answer_all])
def test_a_kept_request_is_answered_later_unless_its_peer_has_gone(
    answer_kept: Callable[[list[Answered]], None],
) -> None:
    with world() as w:

        async def ask_two() -> tuple[Wire, Wire]:
            stays, goes = await Wire.open("server", PORT), await Wire.open("server", PORT)
            stays.send(request(KEEP, opaque=1), request(KEEP, opaque=3))
            goes.send(request(KEEP, opaque=2))
            return stays, goes

        stays, goes = w.run(ask_two())
        w.sim.until_idle()
        goes.close()
        w.sim.until_idle()
        answer_kept([(kept, Reply(body=b"now")) for kept in w.log.kept])
        for opaque in (1, 3):
            answer = w.run(stays.answer())
            assert (answer.header.opaque, answer.body) == (opaque, b"now")
        stays.close()


def test_a_waiting_handler_is_cancelled_when_its_peer_goes() -> None:
    with world() as w:

        async def ask_and_leave() -> None:
            wire = await Wire.open("server", PORT)
            wire.send(request(WAIT, {"delayMs": "60000"}))
            await wire.writer.drain()
            wire.close()

        w.run(ask_and_leave())
        w.sim.until_idle()
        assert w.log.cancelled == 1
        assert w.sim.now_s < 1


def test_one_slow_request_does_not_hold_up_the_next_one() -> None:
    with world() as w:

        async def over_the_wire() -> list[int]:
            wire = await Wire.open("server", PORT)
            wire.send(
                request(WAIT, {"delayMs": "1000"}, opaque=1),
                request(ECHO, {"text": "a"}, opaque=2),
            )
            order = [(await wire.answer()).header.opaque for _ in range(2)]
            wire.close()
            return order

        assert w.run(over_the_wire()) == [2, 1]


BROKEN = {
    "a length beyond the limit": b"\x7f\xff\xff\xff\x00\x00\x00\x02{}",
    "a header longer than its frame": b"\x00\x00\x00\x06\x00\x00\x00\x09{}",
    "a length without room for the header's": b"\x00\x00\x00\x02\x00\x00\x00\x00",
    "an unknown serialisation": b"\x00\x00\x00\x06\x07\x00\x00\x02{}",
    "a header that is no JSON": encode_frame(b"hello"),
    "a header that is no object": encode_frame(b"[1]"),
    "a header that is not UTF-8": encode_frame(b'{"code":101,"remark":"\xff"}'),
    "a binary header that is cut": encode_frame(b"\x00\x65\x00", binary=True),
    "a binary header with a lying length": request(ECHO, binary=True)[:-4] + b"\x7f\xff\xff\xff",
    "an empty header": encode_frame(b""),
    "HTTP": b"GET / HTTP/1.1\r\nHost: example\r\n\r\n",
}


@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN)
def test_a_broken_frame_closes_its_own_connection_and_no_other(broken: bytes) -> None:
    with world() as w:

        async def over_the_wire() -> tuple[int, bool, int]:
            good, bad = await Wire.open("server", PORT), await Wire.open("server", PORT)
            first = await bad.ask(request(ECHO, {"text": "fine so far"}))
            bad.send(broken)
            is_closed = await bad.is_closed()
            last = await good.ask(request(ECHO, {"text": "untouched"}))
            good.close()
            bad.close()
            return first.code, is_closed, last.code

        assert w.run(over_the_wire()) == (0, True, 0)


def test_requests_before_a_broken_header_are_answered_and_none_after_it() -> None:
    with world() as w:

        async def over_the_wire() -> tuple[Answer, bool]:
            wire = await Wire.open("server", PORT)
            wire.send(
                request(ECHO, {"text": "before"}),
                encode_frame(b"broken"),
                request(ECHO, {"text": "behind"}),
            )
            answer = await wire.answer()
            is_closed = await wire.is_closed()
            wire.close()
            return answer, is_closed

        answer, is_closed = w.run(over_the_wire())
        assert answer.header.ext_fields == {"text": "before"}
        assert is_closed
        assert [text.split()[1] for text in w.log.seen] == ["before"]
