"""Malicious visitors and clients: nothing breaks, blocks the loop, or fills the memory."""

import asyncio
import json
import socket
from collections.abc import Iterator
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from sparrowmq import Admin, AdminError, Client, Message
from sparrowmq.console import server
from sparrowmq.console.audit import Audit
from sparrowmq.console.console import Console
from sparrowmq.console.listing import part_of
from sparrowmq.console.live import MOST_STREAMS, Live
from sparrowmq.console.pages.dead_letters import Export
from sparrowmq.console.sessions import LoginLimit
from sparrowmq.console.text import best_form, instant, iso, parse_time, shown_body
from sparrowmq.console.users import User, UserRole, write_user
from sparrowmq.testing.sim_cluster import RunningCluster, SimCluster
from tests.admin.operator import as_client, send
from tests.admin.test_dead_letters import died, order
from tests.console.serving import serving
from tests.console.test_guard import PASSWORD, Clock, log_in
from tests.console.test_live import page
from tests.console.visitor import Got, Visitor, as_visitor, offline
from tests.patience import PATIENCE_S


@pytest.fixture(scope="module")
def sim() -> Any:
    with SimCluster(seed=31).run() as running:

        async def prepare(client: Client, console: Console, visitor: Visitor) -> None:
            await Admin(client=client).create_topic("orders", queues=1)
            await Admin(client=client).create_group("billing")

        as_visitor(running, prepare)
        yield running


LONG = "x" * 60_000
DIGITS = "9" * 5_000


@pytest.mark.slow
@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/static/../config.py", 404),
        ("/static/..%2f..%2fconfig.py", 404),
        ("/static/%2e%2e/%2e%2e/config.py", 404),
        ("/static/console.js%00.css", 404),
        ("/static/", 404),
        ("/topics/..%2f..%2fetc%2fpasswd", 404),
        ("/topics/%00", 400),
        ("/topics/%ff%fe", 400),
        ("/groups/%00", 400),
        ("/groups/a%0d%0aset-cookie:x=1", 400),
        ("/brokers/%00", 404),
        ("/messages/%00", 400),
        ("/dead-letters/%00", 400),
        ("/groups/billing/members/%00", 200),
        (f"/topics?match={LONG}", 200),
        (f"/topics?match={'*a' * 30_000}", 200),
        (f"/search?q={'*a' * 30_000}", 200),
        (f"/topics/orders/messages?key={'*a' * 30_000}", 200),
        (f"/topics?page={DIGITS}&sort=-{LONG}", 200),
        (f"/topics/orders/messages?since=-{DIGITS}d", 200),
        ("/topics/orders/messages?since=-99999999d", 200),
        ("/topics/orders/messages?since=0001-01-01", 200),
        ("/topics/orders/messages?since=9999-12-31T23:59", 200),
        (f"/topics/orders/messages?at=broker-a/0/{DIGITS}", 200),
        ("/topics/orders/messages?at=broker-a/0/-5", 200),
        ("/topics/orders/messages?at=broker-a/99999999999999999999/1", 200),
        (f"/messages?topic=orders&place=broker-a/0/{'9' * 30}", 400),
        ("/messages?topic=orders&place=broker-a/99/0", 502),
        ("/messages?topic=orders&place=,", 400),
        ("/messages?topic=orders&key=k&since=-99999999d&until=0001-01-01", 200),
        (f"/messages?id={LONG}", 200),
        ("/waiting/timers?x=%00", 200),
        (f"/nameservers?namespace={LONG}", 200),
        ("/@/@/topics", 404),
        ("/@%00/topics", 404),
        (f"/live?page={LONG}", 404),
        ("/live?page=//evil.example", 404),
        ("/live", 404),
    ],
    ids=lambda value: str(value)[:60],
)
def test_an_address_of_any_kind_gets_an_answer(path: str, status: int, sim: RunningCluster) -> None:
    async def work(_: Client, console: Console, visitor: Visitor) -> Got:
        return await visitor.get(path)

    got = as_visitor(sim, work)
    assert got.status == status, got.text[:500]
    assert "set-cookie:x" not in str(got.headers)


