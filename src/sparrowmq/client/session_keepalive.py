"""Beats: the small, frequent sign of life by which a broker notices a vanished host in seconds.

They are sent from a thread of their own, over connections of their own. An async handler that
computes for ten seconds stops the client's loop, and such a member is busy, not gone; nor are
handlers in threads that share the interpreter. Only code that keeps the interpreter's lock for the
whole life of a session stops them, and SIGSTOP, and the end of the process or its host.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import Any, Protocol

from sparrowmq.backoff import Backoff
from sparrowmq.client.background_loop import LoopOfProcess
from sparrowmq.client.failures import keep_running
from sparrowmq.client.sessions import Session, Sessions
from sparrowmq.clock import monotonic_clock
from sparrowmq.net.errors import NetError
from sparrowmq.net.peers import Peers
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.headers.clients import Heartbeat

log = logging.getLogger("sparrowmq.client.session_keepalive")

Beating = Callable[[Peers], Coroutine[Any, Any, None]]


class BeatPlace(Protocol):
    """Where beats are sent from."""

    def now_s(self) -> float:
        """A time that never goes back, the same in every loop that is involved."""
        ...

    def start(self, own: Peers, tasks: asyncio.TaskGroup, beating: Beating) -> Callable[[], object]:
        """Begin to beat; the answer ends it. `own` and `tasks` are the client's."""
        ...


class SameLoop:
    """The client's own loop and connections, for simulations: there are no threads."""

    def now_s(self) -> float:
        """The loop's time."""
        return asyncio.get_running_loop().time()

    def start(self, own: Peers, tasks: asyncio.TaskGroup, beating: Beating) -> Callable[[], object]:
        """A task among the client's."""
        return tasks.create_task(beating(own), name="beats").cancel


class OwnThread:
    """A second loop in a thread that all clients of the process share."""

    _loops = LoopOfProcess()

    def now_s(self) -> float:
        """Not the loop's time, which uvloop takes once a turn: a turn may have been very long."""
        return monotonic_clock() / 1000

    def start(self, own: Peers, tasks: asyncio.TaskGroup, beating: Beating) -> Callable[[], object]:
        """A task over there, with connections of its own."""
        beats = self._loops.get().begin(_with_connections(beating))
        beats.add_done_callback(_tell_failure)
        return beats.cancel


def _tell_failure(beats: Future[None]) -> None:
    """Nobody waits for beats: without this line nobody would hear what ended them."""
    if not beats.cancelled() and beats.exception() is not None:
        log.error("beats ended: members here are missed late", exc_info=beats.exception())


async def _with_connections(beating: Beating) -> None:
    async with asyncio.TaskGroup() as tasks:
        peers = Peers(tasks, log=log)
        try:
            await beating(peers)
        finally:
            await peers.close()


class Beats:
    """Beats for every session of a client, begun with the first one."""

    def __init__(self, sessions: Sessions, place: BeatPlace) -> None:
        self._sessions = sessions
        self._place = place
        self._begin: Callable[[], Callable[[], object]]
        self._end: Callable[[], object] | None = None
        self._home: asyncio.AbstractEventLoop
        self._there: asyncio.AbstractEventLoop | None = None
        self._news: asyncio.Event
        sessions.listeners.append(self._look)

    def start(self, own: Peers, tasks: asyncio.TaskGroup) -> None:
        """The client has what beats need; sessions may come."""
        self._home = asyncio.get_running_loop()
        self._begin = partial(self._place.start, own, tasks, self._keep)

    def stop(self) -> None:
        """Send no more."""
        self._sessions.end_all()
        if self._end is not None:
            self._end()

    def _look(self) -> None:
        """Sessions came or went."""
        if self._end is None and self._sessions.live():
            self._end = self._begin()
        elif self._there is not None:
            with suppress(RuntimeError):  # that loop has ended
                self._there.call_soon_threadsafe(self._news.set)

    async def _keep(self, peers: Peers) -> None:
        await keep_running(partial(self._run, peers), "beats", log=log, backoff=Backoff())

    async def _run(self, peers: Peers) -> None:
        self._news = asyncio.Event()
        self._there = asyncio.get_running_loop()
        beaten: set[Session] = set()
        async with asyncio.TaskGroup() as tasks:
            while True:
                self._news.clear()
                live = set(self._sessions.live())
                for session in live - beaten:
                    tasks.create_task(self._beat(peers, session))
                beaten = live
                await self._news.wait()

    async def _beat(self, peers: Peers, session: Session) -> None:
        while not session.is_over:
            sent_s = self._place.now_s()
            await beat(peers, session, self._place.now_s, self._over)
            await asyncio.sleep(max(0.0, sent_s + session.beat_s - self._place.now_s()))

    def _over(self, session: Session) -> None:
        session.is_over = True
        with suppress(RuntimeError):  # the client's loop has ended
            self._home.call_soon_threadsafe(self._sessions.ended, session)


async def beat(
    peers: Peers, session: Session, now_s: Callable[[], float], over: Callable[[Session], None]
) -> None:
    """One beat and what its answer means."""
    sent_s = now_s()
    header = Heartbeat(session=session.name)
    try:
        response = await peers.call(session.address, header, timeout_s=session.sure_s)
    except NetError:
        # Whoever was stopped for longer than it waits has missed the answer, not the broker it.
        session.is_unreachable = now_s() - sent_s < session.life_s
        return
    session.is_unreachable = False
    if response.code == ResponseCode.SUCCESS:
        session.confirmed_s = max(session.confirmed_s, sent_s)
    elif response.code == ResponseCode.CONSUMER_NOT_ONLINE:
        over(session)
