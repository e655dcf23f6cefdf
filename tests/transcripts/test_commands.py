"""Every commands/*.txt: commands against a cluster of its own, and what each prints."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from sparrowmq.testing import cluster
from tests.transcripts.command_line import printed, ran

HERE = Path(__file__).parent / "commands"
STORIES = sorted(HERE.glob("*.txt"))


def retold(story: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The story with what is printed now below each command; its comments stay."""
    for line in story.splitlines():
        if line.startswith(("#", ">", "$")) or not line.strip():
            yield line
        if line.startswith((">", "$")):
            yield from printed(line, ran(line, monkeypatch))


@pytest.mark.parametrize("path", STORIES, ids=lambda path: path.stem)
def test_a_command_prints_what_the_transcript_says(
    path: Path, updates: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    story = path.read_text("utf-8")
    with cluster(brokers=2) as running:
        monkeypatch.setenv("SPARROWMQ_NAME_SERVERS", running.name_server)
        monkeypatch.setenv("XDG_CONFIG_HOME", "transcripts-config")
        monkeypatch.chdir(tmp_path)
        now = "\n".join(retold(story, monkeypatch)) + "\n"
    if updates:
        path.write_text(now, "utf-8")
    assert now.splitlines() == path.read_text("utf-8").splitlines()