def test_a_very_long_pattern_is_matched_cheaply() -> None:
    found = part_of(["a" * 255] * 10, {"match": "*a" * 30_000})
    assert found.found in (0, 10)
    assert len(found.query["match"]) == 60_000, "links keep what was asked"


@pytest.mark.parametrize("path", ["/topics", "/login", "/groups/x/reset", "/nope", "/audit"])
@pytest.mark.parametrize("body", [b"", b"%00=%00&token=", b"\xff\xfe", b"a=" * 6_000, b"[]"])
def test_a_post_without_a_proper_form_is_refused(path: str, body: bytes) -> None:
    _, visitor = offline(Clock())
    headers = {
        "content-type": "application/x-www-form-urlencoded",
        "origin": "http://127.0.0.1:9880",
    }
    got = asyncio.run(visitor.ask("POST", path, body, headers))
    assert got.status in (403, 413)


def test_reading_an_endless_form_times_out(sim: RunningCluster) -> None:
    async def work(_: Client, console: Console, visitor: Visitor) -> Got:
        sent = {"content-type": "application/x-www-form-urlencoded", "origin": "http://x"}
        return await visitor.ask("POST", "/topics", b"a=1", sent, is_endless=True)

    got = as_visitor(sim, work)
    assert (got.status, "too slow" in got.html) == (413, True)


# ---- what messages and clients say


@pytest.mark.parametrize("value", [2**63 - 1, -(2**63), 10**15, -(10**14)])
def test_a_time_outside_the_calendar_is_shown_as_unknown(value: int) -> None:
    assert instant(value) == "?"
    assert iso(value) == ""


@pytest.mark.parametrize("text", ["-99999999999d", "-1x", "-", "--5m", "9" * 100, "1e9"])
def test_an_invalid_time_is_refused_with_a_short_message(text: str) -> None:
    with pytest.raises(ValueError, match="write") as refused:
        parse_time(text, 10**12)
    assert len(str(refused.value)) < 150


BODIES = {
    "half a surrogate pair": json.dumps({"a": "\ud800"}).encode(),
    "deep": b"[" * 50_000,
    "a long number": b"[" + b"9" * 5_000 + b"]",
    "bytes": bytes(range(256)),
    "nothing": b"",
    "not finite": b"[NaN, Infinity]",
    "markup in a live part": b"<!--end:messages--><!--live:x--><script>alert(1)</script>",
}


@pytest.mark.parametrize("name", BODIES)
@pytest.mark.parametrize("form", ["text", "json", "hex", "../../x"])
def test_a_body_of_any_kind_is_shown(name: str, form: str) -> None:
    assert best_form(BODIES[name]) in ("text", "json")
    shown_body(BODIES[name], form)


def test_pages_show_messages_with_any_content() -> None:
    async def work(client: Client, console: Console, visitor: Visitor) -> list[Got]:
        await Admin(client=client).create_topic("evil", queues=1)
        sent = await send(
            client, *(Message("evil", body, keys="k") for body in BODIES.values() if body)
        )
        paths = [f"/messages/{each.msg_id}?topic=evil&body=json" for each in sent]
        return [await visitor.get(path) for path in ["/topics/evil/messages", *paths]]

    with SimCluster(seed=32).run() as sim:
        pages = as_visitor(sim, work)
    assert [each.status for each in pages] == [200] * len(pages)
    assert all("<script>alert" not in each.html for each in pages)
    assert "<!--end:messages--><!--live:x-->" not in pages[0].html


def test_a_user_message_can_be_copied_and_a_system_message_cannot() -> None:
    async def work(client: Client, console: Console, visitor: Visitor) -> list[Got]:
        await Admin(client=client).create_topic("orders", queues=1)
        (sent,) = await send(
            client, Message("orders", b"one", tags="t", keys="k", properties={"shop": "Bern"})
        )
        await visitor.get("/audit")
        copied = await visitor.post(f"/messages/{sent.msg_id}/send?topic=orders")
        found = await console.admin.find_messages("orders", "k")
        assert [(each.body, each.tags, each.user_properties) for each in found] == [
            (b"one", "t", {"shop": "Bern"})
        ] * 2
        (line,) = console.desk.audit.newest_first
        assert line.action == "send again"
        return [copied]

    with SimCluster(seed=33).run() as sim:
        (copied,) = as_visitor(sim, work)
    assert "A copy of" in copied.text


