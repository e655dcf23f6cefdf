"""Logging in and out, and the choice between light and dark."""

import asyncio
import logging

from starlette.responses import RedirectResponse

from sparrowmq.console.view import Answer, Done, Page, PageRoute, View

log = logging.getLogger("sparrowmq.console")
_MOST_NAME = 65
"""One more than a user's name may have, so that a longer one stays unknown."""
_YEAR_S = 365 * 86400


async def show(view: View) -> Answer:
    """Show the login form; unnecessary if there is no users file."""
    if view.console.desk.users is None or view.user is not None:
        return Done(safe(view.asked("back")))
    return _form(view.asked("back"), "", 200)


def _form(back: str, problem: str, status: int) -> Page:
    return Page(
        template="login.html",
        title="Log in",
        is_live=False,
        status=status,
        values={"back": back, "problem": problem},
    )


def safe(back: str) -> str:
    """The address to return to, if it is one of this console; never one of another site."""
    is_ours = back.startswith("/") and not back.startswith(("//", "/\\", "/login"))
    return back if is_ours else "/"


async def log_in(view: View) -> Answer:
    """Begin a session, if name and password are right."""
    users, back = view.console.desk.users, view.entered("back")
    name = view.entered("name")[:_MOST_NAME]  # it is kept by the limit, and logged
    if users is None:
        return Done("/")
    wait_s = view.console.desk.logins.try_one(view.address, name)
    if wait_s:
        return _form(back, f"Too many attempts: try again in {wait_s} s.", 429)
    password = (view.form.get("password") or ("",))[0]
    user = await asyncio.to_thread(users.check, name, password)
    if user is None:
        log.warning("login refused: user %r from %s", name, view.address)
        return _form(back, "Name or password is wrong.", 403)
    view.console.desk.sessions.end(view.visitor)
    log.info("login: user %s (%s) from %s", user.name, user.role, view.address)
    response = RedirectResponse(safe(back), 303)
    _set_session(view, response, view.console.desk.sessions.begin(user))
    return response


def _set_session(view: View, response: RedirectResponse, session: str) -> None:
    response.set_cookie(
        view.cookie,
        session,
        httponly=True,
        samesite="strict",
        secure=view.console.config.scheme == "https",
    )


async def log_out(view: View) -> Answer:
    """End the session."""
    view.console.desk.sessions.end(view.visitor)
    response = RedirectResponse("/login", 303)
    response.delete_cookie(view.cookie)
    return response


async def choose_theme(view: View) -> Answer:
    """Choose light, dark, or the system's setting."""
    theme = view.entered("theme")
    response = RedirectResponse(safe(view.entered("back")), 303)
    if theme in ("light", "dark"):
        response.set_cookie("sparrowmq_theme", theme, max_age=_YEAR_S, samesite="strict")
    else:
        response.delete_cookie("sparrowmq_theme")
    return response


ROUTES = (
    PageRoute("/login", show, log_in),
    PageRoute("/logout", None, log_out),
    PageRoute("/theme", None, choose_theme),
)
