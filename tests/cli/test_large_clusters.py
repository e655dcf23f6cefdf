"""10,000 topics and 1,000 groups: lists are cut, and ask only about what they print."""

import asyncio
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from sparrowmq import Message, Producer
from sparrowmq.admin.cluster_calls import ClusterCalls
from sparrowmq.protocol.group_config import SubscriptionGroupConfig, SubscriptionGroupTable
from sparrowmq.protocol.offsets_body import ConsumerOffsetTable
from sparrowmq.protocol.topic_config import TopicConfig, TopicConfigTable
from sparrowmq.testing import Cluster, cluster
from tests.cli.in_process import run
from tests.patience import PATIENCE_S

TOPICS, GROUPS = 10_000, 1_000
READERS = 200
"""Groups that have read ten topics each, in a smaller cluster."""


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Its tables are there when it starts."""
    folder = tmp_path_factory.mktemp("large")
    write_tables(folder / "broker-a" / "config")
    with cluster(data_dir=folder, max_topics=2 * TOPICS) as running:
        yield running


def write_tables(
    folder: Path, *, topics: int = TOPICS, groups: int = GROUPS, dead: int = 0
) -> None:
    folder.mkdir(parents=True)
    names = [f"topic-{number:05}" for number in range(topics)]
    names += [f"%DLQ%group-{number:04}" for number in range(dead)]
    table = {
        name: TopicConfig(topic_name=name, read_queue_nums=1, write_queue_nums=1) for name in names
    }
    known = {
        name: SubscriptionGroupConfig(group_name=name)
        for name in (f"group-{number:04}" for number in range(groups))
    }
    (folder / "topics.json").write_bytes(TopicConfigTable(topic_config_table=table).to_json())
    (folder / "subscriptionGroup.json").write_bytes(
        SubscriptionGroupTable(subscription_group_table=known).to_json()
    )


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often brokers were asked what."""
    counts: Counter[str] = Counter()
    ask = ClusterCalls.ask

    async def counted(self: ClusterCalls, address: str, header: Any, *more: Any) -> Any:
        counts[type(header).__name__] += 1
        return await ask(self, address, header, *more)

    monkeypatch.setattr(ClusterCalls, "ask", counted)
    return counts


