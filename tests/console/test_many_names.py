"""Ten thousand topics and a thousand groups: fifty rows a page, and requests about those only."""

import asyncio
from dataclasses import replace
from typing import Any
from urllib.parse import quote

import pytest

from sparrowmq import Admin, Client
from sparrowmq.admin.clients import ClientRole, LiveClient
from sparrowmq.admin.groups import GroupInfo
from sparrowmq.admin.lag import GroupLag
from sparrowmq.admin.members import GroupMember, Subscription
from sparrowmq.admin.topic_readers import TopicReader
from sparrowmq.admin.topics import TopicInfo
from sparrowmq.admin.values import Listing
from sparrowmq.console.app import Application
from sparrowmq.console.console import Console
from sparrowmq.protocol.route import ClusterInfo
from tests.console.visitor import PORT, Got, Visitor, config

NOW_MS = 1_760_000_000_000


class LargeCluster(Admin):
    """Answers like a cluster with many names, and counts what it is asked."""

    def __init__(self, client: Client, **_: Any) -> None:
        super().__init__(client=client)
        self.asked: list[str] = []

    async def cluster_info(self) -> ClusterInfo:
        return ClusterInfo()

    async def topics(self, **_: Any) -> list[str]:
        return [f"topic-{number:05}" for number in range(10_000)]

    async def groups(self) -> Listing[str]:
        return Listing(tuple(f"group-{number:04}" for number in range(1_000)))

    async def topic(self, topic: str) -> TopicInfo:
        self.asked.append(topic)
        return TopicInfo(name=topic, settings=(), queues=(), stored_per_s=1.0)

    async def group(self, group: str) -> GroupInfo:
        self.asked.append(group)
        return GroupInfo(
            name=group,
            settings=(),
            members=(),
            model=None,
            subscriptions=frozenset(),
            topics=(),
            doubled_client_ids=frozenset(),
        )

    async def lag(self, group: str, topic: str | None = None, **_: bool) -> GroupLag:
        return GroupLag(group=group, queues=(), consumed_per_s=0.0)


EVIL = "<img src=x onerror=alert(1)>"


class HostileCluster(LargeCluster):
    """Names and clients that no broker of ours would accept, as a broken or hostile one may say."""

    async def topics(self, **_: Any) -> list[str]:
        return [EVIL]

    async def groups(self) -> Listing[str]:
        return Listing((EVIL,))

    async def clients(self, **_: Any) -> Listing[LiveClient]:
        return Listing(
            (
                LiveClient(
                    client_id=EVIL,
                    address=EVIL,
                    language=EVIL,
                    version=EVIL,
                    role=ClientRole.CONSUMER,
                    groups=(EVIL,),
                    brokers=(EVIL,),
                ),
            )
        )

    async def group(self, group: str) -> GroupInfo:
        return replace(await super().group(group), members=(await self.member(group, EVIL),))

    async def member(self, group: str, client_id: str, *, stacks: bool = False) -> GroupMember:
        return GroupMember(
            client_id=EVIL,
            address=EVIL,
            language=EVIL,
            version=EVIL,
            brokers=(EVIL,),
            subscriptions=frozenset({Subscription(EVIL, EVIL)}),
            notes={EVIL: EVIL},
            stacks=EVIL,
        )

    async def topic_readers(self, topic: str) -> Listing[TopicReader]:
        return Listing(())


HOSTILE_PAGES = {
    "topics": "/topics",
    "groups": "/groups",
    "group": "/groups/x",
    "clients": "/clients",
    "search": "/search?q=img",
    "topic": f"/topics/{quote(EVIL, safe='')}",
    "member": f"/groups/x/members/{quote(EVIL, safe='')}?stacks=1",
}
"""Where each of the names is shown."""


@pytest.mark.parametrize("path", HOSTILE_PAGES.values(), ids=HOSTILE_PAGES)
def test_hostile_names_of_topics_groups_and_clients_stay_text(path: str) -> None:
    got, _ = visit(path, HostileCluster)
    assert got.status == 200
    assert "<img src=x" not in got.html
    assert "&lt;img src=x onerror=alert(1)&gt;" in got.html


def visit(path: str, kind: type[LargeCluster] = LargeCluster) -> tuple[Got, list[str]]:
    """The page, and the topics or groups that were asked about for it."""

    async def work() -> tuple[Got, list[str]]:
        client = Client()
        admin = kind(client)
        console = Console(config(), client, clock=lambda: NOW_MS, admin=admin)
        return await Visitor(Application(console).asgi(port=PORT)).get(path), admin.asked

    return asyncio.run(work())


@pytest.mark.parametrize(
    ("path", "shown", "count"),
    [
        ("/topics", "topic-00000", "10,000 topics"),
        ("/topics?page=200", "topic-09999", "Page 200 of 200"),
        ("/topics?page=999999999999", "topic-00000", "Page 1 of 200"),
        ("/topics?match=0999*", "No topic matches", "0 of 10,000 topics"),
        ("/topics?match=*-0999*", "topic-09990", "10 of 10,000 topics"),
        ("/topics?match=1234", "topic-01234", "1 of 10,000 topics"),
        ("/topics?sort=-name", "topic-09999", "Page 1 of 200"),
        ("/groups", "group-0049", "1,000 groups"),
        ("/groups?page=20", "group-0999", "Page 20 of 20"),
        ("/groups?match=group-00*&page=2", "group-0099", "100 of 1,000 groups"),
        ("/search?q=topic-0999", "topic-09998", "No group has this"),
    ],
)
def test_long_lists_are_paged_and_searched(path: str, shown: str, count: str) -> None:
    got, asked = visit(path)
    assert got.status == 200
    assert shown in got.text
    assert count in got.text
    assert len(asked) <= 50


def test_an_address_keeps_filter_and_order_from_page_to_page() -> None:
    got, _ = visit("/topics?match=topic-0&sort=-name&page=2")
    assert "?match=topic-0&amp;sort=-name&amp;page=3" in got.html
    assert 'aria-sort="descending"' in got.html
