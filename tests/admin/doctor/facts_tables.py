"""Facts about clusters, topics, groups and messages: wrong ones by the id of their diagnosis,
healthy ones that look alike, and such that leave a check open."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from sparrowmq import GroupMember as Member
from sparrowmq import GroupSettings as OfGroup
from sparrowmq import MessageExt, MessageModel, MessageQueue, QueueLag, SlaveInfo, Subscription
from sparrowmq import TopicQueue as Queue
from sparrowmq import TopicSettings as OfTopic
from sparrowmq.admin.doctor.facts import (
    BrokerFacts,
    ClusterFacts,
    GroupFacts,
    GroupLook,
    MessageFacts,
    MessageReader,
    NameServerFacts,
    ReadingGroup,
    TopicFacts,
)
from sparrowmq.admin.limits import Limit
from sparrowmq.protocol.connections import ConsumerRunningInfo, ConsumeStatus, ProcessQueueInfo
from sparrowmq.protocol.limits import read_backlog
from sparrowmq.protocol.properties import encode_properties
from sparrowmq.protocol.record import Record
from sparrowmq.protocol.route import QueueData, TopicRoute

NOW = 1_700_000_000_000
Q0, Q1 = MessageQueue("orders", "broker-a", 0), MessageQueue("orders", "broker-a", 1)
Facts = ClusterFacts | TopicFacts | GroupFacts | MessageFacts


# ---- a cluster without a fault, and its faults

RUNTIME = {"busyReason": "", "commitLogDiskRatio": "0.2", "brokerVersionDesc": "V5_3_3"}
A = BrokerFacts(
    name="broker-a",
    broker_id=0,
    address="a:1",
    clusters=("C",),
    runtime=RUNTIME,
    settings={"brokerName": "broker-a", "brokerRole": "ASYNC_MASTER", "minInSyncReplicas": "1"},
    skew_s=0.0,
    skew_doubt_s=1.0,
)
N1 = NameServerFacts(address="n1:9876", brokers={("broker-a", 0): "a:1"})
CLUSTER = ClusterFacts(name_servers=(N1,), brokers=(A,))
SLAVE = SlaveInfo(
    broker="broker-a",
    broker_id=1,
    address="s:1",
    follows=True,
    acknowledged=5,
    behind_bytes=100,
    heard=datetime(2026, 11, 18, tzinfo=UTC),
)


def broker(**changes: Any) -> ClusterFacts:
    return replace(CLUSTER, brokers=(replace(A, **changes),))


def reporting(**changes: str) -> ClusterFacts:
    return broker(runtime={**RUNTIME, **changes})


WRONG_CLUSTERS: list[tuple[str, Facts]] = [
    (
        "nameserver-silent",
        replace(CLUSTER, name_servers=(N1, NameServerFacts(address="n2:9876", error="refused"))),
    ),
    ("nameservers-differ", replace(CLUSTER, name_servers=(N1, replace(N1, brokers={})))),
    ("broker-silent", broker(runtime=None, error="did not answer within 5 s")),
    ("broker-busy", reporting(busyReason="the broker lags 2.0 s")),
    ("disk-nearly-full", reporting(commitLogDiskRatio="0.86")),
    ("clock-skew", broker(skew_s=-7.0)),
    (
        "two-brokers-one-name",
        replace(CLUSTER, name_servers=(N1, replace(N1, brokers={("broker-a", 0): "b:1"}))),
    ),
    ("two-brokers-one-name", broker(clusters=("C", "D"))),
    ("two-brokers-one-name", broker(settings={"brokerName": "broker-z"})),
    ("no-master", broker(broker_id=1)),
    ("no-master", replace(CLUSTER, brokers=())),
    ("slave-behind", replace(CLUSTER, slaves=(replace(SLAVE, follows=False),))),
    ("slave-behind", replace(CLUSTER, slaves=(replace(SLAVE, behind_bytes=1 << 30),))),
    (
        "version-mixed",
        replace(
            CLUSTER,
            brokers=(
                A,
                replace(
                    A,
                    name="broker-b",
                    runtime={**RUNTIME, "brokerVersionDesc": "V4_9_7"},
                    settings={},
                ),
            ),
        ),
    ),
    (
        "permission-wiped",
        replace(CLUSTER, name_servers=(replace(N1, read_only=frozenset({"broker-a"})),)),
    ),
    ("broker-drains", broker(runtime={**RUNTIME, "drain": "drains: it takes no new messages"})),
    (
        "protective-setting-ignored",
        broker(settings={"brokerRole": "ASYNC_MASTER", "inSyncReplicas": "2"}),
    ),
]
HEALTHY_CLUSTERS: list[tuple[str, Facts]] = [
    ("everything answers", CLUSTER),
    ("its clock is off by less than can be measured", broker(skew_s=5.5)),
    ("a slave follows", replace(CLUSTER, slaves=(SLAVE,))),
    (
        "a broker that is closed by itself is not hidden by somebody",
        replace(
            CLUSTER,
            brokers=(replace(A, takes_sends=False),),
            name_servers=(replace(N1, read_only=frozenset({"broker-a"})),),
        ),
    ),
    (
        "a broker that waits for its slaves",
        broker(settings={"brokerRole": "SYNC_MASTER", "inSyncReplicas": "2"}),
    ),
]


# ---- topics


def route(read: int = 2, write: int = 2, perm: int = 6) -> TopicRoute:
    data = QueueData(
        broker_name="broker-a", read_queue_nums=read, write_queue_nums=write, perm=perm
    )
    return TopicRoute(queue_datas=(data,), broker_datas=())


def held(queue: MessageQueue, messages: int) -> Queue:
    return Queue(queue=queue, min_offset=0, max_offset=messages, last_stored=None)


def on(name: str, queues: int) -> OfTopic:
    return OfTopic(
        broker=name, read_queues=queues, write_queues=queues, perm=6, order=False, attributes={}
    )


READER = ReadingGroup(group="billing", members=1, held={"c1": frozenset({Q0, Q1})})
TOPIC = TopicFacts(
    name="orders",
    route=route(),
    settings=(on("broker-a", 2),),
    queues=(held(Q0, 60), held(Q1, 50)),
    readers=(READER,),
    broker_settings={
        "broker-a": {
            "fileReservedTime": "72",
            "autoCreateTopicEnable": "true",
            "defaultTopicQueueNums": "8",
        }
    },
    masters=("broker-a",),
)
SINCE = datetime(2026, 11, 18, tzinfo=UTC)
QUOTA = Limit(scope="topic", name="orders", messages=10, brokers=("broker-a",))
BACKLOG = Limit(
    scope="topic",
    name="orders",
    backlog=read_backlog("10:refuse:billing"),
    lags={"billing": 9},
    brokers=("broker-a",),
)
WRONG_TOPICS: list[tuple[str, Facts]] = [
    ("no-route", TopicFacts(name="orders", no_route="topic orders does not exist")),
    ("no-route", TopicFacts(name="orders", no_route="its brokers are gone", is_lost=True)),
    ("not-writable", replace(TOPIC, route=route(perm=4))),
    ("not-writable", replace(TOPIC, route=route(write=0))),
    ("not-readable", replace(TOPIC, route=route(perm=2), readers=(replace(READER, held={}),))),
    ("nobody-consumes", replace(TOPIC, readers=())),
    ("nobody-consumes", replace(TOPIC, readers=(replace(READER, members=0, held={}),))),
    ("unequal-subscriptions", replace(TOPIC, readers=(replace(READER, lacking=("c9",)),))),
    ("queues-uneven", replace(TOPIC, queues=(held(Q0, 190), held(Q1, 10)))),
    ("queues-differ-by-broker", replace(TOPIC, settings=(on("broker-a", 2), on("broker-b", 4)))),
    ("old-route-in-client", replace(TOPIC, route=route(read=1))),
    (
        "retention-overtakes-lag",
        replace(TOPIC, readers=(replace(READER, delays_s={Q0: 60 * 3600.0}),)),
    ),
    (
        "auto-created",
        replace(TOPIC, settings=(on("broker-a", 4),), masters=("broker-a", "broker-b")),
    ),
    ("quota-reached", replace(TOPIC, limits=(replace(QUOTA, refused_last_minute=7),))),
    (
        "backlog-refused",
        replace(TOPIC, limits=(replace(BACKLOG, since=datetime(2026, 11, 18, tzinfo=UTC)),)),
    ),
    (
        "backlog-uncounted",
        replace(
            TOPIC,
            limits=(replace(BACKLOG, uncounted={"audit": "it had no member for 10 minutes"}),),
        ),
    ),
    ("dedup-window-cut", replace(TOPIC, dedup_cuts={"broker-a": (7, 90_000, 600_000)})),
]
HEALTHY_TOPICS: list[tuple[str, Facts]] = [
    ("it is read", TOPIC),
    (
        "members of a group that read something else",
        replace(TOPIC, readers=(READER, replace(READER, members=0, held={}, lacking=("c9",)))),
    ),
    ("its limits are not reached", replace(TOPIC, limits=(QUOTA, BACKLOG))),
    (
        "its window has room again",
        replace(TOPIC, dedup_cuts={"broker-a": (7, 600_100, 600_000)}),
    ),
    ("it is empty and not read", replace(TOPIC, queues=(), readers=())),
    ("readers are not known", replace(TOPIC, readers=None)),
    ("few messages lie in one queue by chance", replace(TOPIC, queues=(held(Q0, 9), held(Q1, 0)))),
    ("a group is a day late", replace(TOPIC, readers=(replace(READER, delays_s={Q0: 86_400.0}),))),
    (
        "an operator chose other queues, on one broker",
        replace(TOPIC, settings=(on("broker-a", 12),), masters=("broker-a", "broker-b")),
    ),
]


# ---- groups


def lag(queue: MessageQueue, at: int | None, end: int, first: int = 0) -> QueueLag:
    return QueueLag(
        queue=queue,
        min_offset=first,
        broker_offset=end,
        consumer_offset=at,
        last_consumed=None,
        owner="c1",
    )


def pq(at: int, cached: int = 0, *, idle_ms: int = 0, **more: Any) -> ProcessQueueInfo:
    return ProcessQueueInfo(
        commit_offset=at,
        cached_msg_count=cached,
        last_pull_timestamp=NOW,
        last_consume_timestamp=NOW - idle_ms,
        **more,
    )


def says(queues: Mapping[MessageQueue, ProcessQueueInfo], **more: Any) -> ConsumerRunningInfo:
    return ConsumerRunningInfo(
        mq_table=dict(queues), **{"properties": {"allocateMessageQueueStrategy": "AVG"}, **more}
    )


def status(**rates: Any) -> dict[str, ConsumeStatus]:
    return {"orders": ConsumeStatus(**rates)}


def look(
    *queues: QueueLag,
    at_ms: int = NOW,
    members: Mapping[str, ConsumerRunningInfo | None] | None = None,
    **more: Any,
) -> GroupLook:
    found = {"c1": says({Q0: pq(10), Q1: pq(10)})} if members is None else members
    return GroupLook(at_ms=at_ms, queues=queues, members=found, **more)


def person(client_id: str, wants: str = "*") -> Member:
    return Member(
        client_id=client_id,
        address="10.0.0.1:5",
        language="JAVA",
        version="V5_3_3",
        brokers=("broker-a",),
        since=datetime.fromtimestamp(NOW / 1000 - 3600, UTC),
        subscriptions=frozenset({Subscription("orders", wants)}),
    )


def settings(
    broker: str = "broker-a",
    *,
    may_consume: bool = True,
    paused_topics: frozenset[str] | None = frozenset(),
) -> OfGroup:
    return OfGroup(
        broker=broker,
        may_consume=may_consume,
        paused_topics=paused_topics,
        may_broadcast=True,
        orderly=False,
        retries=16,
        retry_queues=1,
        attributes={},
    )


BEFORE = NOW - 2000
GROUP = GroupFacts(
    name="billing",
    first=look(lag(Q0, 10, 10), lag(Q1, 10, 10), at_ms=BEFORE),
    second=look(lag(Q0, 10, 10), lag(Q1, 10, 10)),
    settings=(settings(),),
    members=(person("c1"),),
    model=MessageModel.CLUSTERING,
    subscriptions=frozenset({Subscription("orders")}),
    readable={"orders": frozenset({Q0, Q1})},
)


def moved(
    first: tuple[QueueLag, ...],
    second: tuple[QueueLag, ...],
    then: ConsumerRunningInfo | None,
    now: ConsumerRunningInfo | None,
    **more: Any,
) -> GroupFacts:
    return replace(
        GROUP,
        first=look(*first, at_ms=BEFORE, members={"c1": then}),
        second=look(*second, members={"c1": now}),
        **more,
    )


def still(info: ConsumerRunningInfo, **more: Any) -> GroupFacts:
    """Five messages wait in queue 0, and nothing moves."""
    return moved((lag(Q0, 10, 15),), (lag(Q0, 10, 15),), info, info, **more)


def told(info: ConsumerRunningInfo, **more: Any) -> GroupFacts:
    """The member reports it, and everything else is in order."""
    return moved(GROUP.first.queues, GROUP.second.queues, info, info, **more)


def after(**changes: Any) -> GroupFacts:
    return replace(GROUP, second=replace(GROUP.second, **changes))


WAITING = says({Q0: pq(10, 5)})
HANGING = says({Q0: pq(10, 5, idle_ms=60_000)})
CALLED = says({Q0: pq(10, 5, idle_ms=60_000, running_since=NOW - 3000)})
GO_ORDERED = says(
    # lastConsumeTimestamp is when the queue was taken; the message in work is not in the cache
    {Q0: pq(10, 4, idle_ms=3_600_000, transaction_msg_count=1)},
    properties={"PROP_CONSUMEORDERLY": "true", "PROP_THREADPOOL_CORE_SIZE": "-1"},
    status_table=status(consume_rt=15_000.0),  # of pulls, which wait for messages
)
GO_STILL = replace(
    still(GO_ORDERED, next_stored_ms={Q0: NOW - 90_000}),
    members=(replace(person("c1"), language="GO"),),
)
"""The report of an ordered member of Go's client 2.1.2 whose handler keeps failing."""
PAUSED_ELSE = (
    still(WAITING),
    after(queues=(lag(Q0, None, 10), lag(Q1, None, 0))),
    moved((lag(Q0, 10, 20),), (lag(Q0, 12, 60),), says({Q0: pq(10)}), says({Q0: pq(12)})),
    replace(after(queues=(lag(Q0, 0, 300), lag(Q1, 290, 300))), first=look(at_ms=BEFORE)),
)
"""What has another name while nobody has paused the topic: a queue that is stuck, progress that was
never committed, growing lag, and all of it in one queue."""
WRONG_GROUPS: list[tuple[str, Facts]] = [
    ("no-members", replace(after(queues=(lag(Q0, 3, 10),)), members=())),
    ("more-members-than-queues", replace(GROUP, members=tuple(map(person, "abc")))),
    (
        "lag-grows",
        moved((lag(Q0, 10, 20),), (lag(Q0, 12, 60),), says({Q0: pq(10)}), says({Q0: pq(12)})),
    ),
    (
        "lag-one-queue",
        replace(after(queues=(lag(Q0, 0, 300), lag(Q1, 290, 300))), first=look(at_ms=BEFORE)),
    ),
    ("stuck-at-offset", still(WAITING)),
    ("stuck-at-offset", GO_STILL),
    ("stuck-at-offset", still(CALLED, next_stored_ms={Q0: NOW - 90_000})),
    (
        "stuck-at-offset",  # no word of the member, but the looks are far apart
        replace(
            GROUP,
            first=look(lag(Q0, 10, 15), at_ms=NOW - 10_000, members={"c1": None}),
            second=look(lag(Q0, 10, 15), members={"c1": None}),
        ),
    ),
    ("handler-slow", told(says({Q0: pq(10)}, status_table=status(consume_rt=1500.0)))),
    ("handler-slow", still(says({Q0: pq(10, 1)}, status_table=status(consume_rt=3000.0)))),
    ("handler-hangs", still(HANGING, next_stored_ms={Q0: NOW - 90_000})),
    (
        "handler-fails",
        told(says({Q0: pq(10)}, status_table=status(consume_ok_tps=5.0, consume_failed_tps=0.5))),
    ),
    (
        "flow-controlled",
        told(
            says(
                {Q0: pq(10)}, user_consumer_info={str(Q0): "9 messages wait; at most 5 are allowed"}
            )
        ),
    ),
    (
        "flow-controlled",
        told(says({Q0: pq(10, 1000)}, properties={"pullThresholdForQueue": "1000"})),
    ),
    ("unequal-subscriptions", replace(GROUP, members=(person("a"), person("b", "paid")))),
    (
        "unequal-subscriptions",
        replace(GROUP, unequal={"x": frozenset(), "y": frozenset({Subscription("orders")})}),
    ),
    ("doubled-client-id", replace(GROUP, doubled=frozenset({"c1"}))),
    (
        "filter-matches-nothing",
        replace(
            GROUP,
            subscriptions=frozenset({Subscription("orders", "paid || sent")}),
            samples={"orders": ({"TAGS": "created"},) * 10},
        ),
    ),
    (
        "filter-matches-nothing",
        replace(
            GROUP,
            subscriptions=frozenset({Subscription("orders", "price > 10", "SQL92")}),
            samples={"orders": ({"price": "3"},) * 10},
        ),
    ),
    ("offset-out-of-range", after(queues=(lag(Q0, 3, 10, first=5),))),
    ("offset-out-of-range", after(queues=(lag(Q0, 30, 10),))),
    ("never-committed", after(queues=(lag(Q0, None, 10), lag(Q1, None, 0)))),
    (
        "rebalancing-often",
        replace(GROUP, first=look(at_ms=BEFORE, members={"c0": says({Q0: pq(10)})})),
    ),
    (
        "lock-held-by-dead",
        moved(
            (lag(Q0, 10, 15),),
            (lag(Q0, 10, 15),),
            says({Q1: pq(1)}),
            says({Q1: pq(1)}),
            locks={Q0: "gone"},
        ),
    ),
    ("paused", replace(GROUP, settings=(settings(may_consume=False),))),
    ("paused", replace(GROUP, settings=(settings(paused_topics=frozenset({"orders"})),))),
    *(
        ("paused", replace(facts, settings=(settings(paused_topics=frozenset({"orders"})),)))
        for facts in PAUSED_ELSE
    ),
    (
        "paused",
        told(
            says({Q0: pq(10)}, user_consumer_info={str(Q0): "not pulled now: the queue is paused"})
        ),
    ),
    (
        "retries-growing",
        replace(
            GROUP,
            first=replace(GROUP.first, retry_end=3),
            second=replace(GROUP.second, retry_end=5),
        ),
    ),
    ("dead-letters-growing", replace(after(dead_end=3), dead_last_ms=NOW - 60_000)),
    (
        "dead-letters-growing",
        replace(
            GROUP, first=replace(GROUP.first, dead_end=2), second=replace(GROUP.second, dead_end=3)
        ),
    ),
    ("broadcasting-has-no-lag", replace(GROUP, model=MessageModel.BROADCASTING)),
    (
        "one-strategy-differs",
        replace(
            GROUP,
            first=look(at_ms=BEFORE, members={"c1": says({}), "c2": says({})}),
            second=look(
                members={
                    "c1": says({Q0: pq(10)}),
                    "c2": says({Q1: pq(10)}, properties={"allocateMessageQueueStrategy": "STICKY"}),
                }
            ),
        ),
    ),
]
JAVA_AVG = "org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely@1b2c3d"
HEALTHY_GROUPS: list[tuple[str, Facts]] = [
    ("nothing waits", GROUP),
    (
        "it is offline and nothing waits",
        replace(GROUP, members=(), second=look(members={}), first=look(members={}, at_ms=BEFORE)),
    ),
    (
        "its queue moves, which only the member knows yet",
        moved((lag(Q0, 10, 20),), (lag(Q0, 10, 22),), says({Q0: pq(12)}), says({Q0: pq(16)})),
    ),
    (
        "a message that came a moment ago is in work, after a pause",
        still(HANGING, next_stored_ms={Q0: NOW - 3000}),
    ),
    (
        "one failure in a thousand",
        told(says({Q0: pq(10)}, status_table=status(consume_ok_tps=99.9, consume_failed_tps=0.1))),
    ),
    (
        "one of ten samples passes the filter",
        replace(
            GROUP,
            subscriptions=frozenset({Subscription("orders", "paid")}),
            samples={"orders": ({"TAGS": "created"},) * 9 + ({"TAGS": "paid"},)},
        ),
    ),
    ("dead letters of last week", replace(after(dead_end=3), dead_last_ms=NOW - 7 * 86_400_000)),
    (
        "retries of last week",
        replace(
            GROUP,
            first=replace(GROUP.first, retry_end=3),
            second=replace(GROUP.second, retry_end=3),
        ),
    ),
    (
        "a member that came a moment ago has not committed yet",
        replace(
            after(queues=(lag(Q0, None, 10), lag(Q1, None, 0))),
            members=(replace(person("c1"), since=datetime.fromtimestamp(NOW / 1000 - 1, UTC)),),
        ),
    ),
    (
        "Java's member names the same strategy otherwise",
        replace(
            GROUP,
            first=look(at_ms=BEFORE, members={"c1": says({}), "c2": says({})}),
            second=look(
                members={
                    "c1": says({}),
                    "c2": says({}, properties={"allocateMessageQueueStrategy": JAVA_AVG}),
                }
            ),
        ),
    ),
]


