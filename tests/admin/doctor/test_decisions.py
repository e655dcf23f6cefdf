"""Facts in, findings out: every id of the catalogue, and healthy states that resemble a problem."""

from collections.abc import Callable

import pytest

from sparrowmq.admin.doctor.catalogue import CATALOGUE
from sparrowmq.admin.doctor.cluster import decide_cluster
from sparrowmq.admin.doctor.facts import ClusterFacts, GroupFacts, MessageFacts, TopicFacts
from sparrowmq.admin.doctor.findings import Decided
from sparrowmq.admin.doctor.group import decide_group
from sparrowmq.admin.doctor.member_states import handler_line
from sparrowmq.admin.doctor.message import decide_message
from sparrowmq.admin.doctor.topic import decide_topic
from sparrowmq.admin.members import Subscription
from tests.admin.doctor.facts_tables import HEALTHY, NOT_MADE, WRONG, Facts, read_by


def decide(facts: Facts) -> Decided:
    match facts:
        case ClusterFacts():
            return decide_cluster(facts)
        case TopicFacts():
            return decide_topic(facts)
        case GroupFacts():
            return decide_group(facts)
        case MessageFacts():
            return decide_message(facts)


@pytest.mark.parametrize(
    ("name", "facts"), WRONG, ids=[f"{name}-{n}" for n, (name, _) in enumerate(WRONG)]
)
def test_facts_lead_to_exactly_one_finding(name: str, facts: Facts) -> None:
    assert [each.id for each in decide(facts).findings] == [name]


@pytest.mark.parametrize(
    ("offset", "subscription", "cause"),
    [
        (0, Subscription("orders"), "messages before it are not finished"),
        (5, Subscription("orders"), "its members have not finished it"),
        (0, None, "no member is online"),
        (None, None, "no member is online"),
    ],
)
def test_a_message_waits_for_those_before_it_only_where_a_member_is_online(
    offset: int | None, subscription: Subscription | None, cause: str
) -> None:
    facts = read_by(offset=offset, subscription=subscription)
    (finding,) = decide_message(facts).findings
    assert (finding.id, finding.cause) == ("waiting-behind", cause)


def test_what_a_quota_refuses_is_counted_as_refusals_since_producers_ask_again() -> None:
    facts = next(facts for name, facts in WRONG if name == "quota-reached")
    (finding,) = decide(facts).findings
    assert " refusals in the last minute" in finding.evidence


def test_every_id_of_the_catalogue_has_facts_that_lead_to_it() -> None:
    assert {name for name, _ in WRONG} == set(CATALOGUE)


@pytest.mark.parametrize(("why", "facts"), HEALTHY, ids=[why for why, _ in HEALTHY])
def test_a_healthy_state_that_resembles_a_problem_is_not_reported(why: str, facts: Facts) -> None:
    assert [str(each) for each in decide(facts).findings] == []


@pytest.mark.parametrize(("why", "facts", "ids"), NOT_MADE, ids=[each[0] for each in NOT_MADE])
def test_a_check_that_cannot_be_made_is_listed_with_its_reason(
    why: str, facts: Facts, ids: Callable[[], set[str]]
) -> None:
    decided = decide(facts)
    assert {name for each in decided.not_made for name in each.ids} == ids()
    assert all(each.reason for each in decided.not_made)
    assert not decided.findings


STACKS = [
    ("", ""),
    (
        "ConsumeMessageThread_billing_1           TID: 33 STATE: TIMED_WAITING\n"
        "ConsumeMessageThread_billing_1           java.lang.Thread.sleep(Native Method)\n"
        "ConsumeMessageThread_billing_1           shop.Ledger.book(Ledger.java:12)\n"
        "ConsumeMessageThread_billing_1           shop.Handler.consume(Handler.java:7)\n",
        "shop.Ledger.book(Ledger.java:12)",
    ),
    (
        "ConsumeMessageThread_billing-of-the-whole-shop_1TID: 33 STATE: TIMED_WAITING\n"
        "ConsumeMessageThread_billing-of-the-whole-shop_1java.lang.Thread.sleep(Native Method)\n"
        "ConsumeMessageThread_billing-of-the-whole-shop_1shop.Ledger.book(Ledger.java:12)\n",
        "shop.Ledger.book(Ledger.java:12)",
    ),
    (
        "ConsumeMessageThread_2           TID: 34 STATE: WAITING\n"
        "ConsumeMessageThread_2           java.util.concurrent.ThreadPoolExecutor.getTask\n",
        "",
    ),
    (
        "task pull\n  PullLoop.run (/x/pull_loop.py:1)\ntask work\n  call (/x/handler_calls.py:2)\n"
        "  handle (/shop/bill.py:3)\n  book (/shop/ledger.py:4)\ntask other\n  other (/x/o.py:5)\n",
        "book (/shop/ledger.py:4)",
    ),
    (
        "task work\n  call (/v/lib/python3.11/site-packages/sparrowmq/client/handler_calls.py:2)\n"
        "  book (/shop/ledger.py:4)\n  sleep (/usr/lib/python3.11/asyncio/tasks.py:639)\n",
        "book (/shop/ledger.py:4)",
    ),
    (
        'thread 1\n  File "/shop/main.py", line 9, in <module>\n    consumer.join()\n'
        'thread 7\n  File "/x/handler_threads.py", line 1, in run\n    call()\n'
        '  File "/shop/bill.py", line 3, in handle\n    socket.recv()\n'
        '  File "/usr/lib/python3.11/socket.py", line 7, in recv\n    wait()\n',
        'File "/shop/bill.py", line 3, in handle',
    ),
    (
        'thread 7\n  File "/x/handler_threads.py", line 1, in run\n    call()\n'
        '  File "/shop/bill.py", line 3, in handle\n    time.sleep(99)\n',
        'File "/shop/bill.py", line 3, in handle',
    ),
    (
        "goroutine 1 [select]:\nmain.main()\n\t/shop/main.go:9 +0x1d\n\n"
        "goroutine 71 [chan receive]:\n"
        "time.Sleep(0x3b9aca00)\n\t/usr/local/go/src/time/sleep.go:4 +0xf2\n"
        "net/http.(*Client).Do(...)\n\t/usr/local/go/src/net/http/client.go:5\n"
        "shop/ledger.(*Book).enter(0x3f91, {0x8c, 0x3f})\n\t/shop/ledger/book.go:12 +0x33d\n"
        "main.handle({0x8c0660?, 0x3f914?})\n\t/shop/main.go:7 +0x45\n"
        "github.com/apache/rocketmq-client-go/v2/consumer.(*pushConsumer).consumeInner(0x3f)\n"
        "\t/go/pkg/mod/github.com/apache/rocketmq-client-go/v2@v2.1.2/consumer/push.go:1 +0x2\n",
        "shop/ledger.(*Book).enter (/shop/ledger/book.go:12)",
    ),
    ("goroutine 1 [select]:\nmain.main()\n\t/shop/main.go:9 +0x1d\n", ""),
]


@pytest.mark.parametrize(("stacks", "line"), STACKS)
def test_the_line_of_a_handler_is_found_in_the_stacks_of_each_language(
    stacks: str, line: str
) -> None:
    assert handler_line(stacks) == line
