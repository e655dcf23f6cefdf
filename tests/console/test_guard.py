"""Every request to the console passes its guard: host, login, origin, token, role."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from sparrowmq.console.app import ROUTES
from sparrowmq.console.config import ConsoleConfig, ConsoleError
from sparrowmq.console.security import HARMLESS, HEADERS
from sparrowmq.console.users import UserRole, write_user
from tests.console.visitor import HOST, TOKEN, Got, Visitor, config, offline

NOW_MS = 1_760_000_000_000
PASSWORD = "correct horse"


@pytest.fixture(scope="module")
def users(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("users") / "users.txt"
    write_user(path, "ada", UserRole.OPERATOR, PASSWORD)
    write_user(path, "bob", UserRole.READER, PASSWORD)
    return path


class Clock:
    """Time that a test moves."""

    def __init__(self) -> None:
        self.now_ms = NOW_MS

    def __call__(self) -> int:
        return self.now_ms


def address(path: str) -> str:
    """An example of a route's address."""
    for name in ("{topic}", "{group}", "{client:path}", "{id}", "{broker}"):
        path = path.replace(name, "x")
    return path


SHOWN = [*sorted(address(each.path) for each in ROUTES if each.show), "/live?page=/audit"]
CHANGED = sorted(address(each.path) for each in ROUTES if each.act)


def run(work: Any) -> Any:
    return asyncio.run(work)


async def log_in(visitor: Visitor, name: str, password: str = PASSWORD) -> Got:
    await visitor.get("/login")
    return await visitor.post("/login", {"name": name, "password": password, "back": "/audit"})


# ---- where it may listen


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"listen": "0.0.0.0"}, "give a users file"),
        ({"listen": "10.1.2.3", "users": Path("u")}, "--tls-cert"),
        ({"listen": "::"}, "give a users file"),
        ({"tls_cert": Path("c")}, "belong together"),
    ],
)
def test_a_console_that_others_reach_needs_users_and_tls(
    settings: dict[str, Any], says: str
) -> None:
    with pytest.raises(ConsoleError, match=says):
        ConsoleConfig(name_servers=("a:1",), **settings)


def test_the_insecure_option_replaces_tls_and_loopback_needs_neither() -> None:
    config(listen="0.0.0.0", users=Path("u"), insecure=True)
    config(listen="localhost")
    config(listen="::1")


# ---- host


@pytest.mark.parametrize(
    ("host", "status"),
    [
        (HOST, 200),
        ("localhost:9880", 200),
        ("[::1]:9880", 200),
        ("evil.example:9880", 421),
        ("127.0.0.1.evil.example:9880", 421),
        ("127.0.0.1:9881", 421),
        ("127.0.0.1", 421),
        ("10.0.0.7:9880", 421),
        ("a b", 421),
        ("", 421),
    ],
)
def test_on_loopback_only_loopback_names_with_our_port_are_answered(host: str, status: int) -> None:
    _, visitor = offline(Clock())
    got = run(visitor.get("/audit", host=host))
    assert got.status == status


@pytest.mark.parametrize(
    ("host", "status"),
    [("console.example", 200), ("10.0.0.7:9880", 200), ("evil.example:9880", 421)],
)
def test_other_host_names_must_be_allowed_and_addresses_need_not(
    host: str, status: int, users: Path
) -> None:
    settings = {"listen": "0.0.0.0", "insecure": True, "users": users}
    _, visitor = offline(Clock(), hosts=("console.example",), **settings)
    assert run(visitor.get("/login", host=host)).status == status


# ---- every address


@pytest.mark.parametrize("path", SHOWN)
def test_no_page_is_shown_without_a_login(path: str, users: Path) -> None:
    _, visitor = offline(Clock(), users=users)
    got = run(visitor.get(path, follow=False))
    if path.startswith("/login"):
        assert got.status == 200
        return
    assert got.status in (303, 401)
    assert got.status == 401 or got.headers["location"].startswith("/login?back=")


@pytest.mark.parametrize("path", ["/logins", "/login/x", "/healthz/x", "/staticx", "/@x/login"])
def test_an_address_that_begins_like_an_open_one_needs_a_login(path: str, users: Path) -> None:
    _, visitor = offline(Clock(), users=users)
    assert run(visitor.get(path, follow=False)).status == 303


@pytest.mark.slow
@pytest.mark.parametrize("path", CHANGED)
@pytest.mark.parametrize(
    "forged",
    [
        {"token": ""},
        {"token": "0" * 64},
        {"origin": "http://evil.example"},
        {"origin": ""},
        {"origin": "null"},
        {"content-type": "text/plain"},
    ],
    ids=lambda forged: "-".join(f"{k}-{v[:16]}" for k, v in forged.items()),
)
def test_no_change_is_made_by_a_forged_form(path: str, forged: dict[str, str]) -> None:
    console, visitor = offline(Clock())

    async def work() -> Got:
        await visitor.get("/audit")
        fields = {name: text for name, text in forged.items() if name == "token"}
        headers = {name: text for name, text in forged.items() if name != "token"}
        return await visitor.post(path, fields, headers=headers)

    got = run(work())
    assert got.status in (403, 413)
    assert console.desk.audit.newest_first == []


