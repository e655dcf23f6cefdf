"""docs/operate.md: emptying, upgrading and replacing brokers runs as pasted."""

import re
import shlex
from pathlib import Path

import pytest

from sparrowmq import Message
from sparrowmq.blocking import Producer, PushConsumer
from sparrowmq.testing import cluster
from tests.cli.in_process import Ran, run
from tests.cli.test_json_shapes import TWO_BROKERS, shape, shapes
from tests.patience import PATIENCE_S

DOCS = Path(__file__).parents[2] / "docs"


def commands(document: str, title: str) -> list[str]:
    """The commands of a section, in their order, as they would be pasted."""
    text = (DOCS / document).read_text("utf-8").split(f"\n## {title}\n")[1].split("\n## ")[0]
    blocks = re.findall(r"^ *```sh\n(.*?)^ *```", text, re.MULTILINE | re.DOTALL)
    lines = (line.strip() for block in blocks for line in block.splitlines())
    return [line.removeprefix("sparrowmq ") for line in lines if line]


def pasted(command: str) -> Ran:
    ended = run(*shlex.split(command))
    assert ended.returncode == 0, f"{command}\n{ended.stderr}"
    return ended


@pytest.mark.slow  # consumers commit every 5 s
def test_a_broker_is_upgraded_as_the_runbook_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """No message is lost, whether sent before, meanwhile or afterwards."""
    with cluster(brokers=2) as running:
        monkeypatch.setenv("SPARROWMQ_NAME_SERVERS", running.name_server)
        running.create_topic("orders", queues=2)
        steps = commands("operate.md", "Upgrade a broker")
        upgrade = steps.index("cluster show")
        got: list[str] = []
        with (
            Producer("shop", timeout_s=PATIENCE_S) as producer,
            PushConsumer("billing", {"orders": "*"}) as consumer,
        ):

            def send(*words: str) -> set[str]:
                sent = [producer.send(Message.text("orders", word)) for word in words]
                return {each.queue.broker_name for each in sent}

            consumer.start(lambda messages: got.extend(each.body.decode() for each in messages))
            assert send("a", "b", "c", "d") == {"broker-a", "broker-b"}
            dry, drained = steps[:upgrade]
            assert "nothing was changed" in pasted(dry).stderr
            ended = pasted(f"{drained} --grace 0s")  # the producer is one of ours
            assert "broker-a is drained: it can be stopped" in ended.stderr
            running.stop_broker("broker-a")
            assert send("e", "f", "g", "h") == {"broker-b"}
            running.start_broker("broker-a")
            assert "broker-a at " in pasted(steps[upgrade]).stderr
            assert send("i", "j") == {"broker-b"}
            for command in steps[upgrade + 1 :]:
                ended = pasted(command)
            assert "bad" not in ended.stdout
            routes = pasted("topic route orders").stdout
            assert re.findall(r"^(\S+)\t2\t2\tRW-", routes, re.M) == ["broker-a", "broker-b"]
            pasted("group lag billing --wait 1m")
        assert sorted(got) == list("abcdefghij")


def test_a_broker_is_replaced_as_the_runbook_says(monkeypatch: pytest.MonkeyPatch) -> None:
    with cluster(brokers=3) as running:
        monkeypatch.setenv("SPARROWMQ_NAME_SERVERS", running.name_server)
        pasted("topic create orders --broker broker-a --broker broker-b")
        steps = commands("operate.md", "Replace a broker")
        last = steps.index("broker drain broker-a")
        for command in steps[: last + 1]:
            pasted(command)
        running.stop_broker("broker-a")
        route, health = (pasted(command).stdout for command in steps[last + 1 :])
        assert re.findall(r"^(broker-\S)", route, re.M) == ["broker-b", "broker-c"]
        assert "bad" not in health


def test_json_has_the_shapes_that_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    listed = [each for each in shapes() if each.startswith(TWO_BROKERS)]
    assert len(listed) == len(TWO_BROKERS)
    with cluster(brokers=2) as running:
        monkeypatch.setenv("SPARROWMQ_NAME_SERVERS", running.name_server)
        pasted("topic create orders --queues 2 --broker broker-a")
        pasted("topic create %DLQ%billing --queues 1 --broker broker-a")
        for topic in ("orders", "%DLQ%billing"):
            pasted(f"send {topic} x --count 2")
        pasted("consume orders --group billing --from first --count 1")
        for command in sorted(listed, reverse=True):  # the spread makes the drain possible
            accept = " --yes" if command.startswith("broker drain") else ""  # of dead letters
            ended = pasted(f"{command} --json{accept}")
            if command.startswith("topic spread"):
                pasted(command.removesuffix(" --dry-run"))
            assert shape(command, ended.stdout) == shapes()[command]
