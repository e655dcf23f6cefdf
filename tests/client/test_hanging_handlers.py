"""Handler functions that do not return: the process ends anyway, or waits for them."""

import subprocess
import sys
from pathlib import Path

import pytest

from sparrowmq.testing import Cluster
from tests.patience import PATIENCE_S, PATIENT

ROOT = Path(__file__).parents[2]
BEGIN = """
import asyncio, os, sys, threading
from sparrowmq import ConsumeFromWhere, Message, TransactionState, blocking
from sparrowmq import Producer, PushConsumer, TransactionalProducer
from sparrowmq.client.sending import transactional_producer

servers = sys.argv[1]
began, never = threading.Event(), threading.Event()

def hang(*ignored):
    began.set()
    never.wait()

async def until_begun():
    await asyncio.get_running_loop().run_in_executor(None, began.wait)

with blocking.Producer("p", name_servers=servers) as producer:
    producer.send(Message("orders", b"x"))
push = dict(name_servers=servers, from_where=ConsumeFromWhere.FIRST_OFFSET)
"""

ENDS = {
    "a consumer past its deadline": """
async def main():
    async with PushConsumer("g", {"orders": "*"}, stop_within_s=0.1, **push) as consumer:
        await consumer.start(hang)
        await until_begun()

asyncio.run(main())
""",
    "a consumer whose stop was cancelled": """
async def main():
    consumer = PushConsumer("g", {"orders": "*"}, stop_within_s=3600, **push)
    await consumer.start(hang)
    await until_begun()
    stopping = asyncio.ensure_future(consumer.stop())
    await asyncio.sleep(0)
    stopping.cancel()  # as a second Ctrl-C does
    await asyncio.wait([stopping])

asyncio.run(main())
""",
    "a blocking consumer past its deadline": """
with blocking.PushConsumer("g", {"orders": "*"}, stop_within_s=0.1, **push) as consumer:
    consumer.start(hang)
    began.wait()
""",
    "a blocking scheduled pull past its deadline": """
with blocking.ScheduledPull("g", {"orders": hang}, stop_within_s=0.1, name_servers=servers):
    began.wait()
""",
    "a transactional producer past its deadline": """
class Hangs:
    check = execute = hang

transactional_producer._STOP_WITHIN_S = 0.1

async def main():
    async with TransactionalProducer("p", Hangs(), name_servers=servers) as producer:
        sending = asyncio.ensure_future(producer.send_in_transaction(Message("orders", b"x")))
        await until_begun()
    sending.cancel()
    await asyncio.wait([sending])

asyncio.run(main())
""",
}


def run(program: str, cluster: Cluster) -> str:
    """What it prints until it ends by itself."""
    arguments = [sys.executable, "-W", "error", "-c", PATIENT + BEGIN + program]
    ended = subprocess.run(
        [*arguments, cluster.name_server],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


@pytest.mark.slow
@pytest.mark.parametrize("what", ENDS)
def test_a_process_ends_although_a_function_does_not_return(
    what: str, sparrowmq_cluster: Cluster
) -> None:
    run(ENDS[what], sparrowmq_cluster)


def test_a_process_that_stopped_no_consumer_waits_for_its_handlers(
    sparrowmq_cluster: Cluster,
) -> None:
    program = """
def handle(messages):
    began.set()
    threading.main_thread().join()  # over when the interpreter ends
    print("finished", flush=True)

blocking.PushConsumer("g", {"orders": "*"}, **push).start(handle)
began.wait()
"""
    assert run(program, sparrowmq_cluster) == "finished\n"
