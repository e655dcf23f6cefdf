"""Peak shaving: 5,000 orders a second come in, and a service gets the 2,000 that it can bear.

    sparrowmq up                                     # in another terminal
    python -m examples.peak_shaving                  # takes 10 s, writes peak-shaving.svg
    python -m examples.peak_shaving 30 picture.svg   # a longer run, another file

The producer is not slowed down: what is too much for now waits in the broker, and the consumer
works it off at `max_per_second`. The picture shows input, output and backlog of the run.
"""

import asyncio
import secrets
import sys
from pathlib import Path
from typing import NamedTuple

from sparrowmq import Message, MessageExt, Producer, PushConsumer
from tools.chart import COLOURS
from tools.line_chart import Line, Panel, line_chart, rates

TOPIC = "peak-orders"
QUIET, PEAK, LIMIT = 500, 5000, 2000
"""Messages a second: before and after the peak, in it, and what the service can bear."""
TICK_S = 0.02


class Sample(NamedTuple):
    """How many orders had come in and gone out at a time."""

    at_s: float
    sent: int
    handled: int


async def run(seconds: float) -> list[Sample]:
    """Send for so long, and go on until all orders are handled."""
    order = Message(TOPIC, b"one tea", tags=secrets.token_hex(4))
    handled = 0

    async def handle(message: MessageExt) -> None:
        nonlocal handled
        handled += message.tags == order.tags  # not those that an interrupted run has left

    service = PushConsumer(
        "peak-service", {TOPIC: "*"}, max_per_second=LIMIT, from_where="FIRST_OFFSET"
    )
    async with Producer("peak-shop") as producer, service:
        await producer.send(Message(TOPIC, b"creates the topic"))
        await service.start(each=handle)
        clock = asyncio.get_running_loop().time
        begin_s, last = clock(), Sample(0, 0, 0)
        samples = [last]
        while last.at_s < seconds or last.handled < last.sent:
            await asyncio.sleep(TICK_S)
            now_s = clock() - begin_s
            rate = PEAK if 0.2 < now_s / seconds < 0.4 else QUIET if now_s < seconds else 0
            number = round(rate * (now_s - last.at_s))
            last = Sample(now_s, last.sent + number, handled)
            samples.append(last)
            if number:
                await producer.send_batch([order] * number)
    return samples


def picture(samples: list[Sample]) -> str:
    sent = rates([(each.at_s, each.sent) for each in samples])
    handled = rates([(each.at_s, each.handled) for each in samples])
    backlog = [(each.at_s, each.sent - each.handled) for each in samples]
    most = f"{max(waiting for _, waiting in backlog):,}"
    flow = [Line("input", COLOURS[1], sent, is_filled=True), Line("output", COLOURS[0], handled)]
    return line_chart(
        "Peak shaving",
        f"A consumer with max_per_second={LIMIT} handles {samples[-1].sent:,} orders",
        [
            Panel("messages a second", flow, mark=(LIMIT, f"max_per_second = {LIMIT:,}")),
            Panel(
                "messages that wait",
                [Line("backlog", COLOURS[3], backlog, is_filled=True, top=most)],
            ),
        ],
    )


if __name__ == "__main__":
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 10.0
    path = sys.argv[2] if len(sys.argv) > 2 else "peak-shaving.svg"
    samples = asyncio.run(run(seconds))
    Path(path).write_text(picture(samples), encoding="utf-8")
    most = max(each.sent - each.handled for each in samples)
    print(f"{samples[-1].handled:,} orders handled, up to {most:,} waited; see {path}")
