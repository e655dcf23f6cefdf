"""Pages over a simulated cluster: contents, forms, and how a silent broker looks."""

import asyncio
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from sparrowmq import (
    Admin,
    BrokerInfo,
    Client,
    ConsumeFromWhere,
    Message,
    MessageExt,
    MessageQueue,
    Producer,
    PushConsumer,
)
from sparrowmq.admin.clients import LiveClient
from sparrowmq.admin.values import Listing
from sparrowmq.cli.main import app
from sparrowmq.cli.shell import Shell
from sparrowmq.client.client import core_of
from sparrowmq.console.console import Console
from sparrowmq.console.pages.overview import counts_since_start, stored_today, total_of
from sparrowmq.console.view import Sum
from sparrowmq.testing.sim_cluster import RunningCluster, SimCluster
from tests.admin.operator import Read, consuming, numbered, send
from tests.admin.test_dead_letters import Failing, died, order
from tests.console.visitor import Got, Visitor, as_visitor

COMMAND = re.compile(r'id="command">(.*?)</code>')
EVIL = "<img/src=x/onerror=alert(1)>"
"""Without spaces, which separate keys."""


@pytest.fixture(scope="module")
def sim() -> Iterator[RunningCluster]:
    """Two brokers; orders that billing has read and shipping has not."""
    with SimCluster(seed=3, brokers=2).run() as running:

        async def prepare(client: Client, console: Console, visitor: Visitor) -> None:
            admin = Admin(client=client)
            await admin.create_topic("orders", queues=2)
            await admin.create_group("shipping")
            await send(client, *numbered("orders", 40))
            async with consuming(client, "billing", "orders", 40):
                pass
            await send(client, *numbered("orders", 8))

        as_visitor(running, prepare)
        yield running


PAGES = {
    "/": "broker-a",
    "/topics": "orders",
    "/topics?all=1&sort=-messages": "orders",
    "/topics/orders": "broker-a/0",
    "/topics/orders/senders": "All 48 messages of the topic were looked at",
    "/topics/orders/messages": "Scanned 48 of about 48",
    "/topics/orders/messages?key=key-7&queue=": "key-7",
    "/topics/orders/messages?queue=broker-a/1": "broker-a/1/",
    "/topics/orders/messages?since=-1h": "Oldest first",
    "/groups": "billing",
    "/groups?match=bill*": "1 of",
    "/groups/billing": "8 unread",
    "/groups/billing/rebalance": "No member is online",
    "/messages": "Search by key or id",
    "/messages?topic=orders&key=key-3": "2 messages with this key",
    "/messages?topic=orders&key=nothing": "No message in orders has the key",
    "/messages?key=key-3": "choose one",
    "/messages?id=00": "No message with id 00 was found",
    "/dead-letters": "There are no dead letters",
    "/waiting": "Nothing waits at any delay level.",
    "/waiting/timers": "No message waits",
    "/waiting/transactions": "None was set aside",
    "/nameservers": "ORDER_TOPIC_CONFIG",
    "/topics/orders/messages?tail=1&tag=a": "followed every second",
    "/groups/billing?matching=1": "8 unread",
    "/groups/billing/rebalance/simulate?members=2": "2 members",
    "/traffic": "Nothing is limited",
    "/clients": "Clients",
    "/brokers": "master",
    "/brokers/broker-b": "autoCreateTopicEnable",
    "/audit": "Nothing was changed",
    "/search?q=order": "orders",
    "/search?q=orders": "Topic orders",
    "/search?q=billing": "Group billing",
}


@pytest.mark.parametrize("path", PAGES)
def test_every_page_shows_the_cluster(path: str, sim: RunningCluster) -> None:
    async def work(_: Client, console: Console, visitor: Visitor) -> Got:
        await console.sampler.sample_brokers()
        await console.sampler.sample_names()
        return await visitor.get(path)

    got = as_visitor(sim, work)
    assert got.status == 200, got.text
    assert PAGES[path] in got.text
    assert got.html.count("<h1") == 1


def test_charts_of_messages_have_whole_numbers_and_attributes_break_at_their_sign(
    sim: RunningCluster,
) -> None:
    async def work(client: Client, console: Console, visitor: Visitor) -> tuple[Got, Got]:
        await Admin(client=client).update_topic("orders", attributes={"sparrowmq.dedup": "10m/3"})
        await console.sampler.sample_names()
        return await visitor.get("/groups/billing"), await visitor.get("/topics/orders")

    group, topic = as_visitor(sim, work)
    assert "unread <b>8</b>" in group.html
    assert re.search(r'<td class="wide">\s*sparrowmq.dedup=<wbr>10m/3', topic.html)


def commands_in(page: Got) -> list[str]:
    """What "Copy as command" copies."""
    return [unescape(re.sub("<.*?>", "", each)) for each in COMMAND.findall(page.html)]


class AsksTheCluster(Exception):
    """A command has accepted its arguments."""


