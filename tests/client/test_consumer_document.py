"""docs/client-consumer.md: its examples are Python, import what exists, and whole programs run."""

import ast
import builtins
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import sparrowmq
from sparrowmq.blocking import Message, Producer, PullConsumer
from sparrowmq.testing import Cluster
from tests.patience import PATIENCE_S, PATIENT
from tests.seeds import in_part

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
DOCUMENT = DOCS / "client-consumer.md"
EXAMPLES = re.findall(
    r"^```python\n(.*?)^```", DOCUMENT.read_text("utf-8"), re.MULTILINE | re.DOTALL
)


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_an_example_is_python_whose_imports_work(number: int) -> None:
    name = f"example {number + 1} of {DOCUMENT.name}"
    allowed = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT | ast.PyCF_ONLY_AST
    tree = compile(EXAMPLES[number], name, "exec", allowed)
    assert isinstance(tree, ast.Module)
    imports = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    exec(compile(ast.Module(list(imports), []), name, "exec"), {})


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_an_example_uses_no_name_that_it_does_not_define(number: int) -> None:
    allowed = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT | ast.PyCF_ONLY_AST
    known, used = set(dir(builtins)), set[str]()
    for node in ast.walk(compile(EXAMPLES[number], "example", "exec", allowed)):
        match node:
            case ast.Name(name, ast.Store()) | ast.arg(name):
                known.add(name)
            case ast.Name(name):
                used.add(name)
            case ast.FunctionDef(name) | ast.AsyncFunctionDef(name):
                known.add(name)
            case ast.alias(name):
                known.add(name)
    assert used - known == set()


def programs(*words: str) -> list[str]:
    """Examples that are whole programs with a push consumer and use all of these words."""
    whole = [one for one in EXAMPLES if "asyncio.run(main())" in one or "signal.signal" in one]
    return [one for one in whole if all(word in one for word in words)]


@contextmanager
def running(program: str, cluster: Cluster) -> Iterator["subprocess.Popen[str]"]:
    """A program that has printed the one message of topic orders, at the cluster."""
    servers = cluster.name_server
    with Producer("shop", name_servers=servers) as producer:
        producer.send(Message("orders", b"one sparrow", tags="paid"))
    command = [sys.executable, "-u", "-W", "error", "-c", PATIENT + program]
    environment = {**os.environ, "SPARROWMQ_NAME_SERVERS": servers}
    with subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            # A group without progress begins where the queue still has its first message.
            assert process.stdout.readline() == "b'one sparrow'\n"
            yield process
        finally:
            process.kill()


def test_the_document_has_programs() -> None:
    assert len(programs("PushConsumer")) == 4
    assert len(programs("signal")) == 2
    assert len(programs("async for")) == 1


@pytest.mark.parametrize("program", programs("asyncio.run"))
def test_a_program_with_a_push_consumer_runs_as_pasted(
    program: str, sparrowmq_cluster: Cluster
) -> None:
    with running(program, sparrowmq_cluster):
        pass


@pytest.mark.parametrize("number", in_part([signal.SIGTERM, signal.SIGINT], few=1))
@pytest.mark.parametrize("program", programs("signal"))
def test_a_program_ended_by_a_signal_has_stored_its_progress(
    program: str, number: signal.Signals, sparrowmq_cluster: Cluster
) -> None:
    with running(program, sparrowmq_cluster) as process:
        process.send_signal(number)
        assert process.wait(PATIENCE_S) == 0
    with PullConsumer("billing", name_servers=sparrowmq_cluster.name_server) as consumer:
        stored = [consumer.committed(queue) for queue in consumer.queues("orders")]
        assert sum(offset or 0 for offset in stored) == 1


def test_every_public_name_is_described() -> None:
    documents = ("client-producer", "client-consumer", "admin", "metrics")
    text = "".join((DOCS / f"{name}.md").read_text("utf-8") for name in documents)
    public = set(sparrowmq.__all__) - {"__version__"}
    assert {name for name in public if not re.search(rf"\b{name}\b", text)} == set()
    values = {name: getattr(sparrowmq, name) for name in public}
    classes = {name for name, value in values.items() if isinstance(value, type)}
    assert {name for name in classes if not values[name].__doc__} == set()