@pytest.mark.parametrize(
    ("command", "rows", "said", "questions"),
    [
        (("topic", "list"), 100, "100 of 10,000; --limit 0 for all\n", {}),
        (("topic", "list", "--limit", "0"), TOPICS, "", {}),
        (
            ("topic", "list", "--long"),
            100,
            "100 of 10,000; --limit 0 for all\n",
            {"GetAllTopicConfig": 1, "GetTopicStats": 100},
        ),
        (
            ("topic", "list", "--long", "--match", "topic-0123*"),
            10,
            "",
            {"GetAllTopicConfig": 1, "GetTopicStats": 10},
        ),
        (
            ("topic", "show", "topic-01234"),
            3,
            "topic: topic-01234\ntype: NORMAL\nmessages: 0\nin per s: 0.0\nlast stored: \n",
            {"GetTopicConfig": 1, "GetTopicStats": 2, "GetConsumersOfTopic": 1},
        ),
        (
            ("group", "list"),
            100,
            "100 of 1,000; --limit 0 for all\n",
            {
                "GetAllGroupConfig": 2,
                "GetConsumerConnections": 100,
                "GetConsumeStats": 100,
            },
        ),
        (
            ("group", "list", "--offline"),
            100,
            "100 of 1,000; --limit 0 for all\n",
            {
                "GetAllGroupConfig": 3,
                "GetConsumerConnections": None,
                "GetConsumeStats": 100,
            },
        ),
        (
            ("group", "lag", "group-0123"),
            0,
            "lag: 0\n",
            {
                "GetAllGroupConfig": 1,
                "GetConsumerConnections": None,
                "GetTopicsOfConsumer": 1,
                "GetConsumeStats": 1,
            },
        ),
        (("dlq", "list"), 0, "", {}),
        (
            ("client", "list"),
            0,
            "",
            {"GetAllGroupConfig": 1, "GetConsumerConnections": None, "GetAllProducers": 1},
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_a_list_asks_only_about_what_it_prints(
    command: tuple[str, ...],
    rows: int,
    said: str,
    questions: dict[str, int | None],
    large: Cluster,
    asked: Counter[str],
) -> None:
    ended = run(*command, "--name-servers", large.name_server)
    assert (ended.returncode, ended.stderr) == (0, said)
    assert len(ended.stdout.splitlines()) == rows + 1
    assert set(asked) == set(questions)
    for question, number in questions.items():
        assert number in (None, asked[question])
    assert asked["GetConsumerConnections"] <= GROUPS + 150  # brokers have some system groups


@pytest.fixture(scope="module")
def read(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Each topic has a group that has read it."""
    folder = tmp_path_factory.mktemp("read")
    config = folder / "broker-a" / "config"
    write_tables(config, topics=10 * READERS, groups=READERS)
    offsets = {
        f"topic-{10 * group + number:05}@group-{group:04}": {0: 0}
        for group in range(READERS)
        for number in range(10)
    }
    (config / "consumerOffset.json").write_bytes(
        ConsumerOffsetTable(offset_table=offsets).to_json()
    )
    with cluster(data_dir=folder, max_topics=20 * READERS) as running:
        yield running


@contextmanager
def behind(folder: Path, groups: int, *, dead: int = 0) -> Iterator[Cluster]:
    """Each group has ten topics, and one message of each that it has not read; so many groups have
    a topic of dead letters."""
    config = folder / "broker-a" / "config"
    write_tables(config, topics=10 * groups, groups=groups, dead=dead)
    offsets = {
        f"topic-{10 * group + number:05}@group-{group:04}": {0: 0}
        for group in range(groups)
        for number in range(10)
    }
    (config / "consumerOffset.json").write_bytes(
        ConsumerOffsetTable(offset_table=offsets).to_json()
    )
    with cluster(data_dir=folder, max_topics=20 * groups) as running:
        asyncio.run(send_to_each(running.name_server, 10 * groups))
        yield running


async def send_to_each(name_server: str, topics: int) -> None:
    """A message to each topic, some at a time."""
    async with Producer("shop", name_servers=name_server, timeout_s=PATIENCE_S) as producer:
        for start in range(0, topics, 200):
            names = (f"topic-{number:05}" for number in range(start, start + 200))
            await asyncio.gather(*(producer.send(Message.text(name, "x")) for name in names))


@pytest.mark.parametrize("groups", [20, pytest.param(GROUPS, marks=pytest.mark.slow)])
def test_the_lag_of_all_groups_takes_a_few_questions_and_one_for_each_topic_that_waits(
    groups: int, tmp_path: Path, asked: Counter[str]
) -> None:
    topics, rows = 10 * groups, min(100, 10 * groups)
    with behind(tmp_path, groups) as running:
        asked.clear()
        at = ("--name-servers", running.name_server, "--timeout", f"{PATIENCE_S}s")
        ended = run("group", "lag", *at)
    assert ended.returncode == 0, ended.stderr
    assert f"lag: {topics:,}\n" in ended.stderr
    assert len(ended.stdout.splitlines()) == rows + 1
    assert "\t1\t" in ended.stdout.splitlines()[1]
    # Who is connected, of each group; where the queues of a topic begin; since when its first
    # message waits, of those that are printed, and of their group's other topics
    assert asked.pop("GetConsumerConnections") <= groups + 150
    assert asked.pop("GetTopicStats") <= topics
    assert asked.pop("PullMessage") <= rows + 10
    assert asked.total() <= 10, asked


@pytest.mark.parametrize(
    ("by", "most"), [("in", 10 * READERS), ("out", READERS + 50), ("size", 10 * READERS)]
)
def test_of_the_busiest_topics_only_those_that_are_printed_are_asked_about_in_full(
    by: str, most: int, read: Cluster, asked: Counter[str]
) -> None:
    ended = run("topic", "stats", "--sort", by, "--name-servers", read.name_server)
    assert ended.returncode == 0, ended.stderr
    assert len(ended.stdout.splitlines()) == 101
    printed = 3 * 100  # what it holds, who reads it, and how fast
    assert asked.total() <= most + printed + 10, asked


@pytest.mark.parametrize(
    ("command", "rows"),
    [
        (("group", "lag"), 100),
        (("group", "lag", "--limit", "0"), 10 * READERS),
        (("group", "lag", "--older-than", "1h"), 100),
        (("group", "list", "--lagging", "1"), 0),
        (("group", "list", "--lagging", "1", "--offline"), 0),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_what_concerns_all_groups_is_asked_of_brokers_and_not_of_each_group(
    command: tuple[str, ...], rows: int, read: Cluster, asked: Counter[str]
) -> None:
    ended = run(*command, "--name-servers", read.name_server)
    assert ended.returncode == 0, ended.stderr
    assert len(ended.stdout.splitlines()) == rows + 1
    # Who is connected is the one thing that brokers say of one group at a time only
    assert asked.pop("GetConsumerConnections") <= READERS + 50
    assert asked.total() <= 10, asked


# ---- other commands at full size


class Bound(NamedTuple):
    """A command, how it ends, and how many questions it may ask brokers."""

    command: str
    code: int
    questions: int


def bounds(topics: int, groups: int) -> list[Bound]:
    """For groups that have read ten topics each, and have a message to read in each of them. Lists
    have 100 rows; the doctor examines 100 topics and 100 groups."""
    shown = 100
    return [
        Bound(f"doctor --for {2 if groups == GROUPS else 0}s", 1, 80 * shown),
        Bound("dlq list", 0, shown + 10),
        Bound("cluster health --max-lag 100000 --max-disk 100%", 0, 10),
        Bound("cluster health --max-lag 1 --max-disk 100%", 1, 10),
        Bound("topic stats --sort in", 0, topics + 7 * shown),
        Bound("topic stats --sort out", 0, groups + 7 * shown),
        Bound("topic stats --sort size", 0, 3 * topics + 7 * shown),
        Bound("group list --lagging 1", 0, topics + 2 * groups + 45 * shown),
        Bound("group lag --limit 0", 0, 2 * (topics + groups) + 100),
        Bound("migrate plan {source} {target}", 3, 2 * (topics + groups) + 100),
    ]


@pytest.mark.parametrize("groups", [20, pytest.param(GROUPS, marks=pytest.mark.slow)])
def test_commands_about_everything_ask_a_bounded_number_of_questions(
    groups: int, tmp_path: Path, asked: Counter[str]
) -> None:
    """Prints how long each took, for docs/performance.md."""
    topics = 10 * groups
    with behind(tmp_path, groups, dead=groups // 5) as running, cluster() as target:
        for command, code, questions in bounds(topics, groups):
            asked.clear()
            words = command.format(source=running.name_server, target=target.name_server).split()
            at = () if words[0] == "migrate" else ("--name-servers", running.name_server)
            began_s, worked_s = time.monotonic(), time.process_time()
            ended = run(*words, *at, "--timeout", f"{PATIENCE_S}s")
            took_s, cpu_s = time.monotonic() - began_s, time.process_time() - worked_s
            said = f"{took_s:.1f} s, CPU {cpu_s:.1f} s, {asked.total():,} questions"
            print(f"{command}: {said}")
            assert ended.returncode == code, (command, ended.stderr)
            assert ended.stderr.count("sparrowmq: ") == 0, (command, ended.stderr)
            assert asked.total() <= questions, (command, asked)
