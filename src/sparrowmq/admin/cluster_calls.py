"""An operator's connection to a cluster: which servers it has, and calls that fail one by one.

Brokers are asked concurrently. One that hangs, refuses or is away becomes a `BrokerFailure` next to
the answers of the others; a query fails as a whole only if none answers.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Generic, TypeVar

from sparrowmq.admin.errors import (
    AdminError,
    BrokerRefusal,
    NameServerRefusal,
    NameServersAway,
    NoBrokerAnswers,
    NotFound,
    PartlyDone,
    TopicAway,
    Unanswered,
    Unreachable,
    failure_of,
    not_done,
    shown,
    unknown_name,
)
from sparrowmq.admin.values import BrokerFailure
from sparrowmq.client.argument_checks import check_names
from sparrowmq.client.client_core import ClientCore
from sparrowmq.client.errors import NotStarted
from sparrowmq.net.calls import Response
from sparrowmq.net.errors import CallTimedOut, NetError, NotConnected
from sparrowmq.protocol.body import Body
from sparrowmq.protocol.codes import ROUTE_LOST, ResponseCode
from sparrowmq.protocol.errors import ProtocolError
from sparrowmq.protocol.header import RequestHeader
from sparrowmq.protocol.headers.consumer_calls import (
    ConsumeMessageDirectly,
    GetConsumerRunningInfo,
)
from sparrowmq.protocol.headers.nameserver import GetAllTopics, GetClusterInfo, GetTopicRoute
from sparrowmq.protocol.headers.statistics import GetBrokerConsumeStats
from sparrowmq.protocol.names import (
    is_dlq_topic,
    is_retry_topic,
    is_system_topic,
    topic_fault,
)
from sparrowmq.protocol.route import BrokerData, ClusterInfo, TopicList, TopicRoute

T = TypeVar("T")
K = TypeVar("K")
B = TypeVar("B", bound=Body)

_NO_BROKER = "no broker is registered with the name server; start one first"
MOST_AT_ONCE = 8
"""How many requests of one query are in flight at the same time."""

_OF_MEMBERS = (GetConsumerRunningInfo, ConsumeMessageDirectly)
"""Requests that a broker forwards to a member."""
_OF_ALL = GetBrokerConsumeStats
"""One that may take long although the broker answers others at once."""

Request = tuple[RequestHeader, bytes]
"""A header and a body."""


@dataclass(frozen=True, slots=True)
class Answers(Generic[T]):
    """The answers to one query, by broker name in order, and the failures."""

    by_broker: dict[str, T]
    errors: tuple[BrokerFailure, ...]

    def all(self) -> dict[str, T]:
        """Every broker's answer. Raises AdminError, before a change, if one of them is missing."""
        if self.errors:
            reasons = "; ".join(map(str, self.errors))
            raise AdminError(f"nothing was changed, since not all brokers answer: {reasons}")
        return self.by_broker

    def reached(self) -> tuple[dict[str, T], tuple[BrokerFailure, ...]]:
        """The answers, and the brokers that a change leaves out because they cannot be reached.

        Raises AdminError, before a change, if one was reached and did not answer: it may continue
        at any moment, and its state is unknown.
        """
        hanging = tuple(each for each in self.errors if not each.is_away)
        return Answers(self.by_broker, hanging).all(), self.errors if not hanging else ()


