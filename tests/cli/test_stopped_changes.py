"""A command that a signal ends during a change reports that, and what to do next."""

import asyncio
import json
import re
import signal
import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from sparrowmq.admin.admin import Admin as AsyncAdmin
from sparrowmq.admin.resets import JournaledReset
from sparrowmq.admin.roles import RoleChange
from sparrowmq.blocking import Admin, Producer
from sparrowmq.protocol.codes import RequestCode
from sparrowmq.protocol.message import Message
from sparrowmq.testing import Cluster, cluster
from tests.cli.in_process import Ran, run
from tests.cli.silent_broker import withholding_broker

HELD = "broker-z"
CHANGES = {
    RequestCode.UPDATE_AND_CREATE_TOPIC,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
    RequestCode.DELETE_TOPIC_IN_BROKER,
    RequestCode.DELETE_SUBSCRIPTIONGROUP,
    RequestCode.UPDATE_BROKER_CONFIG,
    RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
    RequestCode.CLONE_GROUP_OFFSET,
    RequestCode.BEGIN_DRAIN,
    RequestCode.DELETE_EXPIRED_COMMITLOG,
}
AGAIN = (
    "sparrowmq: stopped before it ended: what was changed stays changed; run it again, which"
    " finishes it"
)


@contextmanager
def stopped_by(
    number: signal.Signals, held: Collection[RequestCode] = CHANGES
) -> Iterator[Cluster]:
    """A cluster whose second broker gets changes and never answers; the signal comes instead."""
    this = threading.get_ident()

    def stop() -> None:
        signal.pthread_kill(this, number)

    # Programs that a shell starts in the background inherit that Ctrl-C is ignored.
    inherited = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with cluster() as running:
            (behind,) = running.broker_addresses.values()
            with Admin(running.name_server) as admin:
                admin.create_topic("orders", queues=2)
                admin.create_topic("letters", queues=2)
                admin.create_group("billing")
            with Producer("shop", name_servers=running.name_server) as producer:
                producer.send(Message("orders", b"an order"))
            with Admin(running.name_server) as admin:
                admin.reset_offsets("billing", "orders", "earliest")
            with withholding_broker(
                running.name_server,
                HELD,
                "orders",
                "parcels",
                behind=behind,
                withheld=held,
                came=stop,
            ):
                yield running
    finally:
        signal.signal(signal.SIGINT, inherited)


@pytest.fixture(scope="module")
def running() -> Iterator[Cluster]:
    with stopped_by(signal.SIGTERM) as made:
        yield made


def at(running: Cluster, *command: str, state: Path = Path()) -> Ran:
    """Run a command there, whose journal of resets is in this directory."""
    where = ("--name-servers", running.name_server, "--timeout", "60s")
    return run(*command, *where, XDG_STATE_HOME=str(state))


REPEATED = [
    ("topic", "create", "other", "--queues", "2"),
    ("topic", "update", "orders", "--perm", "r", "--broker", HELD),
    ("group", "create", "payments"),
    ("group", "update", "billing", "--retries", "3"),
    ("group", "pause", "billing"),
    ("quota", "set", "topic", "orders", "--messages", "10/s"),
    ("broker", "config", "set", HELD, "deleteWhen=5"),
    ("broker", "clean", HELD, "--log", "--yes"),
    ("group", "clone", "billing", "billing-new", "--yes"),
    # They do it on the other broker
    ("group", "delete", "billing", "--yes"),
    ("topic", "delete", "orders", "--yes"),
]


@pytest.mark.parametrize("command", REPEATED, ids=" ".join)
def test_a_stopped_change_reports_that_it_can_be_run_again(
    running: Cluster, command: tuple[str, ...]
) -> None:
    ended = at(running, *command)
    assert (ended.returncode, ended.stdout) == (143, "")
    assert ended.stderr.splitlines() == [AGAIN]


@pytest.mark.parametrize("quiet", [(), ("--json",), ("--quiet",)], ids=str)
def test_ctrl_c_leaves_standard_output_to_programs(quiet: tuple[str, ...]) -> None:
    with stopped_by(signal.SIGINT) as running:
        ended = at(running, "topic", "create", "other", *quiet)
    assert (ended.returncode, ended.stdout) == (130, "")
    assert ended.stderr == f"\n{AGAIN}\n"  # the terminal has written ^C


def test_what_only_looks_ends_quietly() -> None:
    spread = ("topic", "spread", "letters", "--broker", HELD)
    with stopped_by(signal.SIGTERM, {RequestCode.GET_TOPIC_CONFIG}) as running:
        looked = at(running, *spread, "--dry-run")
        assert (looked.returncode, looked.stdout, looked.stderr) == (143, "", "")
        shown = at(running, "topic", "show", "orders")
        assert (shown.returncode, shown.stdout, shown.stderr) == (143, "", "")
        changed = at(running, *spread)
        assert (changed.returncode, changed.stdout, changed.stderr) == (143, "", f"{AGAIN}\n")


