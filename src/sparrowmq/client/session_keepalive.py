"""Session keep-alives: small, frequent requests by which a broker detects a dead host in seconds.

A dedicated thread sends them over its own connections. An async handler that computes for ten
seconds blocks the client's loop, and plain handlers in threads share the interpreter; such a member
is busy, not dead, and must keep its queues. Keep-alives stop only if code holds the interpreter
lock for the whole life of a session, on SIGSTOP, or when the process or its host ends.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import Any, Protocol

from sparrowmq.backoff import Backoff
from sparrowmq.client.background_loop import ProcessLoop
from sparrowmq.client.failures import keep_running
from sparrowmq.client.sessions import Session, Sessions
from sparrowmq.clock import monotonic_clock
from sparrowmq.net.errors import NetError
from sparrowmq.net.peers import Peers
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.headers.clients import Heartbeat

log = logging.getLogger("sparrowmq.client.session_keepalive")

KeepaliveRun = Callable[[Peers], Coroutine[Any, Any, None]]
"""Sends keep-alives over these connections until it is cancelled."""


class KeepalivePlace(Protocol):
    """Where keep-alives are sent from."""

    def now_s(self) -> float:
        """A time that never goes back, the same in every loop involved."""
        ...

    def start(
        self, own: Peers, tasks: asyncio.TaskGroup, run: KeepaliveRun
    ) -> Callable[[], object]:
        """Start sending; the returned function stops it. `own` and `tasks` are the client's."""
        ...


class KeepaliveInLoop:
    """The client's own loop and connections, for simulations: there are no threads."""

    def now_s(self) -> float:
        """The loop's time."""
        return asyncio.get_running_loop().time()

    def start(
        self, own: Peers, tasks: asyncio.TaskGroup, run: KeepaliveRun
    ) -> Callable[[], object]:
        """Start a task among the client's."""
        return tasks.create_task(run(own), name="session keep-alive").cancel


class KeepaliveThread:
    """A second loop, in a thread that all clients of the process share."""

    _loop = ProcessLoop()

    def now_s(self) -> float:
        """The monotonic clock. Not the loop's time, which uvloop reads once per turn: a turn may
        have been very long."""
        return monotonic_clock() / 1000

    def start(
        self, own: Peers, tasks: asyncio.TaskGroup, run: KeepaliveRun
    ) -> Callable[[], object]:
        """Start a task in the shared thread, with its own connections."""
        running = self._loop.get().begin(_with_connections(run))
        running.add_done_callback(_log_failure)
        return running.cancel


def _log_failure(running: Future[None]) -> None:
    """Log a failure: nothing awaits this future, so it would go unnoticed."""
    if not running.cancelled() and running.exception() is not None:
        text = "session keep-alives ended: brokers detect the end of this process late"
        log.error(text, exc_info=running.exception())


async def _with_connections(run: KeepaliveRun) -> None:
    async with asyncio.TaskGroup() as tasks:
        peers = Peers(tasks, log=log)
        try:
            await run(peers)
        finally:
            await peers.close()


class SessionKeepalive:
    """Keeps every session of a client alive. It starts sending with the first session."""

    def __init__(self, sessions: Sessions, place: KeepalivePlace) -> None:
        self._sessions = sessions
        self._place = place
        self._begin: Callable[[], Callable[[], object]]
        self._end: Callable[[], object] | None = None
        self._client_loop: asyncio.AbstractEventLoop
        self._own_loop: asyncio.AbstractEventLoop | None = None
        self._changed: asyncio.Event
        sessions.listeners.append(self._sessions_changed)

    def start(self, own: Peers, tasks: asyncio.TaskGroup) -> None:
        """The client is ready for keep-alives, and sessions may begin."""
        self._client_loop = asyncio.get_running_loop()
        self._begin = partial(self._place.start, own, tasks, self._keep)

    def stop(self) -> None:
        """Stop sending."""
        self._sessions.end_all()
        if self._end is not None:
            self._end()

    def _sessions_changed(self) -> None:
        if self._end is None and self._sessions.live():
            self._end = self._begin()
        elif self._own_loop is not None:
            with suppress(RuntimeError):  # that loop has ended
                self._own_loop.call_soon_threadsafe(self._changed.set)

    async def _keep(self, peers: Peers) -> None:
        name = "session keep-alive"
        await keep_running(partial(self._run, peers), name, log=log, backoff=Backoff())

    async def _run(self, peers: Peers) -> None:
        self._changed = asyncio.Event()
        self._own_loop = asyncio.get_running_loop()
        kept: set[Session] = set()
        async with asyncio.TaskGroup() as tasks:
            while True:
                self._changed.clear()
                live = set(self._sessions.live())
                for session in live - kept:
                    tasks.create_task(self._keep_one(peers, session))
                kept = live
                await self._changed.wait()

    async def _keep_one(self, peers: Peers, session: Session) -> None:
        while not session.is_over:
            sent_s = self._place.now_s()
            await send_keepalive(peers, session, self._place.now_s, self._session_ended)
            if session.is_unreachable:
                with suppress(RuntimeError):  # the client's loop has ended
                    silent = self._sessions.fell_silent
                    self._client_loop.call_soon_threadsafe(silent, session.address)
            await asyncio.sleep(max(0.0, sent_s + session.interval_s - self._place.now_s()))

    def _session_ended(self, session: Session) -> None:
        session.is_over = True
        with suppress(RuntimeError):  # the client's loop has ended
            self._client_loop.call_soon_threadsafe(self._sessions.ended, session)


async def send_keepalive(
    peers: Peers, session: Session, now_s: Callable[[], float], ended: Callable[[Session], None]
) -> None:
    """Send one keep-alive and process its answer; calls `ended` if the session is over."""
    sent_s = now_s()
    header = Heartbeat(session=session.name)
    try:
        response = await peers.call(session.address, header, timeout_s=session.sure_s)
    except NetError:
        # A process that was stopped for longer than the timeout has missed the answer itself; that
        # says nothing about the broker.
        session.is_unreachable = now_s() - sent_s < session.life_s
        return
    session.is_unreachable = False
    if response.code == ResponseCode.SUCCESS:
        session.confirmed_s = max(session.confirmed_s, sent_s)
    elif response.code == ResponseCode.CONSUMER_NOT_ONLINE:
        ended(session)
