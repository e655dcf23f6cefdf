"""`sparrowmq group …`, `message …` and `dlq …`: transcripts, JSON shapes, refusals, and a story."""

import asyncio
import json
import re
import signal
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from sparrowmq import AdminError, Message, MessageExt, MessageQueue
from sparrowmq.blocking import Admin, Producer, PushConsumer
from sparrowmq.testing import Cluster, cluster
from tests.cli.in_process import Ran, run
from tests.patience import PATIENCE_S

FIRST = MessageQueue("orders", "broker-a", 0)


class Desk:
    """An operator's terminal at a cluster."""

    def __init__(self, running: Cluster, state: Path) -> None:
        self.at = ("--name-servers", running.name_server, "--timeout", f"{PATIENCE_S}s")
        self.name_server = running.name_server
        self.state = state

    def run(self, *arguments: str, answer: str = "") -> Ran:
        return run(*arguments, *self.at, answer=answer, XDG_STATE_HOME=str(self.state))

    def done(self, *arguments: str) -> str:
        """What a command that succeeds prints, with what differs from run to run named."""
        ran = self.run(*arguments)
        assert ran.returncode == 0, ran.stderr
        return steady(ran.stdout)

    def json(self, *arguments: str) -> dict[str, Any]:
        ran = self.run(*arguments, "--json")
        assert ran.returncode == 0, ran.stderr
        found: dict[str, Any] = json.loads(ran.stdout)
        return found


def steady(text: str) -> str:
    """Times, ids, ports and durations by their kind."""
    text = re.sub(r"\d{4}-\d\d-\d\dT[\d:.]+Z", "<time>", text)
    text = re.sub(r"\b[0-9A-F]{32}\b", "<id>", text)
    text = re.sub(r"\d{8}-\d{6}-[0-9a-f]{4}", "<reset>", text)
    text = re.sub(r"127\.0\.0\.1:\d+", "<address>", text)
    text = re.sub(r"(?m)(?<=\t)\d+\.\d+(?=\t|$)", "<number>", text)
    # A time of whole seconds has no fraction.
    return re.sub(r"(?m)(?:(?<=\?\t)|(?<=\t4\t))\d+(?=\t?$)", "<number>", text)


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    with cluster() as running:
        desk = Desk(running, tmp_path_factory.mktemp("state"))
        with Admin(running.name_server, timeout_s=PATIENCE_S) as admin:
            admin.create_topic("orders", queues=2)
            admin.create_group("billing", retries=3)
            admin.reset_offsets("billing", "orders", "earliest")
            admin.create_topic("twins", queues=1)
        with Producer("shop", name_servers=running.name_server) as producer:
            for number in range(4):
                message = Message("orders", b"order %d" % number, tags="paid", keys=f"o-{number}")
                producer.send(message, queue=MessageQueue("orders", "broker-a", number % 2))
            for _ in range(3):
                producer.send(Message("twins", b"a twin", keys="twin"))
        yield desk


# ---- what commands print


def test_groups_are_listed_and_shown(desk: Desk) -> None:
    listed = desk.done("group", "list", "--match", "bill*")
    assert listed.splitlines() == [
        "GROUP\tMODEL\tMEMBERS\tTOPICS\tLAG\tOLDEST-WAITING",
        "billing\t?\t0\torders\t4\t<number>",
    ]
    assert "billing" not in desk.done("group", "list", "--lagging", "5")
    assert "billing" in desk.done("group", "list", "--offline", "--lagging", "4")
    shown = desk.done("group", "show", "billing")
    assert shown.splitlines() == [
        "BROKER\tCONSUME\tBROADCAST\tORDER\tRETRIES\tRETRY-QUEUES\tPAUSED-TOPICS\tATTRIBUTES",
        "broker-a\tyes\tyes\tno\t3\t1\t\t",
        "",
        "TOPIC\tQUEUES\tLAG\tDELAY",
        "orders\t2\t4\t<number>",
        "",
        "CLIENT\tADDRESS\tLANGUAGE\tVERSION\tQUEUES\tOK/S\tFAILED/S\tWAITS-FOR",
        "",
        "TOPIC\tTYPE\tEXPRESSION\tMEMBERS\tDIFFERENCE",
        "",
        "SEVERITY\tFINDING\tEVIDENCE",
        "error\tno-members\t4 messages in orders, 0 members online",
    ]


