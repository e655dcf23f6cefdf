"""The application: addresses, rendering, errors as pages, all wrapped in the guard."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qsl, quote, urlsplit

import jinja2
from starlette.applications import Starlette
from starlette.datastructures import State
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import (
    HTMLResponse,
    PlainTextResponse,
    RedirectResponse,
    Response,
    StreamingResponse,
)
from starlette.routing import Match, Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from sparrowmq import __version__
from sparrowmq.admin.errors import NotFound
from sparrowmq.console import charts, text
from sparrowmq.console.clusters import ClusterPaths, Clusters, split_path, with_base
from sparrowmq.console.console import Console
from sparrowmq.console.live import PERIOD_S, TAIL_S, fragments, parse_seen, seen_text
from sparrowmq.console.pages import (
    audit,
    brokers,
    clients,
    dead_letters,
    group,
    group_changes,
    groups,
    login,
    message,
    messages,
    name_servers,
    overview,
    simulation,
    timers,
    topic,
    topic_messages,
    topic_senders,
    topics,
    traffic,
    transactions,
    waiting,
)
from sparrowmq.console.refill import refilled
from sparrowmq.console.security import Guard
from sparrowmq.console.view import (
    EXPECTED,
    Answer,
    Done,
    FieldError,
    Handler,
    Page,
    PageRoute,
    View,
)

ROUTES: tuple[PageRoute, ...] = (
    *overview.ROUTES,
    *topics.ROUTES,
    *topic_messages.ROUTES,
    *topic_senders.ROUTES,
    *topic.ROUTES,
    *groups.ROUTES,
    *group_changes.ROUTES,
    *simulation.ROUTES,
    *group.ROUTES,
    *message.ROUTES,
    *messages.ROUTES,
    *dead_letters.ROUTES,
    *timers.ROUTES,
    *transactions.ROUTES,
    *waiting.ROUTES,
    *traffic.ROUTES,
    *clients.ROUTES,
    *brokers.ROUTES,
    *name_servers.ROUTES,
    *audit.ROUTES,
    *login.ROUTES,
)
"""In the order in which addresses are matched."""

NAVIGATION = (
    ("overview", "/", "Overview"),
    ("topics", "/topics", "Topics"),
    ("groups", "/groups", "Groups"),
    ("messages", "/messages", "Messages"),
    ("dead-letters", "/dead-letters", "Dead letters"),
    ("waiting", "/waiting", "Waiting"),
    ("traffic", "/traffic", "Traffic"),
    ("clients", "/clients", "Clients"),
    ("brokers", "/brokers", "Brokers"),
    ("audit", "/audit", "Audit"),
)
_THEMES = ("light", "dark")
_ERROR = "error.html"


def templates() -> jinja2.Environment:
    """Templates that escape everything, whatever their names; unknown values are errors."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("sparrowmq.console"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    for each in (
        *(text.number, text.rate, text.percent, text.size, text.instant, text.precise),
        *(text.iso, text.age, text.duration, text.plural, text.segment, text.preview),
        *(text.allowed, text.queue_counts),
    ):
        environment.filters[each.__name__] = each
    environment.globals.update(
        navigation=NAVIGATION, version=__version__, width=charts.WIDTH, height=charts.HEIGHT
    )
    return environment


