"""What a program without asyncio sees when it ends while a consumer works in the background."""

import subprocess
import sys

import pytest

SCRIPT = """
import logging
from sparrowmq.blocking import PushConsumer, ScheduledPull
logging.getLogger("sparrowmq.client").setLevel(logging.WARNING)
{work}
"""
PUSH = 'PushConsumer("billing", {"orders": "*"}, name_servers="127.0.0.1:1")'
PULL = 'ScheduledPull("archive", {"orders": print}, name_servers="127.0.0.1:1")'
SAID = "runs in the background: it no longer consumes"


@pytest.mark.parametrize(
    ("work", "said"),
    [
        (f"consumer = {PUSH}\nconsumer.start(print)", f"the PushConsumer of group billing {SAID}"),
        (f"consumer = {PULL}\nconsumer.start()", f"the ScheduledPull of group archive {SAID}"),
        (f"with {PUSH} as consumer:\n    consumer.start(print)", ""),
        (f"consumer = {PULL}\nconsumer.start()\nconsumer.stop()", ""),
        (PUSH, ""),
    ],
    ids=["push, not stopped", "scheduled, not stopped", "block", "stopped", "not started"],
)
def test_a_program_that_ends_without_stop_is_warned(work: str, said: str) -> None:
    command = [sys.executable, "-c", SCRIPT.format(work=work)]
    ended = subprocess.run(command, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    lines = [line for line in ended.stderr.splitlines() if "the program ends" in line]
    assert len(lines) == bool(said)
    assert all(said in line and "call run()" in line for line in lines)


def test_a_block_that_does_not_wait_for_messages_logs_a_warning() -> None:
    """The last lines of many a first script: the end of the block stops what they started."""
    patient = "from sparrowmq.client.consuming import push_consumer\npush_consumer.AT_ONCE_S = 3600"
    work = f"{patient}\nwith {PUSH} as consumer:\n    consumer.start(print)"
    command = [sys.executable, "-c", SCRIPT.format(work=work)]
    ended = subprocess.run(command, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    assert "the block of the consumer of group billing ended " in ended.stderr
    assert "call run() instead" in ended.stderr


ASYNC_SCRIPT = """
import asyncio
from sparrowmq import Producer, PushConsumer

async def handle(messages): ...

async def main():
    member = {member}
    await member.start({handler})

asyncio.run(main())
"""


@pytest.mark.parametrize(
    ("member", "handler", "said"),
    [
        (PUSH, "handle", "call stop(), or use `async with`; to consume until then, await run()"),
        ('Producer("till", name_servers="127.0.0.1:1")', "", "call stop(), or use `async with`\n"),
    ],
    ids=["consumer", "producer"],
)
def test_an_asyncio_program_whose_main_function_returns_gets_the_remedy(
    member: str, handler: str, said: str
) -> None:
    command = [sys.executable, "-c", ASYNC_SCRIPT.format(member=member, handler=handler)]
    ended = subprocess.run(command, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    text = "its tasks were cancelled, as when the event loop ends; before that "
    assert f"{text}{said}" in ended.stderr
