"""The page of limits, windows and drains: what it shows, sets and removes, after a preview."""

import asyncio
import re

import pytest

from sparrowmq import Admin, Client, DrainUnfinished, LimitReached, Message, Producer
from sparrowmq.console.console import Console
from sparrowmq.testing.sim_cluster import SimCluster
from tests.admin.operator import numbered, send
from tests.console.test_operations import confirmed
from tests.console.test_pages import EVIL, commands_in, state_in
from tests.console.visitor import Got, Visitor, as_visitor

TWO = SimCluster(seed=51, brokers=2)
QUOTA = {"scope": "topic", "name": "orders", "messages": "5", "bytes": "", "size_unit": "MiB"}
BACKLOG = {"name": "orders", "most": "2", "most_unit": "messages", "groups": "billing"}


async def with_orders(client: Client) -> Admin:
    admin = Admin(client=client)
    await admin.create_topic("orders", queues=2)
    await admin.create_group("billing")
    return admin


async def refused(client: Client, count: int) -> int:
    """How many of `count` messages a limit refuses."""
    found = 0
    async with Producer("shop", client=client, retries=0) as producer:
        for _ in range(count):
            try:
                await producer.send(Message("orders", b"x"))
            except LimitReached:
                found += 1
    return found


def test_a_quota_is_previewed_set_shown_by_broker_and_removed() -> None:
    async def work(client: Client, console: Console, visitor: Visitor) -> list[Got]:
        admin = await with_orders(client)
        empty = await visitor.get("/traffic")
        preview = await visitor.post("/traffic/quotas", QUOTA)
        assert not await admin.limits(), "a preview changes nothing"
        done = await visitor.post("/traffic/quotas", {**QUOTA, "state": state_in(preview)})
        assert await refused(client, 30) == 20
        used = await visitor.get("/traffic")
        same = await visitor.post("/traffic/quotas", QUOTA)
        gone, removed = await confirmed(
            visitor, "/traffic/removals", {"limit": "topic messages orders"}
        )
        assert not await admin.limits()
        lines = [
            (each.action, each.target, each.result) for each in console.desk.audit.newest_first
        ]
        assert lines == [
            ("remove limit", "topic orders", "done"),
            ("set quota", "topic orders", "done"),
        ]
        return [empty, preview, done, used, same, gone, removed]

    with TWO.run() as sim:
        empty, preview, done, used, same, gone, removed = as_visitor(sim, work)
    assert "Nothing is limited" in empty.text
    assert "No topic is de-duplicated" in empty.text
    assert commands_in(empty) == ["sparrowmq quota list"]
    assert "broker-b sparrowmq.quota.messages not set 5" in preview.text
    assert "so together they let 10 messages a second through" in preview.text
    wanted = "sparrowmq quota set topic orders --messages 5/s --dry-run"
    assert commands_in(preview) == [wanted]
    assert "The limit of topic orders is set on each broker" in done.text
    assert "topic orders 2 brokers 10/s" in used.text, used.text
    assert "20 20 0 refusing" in used.text, used.text
    assert "broker-a 5/s" in used.text and "broker-b 5/s" in used.text, used.text
    assert len(re.findall(r"broker-[ab] 5/s 5/s \d+ \d+ 0 refusing", used.text)) == 2
    assert "Nothing to change" in same.text
    assert "sparrowmq.quota.messages 5 not set" in gone.text
    assert commands_in(gone) == ["sparrowmq quota unset topic orders --messages --dry-run"]
    assert "is removed" in removed.text and "Nothing is limited" in removed.text


def test_a_preview_is_shown_again_where_the_limit_has_changed_since() -> None:
    async def work(client: Client, console: Console, visitor: Visitor) -> Got:
        admin = await with_orders(client)
        await visitor.get("/traffic")
        preview = await visitor.post("/traffic/quotas", QUOTA)
        await admin.set_quota("topic", "orders", messages=7)
        late = await visitor.post("/traffic/quotas", {**QUOTA, "state": state_in(preview)})
        (limit,) = await admin.limits()
        assert limit.messages == 14, "nothing was changed"
        assert console.desk.audit.newest_first == []
        return late

    with TWO.run() as sim:
        late = as_visitor(sim, work)
    assert "It has changed since the preview" in late.text
    assert "sparrowmq.quota.messages 7 5" in late.text


def test_a_backlog_lists_the_groups_that_lag_and_those_that_do_not_count() -> None:
    async def work(client: Client, console: Console, visitor: Visitor) -> list[Got]:
        await with_orders(client)
        await visitor.get("/traffic")
        minutes = {**BACKLOG, "most": "10", "most_unit": "minutes", "action": "slow"}
        unset = await visitor.post("/traffic/backlogs", minutes)
        preview, done = await confirmed(
            visitor, "/traffic/backlogs", {**BACKLOG, "broker": "broker-a"}
        )
        await asyncio.sleep(2)  # brokers look at backlogs every second
        return [unset, preview, done, await visitor.get("/traffic")]

    with TWO.run() as sim:
        slow, preview, done, shown = as_visitor(sim, work)
    assert commands_in(slow) == [
        "sparrowmq quota set topic orders --backlog 10m --group billing --action slow --dry-run"
    ]
    assert "Sends to orders are refused" in preview.text
    assert "broker-b" not in preview.text.split("Will be")[1].split("Change it")[0]
    assert "set on each broker" in done.text
    assert "topic orders broker-a 2 messages 0 messages" in shown.text
    assert "billing (does not count:" in shown.text