class Application:
    """Turns requests into views, and answers into responses."""

    def __init__(self, console: Console, clusters: Clusters | None = None) -> None:
        self._clusters = clusters or Clusters(console)
        self._desk, self._config = console.desk, console.config
        self._templates = templates()
        self._routes = [route for each in ROUTES for route in self._starlette_routes(each)]
        self._pages = [(Route(each.path, _healthy), each.show) for each in ROUTES if each.show]
        """For live updates: finds the page of an address."""
        self._under_way: set[str] = set()
        """Addresses of confirmed changes that are being made."""

    def asgi(self, *, port: int) -> ASGIApp:
        """The application for a server that listens on `port`."""
        static = StaticFiles(packages=[("sparrowmq.console", "static")])
        inner = Starlette(
            routes=[
                *self._routes,
                Route("/live", self._live, methods=["GET"]),
                Route("/healthz", _healthy, methods=["GET"]),
                Route("/readyz", self._ready, methods=["GET"]),
                Mount("/static", static),
            ],
            exception_handlers={HTTPException: self._http_error, Exception: _failed},
        )
        desk = self._desk
        return Guard(ClusterPaths(inner), self._config, desk.sessions, desk.tokens, port=port)

    async def _ready(self, _: Request) -> Response:
        """Whether pages can show the first cluster. It costs no request: anyone may ask."""
        brokers = self._clusters.first.sampler.figures.brokers
        if brokers.value is None:
            return PlainTextResponse("no figures of the cluster yet\n", 503)
        return PlainTextResponse("ready\n")

    def _starlette_routes(self, each: PageRoute) -> list[Route]:
        routes = []
        if each.show is not None:
            routes.append(Route(each.path, self._endpoint(each.show), methods=["GET"]))
        if each.act is not None:
            routes.append(Route(each.path, self._action(each.act), methods=["POST"]))
        return routes

    def _endpoint(self, handler: Handler) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            view = await self._view(request)
            return self._response(view, await _answered(handler, view), request)

        return answer

    def _action(self, handler: Handler) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            view = await self._view(request)
            found = await self._acted(handler, view)
            if isinstance(found, Page) and found.template == _ERROR:
                again = await self._form_again(view, found, request)
                return again or self._response(view, found, request)
            return self._response(view, found, request)

        return answer

    async def _acted(self, handler: Handler, view: View) -> Answer:
        """The answer of an action. Confirmed changes of one address are made one at a time: each
        compares the cluster with its preview first, and would find it as before if a button that
        was pressed twice made two at once."""
        if not view.entered("state"):
            return await _answered(handler, view)
        address = view.console.base + view.path
        if address in self._under_way:
            return error_page(409, _UNDER_WAY)
        self._under_way.add(address)
        try:
            return await _answered(handler, view)
        finally:
            self._under_way.remove(address)

    async def _form_again(self, view: View, error: Page, request: Request) -> Response | None:
        """The page of the form with the error in it; None if there is no such page. It is the page
        of the form's address, or of the address above it."""
        for path in (view.path, view.path.rpartition("/")[0] or "/"):
            found = self._page_at(path)
            if found is None:
                continue
            show, names = found
            before = replace(view, path=path, names=names)
            page = await _answered(show, before)
            if not isinstance(page, Page) or page.template == _ERROR:
                return None
            html = self.render(before, replace(page, is_live=False), _theme(request))
            entered, values = view.form, error.values
            html = html.replace('href="?', f'href="{view.console.base}{quote(path)}?')
            action = view.console.base + view.path
            again = refilled(html, action, entered, values["words"], values["field"])
            return None if again is None else HTMLResponse(again, error.status)
        return None

    async def _console(self, name: str) -> Console:
        found = await self._clusters.find(name)
        if found is None:
            raise HTTPException(404, f"This console shows no cluster named {name!r}.")
        return found

    async def _view(self, request: Request) -> View:
        given: State = request.state
        return View(
            console=await self._console(given.cluster),
            path=request.url.path,
            query=dict(request.query_params),
            names=dict(request.path_params),
            user=given.user,
            may_change=given.may_change,
            address=request.client.host if request.client else "",
            visitor=given.visitor,
            cookie=given.cookie,
            token=given.token,
            form=given.form,
        )

    # ---- answers

    def _response(self, view: View, answer: Answer, request: Request) -> Response:
        if isinstance(answer, Response):
            return answer
        if isinstance(answer, Done):
            to = view.console.base + answer.to
            if answer.notice:
                sign = "&" if "?" in to else "?"
                to = f"{to}{sign}done={self._desk.keep_notice(answer.notice)}"
            return RedirectResponse(to, HTTPStatus.SEE_OTHER)
        return HTMLResponse(self.render(view, answer, _theme(request)), answer.status)

    def render(self, view: View, page: Page, theme: str = "") -> str:
        """A whole page."""
        values: Mapping[str, Any] = {
            **page.values,
            "page": page,
            "view": view,
            "theme": theme if theme in _THEMES else "",
            "now_ms": view.now_ms,
            "notice": self._desk.notice(view.asked("done")),
            "cluster": view.console.cluster,
            "label": view.console.label,
            "clusters": self._clusters.names,
            "command": _command(page.command, view.console),
            "read_only": self._config.read_only,
            "has_users": self._desk.users is not None,
        }
        html = self._templates.get_template(page.template).render(values)
        html = text.encodable(with_base(html, view.console.base))
        return html.replace('data-seen=""', f'data-seen="{seen_text(fragments(html))}"', 1)

    async def _http_error(self, request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        words = {
            405: "This address takes no such request.",
        }
        if error.detail == HTTPStatus.NOT_FOUND.phrase:
            words[404] = "There is no page at this address."
        page = error_page(error.status_code, words.get(error.status_code, error.detail))
        if await self._clusters.find(request.state.cluster) is None:
            request.state.cluster = ""
        return self._response(await self._view(request), page, request)

    # ---- live

    async def _live(self, request: Request) -> Response:
        """Stream the changes of a page."""
        live = self._desk.live
        if live.is_full:
            return PlainTextResponse("too many live pages\n", 503, headers={"retry-after": "10"})
        wanted = urlsplit(request.query_params.get("page", ""))
        cluster, path = split_path(wanted.path)
        found = self._page_at(path)
        if found is None:
            return PlainTextResponse("no such page\n", 404)
        handler, names = found
        query = {name: value for name, value in parse_qsl(wanted.query) if name != "done"}
        like = await self._view(request)
        view = View(
            console=await self._console(cluster),
            path=path,
            query=query,
            names=names,
            user=like.user,
            may_change=like.may_change,
            address=like.address,
        )

        async def render() -> str:
            answer = await _answered(handler, view)
            return self.render(view, answer) if isinstance(answer, Page) else ""

        key = f"{view.may_change} {wanted.path} {sorted(query.items())}"
        seen = parse_seen(request.query_params.get("seen", ""))
        period_s = TAIL_S if query.get("tail") == "1" else PERIOD_S
        return StreamingResponse(
            live.stream(key, render, seen, period_s, self._still_allowed(like)),
            media_type="text/event-stream",
            headers={"cache-control": "no-store", "x-accel-buffering": "no"},
        )

    def _still_allowed(self, view: View) -> Callable[[], bool]:
        """A check that the visitor is still logged in; a stream does not count as use."""
        desk = self._desk
        if desk.users is None:
            return lambda: True
        return lambda: desk.sessions.is_open(view.visitor)

    def _page_at(self, path: str) -> tuple[Handler, dict[str, str]] | None:
        scope = {"type": "http", "method": "GET", "path": path, "root_path": ""}
        for route, show in self._pages:
            match, found = route.matches(scope)
            if match == Match.FULL:
                return show, found["path_params"]
        return None


_UNDER_WAY = (
    "nothing was changed: another change was confirmed here and is still being made; see what came"
    " of it before you repeat this one"
)


def _theme(request: Request) -> str:
    return request.cookies.get("sparrowmq_theme", "")


def _command(command: str, console: Console) -> str:
    """The equivalent terminal command: there the first cluster is the one that commands talk to."""
    return f"{command} --context {console.config.name}" if command and console.base else command


async def _answered(handler: Handler, view: View) -> Answer:
    """The answer of a page or an action; an expected failure becomes an error page."""
    try:
        return await handler(view)
    except NotFound as error:
        return error_page(404, str(error))
    except FieldError as error:
        return error_page(400, str(error), error.name)
    except ValueError as error:
        return error_page(400, str(error))
    except EXPECTED as error:
        return error_page(502, str(error))
    except TimeoutError:
        return error_page(504, "the cluster did not answer in time")


def error_page(status: int, words: str, field: str = "") -> Page:
    """A page that says what went wrong, and in which field of a form."""
    return Page(
        template=_ERROR,
        title=HTTPStatus(status).phrase,
        values={"words": words, "field": field},
        status=status,
        is_live=False,
    )


async def _failed(request: Request, error: Exception) -> Response:
    """Answer after a bug of ours. Plain text: whatever failed may be part of every page."""
    words = "the console failed to make this page, and its log says why; other pages may work"
    return PlainTextResponse(f"{words}\n", 500)


async def _healthy(_: Request) -> Response:
    return PlainTextResponse("ok\n")