@pytest.mark.slow
@pytest.mark.parametrize("path", [path for path in CHANGED if path not in HARMLESS])
@pytest.mark.parametrize(
    ("user", "settings", "says"),
    [("bob", {}, "role operator"), ("ada", {"read_only": True}, "--read-only")],
)
def test_readers_cannot_change_anything_nor_can_a_read_only_console(
    path: str, user: str, settings: dict[str, Any], says: str, users: Path
) -> None:
    console, visitor = offline(Clock(), users=users, **settings)

    async def work() -> Got:
        await log_in(visitor, user)
        return await visitor.post(path)

    got = run(work())
    assert (got.status, says in got.html) == (403, True)
    assert console.desk.audit.newest_first == []


@pytest.mark.parametrize("path", ["/audit", "/nope", "/static/console.js", "/live?page=/nope"])
def test_every_answer_carries_the_policy(path: str) -> None:
    _, visitor = offline(Clock())
    got = run(visitor.get(path))
    assert {name: got.headers[name] for name in HEADERS} == HEADERS
    assert "'unsafe-inline'" not in got.headers["content-security-policy"]


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS"])
def test_other_methods_are_refused(method: str) -> None:
    _, visitor = offline(Clock())
    assert run(visitor.ask(method, "/audit", b"", {})).status == 405


def test_a_form_that_is_too_large_is_refused() -> None:
    _, visitor = offline(Clock())
    got = run(visitor.post("/topics", {"name": "x" * 1_100_000}))
    assert got.status == 413


# ---- logging in


def test_a_login_leads_back_and_its_cookie_is_out_of_reach_of_scripts(users: Path) -> None:
    _, visitor = offline(Clock(), users=users)

    async def work() -> tuple[Got, str, Got]:
        await visitor.get("/login?back=/audit")
        before = dict(visitor.cookies)
        fields = {"name": "ada", "password": PASSWORD, "back": "/audit"}
        first = await visitor.post("/login", fields, follow=False)
        assert visitor.cookies != before, "a login begins a new session"
        return first, visitor.cookies["sparrowmq_9880"], await visitor.get("/audit")

    first, session, page = run(work())
    assert (first.status, first.headers["location"]) == (303, "/audit")
    cookie = first.headers["set-cookie"].lower()
    assert "httponly" in cookie and "samesite=strict" in cookie
    assert len(session) >= 43, "256 bits"
    assert page.status == 200
    assert "ada (operator)" in page.text


@pytest.mark.parametrize("back", ["//evil.example", "https://evil.example", "/\\evil.example", ""])
def test_a_login_never_leads_to_another_site(back: str, users: Path) -> None:
    _, visitor = offline(Clock(), users=users)

    async def work() -> Got:
        await visitor.get("/login")
        fields = {"name": "ada", "password": PASSWORD, "back": back}
        return await visitor.post("/login", fields, follow=False)

    assert run(work()).headers["location"] == "/"


def test_the_sixth_wrong_password_within_a_minute_is_refused_unchecked(users: Path) -> None:
    clock = Clock()
    _, visitor = offline(clock, users=users)

    async def work() -> list[int]:
        found = [(await log_in(visitor, "ada", "wrong")).status for _ in range(5)]
        found.append((await log_in(visitor, "ada")).status)
        clock.now_ms += 61_000
        found.append((await log_in(visitor, "ada")).status)
        return found

    assert run(work()) == [403] * 5 + [429, 200]


@pytest.mark.parametrize(
    ("steps_min", "is_open"), [([29, 29], True), ([31], False), ([25] * 30, False)]
)
def test_a_session_ends_when_idle_and_after_half_a_day(
    steps_min: list[int], is_open: bool, users: Path
) -> None:
    clock = Clock()
    _, visitor = offline(clock, users=users)

    async def work() -> Got:
        await log_in(visitor, "ada")
        for step in steps_min:
            clock.now_ms += step * 60_000
            got = await visitor.get("/audit", follow=False)
        return got

    assert (run(work()).status == 200) is is_open


def test_logging_out_ends_the_session_on_the_server(users: Path) -> None:
    _, visitor = offline(Clock(), users=users)

    async def work() -> int:
        await log_in(visitor, "ada")
        kept = dict(visitor.cookies)
        await visitor.post("/logout", follow=False)
        visitor.cookies = kept
        return (await visitor.get("/audit", follow=False)).status

    assert run(work()) == 303


def test_a_login_ends_the_session_before_it(users: Path) -> None:
    _, visitor = offline(Clock(), users=users)

    async def work() -> int:
        await log_in(visitor, "ada")
        before = dict(visitor.cookies)
        token = TOKEN.search((await visitor.get("/audit")).html)
        assert token is not None
        visitor.token = token[1]
        await visitor.post("/login", {"name": "bob", "password": PASSWORD})
        visitor.cookies = before
        return (await visitor.get("/audit", follow=False)).status

    assert run(work()) == 303


@pytest.mark.parametrize(("size", "status"), [(10_000, 403), (20_000, 413)])
def test_without_a_login_only_a_short_form_is_read(size: int, status: int, users: Path) -> None:
    _, visitor = offline(Clock(), users=users)

    async def work() -> int:
        await visitor.get("/login")
        fields = {"name": "ada", "password": "x" * size}
        return (await visitor.post("/login", fields)).status

    assert run(work()) == status


def test_a_reader_sees_no_actions(users: Path) -> None:
    _, visitor = offline(Clock(), users=users)

    async def work() -> Got:
        await log_in(visitor, "bob")
        return await visitor.get("/audit")

    got = run(work())
    assert "bob (reader)" in got.text
    assert got.html.count('method="post"') == 2, "colours and logging out"
