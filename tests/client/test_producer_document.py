"""The examples of docs/client-producer.md run as they are pasted."""

import re
from pathlib import Path

import pytest

from sparrowmq.testing import Cluster

DOCUMENT = Path(__file__).parents[2] / "docs" / "client-producer.md"
EXAMPLES = re.findall(
    r"^```python\n(.*?)^```", DOCUMENT.read_text("utf-8"), re.MULTILINE | re.DOTALL
)
ADDRESS = '"127.0.0.1:9876"'


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_an_example_runs_as_pasted(number: int, sparrowmq_cluster: Cluster) -> None:
    example = EXAMPLES[number]
    assert ADDRESS in example
    there = example.replace(ADDRESS, repr(sparrowmq_cluster.name_server))
    exec(compile(there, f"example {number + 1} of {DOCUMENT.name}", "exec"), {})


def test_the_document_has_examples() -> None:
    assert len(EXAMPLES) == 8