def test_the_command_of_a_page_can_be_pasted(
    sim: RunningCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(_: Client, console: Console, visitor: Visitor) -> set[str]:
        pages = [await visitor.get(path) for path in PAGES]
        return {each for got in pages for each in commands_in(got)}

    def ask(*_: object) -> None:
        raise AsksTheCluster

    commands = as_visitor(sim, work)
    assert "sparrowmq broker show broker-a --long" in commands
    for name in ("ask", "report"):
        monkeypatch.setattr(Shell, name, ask)
    for command in sorted(commands):
        ended = CliRunner().invoke(app, [*shlex.split(command)[1:], "-n", "127.0.0.1:1"])
        if "rebalance simulate --queues" in command:
            assert ended.exit_code == 0, "a described group needs no cluster"
            continue
        assert isinstance(ended.exception, AsksTheCluster), f"{command}: {ended.output}"


@pytest.mark.parametrize(
    "path", ["/topics/none", "/groups/none", "/brokers/none", "/nowhere", "/dead-letters/billing"]
)
def test_a_missing_page_is_answered_with_not_found(path: str, sim: RunningCluster) -> None:
    async def work(_: Client, console: Console, visitor: Visitor) -> Got:
        return await visitor.get(path)

    got = as_visitor(sim, work)
    assert got.status == 404
    assert "Not Found" in got.text


@pytest.mark.parametrize(
    "path",
    [
        f"/topics/{EVIL.replace('/', '%2F')}",
        f"/topics?match={EVIL}",
        f"/groups/{EVIL.replace('/', '%2F')}",
        f"/groups?match={EVIL}",
        f"/groups/billing/members/{EVIL}",
        f"/search?q={EVIL}",
        f"/messages?topic=orders&key={EVIL}",
        f"/messages?id={EVIL}",
        f"/messages?topic={EVIL}&since={EVIL}&until={EVIL}&place=",
        f"/topics/orders/messages?since={EVIL}",
        f"/topics/orders/messages?at={EVIL}&tag={EVIL}&key={EVIL}",
        f"/brokers/broker-a?match={EVIL}",
        f"/nameservers?namespace={EVIL}",
        f"/topics/orders/messages?tail=1&tag={EVIL}&key={EVIL}",
        f"/groups/billing/rebalance/simulate?members=2&events=join%3D{EVIL}",
        f"/groups/billing/rebalance/picture.svg?members=2&events=join%3D{EVIL}",
        f"/dead-letters?match={EVIL}",
        f"/audit?match={EVIL}&done={EVIL}",
        f"/?span={EVIL}",
    ],
)
def test_text_from_an_address_never_becomes_markup(path: str, sim: RunningCluster) -> None:
    async def work(_: Client, console: Console, visitor: Visitor) -> Got:
        return await visitor.get(path)

    assert "<img/src=x" not in as_visitor(sim, work).html


def test_text_from_a_message_or_client_never_becomes_markup() -> None:
    async def work(client: Client, console: Console, visitor: Visitor) -> list[Got]:
        await Admin(client=client).create_topic("xss", queues=1)
        message = Message(
            "xss", EVIL.encode(), tags=EVIL, keys=EVIL, properties={"note": EVIL, EVIL: "x"}
        )
        (sent,) = await send(client, message)
        async with consuming(client, "victims", "xss", 1):
            await console.sampler.sample_names()
            return [
                await visitor.get(path)
                for path in (
                    "/",
                    "/topics/xss/messages",
                    f"/messages/{sent.msg_id}?topic=xss",
                    f"/messages/{sent.msg_id}?topic=xss&body=json",
                    "/groups/victims",
                    "/clients",
                    f"/groups/victims/members/{client.client_id.replace('/', '%2F')}",
                )
            ]

    with SimCluster(seed=5).run() as sim:
        pages = as_visitor(sim, work)
    assert all(page.status == 200 for page in pages), [page.text for page in pages]
    assert all("<img/src=x" not in page.html for page in pages)
    shown = [page for page in pages if "&lt;img/src=x/onerror=alert(1)&gt;" in page.html]
    assert len(shown) >= 3, "body, key, tag and properties are shown as text"


# ---- changes


def test_a_move_that_is_confirmed_many_times_at_once_is_made_once(tmp_path: Path) -> None:
    async def work(client: Client, console: Console, visitor: Visitor) -> None:
        admin = Admin(client=client)
        await admin.create_topic("orders", queues=2)
        await send(client, *numbered("orders", 10))
        async with consuming(client, "billing", "orders", 10):
            pass
        await visitor.get("/groups/billing")
        fields = {"topic": "orders", "to": "earliest"}
        preview = await visitor.post("/groups/billing/reset", fields)
        fields["state"] = state_in(preview)
        made = await asyncio.gather(
            *(visitor.post("/groups/billing/reset", fields) for _ in range(5))
        )
        assert console.journal is not None and len(console.journal.records()) == 1
        assert sorted(each.status for each in made) == [200] + [409] * 4
        refused = next(each for each in made if each.status == 409)
        assert "nothing was changed: another change was confirmed here" in refused.text
        preview = await visitor.post("/groups/billing/undo", {})
        fields = {"state": state_in(preview)}
        await asyncio.gather(*(visitor.post("/groups/billing/undo", fields) for _ in range(5)))
        assert [each.kind for each in console.journal.records()] == ["undo", "reset"]
        assert (await admin.lag("billing")).lag == 0

    with SimCluster(seed=5).run() as sim:
        as_visitor(sim, work, resets_dir=tmp_path)


def test_a_reset_is_previewed_made_undone_and_recorded(tmp_path: Path) -> None:
    async def work(client: Client, console: Console, visitor: Visitor) -> list[Got]:
        admin = Admin(client=client)
        await admin.create_topic("orders", queues=1)
        await send(client, *numbered("orders", 10))
        async with consuming(client, "billing", "orders", 10):
            pass
        await visitor.get("/groups/billing")
        fields = {"topic": "orders", "to": "earliest"}
        preview = await visitor.post("/groups/billing/reset", fields)
        assert (await admin.lag("billing")).lag == 0, "a preview changes nothing"
        done = await visitor.post("/groups/billing/reset", {**fields, "state": state_in(preview)})
        assert (await admin.lag("billing")).lag == 10
        back = await visitor.post("/groups/billing/undo")
        assert (await admin.lag("billing")).lag == 10
        undone = await visitor.post("/groups/billing/undo", {"state": state_in(back)})
        assert (await admin.lag("billing")).lag == 0
        return [preview, done, back, undone, await visitor.get("/audit")]

    with SimCluster(seed=7).run() as sim:
        preview, done, back, undone, audit = as_visitor(sim, work, resets_dir=tmp_path)
    assert "Repeated 10 messages read again" in preview.text
    reset = "sparrowmq group reset billing --topic orders --to earliest --dry-run"
    assert commands_in(preview) == [reset]
    assert commands_in(back) == ["sparrowmq group undo billing --dry-run"]
    assert "billing was moved in 1 queue" in done.text
    assert "Undo the reset" in done.text
    assert "Skipped 10 messages never read" in back.text
    assert "was undone" in undone.text
    assert "Undo the reset" not in undone.text
    assert "reset group" in audit.text and "undo reset" in audit.text
    assert "broker-a/0 10" in audit.text and "broker-a/0 0" in audit.text


def test_an_undo_after_members_continued_needs_a_tick(tmp_path: Path) -> None:
    async def work(client: Client, console: Console, visitor: Visitor) -> list[tuple[Got, int]]:
        admin = Admin(client=client)
        await admin.create_topic("orders", queues=1)
        await send(client, *numbered("orders", 10))
        async with consuming(client, "billing", "orders", 10):
            pass
        await visitor.get("/groups/billing")
        fields = {"topic": "orders", "to": "earliest"}
        preview = await visitor.post("/groups/billing/reset", fields)
        await visitor.post("/groups/billing/reset", {**fields, "state": state_in(preview)})
        async with consuming(client, "billing", "orders", 10):
            pass
        await send(client, *numbered("orders", 5))
        found: list[tuple[Got, int]] = []
        for ticked in ({}, {}, {"force": "on"}):
            state = {"state": state_in(found[-1][0])} if found else {}
            got = await visitor.post("/groups/billing/undo", {**state, **ticked})
            found.append((got, len(console.desk.audit.newest_first)))
        return found

    with SimCluster(seed=7).run() as sim:
        (preview, _), (refused, lines), (forced, more) = as_visitor(sim, work, resets_dir=tmp_path)
    assert "has moved since reset" in preview.text and "is at 10, not 0" in preview.text
    assert "Nothing was changed: tick the box" in refused.text
    assert lines == 1, "the reset alone"
    assert "was undone" in forced.text and more == 2


def test_an_outdated_confirmation_shows_a_new_preview() -> None:
    async def work(client: Client, console: Console, visitor: Visitor) -> tuple[Got, int]:
        admin = Admin(client=client)
        await admin.create_topic("orders", queues=1)
        await send(client, *numbered("orders", 10))
        async with consuming(client, "billing", "orders", 10):
            pass
        await visitor.get("/groups/billing")
        fields = {"topic": "orders", "to": "latest"}
        preview = await visitor.post("/groups/billing/reset", fields)
        await send(client, *numbered("orders", 5))
        fields["state"] = state_in(preview)
        return await visitor.post("/groups/billing/reset", fields), (await admin.lag("billing")).lag

    with SimCluster(seed=7).run() as sim:
        again, lag = as_visitor(sim, work)
    assert "The group has moved since the preview" in again.text
    assert lag == 5, "nothing was moved"


def state_in(page: Got) -> str:
    """The state that a preview's form carries."""
    return page.html.split('name="state" value="', 1)[1].split('"', 1)[0]


def test_topics_and_groups_are_made_changed_paused_and_deleted() -> None:
    async def work(client: Client, console: Console, visitor: Visitor) -> list[str]:
        said = []
        await visitor.get("/topics")
        got = await visitor.post("/topics", {"name": "letters", "queues": "2"})
        said.append(got.text)
        got = await visitor.post("/topics", {"name": "letters", "queues": "3"})
        said.append(got.text)
        got = await visitor.post("/topics/letters/update", {"queues": "4"})
        assert "read queues 2 4" in got.text
        fields = {"queues": "4", "perm": "", "state": state_in(got)}
        said.append((await visitor.post("/topics/letters/update", fields)).text)
        got = await visitor.post("/topics/letters/send", {"body": '{"a": 1}', "key": "k-1"})
        said.append(got.text)
        said.append((await visitor.post("/groups", {"name": "readers"})).text)
        said.append((await visitor.post("/groups/readers/pause", {"consume": "off"})).text)
        said.append((await visitor.post("/groups/readers/pause", {"consume": "on"})).text)
        got = await visitor.post("/groups/readers/update", {"retries": "3"})
        fields = {"retries": "3", "state": state_in(got)}
        said.append((await visitor.post("/groups/readers/update", fields)).text)
        said.append((await visitor.post("/groups/readers/delete", {"typed": "reader"})).text)
        said.append((await visitor.post("/groups/readers/delete", {"typed": "readers"})).text)
        said.append((await visitor.post("/topics/letters/delete", {"typed": "letters"})).text)
        actions = [line.action for line in reversed(console.desk.audit.newest_first)]
        assert actions == [
            *("create topic", "create topic", "update topic", "send message", "create group"),
            *("pause group", "resume group", "update group", "delete group", "delete topic"),
        ]
        return said

    expected = [
        "Topic letters was created on broker-a",
        "exists with other settings",
        "Topic letters was changed",
        "The message was stored in letters",
        "Group readers was created",
        "gets no more messages",
        "readers goes on",
        "readers was changed",
        "type the name of the group",
        "Group readers was deleted",
        "Topic letters was deleted",
    ]
    with SimCluster(seed=9).run() as sim:
        said = as_visitor(sim, work)
    for text, words in zip(said, expected, strict=True):
        assert words in text


TOPIC_FORM = {
    "read_queues": "4",
    "write_queues": "3",
    "perm": "4",
    "order": "on",
    "type": "FIFO",
    "attributes": "sparrowmq.dedup=10m\r\n-unknown",
}
GROUP_FORM = {
    "retries": "3",
    "retry_queues": "2",
    "consume": "off",
    "broadcast": "off",
    "order": "on",
    "attributes": "sparrowmq.quota.messages=100",
}


@pytest.mark.parametrize(
    ("path", "form", "changes", "command"),
    [
        (
            *("/topics/letters", TOPIC_FORM),
            [
                *("read queues 2 4", "write queues 2 3", "allowed read, write read"),
                "consumed in order no yes",
                *("message.type not set FIFO", "sparrowmq.dedup not set 10m"),
            ],
            "sparrowmq topic update letters --read-queues 4 --write-queues 3 --perm 4 --attribute"
            " sparrowmq.dedup=10m --attribute -unknown --attribute message.type=FIFO --dry-run"
            " --order",
        ),
        (
            *("/groups/readers", GROUP_FORM),
            [
                *("retries 16 3", "retry queues 1 2", "may consume yes no"),
                *("may broadcast yes no", "consumes in order no yes"),
                "sparrowmq.quota.messages not set 100",
            ],
            "sparrowmq group update readers --retries 3 --retry-queues 2 --consume off --broadcast"
            " off --order on --attribute sparrowmq.quota.messages=100 --dry-run",
        ),
    ],
)
def test_every_setting_is_previewed_and_changed(
    path: str, form: dict[str, str], changes: list[str], command: str, tmp_path: Path
) -> None:
    async def work(client: Client, console: Console, visitor: Visitor) -> list[Got]:
        await console.admin.create_topic("letters", queues=2)
        await console.admin.create_group("readers")
        await visitor.get(path)
        nothing = await visitor.post(f"{path}/update", dict.fromkeys(form, ""))
        wrong = await visitor.post(f"{path}/update", {**form, "attributes": "fast"})
        preview = await visitor.post(f"{path}/update", form)
        sent = {**fields_in(preview), "state": state_in(preview)}
        done = await visitor.post(f"{path}/update", sent)
        again = await visitor.post(f"{path}/update", form)
        return [nothing, wrong, preview, done, again]

    with SimCluster(seed=9).run() as sim:
        nothing, wrong, preview, done, again = as_visitor(sim, work)
    assert (nothing.status, "nothing to change" in nothing.text) == (400, True)
    assert (wrong.status, "'fast' is neither NAME=VALUE nor -NAME" in wrong.text) == (400, True)
    for each in changes:
        assert f"broker-a {each}" in preview.text, each
    assert commands_in(preview) == [command]
    assert "was changed" in done.text
    assert "Nothing to change" in again.text


def fields_in(page: Got) -> dict[str, str]:
    """The hidden fields of a preview."""
    found = re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', page.html)
    return {name: unescape(value) for name, value in found if name != "token"}


def test_a_message_just_sent_is_shown_by_its_place_which_is_known_before_its_keys() -> None:
    async def work(client: Client, console: Console, visitor: Visitor) -> None:
        await Admin(client=client).create_topic("letters", queues=1)
        await visitor.get("/topics/letters")
        paths = ["/topics/letters/send"]
        for offset in range(2):
            sent = await visitor.post(paths[offset], {"body": "x"}, follow=False)
            place = MessageQueue("letters", "broker-a", 0)
            stored = await console.admin.read_message(place, offset)
            wanted = f"/messages/{stored.offset_msg_id}?topic=letters"
            assert sent.headers["location"].startswith(wanted)
            paths.append(wanted.replace("?", "/send?"))

    with SimCluster(seed=9).run() as sim:
        as_visitor(sim, work)


def test_a_broker_without_a_rate_in_its_first_seconds_is_not_called_silent() -> None:
    async def ask(client: Client, console: Console, visitor: Visitor) -> list[BrokerInfo]:
        return list(await console.admin.brokers())

    with SimCluster(seed=9, brokers=2).run() as sim:
        first, second = as_visitor(sim, ask)
    assert first.runtime is not None
    young = replace(first, runtime=replace(first.runtime, stored_per_s=None))
    rate = total_of([young, replace(second, runtime=None)], "stored_per_s")
    assert rate.missing == ("broker-a does not know it yet", "broker-b did not answer")
    assert not rate.is_known


def test_messages_stored_today_are_a_lower_bound_after_a_start_today() -> None:
    async def ask(client: Client, console: Console, visitor: Visitor) -> list[BrokerInfo]:
        return list(await console.admin.brokers())

    def begun(broker: BrokerInfo, started: datetime) -> BrokerInfo:
        assert broker.runtime is not None
        return replace(broker, runtime=replace(broker.runtime, stored_today=5, started=started))

    with SimCluster(seed=9, brokers=2).run() as sim:
        first, second = as_visitor(sim, ask)
    noon = datetime(2026, 11, 19, 12, tzinfo=UTC)
    now_ms = int(noon.timestamp() * 1000)
    today, yesterday = noon - timedelta(hours=1), noon - timedelta(days=1)
    old = [begun(first, yesterday), begun(second, yesterday)]
    assert stored_today(old, now_ms) == Sum(10)
    mixed = stored_today([old[0], begun(second, today)], now_ms)
    assert mixed == Sum(10, ("broker-b counts since its start",))
    new = [begun(first, today), begun(second, today)]
    assert stored_today(new, now_ms) == Sum(10)
    assert counts_since_start(new, now_ms) and not counts_since_start(old, now_ms)


class SlowAboutClients(Admin):
    """Takes longer about clients than a page waits, as about thousands of groups."""

    async def clients(self, **_: Any) -> Listing[LiveClient]:
        await asyncio.sleep(60)
        return Listing(())


@pytest.mark.parametrize(
    ("is_hung", "says"),
    [
        (True, "no answer within 2 s; broker-b did not answer"),
        (False, "no answer within 2 s; asked were broker-a, broker-b, and one of them is slow"),
    ],
)
def test_unknown_clients_are_not_zero_and_the_broker_is_named(
    is_hung: bool, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sparrowmq.console.console.Admin", SlowAboutClients)

    async def look(client: Client, console: Console, visitor: Visitor) -> Got:
        return await visitor.get("/clients")

    with SimCluster(seed=11, brokers=2).run() as sim:
        if is_hung:
            sim.host("broker-b").pause()
        got = as_visitor(sim, look)
    assert says in got.text
    assert "? clients" in got.text and "0 clients" not in got.text


# ---- a broker that hangs


HANGING = [
    *("/", "/topics", "/topics/orders", "/groups", "/groups/billing", "/brokers"),
    *("/topics/orders/messages?tail=1", "/groups/billing?matching=1", "/brokers/broker-b"),
    *("/waiting", "/waiting/timers", "/waiting/transactions", "/clients"),
    *("/topics/orders/senders", "/topics/orders/messages?key=key-3&since=-1h"),
    *("/groups/billing/rebalance", "/groups/shipping/rebalance", "/groups/shipping"),
    *("/groups/shipping/members/{member}", "/groups/shipping/members/{member}?stacks=1"),
    *("/groups/shipping/rebalance/simulate", "/topics/invoices/messages"),
    *("/topics/invoices/senders", "/groups/invoicing", "/groups/invoicing/rebalance"),
    *("/messages?topic=invoices&key=x", "/dead-letters/invoicing?since=-1h"),
    *("/messages/{id}?topic=orders", "/messages/{offset_id}?topic=orders"),
    *("/messages?topic=orders&key=key-3", "/messages?topic=orders&id={id}"),
    *("/dead-letters", "/dead-letters/invoicing", "/traffic"),
]
"""Pages that ask brokers."""
ELSEWHERE = [
    "/groups/shipping/rebalance/simulate?members=3",
    "/nameservers",
    "/search?q=ord",
    "/audit",
    "/messages",
]
"""Pages that ask none, or only the name servers."""


@pytest.mark.slow
@pytest.mark.parametrize("path", [*HANGING, *ELSEWHERE])
def test_a_broker_that_hangs_is_named_within_two_seconds_and_the_others_are_shown(
    path: str,
) -> None:
    got, took_s = look_while_a_broker_hangs(path)
    assert got.status == 200
    assert took_s <= 2.6, "2 s for the broker, the rest to put the answers together"
    if path in ELSEWHERE:
        return
    assert "broker-b: " in got.text and "within 2 s" in got.text
    shown = ("broker-a", "billing", "shipping", "invoicing", "that answered", "Broker broker-b")
    others = ("Member 10.0.0.5", "10.0.0.5:", "Nothing could be read")
    assert any(word in got.text for word in (*shown, *others))
    for words in ("There is no message", "No message in orders has", "No dead letter is left"):
        assert words not in got.text, "nobody knows that"
    if "No member is online" in got.text:
        assert "as far as the brokers that answered know" in got.text


def look_while_a_broker_hangs(path: str) -> tuple[Got, float]:
    """The page, and how long it took. `shipping` has a member, `invoicing` a dead letter."""

    async def look(client: Client, console: Console, visitor: Visitor) -> tuple[Got, float]:
        admin = Admin(client=client)
        await admin.create_topic("orders", queues=2)
        sent = await send(client, *numbered("orders", 12))
        async with consuming(client, "billing", "orders", 12):
            pass
        await let_one_die(client)
        async with consuming(client, "shipping", "orders", 12):
            kept = next(each for each in sent if each.queue.broker_name == "broker-a")
            (member,) = (await admin.group("shipping")).members
            address = path.format(
                id=kept.msg_id, offset_id=kept.offset_msg_id, member=member.client_id
            )
            running.host("broker-b").pause()
            began_ms = console.clock()
            return await visitor.get(address), (console.clock() - began_ms) / 1000

    with SimCluster(seed=11, brokers=2).run() as running:
        return as_visitor(running, look)


async def let_one_die(client: Client) -> None:
    """A dead letter of the group invoicing on one of the brokers."""
    admin, failing = Admin(client=client), Failing()
    await admin.create_topic("invoices", queues=1)
    await admin.create_group("invoicing", retries=0)
    await send(client, Message("invoices", b"not payable"))
    async with PushConsumer(
        "invoicing",
        {"invoices": "*"},
        client=client,
        max_reconsume_times=0,
        from_where=ConsumeFromWhere.FIRST_OFFSET,
    ) as consumer:
        await consumer.start(failing.handle)
        await failing.until(1)


BY_ID = f"/messages?topic=orders&id=0A000001{'F' * 24}"


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("/", "Stored since the start ≥ 6 messages (broker-b did not answer)"),
        ("/", "Unread ≥ 6 in 1 group (broker-b did not answer)"),
        ("/topics", "orders normal ≥ 2 (broker-b did not answer)"),
        ("/topics/orders", "Messages ≥ 6 (broker-b did not answer)"),
        ("/topics/orders", "Queues ≥ 2 on 1 broker (broker-b did not answer)"),
        ("/topics/orders", "billing ≥ 6 (broker-b did not answer)"),
        ("/groups", "≥ 6 (broker-b did not answer)"),
        ("/groups/billing", "Unread ≥ 6 messages (broker-b did not answer)"),
        ("/groups/billing", "orders ≥ 6 (broker-b did not answer) unread"),
        (BY_ID, "was not found on the brokers that answered; the others may have it: broker-b: "),
    ],
)
def test_a_total_without_one_of_its_brokers_is_marked_as_such(
    path: str, says: str, half: dict[str, Got]
) -> None:
    assert says in half[path].text


