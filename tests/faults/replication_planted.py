"""Planted bugs of replication: the storms and the kills have to notice each of them."""

from collections.abc import Callable
from itertools import count
from typing import Any

from sparrowmq.broker.commit_slots import CommitSlots
from sparrowmq.broker.durability import Durability
from sparrowmq.broker.handlers import replication as handlers
from sparrowmq.broker.replication import replication as roles
from sparrowmq.broker.replication.claims import LogClaim, ReadLog, Refuse, StartAnew, Verdict, judge
from sparrowmq.broker.replication.confirmation import Confirmation
from sparrowmq.broker.replication.feed import Feed
from sparrowmq.broker.replication.follower import Follower
from sparrowmq.broker.replication.returning_master import ReturnOutcome
from sparrowmq.broker.replication.role_change import Inheritance, RoleChanger
from sparrowmq.broker.replication.slave_link import SlaveLink
from sparrowmq.broker.replication.table_following import TableFollowing

Patch = Callable[[Any, str, object], None]
"""Replaces an attribute, as monkeypatch.setattr does."""


def acknowledge_before_the_slave_has_it(patch: Patch) -> None:
    """Everything that was appended counts as confirmed."""
    patch(Confirmation, "confirmed", property(lambda copies: copies._store.max_log_offset))


def report_before_the_sync(patch: Patch) -> None:
    """A slave with synchronous flush reports what it has written."""

    async def sync_nothing(_: Durability) -> None:
        """Claim that it is durable."""

    patch(Durability, "make_durable", sync_nothing)
    patch(Follower, "safe_end", property(lambda follower: follower._store.max_log_offset))


def count_connections(patch: Patch) -> None:
    """Every connection of a slave is a copy."""
    identify, numbers = Feed.identify, count(1)

    def as_another(feed: Feed, link: SlaveLink, log_offset: int) -> tuple[int, str]:
        _, name = identify(feed, link, log_offset)
        return next(numbers), name

    patch(Feed, "identify", as_another)


def drop_a_tail_silently(patch: Patch) -> None:
    """A slave whose log diverged from the master's begins with an empty one."""

    def judge_kindly(source: LogClaim, follower: LogClaim, read: ReadLog) -> Verdict:
        verdict = judge(source, follower, read)
        return StartAnew(verdict.reason) if isinstance(verdict, Refuse) else verdict

    patch(handlers, "judge", judge_kindly)


def show_what_may_be_lost(patch: Patch) -> None:
    """Consumers see what was given up before it is on the master's disk."""

    def show(copies: Confirmation) -> None:
        while copies._marks and copies._marks[0].log_offset <= copies.replicas.visible_end:
            for topic, queue_id in copies._store.show(copies._marks.popleft().grown):
                copies._arrivals.announce(topic, queue_id)

    patch(Confirmation, "show", show)


def show_all_copies(patch: Patch) -> None:
    """A slave shows what it has, also where that is one copy too few."""
    patch(roles.Replication, "slaves_show_to", None)


def forget_the_last_commits(patch: Patch) -> None:
    """Progress after the last journal entry is lost by a kill."""
    patch(CommitSlots, "replay", lambda slots, report: [])


def take_over_with_older_tables(patch: Patch) -> None:
    """A new master continues with the tables that it had, which may be a second old."""
    take_over = RoleChanger.take_over

    async def copy_nothing(_: TableFollowing) -> bool:
        return True

    async def take_over_as_it_is(
        changer: RoleChanger, master: str, log_end: int, inheritance: Inheritance
    ) -> None:
        patch(TableFollowing, "copy_now", copy_nothing)
        await take_over(changer, master, log_end, inheritance)

    patch(RoleChanger, "take_over", take_over_as_it_is)


def serve_before_asking_the_slaves(patch: Patch) -> None:
    """A master that comes back begins with what it has."""

    async def ask_nobody(*_: object, **__: object) -> ReturnOutcome:
        return ReturnOutcome(may_serve=True, nothing_is_lost=True)

    patch(roles, "recover_from_slaves", ask_nobody)
