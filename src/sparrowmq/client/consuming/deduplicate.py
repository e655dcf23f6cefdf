"""Handle each message once even if it is delivered twice.

    seen = SqliteSeen(Path("billing-seen.db"))
    await consumer.run(Deduplicate(seen, ttl_s=3 * 86400)(handle))

Delivery is at-least-once: a message is delivered again if its consumer dies before its progress is
stored. A key is recorded after the handler succeeded, so nothing is lost. What remains is the
moment between the two: if the process dies there, its message is handled again.
"""

import inspect
import sqlite3
import threading
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Protocol, overload

from sparrowmq.client.argument_checks import check_function, check_time
from sparrowmq.client.consuming.handler_calls import (
    EachHandler,
    Handler,
    RetryLater,
    check_handler,
)
from sparrowmq.client.setting_names import checks_setting_names
from sparrowmq.clock import Clock, system_clock
from sparrowmq.protocol.message_ext import MessageExt

DAY_S = 86_400.0
_MANY = 500
"""Keys per SQL statement; old versions of SQLite allow 999 variables."""


class Seen(Protocol):
    """Remembers keys until they expire. Used from several threads."""

    def known(self, keys: Sequence[str], now_ms: int) -> set[str]:
        """Those of the keys that were recorded and have not expired."""
        ...

    def record(self, keys: Iterable[str], now_ms: int, expires_ms: int) -> None:
        """Remember keys."""
        ...


class MemorySeen:
    """Remembers keys in this process only: a restart forgets everything. Beyond `max_keys` the
    oldest are dropped."""

    def __init__(self, max_keys: int = 1_000_000) -> None:
        self._max_keys = max_keys
        self._expires_ms: dict[str, int] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._expires_ms)

    def known(self, keys: Sequence[str], now_ms: int) -> set[str]:
        """Those of the keys that were recorded and have not expired."""
        with self._lock:
            return {key for key in keys if self._expires_ms.get(key, 0) > now_ms}

    def record(self, keys: Iterable[str], now_ms: int, expires_ms: int) -> None:
        """Remember keys."""
        with self._lock:
            for key in keys:
                # Move to the end: the order is that of expiry, since all keys live equally long
                self._expires_ms.pop(key, None)
                self._expires_ms[key] = expires_ms
            while self._expires_ms:
                oldest = next(iter(self._expires_ms))
                if len(self._expires_ms) <= self._max_keys and self._expires_ms[oldest] > now_ms:
                    break
                del self._expires_ms[oldest]


class SqliteSeen:
    """Remembers keys in a file, which several processes of one machine may share. Survives kills; a
    power cut may lose the last moments."""

    def __init__(self, path: Path) -> None:
        """Raises OSError if the file cannot be created or read."""
        self._lock = threading.Lock()
        try:
            self._base = sqlite3.connect(path, check_same_thread=False, timeout=30.0)
        except sqlite3.Error as error:
            text = f"{path} cannot be opened, which holds keys: {error}; does its directory exist?"
            raise OSError(text) from error
        try:
            self._set_up()
        except sqlite3.Error as error:
            self._base.close()
            raise OSError(f"the key file {path} cannot be used: {error}") from error

    def _set_up(self) -> None:
        self._base.execute("PRAGMA journal_mode = WAL")
        # No fsync per handler call: the class promises no more.
        self._base.execute("PRAGMA synchronous = NORMAL")
        with self._base:
            self._base.execute(
                "CREATE TABLE IF NOT EXISTS seen"
                " (key TEXT PRIMARY KEY, expires_ms INTEGER NOT NULL) WITHOUT ROWID"
            )
            self._base.execute("CREATE INDEX IF NOT EXISTS seen_expiry ON seen (expires_ms)")

    def known(self, keys: Sequence[str], now_ms: int) -> set[str]:
        """Those of the keys that were recorded and have not expired."""
        found: set[str] = set()
        with self._lock:
            for at in range(0, len(keys), _MANY):
                part = keys[at : at + _MANY]
                marks = ",".join("?" * len(part))
                rows = self._base.execute(
                    f"SELECT key FROM seen WHERE expires_ms > ? AND key IN ({marks})",
                    (now_ms, *part),
                )
                found.update(key for (key,) in rows)
        return found

    def record(self, keys: Iterable[str], now_ms: int, expires_ms: int) -> None:
        """Remember keys."""
        with self._lock, self._base:
            self._base.execute("DELETE FROM seen WHERE expires_ms <= ?", (now_ms,))
            self._base.executemany(
                "INSERT OR REPLACE INTO seen VALUES (?, ?)", [(key, expires_ms) for key in keys]
            )

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._base.close()


_Given = Sequence[MessageExt] | MessageExt


def _unique_id(message: MessageExt) -> str:
    return message.msg_id