class Broken(Admin):
    """Fails with an unexpected exception."""

    async def clients(self, **_: Any) -> Any:
        raise ZeroDivisionError("a secret of the machine")


def test_an_internal_error_is_shown_without_details(sim: RunningCluster) -> None:
    async def work(_: Client, console: Console, visitor: Visitor) -> Got:
        with pytest.raises(ZeroDivisionError):  # the server logs what passes through
            await visitor.get("/clients")
        assert visitor.last is not None
        return visitor.last

    got = as_visitor(sim, work, admin=lambda client: Broken(client=client))
    assert got.status == 500
    assert "its log says why" in got.html and "secret" not in got.html
    assert "content-security-policy" in got.headers


# ---- much at once


def test_two_hundred_requests_at_once_are_all_answered(sim: RunningCluster) -> None:
    paths = ["/", "/topics", "/topics/orders", "/groups", "/groups/billing", "/brokers", "/clients"]

    async def work(_: Client, console: Console, visitor: Visitor) -> list[int]:
        asked = (visitor.get(paths[number % len(paths)]) for number in range(200))
        return [got.status for got in await asyncio.gather(*asked)]

    assert as_visitor(sim, work) == [200] * 200


def test_of_seventy_streams_that_begin_together_sixty_four_are_served(sim: RunningCluster) -> None:
    async def work(_: Client, console: Console, visitor: Visitor) -> list[int]:
        live, loop = console.desk.live, asyncio.get_running_loop()
        loop.call_later(12, live.close)
        got = await asyncio.gather(*(visitor.get("/live?page=/audit") for _ in range(70)))
        return [each.html.count("event: fragment") for each in got]

    served = as_visitor(sim, work)
    assert sum(count > 0 for count in served) == MOST_STREAMS


def test_a_stream_ends_with_the_session_of_its_reader(tmp_path: Path) -> None:
    users = tmp_path / "users.txt"
    write_user(users, "ada", UserRole.READER, PASSWORD)
    clock = Clock()
    console, visitor = offline(clock, users=users)

    async def work() -> bool:
        await log_in(visitor, "ada")
        session = visitor.cookies[next(name for name in visitor.cookies if "9880" in name)]
        sessions, live = console.desk.sessions, Live()
        assert sessions.user_of(session) == User("ada", UserRole.READER)
        rendered: list[int] = []

        async def render() -> str:
            rendered.append(1)
            if len(rendered) == 2:
                sessions.end(session)
            return page(len(rendered))

        allowed = lambda: sessions.is_open(session)  # noqa: E731
        parts = [part async for part in live.stream("k", render, {}, 0.001, allowed)]
        return len(parts) > 1 and len(rendered) == 2

    assert asyncio.run(work())


def test_a_stream_does_not_keep_a_session_alive(tmp_path: Path) -> None:
    users = tmp_path / "users.txt"
    write_user(users, "ada", UserRole.READER, PASSWORD)
    clock = Clock()
    console, visitor = offline(clock, users=users)

    async def work() -> list[bool]:
        await log_in(visitor, "ada")
        session = next(iter(visitor.cookies.values()))
        found = []
        for _ in range(3):
            clock.now_ms += 14 * 60_000
            found.append(console.desk.sessions.is_open(session))
        return found

    assert asyncio.run(work()) == [True, True, False]


def test_long_texts_of_a_form_do_not_fill_the_audit_log() -> None:
    audit = Audit(Clock(), None)
    audit.record(
        user="u",
        address="a",
        action="set key",
        target=LONG,
        before=LONG,
        after=LONG,
        result="done",
        cluster="",
    )
    (line,) = audit.newest_first
    assert len(line.target) + len(line.before) + len(line.after) < 13_000
    assert "60,000 characters" in line.after