@pytest.fixture(scope="module")
def half() -> dict[str, Got]:
    """Pages of a cluster of which one of two brokers hangs."""

    async def prepare(client: Client, console: Console, visitor: Visitor) -> None:
        admin = Admin(client=client)
        await admin.create_topic("orders", queues=2)
        await admin.create_group("billing")
        await send(client, *numbered("orders", 12))
        await admin.reset_offsets("billing", "orders", "earliest")

    async def look(client: Client, console: Console, visitor: Visitor) -> dict[str, Got]:
        await console.sampler.sample_names()
        paths = ("/", "/topics", "/topics/orders", "/groups", "/groups/billing", BY_ID)
        return {path: await visitor.get(path) for path in paths}

    with SimCluster(seed=11, brokers=2).run() as sim:
        as_visitor(sim, prepare)
        sim.host("broker-b").pause()
        return as_visitor(sim, look)


def test_a_cluster_without_name_servers_shows_a_page_that_tells_so() -> None:
    async def look(client: Client, console: Console, visitor: Visitor) -> list[Got]:
        return [await visitor.get(path) for path in ("/", "/topics", "/groups/x")]

    with SimCluster(seed=13).run() as sim:
        for node in sim.name_servers.values():
            node.kill()
        pages = as_visitor(sim, look)
    assert all("no name server answers" in page.text for page in pages)


