"""`Console`: what the pages of one cluster share, and its tasks; `Desk`: what clusters share."""

import asyncio
import logging
import secrets
from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from sparrowmq.admin.admin import Admin
from sparrowmq.admin.rebalance_simulation import SimulatedGroup
from sparrowmq.admin.reset_journal import ResetJournal, ResetRecord
from sparrowmq.client.client import Client
from sparrowmq.clock import Clock, system_clock
from sparrowmq.console.audit import Audit
from sparrowmq.console.config import ConsoleConfig
from sparrowmq.console.history import History, write_file
from sparrowmq.console.live import Live
from sparrowmq.console.names import ClusterNames
from sparrowmq.console.sampler import Sampler
from sparrowmq.console.sessions import FormTokens, LoginLimit, LoginSessions
from sparrowmq.console.users import UsersFile
from sparrowmq.console.view import PANEL_S

_CHANGE_S = 10.0
"""A change gets more time than a query: half a change is worse than a slow one."""
_SILENCE_S = 5.0
"""For this long no panel asks a broker again that did not answer; else each would wait in turn."""
_SAVE_S = 300.0
_MOST_NOTICES = 200
_MOST_NOTICE = 1_000
_MOST_SIMULATED = 16

log = logging.getLogger("sparrowmq.console")


class Desk:
    """What belongs to the process, whatever the cluster: visitors and what they did.

    Raises ConsoleError for an unusable users file.
    """

    def __init__(self, config: ConsoleConfig, clock: Clock) -> None:
        self.users = None if config.users is None else UsersFile(config.users)
        self.sessions = LoginSessions(clock)
        self.tokens = FormTokens()
        self.logins = LoginLimit(clock)
        path = None if config.state_dir is None else config.state_dir / "audit.jsonl"
        self.audit = Audit(clock, path)
        self.live = Live()
        self._notices: OrderedDict[str, str] = OrderedDict()

    def keep_notice(self, text: str) -> str:
        """Keep a text for the next page; returns the id under which it finds it."""
        while len(self._notices) >= _MOST_NOTICES:
            self._notices.popitem(last=False)
        found = secrets.token_urlsafe(8)
        self._notices[found] = text[:_MOST_NOTICE]
        return found

    def notice(self, found: str) -> str:
        """The text kept under an id; empty if there is none."""
        return self._notices.get(found, "")


class Console:
    """One cluster of a console process. `client` is started by its owner."""

    def __init__(
        self,
        config: ConsoleConfig,
        client: Client,
        *,
        clock: Clock = system_clock,
        admin: Admin | None = None,
        desk: Desk | None = None,
    ) -> None:
        """`admin` replaces the console's own for queries; `desk` is shared with another console.
        Raises ConsoleError for an unusable users file."""
        self.config = config
        self.desk = desk or Desk(config, clock)
        self._is_first = desk is None
        self.clock = clock
        self.client = client
        self.admin = admin or Admin(client=client, timeout_s=PANEL_S, silence_s=_SILENCE_S)
        """For queries."""
        self.changer = Admin(client=client, timeout_s=_CHANGE_S)
        """For changes."""
        self.names = ClusterNames(self.admin, clock)
        self.history = History(clock)
        self.sampler = Sampler(self.admin, self.names, self.history, clock)
        self._simulated: OrderedDict[str, SimulatedGroup] = OrderedDict()
        self.journal = None if config.resets_dir is None else ResetJournal(config.resets_dir)

    @property
    def base(self) -> str:
        """The prefix of its pages' addresses: empty for the first cluster."""
        return "" if self._is_first else f"/@{self.config.name}"

    @property
    def cluster(self) -> str:
        """The name servers that it is connected to."""
        return ", ".join(self.config.name_servers)

    @property
    def label(self) -> str:
        """The display name of the cluster."""
        return self.config.name or self.cluster

    def _history_file(self) -> Path | None:
        name = "history.bin" if self._is_first else f"history-{self.config.name}.bin"
        return None if self.config.state_dir is None else self.config.state_dir / name

    def keep_simulated(self, group: SimulatedGroup) -> str:
        """Keep the group that a page has simulated for its picture; returns an id."""
        while len(self._simulated) >= _MOST_SIMULATED:
            self._simulated.popitem(last=False)
        found = secrets.token_urlsafe(8)
        self._simulated[found] = group
        return found

    def simulated(self, found: str) -> SimulatedGroup | None:
        """The group kept under an id."""
        return self._simulated.get(found)

    async def last_reset(self, group: str) -> ResetRecord | None:
        """The reset that an undo would revert; None if there is none."""
        if self.journal is None:
            return None
        return await self.admin.last_reset(group, journal=self.journal)

    # ---- tasks

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Sample and save while the block runs."""
        path = self._history_file()
        if path is not None and (text := self.history.load(path, self.cluster)):
            log.warning("%s", text)
        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(self.sampler.run())]
            if path is not None:
                running.append(tasks.create_task(self._save(path)))
            try:
                yield
            finally:
                for task in running:
                    task.cancel()
        if path is not None:
            self._write(path, self.history.encoded(self.cluster))

    async def _save(self, path: Path) -> None:
        while True:
            await asyncio.sleep(_SAVE_S)
            await asyncio.to_thread(self._write, path, self.history.encoded(self.cluster))

    def _write(self, path: Path, content: bytes) -> None:
        try:
            write_file(path, content)
        except OSError as error:
            log.warning("the history was not saved: %s", error)