def test_a_reset_names_its_undo(tmp_path: Path) -> None:
    reset = ("group", "reset", "billing", "--topic", "orders")
    with stopped_by(signal.SIGTERM) as running:
        to = at(running, *reset, "--to", "latest", "--yes", state=tmp_path)
        by = at(running, *reset, "--by", "+1", "--yes", state=tmp_path)
        listed = at(running, "group", "undo", "billing", "--list", "--json", state=tmp_path)
        ids = [each["id"] for each in json.loads(listed.stdout)["items"]]
        undone = at(running, "group", "undo", "billing", ids[0], "--yes", state=tmp_path)
    assert {each.returncode for each in (to, by, undone)} == {143}
    # Within a second the order of the two is that of their ids
    named = [
        re.findall(r"sparrowmq group undo billing (\S+)$", each.stderr)[0] for each in (to, by)
    ]
    assert sorted(named) == sorted(ids)
    assert to.stderr.splitlines() == [
        f"{AGAIN}; back again: sparrowmq group undo billing {named[0]}"
    ]
    assert by.stderr.splitlines() == [
        "sparrowmq: stopped before it ended: queues that were moved stay moved; go back before you"
        f" run it again: sparrowmq group undo billing {named[1]}"
    ]
    assert undone.stderr.splitlines() == [AGAIN]


def test_a_reset_that_is_not_in_the_journal_yet_has_moved_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    make = AsyncAdmin.reset_with_journal

    async def stop(admin: AsyncAdmin, *args: Any, dry_run: bool, **more: Any) -> JournaledReset:
        if not dry_run:
            signal.raise_signal(signal.SIGTERM)
            await asyncio.Event().wait()
        return await make(admin, *args, dry_run=dry_run, **more)

    monkeypatch.setattr(AsyncAdmin, "reset_with_journal", stop)
    with stopped_by(signal.SIGTERM) as made:
        reset = ("group", "reset", "billing", "--topic", "orders", "--to", "latest", "--yes")
        ended = at(made, *reset, state=tmp_path)
    said = "sparrowmq: stopped before it ended: no offset was moved; run it again"
    assert (ended.returncode, ended.stderr.splitlines()) == (143, [said])


def test_a_drain_that_may_not_have_started_is_reported_as_such(running: Cluster) -> None:
    ended = at(running, "broker", "drain", HELD, "--yes")
    assert (ended.returncode, ended.stdout) == (143, "")
    assert ended.stderr.splitlines() == [
        f"sparrowmq: stopped before it ended: {HELD} may have begun to drain. Continue with:"
        f" sparrowmq broker drain {HELD}; undo with: sparrowmq broker resume {HELD}"
    ]


def test_a_migration_can_be_run_again(running: Cluster) -> None:
    with cluster() as source:
        with Admin(source.name_server) as admin:
            admin.create_topic("parcels", queues=1)
        ended = run("migrate", "run", source.name_server, running.name_server, "--timeout", "60s")
    assert (ended.returncode, ended.stdout, ended.stderr) == (143, "", f"{AGAIN}\n")


def test_a_stopped_promotion_names_the_command_to_check_with(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def promote(
        admin: AsyncAdmin, name: str, slave_id: int | None, *, dry_run: bool, **_: object
    ) -> RoleChange:
        if not dry_run:
            signal.raise_signal(signal.SIGTERM)
            await asyncio.Event().wait()
        return RoleChange(
            broker=name,
            new_master="127.0.0.1:10921",
            slave_id=1,
            old_master="127.0.0.1:10911",
            behind_bytes=0,
            log_end=None,
        )

    monkeypatch.setattr(AsyncAdmin, "promote", promote)
    with stopped_by(signal.SIGTERM) as made:
        ended = run("broker", "promote", "broker-a", "--yes", "-n", made.name_server)
    assert ended.returncode == 143
    assert ended.stderr.splitlines()[1:] == [
        "sparrowmq: stopped before it ended: 127.0.0.1:10921 may be the master of broker-a by now,"
        " or soon. See which one is: sparrowmq broker list; if it is not, run it again"
    ]


def test_a_delivery_may_have_been_made(monkeypatch: pytest.MonkeyPatch) -> None:
    async def deliver(*_: object, **__: object) -> None:
        signal.raise_signal(signal.SIGTERM)
        await asyncio.Event().wait()

    monkeypatch.setattr(AsyncAdmin, "deliver", deliver)
    with stopped_by(signal.SIGTERM) as made:
        ended = at(made, "message", "deliver", "7F00", "--group", "billing", "--yes")
    assert ended.returncode == 143
    assert ended.stderr.splitlines() == [
        "sparrowmq: stopped before it ended: the message may have reached a handler of group"
        " billing, and its result is not known; run again, it is delivered once more"
    ]


def test_a_stopped_send_reports_the_number_stored() -> None:
    with stopped_by(signal.SIGTERM, {RequestCode.SEND_MESSAGE_V2}) as running:
        ended = at(running, "send", "parcels", "a parcel", "--count", "2")
    assert (ended.returncode, ended.stdout) == (143, "")
    assert ended.stderr.splitlines() == [
        "sparrowmq: stopped before it ended: 0 of 2 messages were sent, and perhaps one more"
    ]
