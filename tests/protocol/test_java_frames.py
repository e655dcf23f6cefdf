"""Frames against what Apache's RemotingCommand wrote, in both header formats."""

from typing import Any

import pytest

from sparrowmq.protocol.codes import Language
from sparrowmq.protocol.frame import FrameDecoder, encode_frame
from sparrowmq.protocol.header import decode_plain
from tests.protocol.java_vectors import cases

every_frame = pytest.mark.parametrize(
    "case", cases("frames"), ids=lambda case: f"{case['name']}-{case['serialization']}"
)


@every_frame
def test_a_frame_of_java_is_read_field_by_field(case: dict[str, Any]) -> None:
    ((binary, header, body),) = FrameDecoder().feed(bytes.fromhex(case["frame"]))
    assert binary == (case["serialization"] == "rocketmq")
    assert body.hex() == case["body"]
    plain = decode_plain(binary, header)
    same = ("code", "version", "opaque", "flag")
    assert {name: getattr(plain, name) for name in same} == {name: case[name] for name in same}
    assert plain.language == case["language"]
    assert plain.language in Language.__members__
    assert (plain.remark or None) == (case["remark"] or None)
    assert (plain.ext_fields or {}) == (case["ext_fields"] or {})


@every_frame
def test_a_frame_is_put_together_byte_by_byte_as_java_does(case: dict[str, Any]) -> None:
    whole = bytes.fromhex(case["frame"])
    ((binary, header, body),) = FrameDecoder().feed(whole)
    assert encode_frame(header, body, binary=binary) == whole


def test_all_frames_in_one_stream_come_out_one_by_one() -> None:
    stream = b"".join(bytes.fromhex(case["frame"]) for case in cases("frames"))
    decoder = FrameDecoder()
    frames = [
        frame for at in range(0, len(stream), 7) for frame in decoder.feed(stream[at : at + 7])
    ]
    assert len(frames) == len(cases("frames"))
    assert [body.hex() for _, _, body in frames] == [case["body"] for case in cases("frames")]