@pytest.mark.parametrize(
    ("path", "fields", "says"),
    [
        ("quotas", {**QUOTA, "messages": ""}, "nothing to limit"),
        ("quotas", {**QUOTA, "messages": "ten"}, "must be a whole number"),
        ("quotas", {**QUOTA, "messages": "0"}, "0"),
        ("quotas", {**QUOTA, "messages": "٣"}, "must be a whole number"),
        ("quotas", {**QUOTA, "messages": "9" * 40}, "must be a whole number"),
        ("quotas", {**QUOTA, "bytes": "1", "size_unit": EVIL}, "must be one of B, KiB"),
        ("quotas", {**QUOTA, "scope": EVIL}, "must be one of topic"),
        ("quotas", {**QUOTA, "name": "nothing"}, "nothing"),
        ("quotas", {**QUOTA, "name": "%RETRY%billing"}, "cannot be limited"),
        ("backlogs", {**BACKLOG, "groups": ""}, "names its groups"),
        ("backlogs", {**BACKLOG, "groups": "none"}, "group none"),
        ("backlogs", {**BACKLOG, "most": ""}, "enter how far"),
        ("backlogs", {**BACKLOG, "most_unit": "years"}, "must be one of seconds"),
        ("backlogs", {**BACKLOG, "action": EVIL}, "must be refuse or slow"),
        ("removals", {"limit": ""}, "choose the limit"),
        ("removals", {"limit": f"topic {EVIL} orders"}, "is not a limit of a topic"),
    ],
)
def test_a_form_that_makes_no_sense_changes_nothing(
    path: str, fields: dict[str, str], says: str
) -> None:
    async def work(client: Client, console: Console, visitor: Visitor) -> Got:
        await with_orders(client)
        await visitor.get("/traffic")
        got = await visitor.post(f"/traffic/{path}", fields)
        assert not await console.admin.limits()
        assert console.desk.audit.newest_first == []
        return got

    with SimCluster(seed=52).run() as sim:
        got = as_visitor(sim, work)
    assert got.status in (400, 404) and says in got.text, got.text
    assert "<img/src" not in got.html


def test_readers_see_limits_and_cannot_set_them() -> None:
    async def work(client: Client, console: Console, visitor: Visitor) -> tuple[Got, Got]:
        admin = await with_orders(client)
        await admin.set_quota("client", messages=50)
        page = await visitor.get("/traffic")
        got = await visitor.post("/traffic/quotas", QUOTA)
        assert [each.scope for each in await admin.limits()] == ["client"]
        return page, got

    with TWO.run() as sim:
        page, got = as_visitor(sim, work, read_only=True)
    assert "client each one 2 brokers 100/s" in page.text
    assert "Set a quota" not in page.text
    assert got.status == 403


def test_dedup_windows_show_their_contents_and_whether_they_are_large_enough() -> None:
    async def work(client: Client, console: Console, visitor: Visitor) -> tuple[Got, Got]:
        admin = await with_orders(client)
        await admin.update_topic("orders", attributes={"sparrowmq.dedup": "10m/3"})
        before = await visitor.get("/traffic")
        await send(client, *numbered("orders", 20))
        keyed = [Message("orders", b"x", properties={"DEDUP_KEY": "o-1"})] * 4
        await send(client, *keyed)
        return before, await visitor.get("/traffic")

    with SimCluster(seed=53).run() as sim:
        before, after = as_visitor(sim, work)
    assert "orders broker-a 10 min 3 – – 0 not sent to yet" in before.text
    assert (
        "orders broker-a 10 min 3 3 < 1 s 3 too small 18 messages forgotten early" in after.text
    ), after.text


def test_a_running_drain_shows_what_it_waits_for() -> None:
    async def work(client: Client, console: Console, visitor: Visitor) -> list[Got]:
        admin = await with_orders(client)
        await send(client, *numbered("orders", 8))
        await admin.reset_offsets("billing", "orders", "earliest")
        none = await visitor.get("/traffic")
        with pytest.raises(DrainUnfinished):
            await admin.drain_broker("broker-a", timeout_s=3, grace_s=1)
        waiting = await visitor.get("/traffic")
        await admin.reset_offsets("billing", "orders", "latest")
        await admin.drain_broker("broker-a", timeout_s=60)
        return [none, waiting, await visitor.get("/traffic")]

    with TWO.run() as sim:
        none, waiting, left = as_visitor(sim, work)
    assert "No broker is being emptied" in none.text
    assert "Unread 4 messages" in waiting.text
    assert "billing orders 4 no members" in waiting.text
    assert "sparrowmq broker resume broker-a" in waiting.text
    assert commands_in(waiting) == ["sparrowmq broker drain broker-a --dry-run"]
    assert "has left broker-a at" in left.text
