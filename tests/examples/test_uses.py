"""The four uses of a message queue in `examples` do what they show, run as `python -m` does."""

import asyncio
import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from sparrowmq import Hooks, Message, Producer, Sending
from sparrowmq.client.group.rate_limit import BUCKET_S
from sparrowmq.testing import Cluster

Run = Callable[..., dict[str, Any]]
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def run(sparrowmq_session_cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a program of `examples` in this process, and returns its names."""
    monkeypatch.setenv("SPARROWMQ_NAME_SERVERS", sparrowmq_session_cluster.name_server)

    def run(program: str, *arguments: str) -> dict[str, Any]:
        monkeypatch.setattr(sys, "argv", [program, *arguments])
        return runpy.run_module(f"examples.{program}", run_name="__main__")

    return run


def test_decoupling_gives_every_service_the_events_that_it_wants_in_order(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    run("decoupling")
    capsys.readouterr()
    run("decoupling")  # a second run is independent of the first
    seen: dict[tuple[str, str], list[str]] = {}
    for line in capsys.readouterr().out.splitlines():
        service, _, order, _, event = line.split()
        seen.setdefault((service, order[-1]), []).append(event)
    assert seen == {
        ("billing:", "1"): ["placed"],
        ("billing:", "2"): ["placed"],
        ("stock:", "1"): ["placed", "cancelled"],
        ("stock:", "2"): ["placed"],
        ("statistics:", "1"): ["placed", "cancelled"],
        ("statistics:", "2"): ["placed", "reviewed"],
    }


def test_the_answer_comes_before_the_work_and_failed_work_is_repeated(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    run("after_the_answer")
    lines = [line.partition(" (after")[0] for line in capsys.readouterr().out.splitlines()]
    answers, letters = lines[:3], lines[3:]
    assert answers == [f"{name}, you are signed up" for name in ("Ada", "Ben", "Cleo")]
    assert sorted(letters) == [
        "letter to Ada: sent in attempt 1",
        "letter to Ben: sent in attempt 2",
        "letter to Ben: the mail server is busy, again in a second",
        "letter to Cleo: sent in attempt 1",
    ]


class Stored(Hooks):
    """Whether a send has succeeded."""

    def __init__(self) -> None:
        self.event = asyncio.Event()

    def after_send(self, sending: Sending) -> None:
        if sending.error is None:
            self.event.set()


async def request_and_leave(article: str) -> None:
    stored = Stored()
    async with Producer("closed-till", hooks=[stored]) as till:
        asking = asyncio.create_task(till.request(Message.json("price-requests", article)))
        await stored.event.wait()
        asking.cancel()


def test_requests_are_answered_and_one_whose_sender_has_left_is_still_handled(
    run: Run, capsys: pytest.CaptureFixture[str], sparrowmq_session_cluster: Cluster
) -> None:
    # In one queue the first request comes to the service before those that end the program
    sparrowmq_session_cluster.create_topic("price-requests", queues=1)
    asyncio.run(request_and_leave("cake"))
    run("request_reply")
    lines = capsys.readouterr().out.splitlines()
    assert "price service: nobody waits for the price of cake any more" in lines
    assert [line.partition(" (")[0] for line in lines if not line.startswith("price service")] == [
        "cocoa: no price now",
        "tea: 4 €",
        "coffee: 5 €",
        "milk: not sold here",
    ]


def test_a_peak_is_shaved_to_the_rate_and_drawn(
    run: Run, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    names = run("peak_shaving", "1.5", str(tmp_path / "picture.svg"))
    samples, limit = names["samples"], names["LIMIT"]
    assert samples[-1].handled == samples[-1].sent > 0
    # True however the machine stalls: tickets come at the rate, and no more than a bucket is saved
    allowed = [limit * (sample.at_s + BUCKET_S) + 1 for sample in samples]
    assert all(sample.handled <= most for sample, most in zip(samples, allowed, strict=True))
    picture = ElementTree.parse(tmp_path / "picture.svg")
    assert [line.findtext(f"{SVG}title") for line in picture.iter(f"{SVG}polyline")] == [
        "input",
        "output",
        "backlog",
    ]
    assert f"{samples[-1].sent:,} orders" in capsys.readouterr().out
