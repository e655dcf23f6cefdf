"""One guard before every page, action, stream and file of the console.

```
host      is the name in the address one of ours?                   no ▶ 421  (DNS rebinding)
user      whose cookie is it? without users: the local operator     none ▶ the login page
change    a POST: same origin? this visitor's token? allowed?       no ▶ 403
headers   content security policy and the like, on every answer
```

Browsers send a page's origin with every POST. A Referrer-Policy of no-referrer would make that
`null`, so ours is same-origin: other sites still learn nothing.
"""

import asyncio
import re
from collections.abc import Mapping
from http.cookies import CookieError, SimpleCookie
from ipaddress import ip_address
from urllib.parse import parse_qsl, quote

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sparrowmq.console.config import ConsoleConfig
from sparrowmq.console.sessions import FormTokens, LoginSessions, new_id
from sparrowmq.console.users import User, UserRole

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self';"
    " form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "x-frame-options": "DENY",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}
LOCAL = User("local", UserRole.OPERATOR)
"""The user if there is no users file: anyone on this machine."""
OPEN = ("/login", "/healthz", "/readyz")
"""Addresses that need no login; files of the console need none, either."""
HARMLESS = ("/login", "/logout", "/theme")
"""POSTs that change nothing in the cluster, so readers may send them."""
_MOST_FORM_BYTES = 1024 * 1024
_MOST_LOGIN_BYTES = 16 * 1024
"""Before a login, when any visitor may send one."""
_FORM_S = 20.0
"""A form that takes longer to arrive only holds a connection."""
_LOOPBACK_NAMES = ("localhost", "127.0.0.1", "[::1]")
_HOST = re.compile(r"(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+)(?::(\d{1,5}))?")

Form = Mapping[str, tuple[str, ...]]


class Guard:
    """Wraps the whole application: no request bypasses it."""

    def __init__(
        self,
        app: ASGIApp,
        config: ConsoleConfig,
        sessions: LoginSessions,
        tokens: FormTokens,
        *,
        port: int,
    ) -> None:
        self._app = app
        self._config = config
        self._sessions = sessions
        self._tokens = tokens
        self._port = port
        self.cookie = f"sparrowmq_{port}"
        """The port is in the name because browsers share cookies between the ports of a host."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            return
        headers = Headers(scope=scope)
        visitor = self._visitor(headers)
        is_new = not visitor
        visitor = visitor or new_id()
        answer = _with_headers(send, self.set_cookie(visitor) if is_new else None)
        refusal: Response | None = None
        form: Form | None = None
        user = self._user(visitor)
        if not self._is_our_host(headers.get("host", "")):
            refusal = _refused(421, _WRONG_HOST)
        elif user is None and not _is_open(scope["path"]):
            refusal = _to_login(scope)
        elif scope["method"] == "POST":
            try:
                async with asyncio.timeout(_FORM_S):
                    most = _MOST_LOGIN_BYTES if user is None else _MOST_FORM_BYTES
                    form = await _read_form(receive, headers, most)
            except TimeoutError:
                form = None
            refusal = self._refused_post(scope["path"], headers, visitor, form, user)
        elif scope["method"] not in ("GET", "HEAD"):
            refusal = _refused(405, "the console answers GET, HEAD and POST")
        if refusal is not None:
            await refusal(scope, receive, answer)
            return
        scope.setdefault("state", {}).update(
            user=user,
            visitor=visitor,
            cookie=self.cookie,
            form=form or {},
            token=self._tokens.of(visitor),
            may_change=self._may_change(user),
        )
        await self._app(scope, receive, answer)

    # ---- who

    def _visitor(self, headers: Headers) -> str:
        try:
            cookies = SimpleCookie(headers.get("cookie", ""))
        except CookieError:
            return ""
        return cookies[self.cookie].value if self.cookie in cookies else ""

    def _user(self, visitor: str) -> User | None:
        return LOCAL if self._config.users is None else self._sessions.user_of(visitor)

    def _may_change(self, user: User | None) -> bool:
        return user is not None and user.role == UserRole.OPERATOR and not self._config.read_only

    def set_cookie(self, visitor: str) -> str:
        """The value of a Set-Cookie header."""
        secure = "; Secure" if self._config.scheme == "https" else ""
        return f"{self.cookie}={visitor}; Path=/; HttpOnly; SameSite=Strict{secure}"

    # ---- what

    def _is_our_host(self, host: str) -> bool:
        """Whether a Host header names this console. Another site can make its own name point here,
        so other names do not count; an IP address does, because nobody can redirect it."""
        found = _HOST.fullmatch(host)
        if found is None:
            return False
        name = found[1].lower()
        if name in self._config.hosts:
            return True
        default = "443" if self._config.scheme == "https" else "80"
        if (found[2] or default) != str(self._port):
            return False
        if self._config.is_loopback:
            return name in _LOOPBACK_NAMES or name == self._config.listen
        return name in _LOOPBACK_NAMES or name == self._config.listen or _is_address(name)

    def _refused_post(
        self, path: str, headers: Headers, visitor: str, form: Form | None, user: User | None
    ) -> Response | None:
        if form is None:
            return _refused(413, _NO_FORM)
        host = headers.get("host", "")
        if headers.get("origin") not in (f"http://{host}", f"https://{host}"):
            return _refused(403, "refused: the form was sent by another site (Origin)")
        if not self._tokens.matches(visitor, (form.get("token") or ("",))[0]):
            return _refused(
                403, "refused: the form is not of this session (token); reload the page and repeat"
            )
        if path in HARMLESS or self._may_change(user):
            return None
        if self._config.read_only:
            return _refused(403, "refused: this console was started with --read-only")
        return _refused(403, "refused: changes need the role operator, yours is reader")


def _is_open(path: str) -> bool:
    return path in OPEN or path.startswith("/static/")


def _is_address(name: str) -> bool:
    try:
        ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True


async def _read_form(receive: Receive, headers: Headers, most: int) -> Form | None:
    """The fields of a form; None if it is too large, or not a form."""
    if not headers.get("content-type", "").startswith("application/x-www-form-urlencoded"):
        return None
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        body += message.get("body", b"")
        if len(body) > most:
            return None
        if not message.get("more_body"):
            break
    found: dict[str, tuple[str, ...]] = {}
    try:
        pairs = parse_qsl(body.decode("ascii"), keep_blank_values=True, max_num_fields=5_000)
    except ValueError:
        return None
    for name, value in pairs:
        found[name] = (*found.get(name, ()), value)
    return found


def _refused(status: int, text: str) -> Response:
    return PlainTextResponse(f"{text}\n", status, headers={"cache-control": "no-store"})


def _to_login(scope: Scope) -> Response:
    """Send a page's visitor to the login and back; refuse everything else."""
    if scope["method"] != "GET" or scope["path"].startswith("/live"):
        return _refused(401, "log in first, at /login")
    query = scope["query_string"].decode("ascii", "replace")
    wanted = scope["path"] + (f"?{query}" if query else "")
    return RedirectResponse(f"/login?back={quote(wanted, safe='')}", 303)


def _with_headers(send: Send, cookie: str | None) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers[name] = value
            if "cache-control" not in headers:
                headers["cache-control"] = "no-store"
            if cookie is not None and "set-cookie" not in headers:
                headers["set-cookie"] = cookie
        await send(message)

    return sending


_NO_FORM = "no form within 20 s and 1 MiB (16 KiB to log in): too large, too slow, or not one"
_WRONG_HOST = (
    "refused: the address in your browser is not one of this console; use the one that it printed"
    " when it started, or name this one with --host"
)
