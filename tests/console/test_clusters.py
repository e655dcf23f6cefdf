"""Several clusters in one console: addresses, links, forms and commands stay in their cluster."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, TypeVar

import pytest

from sparrowmq import Client
from sparrowmq.client.config import ClientConfig
from sparrowmq.console.app import Application
from sparrowmq.console.clusters import Clusters, split_path, with_base
from sparrowmq.console.config import ConsoleError
from sparrowmq.console.console import Console
from sparrowmq.console.live import Live, Render
from sparrowmq.testing import Cluster, cluster
from tests.console.visitor import PORT, Got, Visitor, config

T = TypeVar("T")


@pytest.mark.parametrize(
    ("path", "cluster", "page"),
    [
        ("/topics/orders", "", "/topics/orders"),
        ("/@/topics", "", "/topics"),
        ("/@staging/topics/a", "staging", "/topics/a"),
        ("/@staging", "staging", "/"),
        ("/topics/@x", "", "/topics/@x"),
    ],
)
def test_the_cluster_is_the_first_part_of_an_address(path: str, cluster: str, page: str) -> None:
    assert split_path(path) == (cluster, page)


def test_links_stay_in_their_cluster_except_those_of_the_console_itself() -> None:
    html = (
        '<a href="/topics"><form action="/logout"><form action="/theme"><img src="/static/a.svg">'
        '<a href="/@/"><a href="?page=2"><form action="/topics"><p>href=&#34;/x</p>'
    )
    assert with_base(html, "/@b") == html.replace('"/topics"', '"/@b/topics"')
    assert with_base(html, "") == html


@pytest.mark.parametrize("name", ["a/b", "../x", "<b>", " "])
def test_a_name_that_is_not_valid_in_an_address_is_refused(name: str) -> None:
    with pytest.raises(ConsoleError, match="cannot be the name of a cluster"):
        config(others={name: ("a:1",)})


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Two independent clusters."""
    with cluster(brokers=1) as first, cluster(brokers=1) as second:
        yield first, second


def visiting(two: tuple[Cluster, Cluster], work: Callable[[Visitor, Console], Awaitable[T]]) -> T:
    """Someone at a console that shows both."""
    first, second = (each.name_server for each in two)

    async def run() -> T:
        async with Client(ClientConfig(name_servers=(first,))) as client:
            given = config(name_servers=(first,), name="live", others={"staging": (second,)})
            console = Console(given, client)
            clusters = Clusters(console)
            async with clusters.running():
                visitor = Visitor(Application(console, clusters).asgi(port=PORT))
                return await work(visitor, console)

    return asyncio.run(run())


def test_a_form_changes_the_cluster_of_its_page_and_no_other(two: tuple[Cluster, Cluster]) -> None:
    async def work(visitor: Visitor, console: Console) -> list[Got]:
        page = await visitor.get("/@staging/topics")
        made = await visitor.post("/@staging/topics", {"name": "only-there", "queues": "1"})
        return [
            page,
            made,
            await visitor.get("/@staging/topics"),
            await visitor.get("/topics"),
            await visitor.get("/@live/topics"),
            await visitor.get("/audit"),
            await visitor.get("/@nowhere/topics"),
        ]

    page, made, there, here, named, audit, nowhere = visiting(two, work)
    assert 'action="/@staging/topics"' in page.html
    assert 'href="/@/"' in page.html and 'href="/@staging/" aria-current="true"' in page.html
    assert "Topic only-there was created" in made.text
    assert "sparrowmq topic show only-there --context staging" in made.text
    assert "only-there" in there.text
    assert "only-there" not in here.text and "only-there" not in named.text
    assert "sparrowmq topic list" in here.text and "--context" not in here.text
    assert "staging create topic only-there" in audit.text
    assert (nowhere.status, "shows no cluster" in nowhere.text) == (404, True)


class OneChange(Live):
    """Streams that end with their first change."""

    async def stream(
        self,
        key: str,
        render: Render,
        seen: Mapping[str, str],
        period_s: float = 0.0,
        is_allowed: Callable[[], bool] = lambda: True,
    ) -> AsyncIterator[bytes]:
        async for part in super().stream(key, render, seen, 0.01):
            yield part
            if part.startswith(b"event"):
                return


def test_live_updates_are_of_the_cluster_of_the_page(two: tuple[Cluster, Cluster]) -> None:
    async def work(visitor: Visitor, console: Console) -> list[Got]:
        console.desk.live = OneChange()
        paths = ("/@staging/brokers", "/brokers", "/@nowhere/brokers")
        return [await visitor.get(f"/live?page={path}") for path in paths]

    there, here, nowhere = visiting(two, work)
    assert "/@staging/brokers/broker-a" in there.html
    assert "/brokers/broker-a" in here.html and "/@" not in here.html
    assert nowhere.status == 404


def test_an_error_names_the_context_as_the_origin_of_the_addresses() -> None:
    """Nothing listens there."""

    async def run() -> Got:
        async with Client(ClientConfig(name_servers=("127.0.0.1:1",))) as client:
            console = Console(config(others={"staging": ("127.0.0.1:2",)}), client)
            clusters = Clusters(console)
            async with clusters.running():
                return await Visitor(Application(console, clusters).asgi(port=PORT)).get(
                    "/@staging/topics"
                )

    text = asyncio.run(run()).text
    assert "127.0.0.1:2" in text
    assert "context staging" in text
    assert "the argument name_servers" not in text
