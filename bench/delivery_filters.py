"""The cost of a filtered pull per message that the broker skips, without sockets."""

import asyncio
import time
from pathlib import Path

from bench.figures import Figure, at_most
from sparrowmq.protocol.frame import FrameDecoder, encode_frame
from sparrowmq.protocol.header import decode_plain
from tests.guard import frames
from tests.guard.workload import Wired, wired

_MESSAGES = 20_000
_ROUNDS = 15
_SQL = "a BETWEEN 0 AND 3 AND colour IN ('red', 'green') OR TAGS IS NULL"
_HEADER = (
    b'{"code":11,"extFields":{"queueId":"0","maxMsgBytes":"262144","maxMsgNums":"32",'
    b'"sysFlag":"4","suspendTimeoutMillis":"0","commitOffset":"0","bname":"broker-a",'
    b'"topic":"%b","queueOffset":"%d","expressionType":"%b","subVersion":"1",'
    b'"consumerGroup":"bench","subscription":"%b"},"flag":0,"language":"JAVA","opaque":1,'
    b'"serializeTypeCurrentRPC":"JSON","version":513}'
)


def filters(folder: Path) -> list[Figure]:
    """By tag and by SQL92, where nothing matches."""
    folder.mkdir(parents=True)
    return asyncio.run(_filters(folder))


async def _filters(folder: Path) -> list[Figure]:
    async with wired(folder) as client:
        for start in range(0, _MESSAGES, 1_000):
            client.feed([frames.tagged_send(number) for number in range(start, start + 1_000)])
            client.broker.store.tick(client.broker.clock())
            client.answers()
        tag = min(_skipped_us(client, b"TAG", b"paid || refunded") for _ in range(_ROUNDS))
        sql = min(_skipped_us(client, b"SQL92", _SQL.encode()) for _ in range(_ROUNDS))
    work = "a message that a filtered pull leaves out"
    return [
        Figure(work, "by its tag", "µs CPU", tag, None, at_most(0.5)),
        Figure(work, "by SQL92", "µs CPU", sql, None, at_most(10)),
    ]


def _skipped_us(client: Wired, kind: bytes, expression: bytes) -> float:
    """Pull until the end of the queue."""
    offset, took_s = 0, 0.0
    while offset < _MESSAGES:
        head = _HEADER % (frames.TOPIC.encode(), offset, kind, expression)
        request = encode_frame(head)
        began = time.thread_time()
        client.receive(request)
        took_s += time.thread_time() - began
        offset = _next_offset(client)
    return took_s / _MESSAGES * 1e6


def _next_offset(client: Wired) -> int:
    written = client.written
    client.answers()
    ((is_binary, header, body),) = FrameDecoder().feed(written)
    fields = decode_plain(is_binary, header).ext_fields
    if body or fields is None:
        raise RuntimeError("the filter was meant to find nothing")
    return int(fields["nextBeginOffset"])