def test_lag_is_shown_by_queue_topic_and_member(desk: Desk) -> None:
    assert desk.done("group", "lag", "billing").splitlines() == [
        "GROUP\tTOPIC\tQUEUE\tCOMMITTED\tEND\tLAG\tMATCHING\tDELAY\tOWNER",
        "billing\torders\tbroker-a/0\t0\t2\t2\t?\t<number>\t",
        "billing\torders\tbroker-a/1\t0\t2\t2\t?\t<number>\t",
    ]
    by_topic = desk.done("group", "lag", "--by", "topic", "--topic", "orders", "billing")
    assert by_topic.splitlines()[1] == "billing\torders\t2\t4\t?\t<number>"
    by_member = desk.done("group", "lag", "billing", "--by", "member")
    assert by_member.splitlines()[1] == "billing\t\t2\t4\t?\t<number>"
    found = desk.json("group", "lag", "billing")
    assert found["lag"] == 4
    items = found["items"]
    assert isinstance(items, list)
    assert set(items[0]) == {
        *("group", "topic", "queue", "committed", "end", "lag", "matching", "matchingIsExact"),
        *("delayS", "owner"),
    }


@pytest.mark.parametrize(
    ("options", "code", "text"),
    [
        (["--max", "4"], 0, ""),
        (["--max", "3"], 1, "group billing is 4 messages behind; at most 3 are"),
        (["--older-than", "1h"], 0, ""),
        (["--older-than", "1ms"], 1, "a message has waited"),
        (["--wait", "1ms"], 1, "group billing is 4 messages behind; at most 0 are"),
    ],
)
def test_lag_is_a_check_for_scripts(desk: Desk, options: list[str], code: int, text: str) -> None:
    ran = desk.run("group", "lag", "billing", *options)
    assert ran.returncode == code
    assert text in ran.stderr


def test_groups_are_created_changed_and_deleted(desk: Desk) -> None:
    created = desk.done("group", "create", "audit", "--retries", "5")
    assert created.splitlines() == ["BROKER\tRESULT", "broker-a\tcreated"]
    again = desk.run("group", "create", "audit", "--retries", "6")
    assert again.returncode == 1
    assert "sparrowmq group update audit" in again.stderr
    change = ("group", "update", "audit", "--retries", "7", "--consume", "off")
    wanted = [
        "FIELD\tBROKER\tWAS\tNOW",
        "consume\tbroker-a\tyes\tno",
        "retries\tbroker-a\t5\t7",
    ]
    assert sorted(desk.done(*change, "--dry-run").splitlines()) == sorted(wanted)
    assert sorted(desk.done(*change).splitlines()) == sorted(wanted)
    assert desk.done(*change).splitlines() == wanted[:1]
    refused = desk.run("group", "delete", "audit")
    assert refused.returncode == 1
    assert "--yes does it without asking" in refused.stderr
    assert "with its progress in 0 topics" in refused.stderr
    deleted = desk.done("group", "delete", "audit", "--yes")
    assert deleted.splitlines() == ["BROKER\tRESULT", "broker-a\tdeleted"]
    assert desk.run("group", "show", "audit").returncode == 1


def test_groups_are_paused_and_resumed(desk: Desk) -> None:
    ran = desk.run("group", "pause", "billing")
    assert (ran.returncode, ran.stdout) == (0, "BROKER\tRESULT\nbroker-a\tpaused\n")
    assert "members still handle what they have fetched" in ran.stderr
    assert desk.json("group", "show", "billing")["state"] == "paused"
    assert desk.done("group", "resume", "billing").splitlines()[1] == "broker-a\tresumed"
    assert desk.json("group", "show", "billing")["state"] == "offline"
    again = desk.run("group", "resume", "billing")
    assert again.stdout == "BROKER\tRESULT\nbroker-a\tnot paused\n"
    assert "group billing is not paused; nothing was changed" in again.stderr