def test_messages_are_paged_backwards_without_missing_or_repeating_one() -> None:
    async def work(client: Client, console: Console, visitor: Visitor) -> list[str]:
        await Admin(client=client).create_topic("many", queues=3)
        await send(client, *numbered("many", 130))
        keys, path = [], "/topics/many/messages"
        for _ in range(5):
            got = await visitor.get(path)
            keys += [word for word in got.text.split() if word.startswith("key-")]
            if "Older messages" not in got.text:
                break
            cursor = got.html.split('name="at" value="', 1)[1].split('"', 1)[0]
            path = f"/topics/many/messages?at={cursor}"
        return keys

    with SimCluster(seed=15).run() as sim:
        keys = as_visitor(sim, work)
    assert sorted(keys) == sorted(f"key-{number}" for number in range(130))


# ---- dead letters


def test_dead_letters_are_selected_previewed_resent_once_and_exported() -> None:
    async def work(client: Client, console: Console, visitor: Visitor) -> list[Got]:
        await died(client, order(1), order(2), group="invoicing")
        overview = await visitor.get("/dead-letters")
        page = await visitor.get("/dead-letters/invoicing")
        ids = re.findall(r'name="id" value="([0-9A-F]+)"', page.html)
        fields = {"id": ids[0], "to": "group"}
        preview = await visitor.post("/dead-letters/invoicing/resend", fields)
        fields["state"] = state_in(preview)
        done = await visitor.post("/dead-letters/invoicing/resend", fields)
        again = await visitor.post("/dead-letters/invoicing/resend", fields)
        exported = await visitor.get("/dead-letters/invoicing/export")
        return [overview, page, preview, done, again, exported]

    with SimCluster(seed=17).run() as sim:
        overview, page, preview, done, again, exported = as_visitor(sim, work)
    assert "invoicing 2 2" in overview.text
    assert "o-1" in page.text and "2 dead letters" in page.text
    assert "Would be sent 1" in preview.text
    (command,) = commands_in(preview)
    assert re.fullmatch(r"sparrowmq dlq resend invoicing --id \w+ --to group --dry-run", command)
    assert "1 sent." in done.text
    assert "Sent before 1" in again.text, "the state has changed: previewed again"
    assert exported.headers["content-type"] == "application/octet-stream"
    assert exported.html.count("\n") == 2


