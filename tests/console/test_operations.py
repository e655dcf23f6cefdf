"""What operators do on pages: settings, keys, clones, simulations, timers, transactions, tails."""

import asyncio
import re
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from html import unescape
from typing import Any

import pytest

from sparrowmq import (
    Admin,
    Client,
    HalfMessage,
    Message,
    MessageExt,
    Producer,
    TransactionalProducer,
    TransactionState,
)
from sparrowmq.admin.server_settings import ServerSettings
from sparrowmq.console.console import Console
from sparrowmq.testing.sim_cluster import SimCluster
from tests.admin.operator import consuming, numbered, send
from tests.console.test_pages import EVIL, commands_in, state_in
from tests.console.visitor import Got, Visitor, as_visitor


async def confirmed(visitor: Visitor, path: str, fields: dict[str, str]) -> tuple[Got, Got]:
    """The preview of a form, and what came of confirming it."""
    preview = await visitor.post(path, fields)
    return preview, await visitor.post(path, {**fields, "state": state_in(preview)})


# ---- settings of servers


def test_a_setting_of_a_broker_is_previewed_changed_and_recorded() -> None:
    async def work(client: Client, console: Console, visitor: Visitor) -> list[Got]:
        page = await visitor.get("/brokers/broker-a")
        fields = {"setting": "fileReservedTime", "value": "48"}
        preview = await visitor.post("/brokers/broker-a/settings", fields)
        known = await console.admin.broker_config("broker-a")
        assert known["fileReservedTime"] == "72", "a preview changes nothing"
        done = await visitor.post(
            "/brokers/broker-a/settings", {**fields, "state": state_in(preview)}
        )
        same = await visitor.post("/brokers/broker-a/settings", fields)
        fixed = await visitor.post(
            "/brokers/broker-a/settings", {"setting": "brokerName", "value": "x"}
        )
        unknown = await visitor.post("/brokers/broker-a/settings", {"setting": EVIL, "value": EVIL})
        assert [each.action for each in console.desk.audit.newest_first] == ["change broker"]
        return [page, preview, done, same, fixed, unknown]

    with SimCluster(seed=21, origins=(("listen_host", "flag --listen"),)).run() as sim:
        page, preview, done, same, fixed, unknown = as_visitor(sim, work)
    assert "<option>fileReservedTime</option>" in page.html
    assert re.search(r"brokerIP1 \S+ at its next start flag --listen ", page.text)
    assert "fileReservedTime 72 yes default" in page.text
    assert "fileReservedTime 48 yes changed while it runs" in done.text
    assert "broker-a fileReservedTime 72 48" in preview.text
    assert "holds until the next start" in preview.text
    wanted = "sparrowmq broker config set broker-a fileReservedTime=48 --dry-run"
    assert commands_in(preview) == [wanted]
    assert "fileReservedTime of broker-a is 48 now" in done.text
    assert "Nothing to change" in same.text
    assert "brokerName cannot be changed while broker-a runs" in fixed.text
    assert unknown.status == 400 and "<img/src" not in unknown.html


@pytest.mark.parametrize(
    ("fields", "status", "says"),
    [
        ({"what": "log", "typed": "broker"}, 400, "type the name of the broker, broker-a"),
        ({"what": "all", "typed": "broker-a"}, 400, "must be one of log, queues, unused topics"),
        ({"what": "queues", "typed": "broker-a"}, 200, "broker-a has cleaned queues"),
    ],
)
def test_a_broker_is_cleaned_when_its_name_was_typed(
    fields: dict[str, str], status: int, says: str
) -> None:
    async def work(client: Client, console: Console, visitor: Visitor) -> tuple[Got, int]:
        await visitor.get("/brokers/broker-a")
        got = await visitor.post("/brokers/broker-a/clean", fields)
        return got, len(console.desk.audit.newest_first)

    with SimCluster(seed=21).run() as sim:
        got, lines = as_visitor(sim, work)
    assert (got.status, says in got.text) == (status, True), got.text
    assert lines == (status == 200)