def test_a_pause_in_one_topic_is_shown_and_its_remedy_is_named(desk: Desk) -> None:
    desk.done("group", "pause", "billing", "--topic", "orders")
    shown = desk.json("group", "show", "billing")
    assert shown["state"] == "offline, paused in orders"
    assert [each["pausedTopics"] for each in shown["settings"]] == [["orders"]]
    assert "paused" in [each["finding"] for each in shown["findings"]]
    found = json.loads(desk.run("doctor", "group", "billing", "--json").stdout)["items"]
    (command,) = (each["command"] for each in found if each["finding"] == "paused")
    assert command == "sparrowmq group resume billing --topic orders"
    whole = desk.run("group", "resume", "billing")
    assert "is not paused; it is paused in orders; nothing was changed" in whole.stderr
    desk.done("group", "resume", "billing", "--topic", "orders")
    again = desk.run("group", "resume", "billing", "--topic", "orders")
    assert "is not paused in topic orders; nothing was changed" in again.stderr
    assert desk.json("group", "show", "billing")["state"] == "offline"


def test_progress_is_copied_to_another_group(desk: Desk) -> None:
    desk.done("group", "create", "billing-new")
    copied = desk.done("group", "clone", "billing", "billing-new", "--dry-run")
    assert copied.splitlines()[:2] == ["TOPIC\tQUEUE\tOFFSET", "orders\tbroker-a/0\t0"]
    assert desk.run("group", "clone", "billing", "billing-new").returncode == 1
    desk.done("group", "clone", "billing", "billing-new", "--topic", "orders", "--yes")
    assert desk.json("group", "lag", "billing-new")["lag"] == 4


def test_a_reset_is_previewed_made_listed_and_undone(desk: Desk) -> None:
    desk.done("group", "create", "moved")
    desk.done("group", "reset", "moved", "--topic", "orders", "--to", "earliest", "--yes")
    shown = desk.run(
        *("group", "reset", "moved", "--topic", "orders", "--to", "latest", "--dry-run")
    )
    assert steady(shown.stdout).splitlines() == [
        "QUEUE\tWAS\tNOW\tSKIPPED\tREPEATED\tOWNER",
        "broker-a/0\t0\t2\t2\t0\t",
        "broker-a/1\t0\t2\t2\t0\t",
    ]
    assert "nothing was changed" in shown.stderr
    asked = desk.run("group", "reset", "moved", "--topic", "orders", "--to", "latest")
    assert asked.returncode == 1
    assert "2 queues of topic orders: 4 messages skipped, 0 delivered again" in asked.stderr
    only = ("--queue", "broker-a/1", "--by", "+1", "--yes")
    past = desk.json("group", "reset", "moved", "--topic", "orders", *only)
    assert (past["skipped"], past["repeated"]) == (1, 0)
    listed = desk.done("group", "undo", "moved", "--list").splitlines()
    assert listed[0] == "ID\tKIND\tWHEN\tWHO\tCLUSTER\tNAME-SERVERS\tTOPIC\tQUEUES\tSTATE"
    assert len(listed) == 3
    undone = desk.done("group", "undo", "moved", str(past["id"]), "--yes")
    assert undone.splitlines()[1] == "broker-a/1\t1\t0\t0\t1\t"
    assert desk.json("group", "lag", "moved")["lag"] == 4


def test_a_reset_says_what_it_skips_where_a_group_has_never_read(desk: Desk) -> None:
    desk.done("group", "create", "fresh")
    latest = ("group", "reset", "fresh", "--topic", "orders", "--to", "latest")
    shown = desk.run(*latest, "--dry-run")
    assert steady(shown.stdout).splitlines()[1:] == [
        "broker-a/0\t\t2\t2\t0\t",
        "broker-a/1\t\t2\t2\t0\t",
    ]
    assert "never read: broker-a/0, broker-a/1; " in shown.stderr
    desk.done(*latest, "--yes")
    undone = desk.run("group", "undo", "fresh", "--yes")
    assert "broker-a/0, broker-a/1: the group had no progress there; " in undone.stderr
    assert desk.json("group", "lag", "fresh")["lag"] == 4