def test_a_resend_of_nothing_is_refused(sim: RunningCluster) -> None:
    async def work(_: Client, console: Console, visitor: Visitor) -> Got:
        await visitor.get("/audit")
        return await visitor.post("/dead-letters/billing/resend", {"to": "group"})

    got = as_visitor(sim, work)
    assert (got.status, "select the dead letters" in got.text) == (400, True)


def test_a_message_shows_its_life_and_its_bytes(sim: RunningCluster) -> None:
    async def work(_: Client, console: Console, visitor: Visitor) -> tuple[Got, Got, Got]:
        found = await console.admin.find_messages("orders", "key-1")
        path = f"/messages/{found[-1].offset_msg_id}"
        return (
            await visitor.get(f"{path}?topic=orders"),
            await visitor.get(f"{path}?topic=orders&body=hex"),
            await visitor.get(f"{path}/body?topic=orders"),
        )

    page, as_hex, body = as_visitor(sim, work)
    assert "sent" in page.text and "stored" in page.text
    assert "billing consumed" in page.text
    assert "00000000 31" in as_hex.text
    assert body.html == "1"
    assert body.headers["content-disposition"] == 'attachment; filename="message-body.bin"'


def test_the_life_of_a_message_has_milliseconds_and_is_sent_before_it_is_stored() -> None:
    async def work(client: Client, console: Console, visitor: Visitor) -> tuple[Got, Got]:
        await died(client, order(1))
        (dead,) = await console.admin.find_messages("%DLQ%billing", "o-1")
        (sent,) = await console.admin.find_messages("orders", "o-1")
        return (
            await visitor.get(f"/messages/{sent.offset_msg_id}?topic=orders"),
            await visitor.get(f"/messages/{dead.offset_msg_id}?topic=%25DLQ%25billing"),
        )

    with SimCluster(seed=31).run() as running:
        page, dead = as_visitor(running, work)
    assert re.search(r"sent 2023-11-14 22:13:2\d\.\d{3}Z by .* stored 2023-11-14", page.text)
    assert "after 1 attempt, first sent to orders" in dead.text


