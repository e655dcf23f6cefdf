"""docs/client-consumer.md: its examples are Python, import what exists, and the first one runs."""

import ast
import builtins
import re
import subprocess
import sys
from pathlib import Path

import pytest

import sparrowmq
from sparrowmq.blocking import Message, Producer
from sparrowmq.testing import Cluster
from tests.patience import PATIENT

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


def test_the_push_consumer_runs_as_pasted(sparrowmq_cluster: Cluster) -> None:
    servers = sparrowmq_cluster.name_server
    with Producer("shop", name_servers=servers) as producer:
        producer.send(Message("orders", b"one sparrow", tags="paid"))
    call = 'PushConsumer("billing", {"orders": "created || paid"})'
    assert call in EXAMPLES[0]
    there = f'PushConsumer("billing", {{"orders": "created || paid"}}, name_servers="{servers}")'
    program = [
        sys.executable,
        "-u",
        "-W",
        "error",
        "-c",
        PATIENT + EXAMPLES[0].replace(call, there),
    ]
    with subprocess.Popen(program, cwd=ROOT, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        try:
            # A group without progress begins where the queue still has its first message.
            assert running.stdout.readline() == "b'one sparrow'\n"
        finally:
            running.kill()


def test_every_public_name_is_described() -> None:
    text = "".join(
        (DOCS / f"client-{part}.md").read_text("utf-8") for part in ("producer", "consumer")
    )
    public = set(sparrowmq.__all__) - {"__version__"}
    assert {name for name in public if not re.search(rf"\b{name}\b", text)} == set()
    assert {name for name in public if not getattr(sparrowmq, name).__doc__} == set()