def test_guesses_of_many_names_from_one_address_are_limited() -> None:
    limit = LoginLimit(Clock())
    waits = [limit.try_one("10.0.0.1", f"user-{number}") for number in range(25)]
    assert waits == [0] * 20 + [60] * 5
    assert limit.try_one("10.0.0.2", "user-1") == 0


def test_addresses_of_one_ipv6_network_are_limited_together() -> None:
    limit = LoginLimit(Clock())
    for each in range(5):
        assert limit.try_one(f"2001:db8::{each:x}", "ada") == 0
    assert limit.try_one("2001:db8::ffff:1", "ada") > 0
    assert limit.try_one("2001:db8:0:1::1", "ada") == 0, "another network"


def test_a_name_of_any_length_is_logged_shortened(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_user(tmp_path / "users.txt", "ada", UserRole.READER, "correct horse")
    _, visitor = offline(Clock(), users=tmp_path / "users.txt")

    async def work() -> int:
        await visitor.get("/login")
        return (await visitor.post("/login", {"name": "x" * 9_000, "password": "wrong"})).status

    assert asyncio.run(work()) == 403
    assert len(caplog.messages[-1]) < 200


# ---- bytes on a real socket


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    """Of a console whose name server is not there."""
    with serving("127.0.0.1:1") as address:
        yield int(address.rsplit(":", 1)[1])


@pytest.mark.parametrize(
    ("head", "status"),
    [
        ("GET /audit HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\n\r\n", 200),
        ("GET /audit HTTP/1.0\r\n\r\n", 421),
        ("GET /audit HTTP/1.1\r\nhost: evil.example\r\n\r\n", 421),
        ("GET /audit HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\nhost: evil.example\r\n\r\n", 400),
        ("GET http://evil.example/audit HTTP/1.1\r\nhost: evil.example\r\n\r\n", 421),
        ("GET /static/../config.py HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\n\r\n", 404),
        ("GET /static/..%2fconfig.py HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\n\r\n", 404),
        ("GET /static/%00 HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\n\r\n", 404),
        ("GET //evil.example/ HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\n\r\n", 404),
        ("POST /topics HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\ncontent-length: 0\r\n\r\n", 413),
        ("POST /topics HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\n\r\n", 413),
        ("\x00\x01\x02\r\n\r\n", 400),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_request_of_any_bytes_gets_an_answer(head: str, status: int, port: int) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as peer:
        peer.sendall(head.replace("{port}", str(port)).encode("latin-1"))
        assert int(answer_of(peer).split()[1]) == status


@pytest.mark.parametrize(
    "parts",
    [
        [b""],
        [b"GET /audit HTTP/1.1\r\nhost: 127.0.0.1\r\n"],
        [b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\n\r\n", b"GET /audit"],
    ],
    ids=["nothing", "half a head", "half of a second one"],
)
def test_a_request_that_does_not_arrive_gives_up_its_place(
    parts: list[bytes], port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "HEAD_S", 0.1)
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as peer:
        for each in parts:
            peer.sendall(each.replace(b"{port}", b"%d" % port))
            if each.endswith(b"\r\n\r\n"):
                assert peer.recv(4096).startswith(b"HTTP/1.1 200")
        while peer.recv(4096):
            pass


def test_a_head_of_megabytes_is_not_read_to_its_end(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as peer:
        with suppress(ConnectionError):  # it may be closed while it is sent
            peer.sendall(b"GET /audit?" + b"x" * 32 * 1024 * 1024)
        found = b""
        with suppress(ConnectionError):  # what was not read resets it, perhaps before the answer
            found = answer_of(peer)
    assert found == b"" or found.split()[1] == b"400"


def answer_of(peer: socket.socket) -> bytes:
    found = b""
    while b"\r\n" not in found and (part := peer.recv(4096)):
        found += part
    return found


class Counting(Admin):
    """Counts the dead letters that were read."""

    lines = 0

    async def export_dead_letters(self, group: str, write: Any, **times: Any) -> int:
        """The same."""

        def counted(line: str) -> object:
            self.lines += 1
            return write(line)

        return await super().export_dead_letters(group, counted, **times)


def test_a_slow_reader_of_many_dead_letters_takes_no_memory() -> None:
    letters = 150

    async def work(client: Client) -> tuple[list[int], list[bytes]]:
        bodies = (order(number).body + b"x" * 4_000 for number in range(letters))
        await died(client, *(Message("orders", body) for body in bodies))
        admin = Counting(client=client)
        read: list[int] = []
        parts: list[bytes] = []

        async def send_slowly(message: Any) -> None:
            await asyncio.sleep(60)
            read.append(admin.lines)
            parts.append(message.get("body", b""))

        await Export(admin, "billing")({"type": "http"}, None, send_slowly)  # type: ignore[arg-type]
        return read, parts

    with SimCluster(seed=33).run() as sim:
        read, parts = as_client(sim, work)
    assert sum(part.count(b"\n") for part in parts) == letters
    assert max(map(len, parts)) < 80_000
    steps = [after - before for before, after in pairwise(read)]
    assert max(steps) < 20, "no further than the slice that the reader takes"


def test_an_export_that_loses_a_broker_midway_does_not_look_complete() -> None:
    class Losing(Admin):
        async def export_dead_letters(self, group: str, write: Any, **times: Any) -> int:
            write('{"id":"1"}')
            raise AdminError("broker-b: does not answer")

    async def work(client: Client) -> list[Any]:
        sent: list[Any] = []

        async def send(message: Any) -> None:
            sent.append(message)

        await Export(Losing(client=client), "billing")({"type": "http"}, None, send)  # type: ignore[arg-type]
        return sent

    with SimCluster(seed=34).run() as sim:
        sent = as_client(sim, work)
    assert sent[0]["status"] == 200
    assert all(message.get("more_body", True) for message in sent), "browsers say that it failed"


@pytest.mark.parametrize(
    ("body", "form", "shown_as", "note"),
    [
        (b"\x89PNG" + b"\xff\x00" * 40_000, "text", "hex", "not UTF-8 text; shown as bytes"),
        ("ä".encode() * 40_000, "text", "text", ""),
        (b"x" + "ä".encode() * 40_000, "text", "text", ""),
        (b"[" + b"1," * 600_000 + b"1]", "json", "text", "1.1 MiB, at most 1.0 MiB are formatted"),
    ],
)
def test_a_large_body_is_shown_shortened(body: bytes, form: str, shown_as: str, note: str) -> None:
    found = shown_body(body, form)
    assert (found.form, found.is_cut) == (shown_as, True)
    assert note in found.note and bool(note) == bool(found.note)
    if shown_as == "text":
        assert body.startswith(found.text.encode()), "no byte is left out"


def change(audit: Audit, target: str) -> None:
    audit.record(
        user="ada",
        address="::1",
        action="create topic",
        target=target,
        before="",
        after="",
        result="done",
        cluster="",
    )


def test_a_line_after_one_that_a_crash_has_cut_is_read_again(tmp_path: Path) -> None:
    path, clock = tmp_path / "audit.jsonl", Clock()
    change(Audit(clock, path), "orders")
    path.write_bytes(path.read_bytes() + b'{"time_ms":17')
    change(Audit(clock, path), "payments")
    again = Audit(clock, path)
    assert [each.target for each in again.newest_first] == ["payments", "orders"]
    assert again.unreadable == 1


def test_what_was_rolled_aside_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sparrowmq.console.audit.ROLL_BYTES", 200)
    audit = Audit(Clock(), tmp_path / "audit.jsonl")
    for number in range(3):
        change(audit, f"orders-{number}")
    assert len(Audit(Clock(), tmp_path / "audit.jsonl").newest_first) == 3


def test_a_change_whose_line_cannot_be_written_is_shown_with_the_reason(tmp_path: Path) -> None:
    async def work(client: Client, console: Console, visitor: Visitor) -> tuple[Got, Got]:
        await visitor.get("/topics")
        (tmp_path / "audit.jsonl").mkdir()
        done = await visitor.post("/topics", {"name": "invoices", "queues": "1"})
        return done, await visitor.get("/audit")

    with SimCluster(seed=35).run() as sim:
        done, page = as_visitor(sim, work, state_dir=tmp_path)
    assert "Topic invoices was created" in done.text
    assert "invoices" in page.text and "could not be written" in page.text