def test_the_life_of_a_message_has_its_retries_and_death_in_every_group() -> None:
    """One group traces, one does not, one is done with it, and one gets it again later."""

    async def work(client: Client, console: Console, visitor: Visitor) -> list[Got]:
        await console.admin.create_topic("orders", queues=1)
        (sent,) = await send(client, order(1))
        traced, untraced, slow = Failing(), Failing(), Failing()
        ways: dict[str, Any] = {"client": client, "from_where": ConsumeFromWhere.FIRST_OFFSET}
        async with (
            PushConsumer(
                "traced", {"orders": "*"}, trace=True, max_reconsume_times=1, **ways
            ) as first,
            PushConsumer("untraced", {"orders": "*"}, max_reconsume_times=1, **ways) as second,
            PushConsumer("slow", {"orders": "*"}, **ways) as third,
            consuming(client, "audit", "orders", 1),
        ):
            await first.start(traced.handle)
            await second.start(untraced.handle)
            await third.start(slow.handle)
            await slow.until(2)
            await asyncio.sleep(8)  # traces are stored after 5 s at the latest
        path = f"/messages/{sent.msg_id}?topic=orders"
        pages = [await visitor.get(path)]
        pages.append(await visitor.get(link_at("dead", pages[0])))
        await console.admin.resend_dead_letters("untraced", ids=[sent.msg_id])
        return [*pages, await visitor.get(path)]

    with SimCluster(seed=31).run() as running:
        page, letter, resent = as_visitor(running, work)
    life = words_of(page)
    assert life[:2] == ["sent", "stored"]
    assert [life.count(each) for each in ("retried", "dead", "retry due")] == [3, 2, 1]
    assert life.count("delivered") == 3, "twice to the group that traces, once to audit"
    assert life.count("handled, failed") == 2
    assert life.index("retried") < life.index("dead") < life.index("retry due")
    for group in ("traced", "untraced"):
        assert re.search(
            rf"retried 2023[-: .\dZ]* in group {group}, retry 1, at broker-a/0", page.text
        )
        assert re.search(rf"dead 2023[-: .\dZ]* in group {group} after 2 attempts", page.text)
    assert re.search(r"retry due 2023[-: .\dZ]* in group slow, retry 2, at broker-a/", page.text)
    assert "delivered to group audit, at a time that is not recorded" in page.text
    assert letter.status == 200 and "%DLQ%traced" in letter.text
    assert "The page of the message in orders has its whole life." in letter.text
    again = r"sent again 2023[-: .\dZ]* to %RETRY%untraced, from the dead letters of group untraced"
    assert re.search(again, resent.text)
    assert words_of(resent).count("sent again") == 1