class ClusterCalls:
    """Name servers and brokers as one operator reaches them."""

    def __init__(
        self,
        client: ClientCore,
        *,
        origin: str,
        timeout_s: float,
        silence_s: float = 0.0,
        most_at_once: int | None = None,
    ) -> None:
        """`origin` says where the name servers' addresses come from. `timeout_s` limits a single
        call; a server that exceeded it is not asked again for `silence_s`. `most_at_once` limits
        all calls together, for work that makes many queries concurrently.
        """
        self.client = client
        self._origin = origin
        self._timeout_s = timeout_s
        self._silence_s = silence_s
        self._silent: dict[str, tuple[float, type[AdminError], str]] = {}
        """Address → until when it is not asked, and its last failure."""
        self._turn = None if most_at_once is None else asyncio.Semaphore(most_at_once)

    def bounded(self) -> "ClusterCalls":
        """The same cluster, with a limit on all calls together."""
        found = ClusterCalls(
            self.client,
            origin=self._origin,
            timeout_s=self._timeout_s,
            silence_s=self._silence_s,
            most_at_once=MOST_AT_ONCE,
        )
        found._silent = self._silent
        return found

    # ---- name servers

    async def ask_name_server(self, header: RequestHeader, kind: type[B]) -> B:
        """The table of the first name server that answers. Raises NameServersAway,
        NameServerRefusal."""
        return self._table(await self._first_name_server(header), kind)

    async def _first_name_server(self, header: RequestHeader) -> Response:
        self._check_running()
        servers = self.client.name_servers
        try:
            async with self._turn or nullcontext():
                return await servers.call(header)
        except NetError as error:
            raise NameServersAway(servers.addresses, str(error), self._origin) from error

    async def change_name_servers(
        self, header: RequestHeader, body: bytes = b""
    ) -> list[BrokerFailure]:
        """Send a change to all name servers, which do not know each other. Returns the failures."""
        addresses = self.client.name_servers.addresses
        results = await at_once([partial(self.call, each, header, body) for each in addresses])
        return [
            failure_of(f"name server {address}", address, result)
            for address, result in zip(addresses, results, strict=True)
            if isinstance(result, AdminError)
        ]

    async def info(self) -> ClusterInfo:
        """Clusters, their brokers and addresses."""
        return await self.ask_name_server(GetClusterInfo(), ClusterInfo)

    async def find_route(self, topic: str) -> TopicRoute | None:
        """Which brokers have a topic; None if none of them does."""
        response = await self._ask_for_route(topic)
        is_missing = response.code == ResponseCode.TOPIC_NOT_EXIST
        return None if is_missing else self._table(response, TopicRoute)

    async def route(self, topic: str) -> TopicRoute:
        """Which brokers have a topic. Raises NotFound, TopicAway if these brokers are gone, and
        AdminError if there is no broker at all: then nothing is known about any topic."""
        response = await self._ask_for_route(topic)
        if response.code != ResponseCode.TOPIC_NOT_EXIST:
            return self._table(response, TopicRoute)
        if response.remark.startswith(ROUTE_LOST):
            raise TopicAway(topic, response.remark)
        raise await self.no_topic(topic)

    async def _ask_for_route(self, topic: str) -> Response:
        header = GetTopicRoute(topic=topic, accept_standard_json_only=True)
        return await self._first_name_server(header)

    async def no_topic(self, topic: str) -> AdminError:
        """The error for a topic that no broker has registered: NotFound with the name that may be
        meant. Name servers that were restarted know nothing until brokers register."""
        fault = topic_fault(topic)
        if fault is not None:
            return NotFound("topic", topic, fault)
        if not (await self.info()).broker_addr_table:
            return AdminError(_NO_BROKER)
        try:
            known = (await self.ask_name_server(GetAllTopics(), TopicList)).topic_list
        except AdminError:  # a name server may be told to keep its topics to itself
            known = frozenset()
        users = (
            each
            for each in sorted(known)
            if not (is_system_topic(each) or is_retry_topic(each) or is_dlq_topic(each))
        )
        return unknown_name("topic", topic, users)

    def _table(self, response: Response, kind: type[B]) -> B:
        if response.code != ResponseCode.SUCCESS:
            addresses = self.client.name_servers.addresses
            raise NameServerRefusal(addresses, response.code, response.remark, self._origin)
        try:
            return kind.from_json(response.body)
        except ProtocolError as error:
            raise AdminError(f"the answer of the name server cannot be read: {error}") from error

    # ---- brokers

    async def masters(
        self, *, brokers: Sequence[str] = (), cluster: str | None = None
    ) -> dict[str, str]:
        """Name → address of the masters that a change goes to: of the named brokers, of a cluster,
        or of all. Raises NotFound, and AdminError for a name without a master."""
        found, without = await self.masters_and_missing(brokers=brokers, cluster=cluster)
        for failure in without:
            raise AdminError(failure.reason)
        return found

    async def masters_and_missing(
        self, *, brokers: Sequence[str] = (), cluster: str | None = None
    ) -> tuple[dict[str, str], list[BrokerFailure]]:
        """Like `masters`, but returns the names without a master too. Raises NotFound."""
        check_names("brokers", brokers)
        info = await self.info()
        if cluster is not None and cluster not in info.cluster_addr_table:
            raise NotFound("cluster", cluster, f"known are: {shown(info.cluster_addr_table)}")
        wanted = set(brokers) or (
            info.cluster_addr_table[cluster] if cluster else set(info.broker_addr_table)
        )
        found: dict[str, str] = {}
        without: list[BrokerFailure] = []
        for name in sorted(wanted):
            data = info.broker_addr_table.get(name)
            known = f"registered are: {shown(info.broker_addr_table)}"
            if data is None:
                raise NotFound("broker", name, known)
            if data.master_addr is None:
                slave = data.broker_addrs[min(data.broker_addrs)] if data.broker_addrs else ""
                reason = f"broker {name} has no master now; {known}"
                without.append(BrokerFailure(name, slave, reason, is_away=True))
            else:
                found[name] = data.master_addr
        if not found and not without:
            raise AdminError(_NO_BROKER)
        return found, without

    async def changeable(
        self, *, brokers: Sequence[str] = (), cluster: str | None = None
    ) -> tuple[dict[str, str], list[BrokerFailure]]:
        """Like `masters_and_missing`, for changes that are made wherever possible. Raises NotFound,
        and AdminError if none of them has a master."""
        found, without = await self.masters_and_missing(brokers=brokers, cluster=cluster)
        if not found:
            raise AdminError(without[0].reason)
        return found, without

    async def readable(self) -> dict[str, str]:
        """Name → address of one broker of every name, for queries: the master, else a slave."""
        info = await self.info()
        found = addresses_of(info.broker_addr_table.values())
        if not found:
            raise AdminError(_NO_BROKER)
        return found

    async def call(self, address: str, header: RequestHeader, body: bytes = b"") -> Response:
        """Get a successful answer. Raises BrokerRefusal, and AdminError if none comes in time."""
        response = await self.ask(address, header, body)
        if response.code != ResponseCode.SUCCESS:
            raise BrokerRefusal(address, response.code, response.remark)
        return response

    async def ask(self, address: str, header: RequestHeader, body: bytes = b"") -> Response:
        """Get an answer with any code. Raises AdminError if none comes in time."""
        self._check_running()
        now_s = asyncio.get_running_loop().time
        if address in self._silent:
            until_s, kind, reason = self._silent[address]
            if now_s() < until_s:
                raise kind(reason)
        try:
            async with self._turn or nullcontext():
                return await self.client.peers.call(
                    address, header, body, timeout_s=self._timeout_s
                )
        except NetError as error:
            is_away = isinstance(error, NotConnected)
            # A hanging member says nothing about its broker, which only forwards such requests; nor
            # does an answer about all groups that takes long.
            is_silent = is_away or (
                isinstance(error, CallTimedOut) and not isinstance(header, (*_OF_MEMBERS, _OF_ALL))
            )
            if self._silence_s and is_silent:
                kind = Unreachable if is_away else AdminError  # the next request is not sent
                self._silent[address] = (now_s() + self._silence_s, kind, str(error))
            raise (Unreachable if is_away else Unanswered)(str(error)) from error

    async def ask_each(
        self, targets: Mapping[str, str], question: Callable[[str, str], Awaitable[T]]
    ) -> Answers[T]:
        """Ask `question(name, address)` of all brokers at once. Raises NoBrokerAnswers."""
        asks = [partial(question, *item) for item in targets.items()]
        by_broker: dict[str, T] = {}
        errors: list[BrokerFailure] = []
        for (name, address), result in zip(targets.items(), await at_once(asks), strict=True):
            if isinstance(result, AdminError):
                errors.append(failure_of(name, address, result))
            else:
                by_broker[name] = result
        if errors and not by_broker:
            raise NoBrokerAnswers(errors)
        return Answers(by_broker, tuple(errors))

    async def change_each(
        self,
        what: str,
        targets: Mapping[str, str],
        request: Callable[[str], Request],
        *,
        away: Sequence[BrokerFailure] = (),
    ) -> list[str]:
        """Send each broker its change. Returns the names of those that made it. `away` are brokers
        that should get it and cannot be reached.

        Raises AdminError if all refused, PartlyDone if some did or are away.
        """

        async def change(name: str, address: str) -> None:
            await self.call(address, *request(name))

        try:
            answers = await self.ask_each(targets, change)
        except NoBrokerAnswers as error:
            raise not_done([*error.errors, *away]) from error
        done = list(answers.by_broker)
        if answers.errors or away:
            raise partly_done(what, done, [*answers.errors, *away])
        return done

    def _check_running(self) -> None:
        if not self.client.is_running:
            raise NotStarted("the Admin is not running: use `async with`, or await its start()")
        self.client.check_loop()


