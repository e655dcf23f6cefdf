"""A real browser for tests, and a cluster with a console for it to look at.

Where no browser is installed these tests are skipped, with the reason, and `tests/console` runs the
same pages without one. With SPARROWMQ_REQUIRE_BROWSER=1 a missing browser is a failure.
"""

import asyncio
import json
import os
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from sparrowmq import Admin, ConsumeFromWhere, Message, Producer, PushConsumer
from sparrowmq.testing import Cluster, cluster
from tests.admin.test_dead_letters import Failing
from tests.console.serving import serving
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
        yield found


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
    """Messages of the topic invoices that the group invoicing has given up."""
    await admin.create_topic("invoices", queues=1)
    await admin.create_group("invoicing", retries=0)
    async with Producer("shop", name_servers=name_server, timeout_s=60.0) as producer:
        for key in keys:
            await producer.send(Message("invoices", b"not payable", keys=key))
    failing = Failing()
    async with PushConsumer(
        "invoicing",
        {"invoices": "*"},
        name_servers=name_server,
        max_reconsume_times=0,
        from_where=ConsumeFromWhere.FIRST_OFFSET,
    ) as consumer:
        await consumer.start(failing.handle)
        await failing.until(len(keys))


@pytest.fixture(scope="module")
def address(running: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Of a console without users."""
    state: Path = tmp_path_factory.mktemp("state")
    with serving(running.name_server, state_dir=state, resets_dir=state / "resets") as found:
        yield found


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    """A tab. A message of the browser about the policy, an error of the script or a dialog fails
    the test."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    context.set_default_timeout(120_000)
    tab = context.new_page()
    heard: list[str] = []
    tab.on("pageerror", lambda error: heard.append(str(error)))
    tab.on("dialog", lambda dialog: heard.append(f"dialog {dialog.message}"))
    tab.on("console", lambda said: heard.append(said.text) if _is_bad(said.text) else None)
    yield tab
    context.close()
    assert heard == []


def _is_bad(text: str) -> bool:
    return "Content Security Policy" in text or "Refused to" in text