def test_keys_of_name_servers_are_set_and_deleted_after_a_preview() -> None:
    async def work(client: Client, console: Console, visitor: Visitor) -> list[Got]:
        empty = await visitor.get("/nameservers")
        fields = {"namespace": "ORDER_TOPIC_CONFIG", "key": "orders", "value": "broker-a:4"}
        preview, done = await confirmed(visitor, "/nameservers/keys", fields)
        gone, deleted = await confirmed(
            visitor,
            "/nameservers/keys/delete",
            {"namespace": "ORDER_TOPIC_CONFIG", "key": "orders"},
        )
        setting, changed = await confirmed(
            visitor, "/nameservers/settings", {"setting": "needWaitForService", "value": "true"}
        )
        actions = [each.action for each in reversed(console.desk.audit.newest_first)]
        assert actions == ["set key", "delete key", "change name servers"]
        return [empty, preview, done, gone, deleted, setting, changed]

    with SimCluster(seed=22).run() as sim:
        empty, preview, done, gone, deleted, setting, changed = as_visitor(sim, work)
    assert "No key is in ORDER_TOPIC_CONFIG" in empty.text
    assert "ORDER_TOPIC_CONFIG/orders not set broker-a:4" in preview.text
    assert "orders broker-a:4 Delete" in done.text
    assert "ORDER_TOPIC_CONFIG/orders broker-a:4 not set" in gone.text
    assert "was deleted" in deleted.text and "No key is in" in deleted.text
    assert "needWaitForService false true" in setting.text
    assert "needWaitForService of the name servers is true now" in changed.text


# ---- groups


def test_a_group_is_cloned_after_a_preview() -> None:
    async def work(client: Client, console: Console, visitor: Visitor) -> list[Got]:
        await Admin(client=client).create_topic("orders", queues=1)
        await send(client, *numbered("orders", 10))
        async with consuming(client, "billing", "orders", 10):
            pass
        await visitor.get("/groups/billing")
        fields = {"target": "billing-2", "topic": ""}
        preview, done = await confirmed(visitor, "/groups/billing/clone", fields)
        same = await visitor.post("/groups/billing/clone", {"target": "billing"})
        assert (await console.admin.lag("billing-2")).lag == 0
        assert [each.action for each in console.desk.audit.newest_first] == ["clone group"]
        return [preview, done, same]

    with SimCluster(seed=23).run() as sim:
        preview, done, same = as_visitor(sim, work)
    assert "billing-2 goes on where billing is" in preview.text
    assert "broker-a/0 none 10" in preview.text
    assert commands_in(preview) == ["sparrowmq group clone billing billing-2 --dry-run"]
    assert "Group billing-2" in done.text
    assert same.status == 400


def test_what_a_filter_takes_of_the_lag_is_counted_when_asked() -> None:
    async def work(client: Client, console: Console, visitor: Visitor) -> tuple[Got, Got]:
        admin = Admin(client=client)
        await admin.create_topic("orders", queues=1)
        await send(client, Message("orders", b"0", tags="paid"))
        async with consuming(client, "billing", "orders", 1, expression="paid"):
            await admin.pause_group("billing")
            tags = ["paid", "created", "created", "paid", "created"]
            await send(client, *(Message("orders", b"x", tags=tag) for tag in tags))
            return await visitor.get("/groups/billing"), await visitor.get(
                "/groups/billing?matching=1"
            )

    with SimCluster(seed=24).run() as sim:
        page, counted = as_visitor(sim, work)
    assert "Count what the filter takes" in page.text
    assert "6 unread, of which the filter takes 3" in counted.text
    assert "Matching" in counted.text and "data-live-page" not in counted.html


SIMULATE = "/groups/billing/rebalance/simulate"


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ("", "group billing has no live members"),
        ("?members=3&queues=4&events=join,kill", "4 queues, 3 members, then join=member-4, kill"),
        ("?members=3&queues=4&strategy=AVG", "AVG 3 1"),
        ("?members=3&strategy=WRONG", "must be one of AVG"),
        ("?members=3&events=explode", "is not an event"),
        ("?members=65", "at most 512 queues and 64 members"),
        ("?members=2&queues=513", "at most 512 queues and 64 members"),
        ("?members=2&events=queues=4000", "at most 512 queues"),
        ("?members=2&events=join+join+join+join+join+join+join+join+join", "9 events, at most 8"),
        ("?members=x", "members is 'x'"),
        (f"?members=2&events={EVIL}", "is not an event"),
    ],
)
def test_a_rebalance_is_simulated_from_an_address(query: str, says: str) -> None:
    async def work(client: Client, console: Console, visitor: Visitor) -> Got:
        await Admin(client=client).create_group("billing")
        return await visitor.get(SIMULATE + query)

    with SimCluster(seed=25).run() as sim:
        got = as_visitor(sim, work)
    assert got.status == 200
    assert says in got.text
    assert "<img/src" not in got.html


def test_the_simulation_of_a_live_group_has_a_picture() -> None:
    async def work(client: Client, console: Console, visitor: Visitor) -> list[Got]:
        await Admin(client=client).create_topic("orders", queues=2)
        await send(client, *numbered("orders", 1))
        async with consuming(client, "billing", "orders", 1):
            page = await visitor.get(f"{SIMULATE}?events=join")
            (source,) = re.findall(r'<img class="picture" src="([^"]*)"', page.html)
        # Of the moment of the page, with the member that has left since.
        return [page, await visitor.get(unescape(source))]

    with SimCluster(seed=26).run() as sim:
        page, picture = as_visitor(sim, work)
    assert "in use" in page.text
    assert picture.headers["content-type"] == "image/svg+xml"
    assert "script-src 'self'" in picture.headers["content-security-policy"]
    assert "broker-a/1" in picture.html and "<script" not in picture.html


