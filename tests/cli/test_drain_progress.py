"""What a drain prints while it waits: little, and what is news."""

from dataclasses import replace

import pytest

from sparrowmq.admin.drain_status import BrokerDrain, Unread
from sparrowmq.cli.commands.broker_drain import is_news
from sparrowmq.protocol.drain import DrainState


def unread(messages: int, group: str = "billing", lacking: int = 0) -> Unread:
    return Unread(
        group=group,
        topic="orders",
        messages=messages,
        members=2,
        is_paused=False,
        is_ignored=False,
        lacking=lacking,
    )


LAST = BrokerDrain(
    broker="broker-a",
    address="10.0.0.1:10911",
    is_apache=False,
    state=DrainState.DRAINING,
    since=None,
    refuses_sends=True,
    unread=(unread(1000),),
    delayed=0,
    last_due=None,
    half=0,
    dead={},
    unclaimed={},
)


@pytest.mark.parametrize(
    ("now", "news"),
    [
        (LAST, False),
        (replace(LAST, unread=(unread(950),)), False),
        (replace(LAST, unread=(unread(880),)), True),
        (replace(LAST, unread=(unread(1200),)), True),
        (replace(LAST, unread=(unread(990), unread(1, "audit"))), True),
        (replace(LAST, unread=(unread(1000, lacking=1),)), True),
        (replace(LAST, delayed=1), True),
        (replace(LAST, failure="it is gone"), True),
    ],
)
def test_a_drain_is_told_again_when_something_changed_noticeably(
    now: BrokerDrain, news: bool
) -> None:
    assert is_news(LAST, now) is news


def test_a_queue_that_members_without_the_topic_may_hold_says_why_it_stands() -> None:
    assert unread(5, lacking=1).why == "1 of 2 members do not subscribe"
