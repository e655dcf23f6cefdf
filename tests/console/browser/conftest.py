"""A real browser for tests, and a cluster with a console for it to look at.

Where no browser is installed these tests are skipped, with the reason, and `tests/console` runs the
same pages without one. With SPARROWMQ_REQUIRE_BROWSER=1 a missing browser is a failure.
"""

import asyncio
import json
import os
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from sparrowmq import Admin, ConsumeFromWhere, Message, MessageExt, Producer, PushConsumer
from sparrowmq.console.users import UserRole, write_user
from sparrowmq.testing import Cluster, cluster
from tests.admin.test_dead_letters import Failing
from tests.console.serving import serving
from tests.console.test_many_names import HostileCluster
from tests.repo.tree import ROOT
from tools.browser import INSTALL, find_browser

EVIL = "<img/src=x/onerror=alert(1)>"
SHOTS = ROOT / "build" / "console"
_REQUIRED = "SPARROWMQ_REQUIRE_BROWSER"


def _missing(why: str) -> None:
    if os.environ.get(_REQUIRED) == "1":
        pytest.fail(f"{why}, and {_REQUIRED} is set")
    pytest.skip(f"{why}: {INSTALL}; the same pages were tested without one")


@pytest.fixture(scope="module")
def browser_path() -> str:
    """Where it is."""
    path = find_browser()
    if path is None:
        _missing("no browser is installed")
    if find_spec("playwright") is None:
        _missing("playwright (locks/browser.txt) is not installed")
    return str(path)


@pytest.fixture(scope="module")
def running(browser_path: str) -> Iterator[Cluster]:
    """A cluster with a topic, a group and messages, some of them hostile."""
    with cluster(brokers=1) as found:
        asyncio.run(_prepare(found.name_server))
        with _live_member(found.name_server):
            yield found


@contextmanager
def _live_member(name_server: str) -> Iterator[None]:
    """A member of the group `shipping`, in a thread of its own. Its handler finishes no message
    before the end, so that some are unread and some are in its hands."""
    started: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = Future()

    async def run() -> None:
        ending = asyncio.Event()

        async def handle(_: Sequence[MessageExt]) -> None:
            await ending.wait()

        async with PushConsumer(
            "shipping",
            {"orders": "created"},
            name_servers=name_server,
            from_where=ConsumeFromWhere.FIRST_OFFSET,
        ) as consumer:
            await consumer.start(handle)
            started.set_result((asyncio.get_running_loop(), ending))
            await ending.wait()

    def work() -> None:
        try:
            asyncio.run(run())
        except BaseException as error:
            if not started.done():
                started.set_exception(error)
            raise

    thread = threading.Thread(target=work, name="live member", daemon=True)
    thread.start()
    loop, ending = started.result()
    try:
        yield
    finally:
        loop.call_soon_threadsafe(ending.set)
        thread.join()


@pytest.fixture(scope="module")
def browser(running: Cluster, browser_path: str) -> Iterator[Any]:
    """Chromium without a window. While it runs, its loop is the one of this thread: nothing else
    can have one there, so it ends with its module."""
    from playwright.sync_api import sync_playwright

    SHOTS.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright:
        # Root may not use the sandbox.
        arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
        found = playwright.chromium.launch(executable_path=browser_path, args=arguments)
        yield found
        found.close()


async def _prepare(name_server: str) -> None:
    async with Admin(name_server, timeout_s=60.0) as admin:
        limit = {"sparrowmq.quota.messages": "500"}
        await admin.create_topic("orders", queues=2, attributes=limit)
        await admin.create_group("billing")
        async with Producer("shop", name_servers=name_server, timeout_s=60.0) as producer:
            for number in range(20):
                body = json.dumps({"order": f"o-{number}", "amount": number * 7}).encode()
                await producer.send(Message("orders", body, tags="created", keys=f"o-{number}"))
            evil = Message("orders", EVIL.encode(), tags=EVIL, keys=EVIL, properties={"note": EVIL})
            await producer.send(evil)
        await admin.reset_offsets("billing", "orders", "latest")
        await _let_die(admin, name_server, "invoice-1", "invoice-2")


async def _let_die(admin: Admin, name_server: str, *keys: str) -> None:
    """Dead letters of the group invoicing from the topic invoices, which the group auditing, whose
    members trace, gets again."""
    await admin.create_topic("invoices", queues=1)
    await admin.create_group("invoicing", retries=0)
    async with Producer("shop", name_servers=name_server, timeout_s=60.0) as producer:
        for key in keys:
            await producer.send(Message("invoices", b"not payable", keys=key))
    groups: dict[str, dict[str, Any]] = {
        "invoicing": {"max_reconsume_times": 0},
        "auditing": {"trace": True},
    }
    for group, ways in groups.items():
        failing = Failing()
        async with PushConsumer(
            group,
            {"invoices": "*"},
            name_servers=name_server,
            from_where=ConsumeFromWhere.FIRST_OFFSET,
            **ways,
        ) as consumer:
            await consumer.start(failing.handle)
            await failing.until(len(keys))


@pytest.fixture(scope="module")
def address(running: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Of a console without users."""
    state: Path = tmp_path_factory.mktemp("state")
    with serving(running.name_server, state_dir=state, resets_dir=state / "resets") as found:
        yield found


@pytest.fixture(scope="module")
def guarded(running: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Of a console with one reader, `ada`."""
    users: Path = tmp_path_factory.mktemp("users") / "users.txt"
    write_user(users, "ada", UserRole.READER, "correct horse")
    with serving(running.name_server, users=users) as found:
        yield found


@pytest.fixture(scope="module")
def hostile(running: Cluster) -> Iterator[str]:
    """Of a console whose cluster has hostile names of topics, groups and clients."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sparrowmq.console.console.Admin", HostileCluster)
        with serving(running.name_server) as found:
            yield found


@contextmanager
def tab_of(browser: Any, **settings: Any) -> Iterator[Any]:
    """A tab of a browser of its own. A message of the browser about the policy, an error of the
    script or a dialog, in this tab or one that it opens, fails the test."""
    context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **settings})
    context.set_default_timeout(120_000)
    heard: list[str] = []
    context.on("weberror", lambda error: heard.append(str(error.error)))
    context.on("console", lambda said: heard.append(said.text) if _is_bad(said.text) else None)

    def on_dialog(dialog: Any) -> None:
        heard.append(f"dialog {dialog.message}")
        dialog.dismiss()

    context.on("dialog", on_dialog)
    yield context.new_page()
    context.close()
    assert heard == []


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    """A tab of the usual size."""
    with tab_of(browser) as tab:
        yield tab


def _is_bad(text: str) -> bool:
    return "Content Security Policy" in text or "Refused to" in text