# ---- settings


def test_columns_that_a_broker_says_nothing_for_are_left_out() -> None:
    """As of Apache's brokers, which tell neither what may change nor where it was given."""

    class Silent(Admin):
        async def broker_settings(self, broker: str, *, broker_id: int = 0) -> ServerSettings:
            found = await super().broker_settings(broker, broker_id=broker_id)
            return replace(found, changeable=None, origins=None)

    async def look(client: Client, console: Console, visitor: Visitor) -> tuple[Got, Got]:
        told = await visitor.get("/brokers/broker-a")
        console.admin = Silent(client=client)
        return told, await visitor.get("/brokers/broker-a")

    with SimCluster(seed=22, origins=(("listen_host", "flag --listen"),)).run() as sim:
        told, untold = as_visitor(sim, look)
    assert "Setting Value May change Given by" in told.text
    assert "Setting Value autoCreate" in untold.text


# ---- what waits


def test_messages_with_a_delivery_time_are_counted_by_hour() -> None:
    async def work(client: Client, console: Console, visitor: Visitor) -> Got:
        await Admin(client=client).create_topic("reminders", queues=1)
        delays = [timedelta(seconds=1), *[timedelta(hours=2)] * 3, timedelta(hours=4)]
        await send(client, *(Message("reminders", b"x", delay=each) for each in delays))
        async with Producer("shop", client=client) as producer:
            late = Message("reminders", b"recalled", delay=timedelta(hours=2))
            handle = (await producer.send(late)).recall_handle
            await producer.recall(handle)
        await asyncio.sleep(5)
        return await visitor.get("/waiting/timers")

    with SimCluster(seed=27).run() as sim:
        got = as_visitor(sim, work)
    assert len(re.findall(r":00:00Z 3 reminders 3", got.text)) == 1
    assert len(re.findall(r":00:00Z 1 reminders 1", got.text)) == 1
    assert "The whole timer queue was looked through, 7 messages" in got.text


def test_hourly_counts_are_marked_partial_if_more_messages_wait_than_were_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def work(client: Client, console: Console, visitor: Visitor) -> Got:
        await Admin(client=client).create_topic("reminders", queues=1)
        hours = [timedelta(hours=1 + number % 3) for number in range(40)]
        await send(client, *(Message("reminders", b"x", delay=each) for each in hours))
        return await visitor.get("/waiting/timers")

    monkeypatch.setattr("sparrowmq.console.scan.BUDGET", 10)
    with SimCluster(seed=27).run() as sim:
        got = as_visitor(sim, work)
    assert "Brokers report 40 that wait; 10 of them are among the newest 10 of 40" in got.text
    assert "Each hour may have more" in got.text


class Books:
    """Transactions that end as a test chooses."""

    def __init__(self, state: TransactionState) -> None:
        self.state = state

    async def execute(self, half: HalfMessage) -> TransactionState:
        return self.state

    async def check(self, message: MessageExt) -> TransactionState:
        return self.state


COMMITTED, OPEN = Books(TransactionState.COMMIT), Books(TransactionState.UNKNOWN)


def test_a_half_message_whose_end_was_not_read_is_not_called_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def work(client: Client, console: Console, visitor: Visitor) -> Got:
        await Admin(client=client).create_topic("orders", queues=1)
        async with TransactionalProducer("books", COMMITTED, client=client) as producer:
            for number in range(4):
                await producer.send_in_transaction(Message("orders", b"%d" % number))
                await asyncio.sleep(1)
        return await visitor.get("/waiting/transactions")

    monkeypatch.setattr("sparrowmq.console.pages.transactions.MOST_ENDS", 1)
    with SimCluster(seed=28).run() as sim:
        got = as_visitor(sim, work)
    assert "Producer group" not in got.text, "all have ended"
    assert "it is not known whether they have ended" in got.text
    assert "None of those examined is open" in got.text