# ---- messages


def message(
    topic: str = "orders", offset: int = 5, attempts: int = 0, **properties: str
) -> MessageExt:
    record = Record(
        size=0,
        magic=0,
        body_crc=0,
        queue_id=0,
        flag=0,
        queue_offset=offset,
        log_offset=0,
        sys_flag=0,
        born_timestamp=NOW,
        born_host=b"\x7f\x00\x00\x01\x00\x00\x00\x01",
        store_timestamp=NOW,
        store_host=b"\x7f\x00\x00\x01\x00\x00\x00\x01",
        reconsume_times=attempts,
        prepared_transaction_offset=0,
        body=b"",
        topic=topic,
        properties=encode_properties(properties),
    )
    return MessageExt(record, "broker-a")


LOST = MessageFacts(id="AB", topic="orders", now_ms=NOW, asked=1)


def read_by(**reader: Any) -> MessageFacts:
    facts = MessageReader(
        **{"group": "billing", "offset": 9, "subscription": Subscription("orders"), **reader}
    )
    return replace(LOST, stored=message(TAGS="created"), readers=(facts,))


WRONG_MESSAGES: list[tuple[str, Facts]] = [
    ("not-found", LOST),
    ("expired", replace(LOST, expired="it lay at 5 of the log, which begins at 100 now")),
    ("still-delayed", replace(LOST, waiting=message("SCHEDULE_TOPIC_XXXX"), due_ms=NOW + 5000)),
    ("half-open", replace(LOST, half=message(), half_ended=False)),
    ("half-open", replace(LOST, half=message(), half_ended=True, is_set_aside=True)),
    ("rolled-back", replace(LOST, half=message(), half_ended=True)),
    ("filtered-for-group", read_by(subscription=Subscription("orders", "paid"))),
    ("filtered-for-group", read_by(offset=1, subscription=Subscription("orders", "paid"))),
    ("waiting-behind", read_by(offset=1)),
    ("waiting-behind", read_by(offset=None, subscription=None)),
    ("retrying", read_by(retry=message(attempts=2), retry_due_ms=NOW + 30_000)),
    ("dead", read_by(dead=message(attempts=16), retry=message(attempts=16))),
    ("retrying", read_by(dead=message(attempts=16), retry=message(), resent=message())),
    ("consumed-by", read_by()),
    (
        "consumed-by",
        read_by(dead=message(attempts=16), retry=message(), resent=message(), retry_is_done=True),
    ),
    ("consumed-by", read_by(retry=message(attempts=1), retry_is_done=True)),
]
HEALTHY_MESSAGES: list[tuple[str, Facts]] = [
    ("no group reads its topic", replace(LOST, stored=message()))
]

