"""The section De-duplication of docs/traffic.md runs as pasted."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

from sparrowmq.testing import Cluster

TEXT = (Path(__file__).parents[2] / "docs" / "traffic.md").read_text("utf-8")
SECTION = TEXT.partition("## De-duplication\n")[2].partition("\n## ")[0]


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", SECTION, re.MULTILINE | re.DOTALL)


def test_the_section_runs_as_pasted(sparrowmq_cluster: Cluster) -> None:
    there = {**os.environ, "SPARROWMQ_NAME_SERVERS": sparrowmq_cluster.name_server}
    (commands,), (program,) = blocks("sh"), blocks("python")
    for line in commands.splitlines():
        words = shlex.split(line)
        assert words[0] == "sparrowmq"
        subprocess.run(
            [sys.executable, "-m", *words], env=there, check=True, capture_output=True, timeout=60
        )
    assert '"127.0.0.1:9876"' in program
    there_too = program.replace('"127.0.0.1:9876"', repr(sparrowmq_cluster.name_server))
    exec(compile(there_too, "De-duplication", "exec"), {})