@pytest.mark.parametrize(
    "command",
    [
        ("topic", "show", "ordrs"),
        ("topic", "delete", "ordrs", "--yes"),
        ("quota", "set", "topic", "ordrs", "--messages", "9"),
        ("group", "reset", "billing", "--topic", "ordrs", "--to", "latest"),
        ("group", "show", "biling"),
        ("group", "lag", "biling"),
        ("group", "pause", "biling"),
        ("group", "delete", "biling", "--yes"),
        (
            "quota",
            "set",
            "topic",
            "orders",
            "--backlog",
            "9",
            "--group",
            "biling",
            "--action",
            "slow",
        ),
    ],
    ids=" ".join,
)
def test_a_mistyped_topic_or_group_is_answered_with_the_name_that_may_be_meant(
    command: tuple[str, ...], desk: Desk
) -> None:
    kind, wrong, meant = (
        ("group", "biling", "billing") if "biling" in command else ("topic", "ordrs", "orders")
    )
    refused = desk.run(*command)
    assert refused.returncode == 1
    assert refused.stderr == (
        f"sparrowmq: {kind} {wrong} does not exist; did you mean {meant}? those that do: sparrowmq"
        f" {kind} list; create it with: sparrowmq {kind} create {wrong}\n"
    )


def test_messages_are_found_by_key_id_place_and_time(desk: Desk) -> None:
    found = desk.done("message", "get", "orders", "--key", "o-1").splitlines()
    assert found[:2] == [
        "PLACE\tSTORED\tTAG\tKEYS\tID\tSIZE",
        "broker-a/1/0\t<time>\tpaid\to-1\t<id>\t7",
    ]
    assert found[-2:] == ["BODY", "order 1"]
    items = desk.json("message", "get", "orders", "--key", "o-1")["items"]
    assert isinstance(items, list)
    by_id = desk.json("message", "get", "orders", "--id", items[0]["id"])["items"]
    assert by_id == items
    place = desk.json("message", "get", "orders", "--queue", "broker-a/1", "--offset", "0")
    assert place["items"] == items
    ranged = desk.done("message", "get", "orders", "--since", "-1h").splitlines()
    assert len(ranged) == 5
    assert ranged[1] == "broker-a/0/0\t<time>\tpaid\to-0\t<id>\t7\torder 0"
    cut = desk.run("message", "get", "orders", "--since", "-1h", "--limit", "3")
    assert "3 of 4" in cut.stderr
    by_key = desk.run("message", "get", "twins", "--key", "twin", "--limit", "1")
    assert "1 of more than 1; --limit N for more, up to 64" in by_key.stderr


def test_the_body_of_a_message_goes_to_a_file(desk: Desk, tmp_path: Path) -> None:
    out = tmp_path / "body"
    place = ("message", "get", "orders", "--queue", "broker-a/0", "--offset", "0")
    desk.done(*place, "--out", str(out))
    assert out.read_bytes() == b"order 0"
    assert "exists; choose another name" in desk.run(*place, "--out", str(out)).stderr
    assert desk.done(*place, "--body", "hex").splitlines()[-1] == "6f 72 64 65 72 20 30"


def test_tail_and_get_say_the_same_of_a_message_as_json(desk: Desk) -> None:
    def asked(*arguments: str) -> Any:
        return desk.json("message", *arguments)

    first = ("--queue", str(FIRST.place), "--offset", "0")
    got = asked("get", "orders", *first)
    since = ("--queue", str(FIRST.place), "--since", "-1h", "--count", "1")
    tailed = asked("tail", "orders", *since)
    properties = {each["name"]: each["value"] for each in got["properties"]}
    assert [tailed["id"]] == [each["id"] for each in got["items"]]
    assert [tailed["stored"]] == [each["stored"] for each in got["items"]]
    assert tailed["born"] == properties["born"]
    assert str(tailed["attempts"]) == properties["attempts"]
    assert tailed["properties"].items() <= properties.items()
    assert "UNIQ_KEY" in tailed["properties"]


def test_a_topic_is_followed(desk: Desk) -> None:
    lines = desk.done("message", "tail", "orders", "--since", "-1h", "--count", "4").splitlines()
    assert lines[0] == "broker-a/0/0 [paid] o-0: order 0"
    assert len(lines) == 4
    only = ("--queue", "broker-a/1", "--count", "2", "--json")
    ran = desk.run("message", "tail", "orders", "--since", "-1h", *only)
    assert [json.loads(line)["body"] for line in ran.stdout.splitlines()] == ["order 1", "order 3"]


