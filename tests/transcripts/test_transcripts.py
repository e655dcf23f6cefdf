"""Every *.txt here is a story: commands, and below each what happened, to the millisecond."""

from pathlib import Path

import pytest

from sparrowmq.testing.paths import Conditions
from sparrowmq.testing.sim_cluster import SimCluster
from tests.transcripts.world import World

HERE = Path(__file__).parent
STORIES = sorted(HERE.glob("*.txt"))
CALM = Conditions(latency_s=(0.001, 0.001), whole=1)
"""Chance would move every time whenever something else sends one message more."""


def retold(story: str, directory: Path) -> str:
    """The story with what happens now below each command; its comments stay."""
    lines = []
    with SimCluster(seed=1, conditions=CALM, default_queues=1).run() as sim:
        world = World(sim, directory)
        for line in story.splitlines():
            if line.startswith(("#", ">")) or not line.strip():
                lines.append(line)
            if line.startswith(">"):
                lines += world.do(line.removeprefix(">"))
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("path", STORIES, ids=lambda path: path.stem)
def test_a_run_prints_the_output_of_its_transcript(
    path: Path, updates: bool, tmp_path: Path
) -> None:
    story = path.read_text()
    now = retold(story, tmp_path)
    if updates:
        path.write_text(now)
    assert now.splitlines() == path.read_text().splitlines()