def words_of(page: Got) -> list[str]:
    """The steps of a message's life."""
    found = re.findall(r'<span class="word">(.*?)</span>', page.html)
    return [re.sub("<.*?>", "", each) for each in found]


def link_at(word: str, page: Got) -> str:
    """Where the first of these steps leads."""
    found = re.search(rf'<a href="([^"]*)">{word}</a>', page.html)
    assert found, page.text
    return unescape(found[1])


def test_what_a_producer_traced_is_part_of_the_step_that_the_record_tells() -> None:
    async def work(client: Client, console: Console, visitor: Visitor) -> Got:
        await console.admin.create_topic("orders", queues=1)
        async with Producer("shop", client=client, trace=True) as producer:
            sent = await producer.send(order(1))
        return await visitor.get(f"/messages/{sent.msg_id}?topic=orders")

    with SimCluster(seed=31).run() as running:
        page = as_visitor(running, work)
    assert len(re.findall(r'class="word">sent<', page.html)) == 1
    told = r"by [\d.]+:\d+, group shop, took \d+ ms · from the record and a trace stored"
    assert re.search(told, page.text), page.text


def test_a_search_shows_names_first_and_the_number_of_further_matches() -> None:
    async def work(client: Client, console: Console, visitor: Visitor) -> tuple[Got, Got]:
        admin = Admin(client=client)
        for number in range(23):
            await admin.create_topic(f"team-{number}", queues=1)
        return await visitor.get("/search?q=team"), await visitor.get("/search?q=o-17")

    with SimCluster(seed=32).run() as running:
        names, key = as_visitor(running, work)
    assert names.html.count('<li><a href="/topics/team-') == 20
    assert '<a href="/topics?match=team&amp;all=1">' in names.html
    assert "All 23 topics" in names.text
    assert names.text.index("team-0") < names.text.index("A message with this key")
    assert key.text.index("A message with this key") < key.text.index("No topic has this")


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("/", "draining"),
        ("/brokers", "draining"),
        ("/brokers/broker-a", "It drains: it takes no new messages"),
    ],
)
def test_a_broker_that_drains_is_shown_as_such(path: str, text: str) -> None:
    with SimCluster(brokers=2).run() as running:

        async def work(_: Client, console: Console, visitor: Visitor) -> Got:
            running.brokers["broker-a"].broker.drain.begin(0.0)
            return await visitor.get(path)

        assert text in as_visitor(running, work).text


@pytest.mark.parametrize(
    ("first", "groups", "says"),
    [
        ("/", 1, "Unread ? in 0 groups (groups not counted yet)"),
        ("/groups/shipping", 1, "Unread ≥ 3 in 1 group (groups not counted yet)"),
        ("sampled", 1, "Unread 3 in 1 group"),
        ("sampled", 0, "Unread 0 in 0 groups"),
        ("sampled", 0, "Busiest topics No message is known in any topic."),
        ("/audit", 0, "Busiest topics No topic has been sampled yet."),
    ],
)
def test_unread_messages_are_not_zero_before_all_groups_were_counted(
    first: str, groups: int, says: str
) -> None:
    async def work(client: Client, console: Console, visitor: Visitor) -> Got:
        if groups:
            await Admin(client=client).create_topic("orders", queues=1)
            await send(client, *numbered("orders", 3))
            await Admin(client=client).create_group("shipping")
            await Admin(client=client).reset_offsets("shipping", "orders", "earliest")
        if first == "sampled":
            await console.sampler.sample_names()
        else:
            await visitor.get(first)
        return await visitor.get("/")

    with SimCluster(seed=31).run() as sim:
        assert says in as_visitor(sim, work).text


def test_a_group_waits_for_its_oldest_unread_message_not_for_the_one_before() -> None:
    """It read everything 50 minutes ago; the message that it has not read is five minutes old."""

    async def work(client: Client, console: Console, visitor: Visitor) -> list[Got]:
        await asyncio.sleep(300)  # the broker is up for longer than any message waits
        await Admin(client=client).create_topic("orders", queues=2)
        await send(client, *numbered("orders", 6))
        async with consuming(client, "billing", "orders", 6):
            pass
        await asyncio.sleep(2_700)
        await send(client, *numbered("orders", 1))
        await asyncio.sleep(300)
        await console.sampler.sample_names()
        return [await visitor.get(path) for path in ("/", "/groups", "/groups/billing")]

    with SimCluster(seed=31).run() as sim:
        pages = as_visitor(sim, work)
    for got in pages:
        assert re.search(r"\b5 min", got.text), got.text
        assert "50 min" not in got.text