WRONG = [*WRONG_CLUSTERS, *WRONG_TOPICS, *WRONG_GROUPS, *WRONG_MESSAGES]
HEALTHY = [*HEALTHY_CLUSTERS, *HEALTHY_TOPICS, *HEALTHY_GROUPS, *HEALTHY_MESSAGES]

NOT_MADE: list[tuple[str, Facts, Callable[[], set[str]]]] = [
    (
        "Apache's broker does not report why it is busy",
        broker(runtime={"brokerVersionDesc": "V5_5_0"}),
        lambda: {"broker-busy"},
    ),
    (
        "a broker without its settings",
        broker(settings=None),
        lambda: {"protective-setting-ignored"},
    ),
    ("a broker without its start", broker(skew_s=None), lambda: {"clock-skew"}),
    (
        "a broker before 5.0 does not say in which topics a group is paused",
        replace(GROUP, settings=(settings(paused_topics=None),)),
        lambda: {"paused"},
    ),
    (
        "an ordered member of Go's",
        replace(told(GO_ORDERED), members=(replace(person("c1"), language="GO"),)),
        lambda: {"handler-hangs", "handler-slow"},
    ),
    (
        "owners that do not tell their progress, looked at for too short",
        replace(
            GROUP,
            first=look(lag(Q0, 10, 15), at_ms=BEFORE, members={"c1": None}),
            second=look(lag(Q0, 10, 15), members={"c1": None}),
        ),
        lambda: {"lag-grows", "stuck-at-offset"},
    ),
]