@checks_setting_names
class Deduplicate:
    """Wraps a handler, async or plain, of batches or of each message, so that messages with a known
    key are skipped."""

    def __init__(
        self,
        store: Seen,
        key: Callable[[MessageExt], str] = _unique_id,
        ttl_s: float = DAY_S,
        *,
        clock: Clock = system_clock,
    ) -> None:
        """By default the key is the sender's unique id, which stays the same when a message is
        retried. If one order is sent twice, the ids differ: then use the order number as `key`.
        Keys are remembered for `ttl_s`, which should be longer than a message may be retried."""
        check_time("ttl_s", ttl_s)
        check_function("key", key)
        _check_store(store)
        self._claims = _Claims(store, key, int(ttl_s * 1000), clock)

    @overload
    def __call__(self, handler: Handler) -> Handler: ...

    @overload
    def __call__(self, handler: EachHandler) -> EachHandler: ...

    def __call__(self, handler: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Wrap a handler so that it skips known messages. The result takes what the handler takes:
        a batch, or one message for `start(each=…)`. Raises ValueError for anything but a
        handler."""
        check_handler(handler)
        if inspect.iscoroutinefunction(handler):

            async def handle(given: _Given) -> None:
                batch = _Batch(self._claims, given)
                with batch:
                    if batch.fresh:
                        await handler(batch.left)

            return handle

        def handle_plainly(given: _Given) -> Awaitable[None] | None:
            batch = _Batch(self._claims, given)
            with ExitStack() as stack:
                stack.enter_context(batch)
                answer = handler(batch.left) if batch.fresh else None
                if inspect.isawaitable(answer):
                    # An async method that does not look like one: it has done nothing yet.
                    return _awaited(answer, stack.pop_all())
            return None

        return handle_plainly


def _check_store(store: object) -> None:
    functions = (getattr(store, name, None) for name in ("known", "record"))
    if isinstance(store, type) or not all(map(callable, functions)):
        allowed = 'must be an object such as MemorySeen() or SqliteSeen(Path("seen.db"))'
        raise ValueError(f"the store of Deduplicate is {store!r}, {allowed}")


class _Claims:
    """The keys that handlers of this process are working on, and those that the store knows."""

    def __init__(
        self, store: Seen, key: Callable[[MessageExt], str], ttl_ms: int, clock: Clock
    ) -> None:
        self._store = store
        self._key = key
        self._ttl_ms = ttl_ms
        self._clock = clock
        self._in_work: set[str] = set()
        self._lock = threading.Lock()

    def claim(self, messages: Sequence[MessageExt]) -> tuple[list[MessageExt], list[str], bool]:
        """The messages that no handler has handled or is handling, with their keys, and whether
        some are being handled elsewhere right now."""
        keys = [self._key(message) for message in messages]
        given: list[object] = [*keys]
        if not all(isinstance(key, str) and key for key in given):
            # Messages without a key would count as equal, and only the first would be handled
            raise ValueError(f"keys for Deduplicate are {keys!r}, must be texts that are not empty")
        fresh: list[MessageExt] = []
        mine: list[str] = []
        with self._lock:
            known = self._store.known(keys, self._clock())
            is_shared = any(key in self._in_work and key not in known for key in keys)
            for message, key in zip(messages, keys, strict=True):
                if key not in known and key not in self._in_work:
                    self._in_work.add(key)
                    fresh.append(message)
                    mine.append(key)
        return fresh, mine, is_shared

    def settle(self, keys: list[str], done: int) -> None:
        """The first `done` of claimed keys are handled; the others are free again."""
        now_ms = self._clock()
        try:
            if done:
                self._store.record(keys[:done], now_ms, now_ms + self._ttl_ms)
        finally:
            with self._lock:
                self._in_work.difference_update(keys)


async def _awaited(answer: Awaitable[None], batch: ExitStack) -> None:
    with batch:
        await answer


class _Batch:
    """One handler call: claims keys at the beginning, records what succeeded at the end."""

    def __init__(self, claims: _Claims, given: _Given) -> None:
        self._claims = claims
        is_one = isinstance(given, MessageExt)
        self._messages = [given] if isinstance(given, MessageExt) else list(given)
        self.fresh: list[MessageExt]
        self.fresh, self._keys, self._is_shared = claims.claim(self._messages)
        self.left: _Given = given if is_one else self.fresh
        """What the handler gets, if anything is fresh: one message if it was given one."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None:
            self._claims.settle(self._keys, len(self._keys))
            if self._is_shared:
                # Its twin may still fail, so it is neither done nor known: try again later.
                raise RetryLater("a message with the same key is being handled")
            return
        if not isinstance(error, RetryLater):
            self._claims.settle(self._keys, 0)
            return
        self._claims.settle(self._keys, error.done)
        if error.done < len(self.fresh):
            # The handler counted what it saw; the consumer counts the whole batch.
            error.done = self._messages.index(self.fresh[error.done])