def without(targets: Mapping[str, str], away: Sequence[BrokerFailure]) -> dict[str, str]:
    """The brokers of a change that can be reached."""
    left_out = {each.broker for each in away}
    return {name: address for name, address in targets.items() if name not in left_out}


def partly_done(what: str, done: list[str], failures: Iterable[BrokerFailure]) -> PartlyDone:
    """The error for a change that only some servers confirmed."""
    failed = {each.broker: each for each in failures}
    return PartlyDone(
        what,
        done,
        {name: each.reason for name, each in failed.items()},
        [name for name, each in failed.items() if each.may_have_acted],
    )


async def at_once(asks: Sequence[Callable[[], Awaitable[T]]]) -> list[T | AdminError]:
    """Results in the order of the queries; for a failed one its error, as a value."""
    limit = asyncio.Semaphore(MOST_AT_ONCE)

    async def one(ask: Callable[[], Awaitable[T]]) -> T | AdminError:
        async with limit:
            try:
                return await ask()
            except AdminError as error:
                return error
            except ProtocolError as error:
                return AdminError(f"its answer cannot be read: {error}")

    async with asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(one(ask)) for ask in asks]
    return [task.result() for task in running]


async def while_it_answers(asks: Mapping[K, Callable[[], Awaitable[T]]]) -> dict[K, T]:
    """The results of queries to one broker by key, a few at a time. Raises the first failure before
    the next queries: a hanging broker would cost its timeout for each of them."""
    found: dict[K, T] = {}
    items = list(asks.items())
    for start in range(0, len(items), MOST_AT_ONCE):
        found |= await all_at_once(dict(items[start : start + MOST_AT_ONCE]))
    return found


async def answered(ask: Callable[[], Awaitable[T]]) -> T:
    """The result of one query. Raises AdminError, also for an answer that cannot be read."""
    return (await all_at_once({None: ask}))[None]


async def all_at_once(asks: Mapping[K, Callable[[], Awaitable[T]]]) -> dict[K, T]:
    """The results by key. Raises the first failure after all have ended."""
    results = await at_once(list(asks.values()))
    found: dict[K, T] = {}
    for key, result in zip(asks, results, strict=True):
        if isinstance(result, AdminError):
            raise result
        found[key] = result
    return found


def addresses_of(datas: Iterable[BrokerData]) -> dict[str, str]:
    """Name → address of the master, else of the slave with the lowest id."""
    return {
        data.broker_name: data.broker_addrs[min(data.broker_addrs)]
        for data in sorted(datas, key=lambda data: data.broker_name)
        if data.broker_addrs
    }