def test_half_messages_are_shown_and_a_transaction_that_was_set_aside_is_resumed() -> None:
    async def work(client: Client, console: Console, visitor: Visitor) -> list[Got]:
        await Admin(client=client).create_topic("payments", queues=1)
        async with TransactionalProducer("shop", COMMITTED, client=client) as producer:
            await producer.send_in_transaction(Message("payments", b"1", keys="ended"))
        nothing = await visitor.get("/waiting/transactions")
        async with TransactionalProducer("bank", OPEN, client=client) as producer:
            await producer.send_in_transaction(Message("payments", b"2", keys="open"))
            pending = await visitor.get("/waiting/transactions")
            await asyncio.sleep(60)
            aside = await visitor.get("/waiting/transactions")
            (found,) = re.findall(r'name="id" value="([0-9A-F]+)"', aside.html)
            resumed = await visitor.post("/waiting/transactions/resume", {"id": found})
            wrong = await visitor.post("/waiting/transactions/resume", {"id": "00" * 16})
            assert [each.action for each in console.desk.audit.newest_first] == [
                "resume transaction"
            ] * 2
        return [nothing, pending, aside, resumed, wrong]

    settings: dict[str, Any] = {
        "transaction_timeout_s": 2.0,
        "transaction_check_interval_s": 2.0,
        "transaction_check_max": 2,
    }
    with SimCluster(seed=28, **settings).run() as sim:
        nothing, pending, aside, resumed, wrong = as_visitor(sim, work)
    assert "No transaction is open" in nothing.text
    assert "payments bank 0 open 2" in pending.text
    assert "Ask again" in aside.text and "No transaction is open" in aside.text
    assert "Producers of bank are asked again about the transaction in payments" in resumed.text
    assert resumed.text.count("payments bank") >= 2, "pending again, and still in the list"
    assert wrong.status == 404


# ---- following


@pytest.mark.parametrize(("query", "times"), [("?tail=1", 10), ("", 2)])
def test_a_topic_is_followed_every_second(query: str, times: int) -> None:
    async def work(client: Client, console: Console, visitor: Visitor) -> Got:
        await Admin(client=client).create_topic("orders", queues=1)
        asyncio.get_running_loop().call_later(10.5, console.desk.live.close)
        return await visitor.get(f"/live?page=/topics/orders/messages{query}")

    with SimCluster(seed=29).run() as sim:
        got = as_visitor(sim, work)
    assert got.html.count('"id": "asof"') == times


def test_members_are_asked_since_when_they_run_only_on_request() -> None:
    async def work(client: Client, console: Console, visitor: Visitor) -> tuple[Got, Got]:
        await Admin(client=client).create_topic("orders", queues=1)
        await send(client, *numbered("orders", 1))
        async with consuming(client, "billing", "orders", 1):
            return await visitor.get("/clients"), await visitor.get("/clients?since=1")

    with SimCluster(seed=29).run() as sim:
        plain, asked = as_visitor(sim, work)
    assert "Ask the consumers since when they run" in plain.text
    row = asked.text.split("Brokers Since ", 1)[1]
    assert re.search(r"consumer billing \S+ PYTHON \S+ broker-a 2023-11-14 22:13:2\dZ", row), row


def test_senders_of_a_topic_are_joined_with_the_producers_that_are_connected() -> None:
    async def work(client: Client, console: Console, visitor: Visitor) -> tuple[Got, Got, Got, Got]:
        await Admin(client=client).create_topic("orders", queues=2)
        empty = await visitor.get("/topics/orders/senders")
        async with Producer("shop", client=client) as producer:
            for message in numbered("orders", 5):
                await producer.send(message)
            unheard = await visitor.get("/topics/orders/senders")
            await asyncio.sleep(31)  # a heartbeat
            connected = await visitor.get("/topics/orders/senders")
        return empty, unheard, connected, await visitor.get("/topics/orders/senders")

    with SimCluster(seed=29).run() as sim:
        empty, unheard, connected, gone = as_visitor(sim, work)
    assert "its senders are unknown" in empty.text
    row = r"Last stored [\d.]+:\d+ {} {} 5 2023-11-14 22:13:2\dZ"
    assert re.search(row.format(r"\S+@\S+", "shop"), connected.text), connected.text
    assert "Brokers do not record who sends" in connected.text
    for each in (unheard, gone):
        assert re.search(row.format("no producer known there", r"\?"), each.text), each.text
    assert "up to 30 s after its first message" in unheard.text


@pytest.mark.parametrize("error", [TimeoutError(), OSError("no route"), asyncio.CancelledError()])
def test_a_change_that_ends_in_any_way_is_recorded(error: BaseException) -> None:
    async def fail(*_: Any, **__: Any) -> Any:
        raise error

    async def work(client: Client, console: Console, visitor: Visitor) -> list[str]:
        await visitor.get("/topics")
        console.changer.create_topic = fail  # type: ignore[method-assign]
        with suppress(OSError, asyncio.CancelledError):
            await visitor.post("/topics", {"name": "orders", "queues": "2"})
        return [f"{each.action}: {each.result}" for each in console.desk.audit.newest_first]

    with SimCluster(seed=29).run() as sim:
        (line,) = as_visitor(sim, work)
    assert line == f"create topic: failed: {str(error) or type(error).__name__}"