def test_a_message_that_no_client_traced_is_judged_by_offsets(desk: Desk) -> None:
    ran = desk.run("message", "trace", "--topic", "orders", "--key", "o-0")
    assert ran.returncode == 0, ran.stderr
    lines = steady(ran.stdout).splitlines()
    assert lines[:2] == [
        "TIME\tSTEP\tWHO\tGROUP\tTOOK\tRESULT",
        "<time>\tstored\tbroker-a/0/0\t\t\t",
    ]
    assert "GROUP\tSTATE\tSOURCE\tBEFORE-IT" in lines
    assert "billing\toffline\toffsets\t0" in lines
    assert "no client has traced this message" in ran.stderr


# ---- what is refused

REFUSED = {
    "a group that is not there": (["group", "lag", "nope"], 1, "group nope does not exist"),
    "no place": (["group", "reset", "g", "--topic", "t"], 2, "give one of --to and --by"),
    "two places": (
        ["group", "reset", "g", "--topic", "t", "--to", "latest", "--by", "1"],
        2,
        "give one of --to and --by",
    ),
    "a place that is none": (
        ["group", "reset", "g", "--topic", "t", "--to", "then"],
        2,
        "'then' is not a place; write earliest, latest, an offset",
    ),
    "no steps": (["group", "reset", "g", "--topic", "t", "--by", "0"], 2, "write +1 or -100"),
    "a queue that is none": (
        ["group", "reset", "g", "--topic", "t", "--by", "1", "--queue", "3"],
        2,
        "'3' is not a queue; write broker-a/3",
    ),
    "a time in the future": (
        ["group", "reset", "billing", "--topic", "orders", "--to", "2100-01-01", "--dry-run"],
        2,
        "`to` is 2100-01-01T00:00:00+00:00, which is in the future",
    ),
    "an offset that the queue does not have": (
        ["group", "reset", "billing", "--topic", "orders", "--to", "99", "--dry-run"],
        1,
        "has offsets 0 to 2, not 99",
    ),
    "an undo of nothing": (
        ["group", "undo", "billing"],
        1,
        "in this cluster that can still be undone",
    ),
    "an update of nothing": (["group", "update", "billing"], 2, "nothing to change"),
    "an attribute that is none": (
        ["group", "update", "billing", "--attribute", "x"],
        2,
        "--attribute 'x' is not K=V",
    ),
    "no question": (["message", "get", "orders"], 2, "say which: --id, --key"),
    "an id and a key": (
        ["message", "get", "orders", "--id", "A", "--key", "B"],
        2,
        "--id stands alone",
    ),
    "an offset without a queue": (
        ["message", "get", "orders", "--offset", "1"],
        2,
        "--offset needs --queue",
    ),
    "a key that no message has": (
        ["message", "get", "orders", "--key", "none"],
        1,
        "message with key none does not exist; topic orders has none",
    ),
    "a range that holds nothing": (
        ["message", "get", "orders", "--since", "2026-11-15", "--until", "2026-11-14"],
        2,
        "since (2026-11-15T00:00:00Z) is not before until (2026-11-14T00:00:00Z)",
    ),
    "an id that is none": (["message", "get", "orders", "--id", "17"], 2, "hexadecimal digits"),
    "a trace of nothing": (["message", "trace"], 2, "give one of ID and --key"),
    "a delivery without a member": (
        ["message", "deliver", "A" * 32, "--topic", "orders", "--group", "billing", "--yes"],
        1,
        "does not exist",
    ),
    "dead letters that are not there": (
        ["dlq", "show", "nope"],
        1,
        "group nope does not exist",
    ),
    "no choice of dead letters": (["dlq", "resend", "billing"], 2, "say which: --id"),
    "a pause of RocketMQ's own tools": (
        ["group", "pause", "TOOLS_CONSUMER"],
        2,
        "group TOOLS_CONSUMER belongs to RocketMQ's own tools; name one of yours",
    ),
    "a pause in one topic of them": (
        ["group", "pause", "TOOLS_CONSUMER", "--topic", "orders"],
        2,
        "belongs to RocketMQ's own tools",
    ),
    "a group of RocketMQ's own tools that is made": (
        ["group", "create", "CID_RMQ_SYS_TRANS"],
        2,
        "belongs to RocketMQ's own tools",
    ),
    "one that is changed": (
        ["group", "update", "TOOLS_CONSUMER", "--consume", "off"],
        2,
        "belongs to RocketMQ's own tools",
    ),
    "one that gets progress": (
        ["group", "clone", "billing", "TOOLS_CONSUMER", "--yes"],
        2,
        "belongs to RocketMQ's own tools",
    ),
    "a topic of a group as a group": (
        ["group", "create", "%RETRY%billing"],
        2,
        "is a topic that brokers make for a group; name the group",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_wrong_input_is_refused_with_the_allowed_values(desk: Desk, case: str) -> None:
    arguments, code, text = REFUSED[case]
    ran = desk.run(*arguments)
    assert (ran.returncode, ran.stdout) == (code, "")
    assert text in ran.stderr.replace("\n", " ")


@pytest.mark.parametrize(
    ("ends_by", "code"), [("signal", 130), ("refusal", 3)], ids=["Ctrl-C", "a failure"]
)
def test_a_resend_that_is_cut_short_reports_what_was_sent(
    desk: Desk, ends_by: str, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = f"cut-by-{ends_by}"
    with Admin(desk.name_server, timeout_s=PATIENCE_S) as admin:
        admin.create_topic(group, queues=1)
        admin.create_group(group, retries=0)
    with Producer("shop", name_servers=desk.name_server) as producer:
        for _ in range(3):
            producer.send(Message(group, b"bad order"))
    consume(desk, group, 3, topic=group, fails=True)
    sleep = asyncio.sleep

    async def cut(seconds: float) -> None:
        if seconds != 1 / 1000:  # the pause between two letters
            await sleep(seconds)
        elif ends_by == "refusal":
            raise AdminError("the second letter cannot be read")
        else:
            signal.raise_signal(signal.SIGINT)
            await asyncio.Event().wait()  # until the signal ends it

    # Programs that a shell starts in the background inherit that Ctrl-C is ignored.
    inherited = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with monkeypatch.context() as patch:
            patch.setattr("sparrowmq.admin.resends.asyncio.sleep", cut)
            ran = desk.run("dlq", "resend", group, "--all", "--rate", "1000", "--yes")
    finally:
        signal.signal(signal.SIGINT, inherited)
    assert (ran.returncode, ran.stdout.count("\tsent\t")) == (code, 1), ran.stderr
    assert f"1 dead letter of {group} sent again" in ran.stderr
    assert "run it again: what was sent is left out then" in ran.stderr
    assert "stopped before it ended" not in ran.stderr
    rest = desk.json("dlq", "resend", group, "--all", "--yes")
    assert (rest["sent"], rest["sentBefore"]) == (2, 1)


@pytest.mark.slow
def test_a_thousand_groups_are_listed_a_hundred_at_a_time() -> None:
    with cluster() as running, Admin(running.name_server, timeout_s=PATIENCE_S) as admin:
        desk = Desk(running, Path())

        async def create() -> None:
            from sparrowmq import Admin as AsyncAdmin

            async with AsyncAdmin(running.name_server, timeout_s=PATIENCE_S) as many:
                limit = asyncio.Semaphore(50)

                async def one(number: int) -> None:
                    async with limit:
                        await many.create_group(f"many-{number:04}")

                await asyncio.gather(*(one(number) for number in range(1000)))

        asyncio.run(create())
        assert len([each for each in admin.groups() if each.startswith("many-")]) == 1000
        ran = desk.run("group", "list", "--match", "many-*")
        assert len(ran.stdout.splitlines()) == 101
        assert "100 of 1,000; --limit 0 for all" in ran.stderr


# ---- a story


def consume(
    desk: Desk, group: str, count: int, *, topic: str = "story", fails: bool = False
) -> list[MessageExt]:
    """Consume until a member has this many messages; returns them."""
    got: list[MessageExt] = []
    came = threading.Semaphore(0)

    def handle(messages: Sequence[MessageExt]) -> None:
        got.extend(messages)
        came.release(len(messages))
        if fails:
            raise ValueError("poison")

    with PushConsumer(
        group,
        {topic: "*"},
        name_servers=desk.name_server,
        from_where="FIRST_OFFSET",
        max_reconsume_times=0,
    ) as consumer:
        consumer.start(handle)
        for _ in range(count):
            assert came.acquire(timeout=PATIENCE_S)
    return got


def test_a_dead_letter_goes_back_to_its_group_only_and_only_once(
    desk: Desk, tmp_path: Path
) -> None:
    with Admin(desk.name_server, timeout_s=PATIENCE_S) as admin:
        admin.create_topic("story", queues=1)
        admin.create_group("cashier", retries=0)
    with Producer("shop", name_servers=desk.name_server) as producer:
        producer.send(Message("story", b"bad order", tags="paid", keys="s-1"))
    consume(desk, "cashier", 1, fails=True)
    consume(desk, "auditor", 1)

    listed = desk.done("dlq", "list", "--match", "cash*").splitlines()
    assert listed == ["GROUP\tDEAD\tOLDEST\tNEWEST\tLAST-24H", "cashier\t1\t<time>\t<time>\t1"]
    shown = desk.done("dlq", "show", "cashier").splitlines()
    assert shown[0] == "ID\tDIED\tTOPIC\tTAG\tKEYS\tATTEMPTS\tBODY"
    assert shown[1] == "<id>\t<time>\tstory\tpaid\ts-1\t1\tbad order"
    out, foreign = tmp_path / "dead.jsonl", tmp_path / "dead.jsonl.part"
    foreign.write_text("of another program")
    assert desk.done("dlq", "export", "cashier", "--out", str(out)).startswith("DEAD\tFILE\n1\t")
    assert json.loads(out.read_text())["body"] == "bad order"
    assert set(tmp_path.iterdir()) == {out, foreign}
    assert foreign.read_text() == "of another program"
    assert desk.run("dlq", "export", "cashier", "--out", "-").stdout == out.read_text()

    planned = desk.done("dlq", "resend", "cashier", "--all", "--dry-run").splitlines()
    assert planned[1] == "<id>\t<time>\t%RETRY%cashier\twould be sent\t"
    asked = desk.run("dlq", "resend", "cashier", "--all")
    assert asked.returncode == 1
    assert "would be sent to group cashier again, and to no other" in asked.stderr
    sent = desk.done("dlq", "resend", "cashier", "--all", "--yes").splitlines()
    assert sent == ["ID\tDIED\tTO\tRESULT\tREASON", "<id>\t<time>\t%RETRY%cashier\tsent\t"]
    again = desk.json("dlq", "resend", "cashier", "--all", "--yes")
    assert (again["sent"], again["sentBefore"], again["refused"]) == (0, 1, 0)
    (got,) = consume(desk, "cashier", 1)
    assert (got.body, got.original_topic) == (b"bad order", "story")
    lag = desk.json("group", "lag", "auditor", "--topic", "story")
    assert lag["lag"] == 0

    def story(*more: str) -> Ran:
        return desk.run("group", *more)

    reset = story("reset", "auditor", "--topic", "story", "--to", "-1h", "--yes")
    assert reset.returncode == 0, reset.stderr
    assert "back again: sparrowmq group undo auditor" in reset.stderr
    consume(desk, "auditor", 1)
    gone_on = story("undo", "auditor", "--yes")
    assert gone_on.returncode == 1
    assert "has moved since reset" in gone_on.stderr
    assert story("undo", "auditor", "--force", "--yes").returncode == 0


def test_a_deletion_names_the_brokers_that_its_table_lists() -> None:
    with cluster(brokers=2) as running:
        at = ("--name-servers", running.name_server)
        run("group", "create", "copy", "--broker", "broker-a", *at)
        shown = run("group", "delete", "copy", "--dry-run", *at)
        listed = [each.split("\t")[0] for each in shown.stdout.splitlines()[1:]]
        assert listed == ["broker-a", "broker-b"]
        assert (
            "group copy would be deleted on broker-a, broker-b, with its progress in 0 topics\n"
            in shown.stderr
        )