@pytest.mark.parametrize("path", ["/", "/groups"])
def test_what_a_group_waits_for_is_unknown_where_it_cannot_be_read(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def unknown(*_: object) -> None:
        return None

    async def work(client: Client, console: Console, visitor: Visitor) -> Got:
        await console.sampler.sample_names()
        return await visitor.get(path)

    monkeypatch.setattr(Admin, "oldest_waiting", unknown)
    with SimCluster(seed=31).run() as sim:
        as_visitor(sim, one_unread)
        assert re.search(r"shipping.* 3 \S+ \?", as_visitor(sim, work).text)


async def one_unread(client: Client, console: Console, visitor: Visitor) -> None:
    """A group that has read none of three messages."""
    admin = Admin(client=client)
    await admin.create_topic("orders", queues=1)
    await send(client, *numbered("orders", 3))
    await admin.create_group("shipping")
    await admin.reset_offsets("shipping", "orders", "earliest")


@pytest.mark.parametrize(("is_sampled", "groups"), [(False, "?"), (True, "1")])
def test_how_many_groups_read_a_topic_is_unknown_before_groups_were_sampled(
    is_sampled: bool, groups: str
) -> None:
    async def work(client: Client, console: Console, visitor: Visitor) -> Got:
        await one_unread(client, console, visitor)
        if is_sampled:
            await console.sampler.sample_names()
        return await visitor.get("/topics")

    with SimCluster(seed=31).run() as sim:
        got = as_visitor(sim, work)
    assert re.search(
        rf"\borders normal 1 .* 3 \S+ \S+ {re.escape(groups)}(?: \(| Create)", got.text
    )


@pytest.mark.parametrize(
    ("host", "expression", "marks"),
    [
        ("operator", "*", {"id of several processes": 1}),
        ("shop", "paid", {"subscriptions differ": 2}),
        ("shop", "*", {}),
    ],
)
def test_clients_that_share_an_id_or_subscribe_to_other_things_are_marked(
    host: str, expression: str, marks: dict[str, int]
) -> None:
    """Two processes on one host have one id here; their addresses differ in the port only."""
    with SimCluster(seed=31).run() as running:

        async def work(client: Client, console: Console, visitor: Visitor) -> Got:
            await Admin(client=client).create_topic("orders", queues=2)
            other = running.client_on(host)
            await other.start()
            first = PushConsumer("billing", {"orders": "*"}, client=client)
            second = PushConsumer("billing", {"orders": expression}, client=other)
            async with first, second:
                for consumer, its in ((first, client), (second, other)):
                    await consumer.start(Read().handle)
                    await core_of(its).heartbeats.send_everywhere()
                got = await visitor.get("/clients")
            await other.stop()
            return got

        text = as_visitor(running, work).text
    words = ("id of several processes", "subscriptions differ")
    assert {word: text.count(word) for word in words if word in text} == marks


def test_a_member_shows_its_handler_time_and_a_group_the_messages_its_members_hold() -> None:
    async def work(client: Client, console: Console, visitor: Visitor) -> tuple[Got, Got, Got]:
        await Admin(client=client).create_topic("orders", queues=2)
        stuck = asyncio.Event()

        async def handle(messages: Sequence[MessageExt]) -> None:
            await asyncio.sleep(0.25)
            if messages[0].keys == ("key-9",):
                await stuck.wait()

        async with PushConsumer("billing", {"orders": "*"}, client=client) as consumer:
            await consumer.start(handle)
            await core_of(client).heartbeats.send_everywhere()
            await send(client, *numbered("orders", 10))
            await asyncio.sleep(50)
            group = await visitor.get("/groups/billing")
            (path,) = set(re.findall(r'href="(/groups/billing/members/[^"]+)"', group.html))
            member = await visitor.get(path)
            picture = await visitor.get("/groups/billing/rebalance/owners.svg")
            assert "owners.svg" in (await visitor.get("/groups/billing/rebalance")).html
            stuck.set()
        return group, member, picture

    with SimCluster(seed=31).run() as sim:
        group, member, picture = as_visitor(sim, work)
    assert re.search(r"A call of its handler 25\d ms on average", member.text), member.text
    assert re.search(r" 1 [45]\d s ", group.text), "one message in hand, for some time"
    assert picture.headers["content-type"] == "image/svg+xml"
    assert "10.0.0.4@operator" in picture.html
    assert "as it is now" in picture.html
    assert "0 moves" not in picture.html, "nothing is simulated"


@pytest.mark.parametrize(
    ("query", "keys"),
    [
        ("", ["o-3", "o-2", "o-1"]),
        ("?until=-1m", ["o-2", "o-1"]),
        ("?since=-1m", ["o-3"]),
        ("?since=-30m&until=-1m", ["o-1", "o-2"]),
    ],
)
def test_dead_letters_are_shown_of_a_time_range(query: str, keys: list[str]) -> None:
    async def work(client: Client, console: Console, visitor: Visitor) -> Got:
        await died(client, order(1), order(2))
        await asyncio.sleep(300)
        await died(client, order(3))
        return await visitor.get(f"/dead-letters/billing{query}")

    with SimCluster(seed=31).run() as sim:
        text = as_visitor(sim, work).text
    assert re.findall(r"\bo-\d\b", text) == keys


def test_the_preview_of_a_reset_names_owners_and_the_limits_that_it_would_reach() -> None:
    async def work(client: Client, console: Console, visitor: Visitor) -> Got:
        admin = Admin(client=client)
        await admin.create_topic("orders", queues=1)
        await send(client, *numbered("orders", 12))
        async with consuming(client, "billing", "orders", 12):
            await core_of(client).heartbeats.send_everywhere()
            backlog = {"sparrowmq.backlog": "10:refuse:billing"}
            await admin.update_topic("orders", attributes=backlog)
            await visitor.get("/groups/billing")
            fields = {"topic": "orders", "to": "earliest"}
            return await visitor.post("/groups/billing/reset", fields)

    with SimCluster(seed=31).run() as sim:
        text = as_visitor(sim, work).text
    assert "sends to orders would be refused: billing would be 12 messages behind" in text
    assert re.search(r"Owner broker-a/0 [\d ]+10.0.0.4@operator", text), text


def test_a_group_is_paused_and_resumed_in_one_topic() -> None:
    async def work(client: Client, console: Console, visitor: Visitor) -> list[str]:
        await one_unread(client, console, visitor)
        await visitor.get("/groups/shipping")
        fields = {"topic": "orders", "consume": "off"}
        paused = await visitor.post("/groups/shipping/pause", fields)
        resumed = await visitor.post("/groups/shipping/pause", {**fields, "consume": "on"})
        return [paused.text, resumed.text, (await visitor.get("/audit")).text]

    with SimCluster(seed=31).run() as sim:
        paused, resumed, audit = as_visitor(sim, work)
    assert "It is paused in orders. Resume in orders" in paused
    assert "shipping in orders goes on" in resumed
    assert "It is paused" not in resumed
    assert "pause group shipping in orders" in audit


def test_the_console_is_ready_once_it_knows_the_cluster() -> None:
    async def work(client: Client, console: Console, visitor: Visitor) -> list[int]:
        before = await visitor.get("/readyz")
        await console.sampler.sample_brokers()
        return [before.status, (await visitor.get("/readyz")).status]

    with SimCluster(seed=31).run() as sim:
        assert as_visitor(sim, work) == [503, 200]
