"""Quotas, backlogs and de-duplication of SparrowMQ's broker, as unmodified clients see them."""

import json
import re
import shutil
import signal
import time
from collections import Counter

from sparrowmq import Limit
from sparrowmq.blocking import Admin
from tests.interop import apache, raw, sparrow
from tests.interop.cluster import Cluster, Settings
from tests.interop.handles import Message, Producer
from tests.interop.outcomes import bodies
from tests.interop.peers import PeerError
from tests.interop.registry import JAVA, Outcome, check, scenario
from tests.interop.scenarios.lost_answers import behind_a_proxy
from tests.interop.scenarios.python_admin import admin_of
from tests.interop.scenarios.wire import HEARTBEAT, UPDATE_OFFSET, heartbeat
from tests.interop.scene import Scene

CREATE_TOPIC, CREATE_GROUP = 17, 200
FLOW_CONTROL = 215
AT_ONCE_S = 3.0
"""Less than two more attempts of a client that waits for answers would take."""


def limit_topic(scene: Scene, topic: str, attributes: str, queues: int = 4) -> None:
    fields = {"topic": topic, "defaultTopic": "TBW102", "perm": "6", "order": "false"}
    fields |= {"readQueueNums": str(queues), "writeQueueNums": str(queues)}
    fields |= {"topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "attributes": attributes}
    reply = raw.call(scene.cluster.broker, CREATE_TOPIC, fields)
    check(reply.code == 0, f"attributes {attributes} refused: {reply.remark}")


@scenario(needs="limits", compared=False)
def a_send_over_the_quota_of_its_topic_is_refused_at_once_or_waits(scene: Scene) -> Outcome:
    topic = scene.topic(queues=4)
    producer = scene.producer()
    producer.send(topic, ["first"])
    limit_topic(scene, topic, "+sparrowmq.quota.messages=1")
    sent, refused = 1, None
    began_s = time.monotonic()
    for number in range(3):
        try:
            sent += len(producer.send(topic, [f"m-{number}"]))
        except PeerError as error:
            refused = error
            break
    took_s = time.monotonic() - began_s
    if scene.peer.name.startswith("python"):
        check(refused is None and took_s >= 1, "our producer waits for its turn")
    else:
        check(refused is not None, "one of three sends at once is over a quota of one a second")
        assert refused is not None
        text = str(refused)
        check(refused.code == FLOW_CONTROL or "215" in text, f"answered {text}")
        check("takes 1 messages/s" in text, f"the text names the quota: {text}")
        check(took_s < AT_ONCE_S, f"raised after {took_s:.1f} s, without a retry")
    limit_topic(scene, topic, "-sparrowmq.quota.messages")
    sent += len(producer.send(topic, ["last"]))
    got = scene.push_consumer(topic).received(sent)
    return {"every_stored_message_is_consumed": len(bodies(got)) == sent}


def refusal(code: int | None, text: str, began_s: float) -> str:
    """The text of an error, which must be a refusal by a limit that a client passed on at once."""
    took_s = time.monotonic() - began_s
    check(code == FLOW_CONTROL or "215" in text, f"answered {code}: {text}")
    check(took_s < AT_ONCE_S, f"raised after {took_s:.1f} s, without a retry")
    return text


def sent_in_turn(producer: Producer, topic: str, most: int) -> tuple[int, str]:
    """Send until the first refusal: how many messages were stored before it, and its text."""
    for number in range(most):
        began_s = time.monotonic()
        try:
            producer.send(topic, [FILLED | {"body": f"in-turn-{number}"}])
        except PeerError as error:
            return number, refusal(error.code, str(error), began_s)
    raise AssertionError(f"none of {most} sends was refused")


def sent_at_once(producer: Producer, topic: str, count: int) -> tuple[int, list[str]]:
    """Send without waiting for answers: how many were stored, and the texts of refusals."""
    began_s = time.monotonic()
    results = producer.send(topic, [FILLED | {"body": "at-once"}] * count, "send_async")
    errors = [each["error"] for each in results if "error" in each]
    refusals = [refusal(each.get("code"), each["text"], began_s) for each in errors]
    check(bool(refusals), f"none of {count} sends at once was refused")
    return count - len(errors), refusals


FILLED: Message = {"fill": 200}
"""Bodies of so many bytes."""
QUOTAS: tuple[tuple[str, int | None, int | None, str], ...] = (
    ("topic", None, 100, " takes 100 bytes/s on broker-a"),
    ("producer-group", 1, None, " may send 1 messages/s on broker-a"),
    ("client", 1, None, " may send 1 messages/s on broker-a"),
)
"""Scope, messages and bytes per second, and what refusals say."""


@scenario(clients=(*JAVA, "go"), needs="limits", lane="apart", compared=False)
def what_is_over_a_quota_is_refused_however_it_is_sent(scene: Scene) -> Outcome:
    own = scene.own_cluster(Settings())
    admin = admin_of(own)
    for number, (scope, messages, size, says) in enumerate(QUOTAS):
        topic = own.topic(f"quota-{number}", queues=1)
        producer = own.producer(group=own.name(scope))
        producer.send(topic, ["first"])
        name = {"topic": topic, "producer-group": producer.group}.get(scope, "*")
        admin.set_quota(scope, name, messages=messages, bytes=size)
        # A quota of clients begins again when a heartbeat has named a client.
        in_turn, text = sent_in_turn(producer, topic, 4)
        check(says in text, f"{scope}: {text}")
        _, texts = sent_at_once(producer, topic, 5)
        check(all(says in each for each in texts), f"{scope}: {texts}")
        producer.send_one_way(topic, ["one-way"] * 5)
        own.wait_until(
            lambda: _stored(admin, topic) + _limit(admin, scope).refused == in_turn + 12,  # noqa: B023
            f"{scope}: every send is stored or refused",
        )
        limit = _limit(admin, scope)
        one_way = limit.refused - 1 - len(texts)
        check(one_way > 0, f"{scope}: 5 one-way sends are over its quota")
        # The Go client does not mark one-way sends as such: they count as refused, not as dropped.
        dropped = 0 if scene.peer.name == "go" else one_way
        check(limit.dropped == dropped, f"{scope}: {limit.dropped} of {one_way} are counted")
        admin.unset_limits(scope, name)
        producer.send(topic, [f"free-{number}" for number in range(3)])
    return {}


def _stored(admin: Admin, topic: str) -> int:
    return sum(queue.max_offset for queue in admin.topic(topic).queues)


def _limit(admin: Admin, scope: str) -> Limit:
    (found,) = (each for each in admin.limits() if each.scope == scope)
    return found


@scenario(clients=(*JAVA, "go"), needs="limits", compared=False)
def a_backlog_that_is_too_large_refuses_sends_or_holds_their_answers(scene: Scene) -> Outcome:
    admin, topic, group = admin_of(scene), scene.topic(queues=1), scene.name("ledger")
    admin.create_group(group)
    producer = scene.producer()

    def backlog() -> Limit:
        (found,) = (each for each in admin.limits() if (each.scope, each.name) == ("topic", topic))
        return found

    def until_behind(count: int) -> None:
        scene.wait_until(
            lambda: backlog().lags.get(group) == count, f"the broker knows of {count} messages"
        )

    with raw.RawConnection(scene.cluster.broker) as member:

        def commit(offset: int) -> None:
            place = {"consumerGroup": group, "topic": topic, "queueId": "0"}
            reply = member.call(UPDATE_OFFSET, place | {"commitOffset": str(offset)})
            check(reply.code == 0, f"the commit is refused: {reply.remark}")

        member.call(HEARTBEAT, body=heartbeat(group, topic))
        commit(0)
        admin.set_backlog(topic, [group], messages=10)
        producer.send(topic, [f"m-{number}" for number in range(10)])
        until_behind(10)
        _, text = sent_in_turn(producer, topic, 1)
        says = f"group {group} is 10 messages behind in topic {topic}, at most 10 messages"
        check(says in text, text)
        commit(1)
        until_behind(9)
        stored, texts = sent_at_once(producer, topic, 3)
        check(stored == 0, f"{stored} sends were taken at 90 % of the limit")
        check("is 9 messages behind" in texts[0], texts[0])
        commit(2)
        until_behind(8)
        producer.send(topic, ["at-80-percent"])
        admin.set_backlog(topic, [group], messages=9, action="slow")
        until_behind(9)
        began_s = time.monotonic()
        slow = producer.send(topic, ["slow"])
        took_s = time.monotonic() - began_s
        check(took_s >= 0.9, f"the answer was held for {took_s:.2f} s, not for a second")
        slow += producer.send(topic, [f"slow-{number}" for number in range(3)], "send_async")
        check([each.get("status") for each in slow] == ["SEND_OK"] * 4, f"while slowed: {slow}")
        check(backlog().refused == 4, f"{backlog().refused} answers were held")
    offsets = [each["queue_offset"] for each in slow]
    return {"stored": sorted(offsets) == [11, 12, 13, 14]}


@scenario(needs="limits", compared=False)
def a_message_that_is_sent_again_is_stored_once(scene: Scene) -> Outcome:
    topic = scene.topic(queues=4)
    limit_topic(scene, topic, "+sparrowmq.dedup=on")
    producer = scene.producer()
    order = {"body": "once", "properties": {"DEDUP_KEY": "o-1"}}
    (first,), (again,) = producer.send(topic, [order]), producer.send(topic, [order])
    check(first["offset_id"] == again["offset_id"], f"{again} is another message than {first}")
    producer.send(topic, [{"body": "another", "properties": {"DEDUP_KEY": "o-2"}}])
    # Without a key it is the unique id, which Java and Go give to a message object once.
    same, twin = producer.send(topic, ["twice"], times=2)
    is_python = scene.peer.name == "python"
    check((same["offset_id"] == twin["offset_id"]) is not is_python, f"{same}, then {twin}")
    got = scene.push_consumer(topic).received(4 if is_python else 3)
    wanted = ["another", "once", "twice", *(["twice"] if is_python else [])]
    check(sorted(bodies(got)) == wanted, f"stored: {sorted(bodies(got))}")
    return {}


@scenario(needs="limits", lane="apart", compared=False)
def a_group_over_its_quota_gets_everything_and_no_error(scene: Scene) -> Outcome:
    own, proxy = behind_a_proxy(scene)
    # Java assumes four queues where its first question for a route is not answered in time.
    topic, group = own.topic(queues=4), own.name("billing")
    body = (
        b'{"groupName":"%s","consumeEnable":true,"consumeFromMinEnable":true,'
        b'"consumeBroadcastEnable":true,"retryQueueNums":1,"retryMaxTimes":16,"brokerId":0,'
        b'"whichBrokerWhenConsumeSlowly":1,"notifyConsumerIdsChangedEnable":true,'
        b'"attributes":{"+sparrowmq.quota.messages":"10"}}' % group.encode()
    )
    reply = raw.call(own.cluster.broker, CREATE_GROUP, {}, body)
    check(reply.code == 0, f"the quota of the group is refused: {reply.remark}")
    own.producer().send(topic, [f"m-{number}" for number in range(40)])
    before, began_s = Counter(scene.peer.logged()), time.monotonic()
    got = own.push_consumer(topic).received(40)
    took_s = time.monotonic() - began_s
    check(took_s >= 2.95, f"40 messages at 10 a second came within {took_s:.2f} s")
    pulls = sum(proxy.requests[code] for code in PULLS)
    scene.say(f"       {scene.peer.name}: {pulls} pulls for 40 messages in {took_s:.1f} s")
    # Each pull that is answered with messages has one at least. Others wait in the four queues and
    # in that of retries, for 5 s or longer; one that is repeated after 20 ms comes 150 times.
    most = 40 + 5 * (3 + took_s / 5)
    check(pulls <= most, f"{pulls} pulls for 40 messages in {took_s:.1f} s")
    refused = proxy.answers[FLOW_CONTROL]
    check(not refused, f"{refused} pulls were answered with {FLOW_CONTROL}")
    errors = [line for line in Counter(scene.peer.logged()) - before if _is_error(line)]
    check(not errors, f"the client logged {errors[:3]}")
    return {"bodies": sorted(bodies(got))}


PULLS = (11, 361)
"""The request codes of pulls."""
ANSWERED = re.compile(r"(?:\b[Cc]ode\W+|\bCODE\W+|\banswered )(\d+)")
"""How Java, Go and Python write the code of a refusal."""
BEFORE_HEARTBEAT = ("24", "25")
"""Java's first pull may be faster than its first heartbeat, on Apache's broker as well."""


def _is_error(line: str) -> bool:
    codes = ANSWERED.findall(line)
    if codes:
        return any(code not in BEFORE_HEARTBEAT for code in codes)
    # A peer's process lives on: members of earlier scenarios may still look for their brokers.
    return "level=error" in line or re.search(r"Remoting(?!Connect)\w+Exception", line) is not None


@scenario(clients=("java5",), needs="exchange", lane="apart", compared=False)
def apache_opens_a_store_with_limits_and_keeps_them(scene: Scene) -> Outcome:
    last: Cluster | None = None
    shown: list[str] = []
    for step, target in enumerate((sparrow, apache, sparrow)):
        folder = scene.folder / f"{step}-{target.NAME}"
        if last is not None:
            folder.mkdir(parents=True)
            shutil.move(last.store, folder / "store")
        here = scene.on(target.start(folder, Settings()))
        topic = here.topic(queues=1) if step == 0 else here.name("orders")
        here.wait_for_route(topic)
        producer = here.producer()
        producer.send(topic, [f"{step}-first"])
        if target is sparrow:
            admin = admin_of(here)
            if step == 0:
                _set_every_limit(here, admin, topic)
            shown.append(_shown(admin))
            _meet_the_quota(topic, producer)
        else:
            producer.send(topic, [f"{step}-{number}" for number in range(5)])
            _change_both_tables(here)
        here.wait_until(lambda: _saved(here) == _LIMITS, "limits are saved")  # noqa: B023
        here.cluster.stop_broker(signal.SIGTERM)
        check(_saved(here) == _LIMITS, f"{target.NAME} has saved {_saved(here)}")
        last = here.cluster
    check(shown[0] == shown[1], f"limits were {shown[0]}, and are {shown[1]}")
    return {}


_LIMITS = {
    "orders": {
        "sparrowmq.quota.messages": "1",
        "sparrowmq.backlog": "100000:refuse:billing",
        "sparrowmq.dedup": "on",
    },
    "broker-a": {
        "sparrowmq.quota.producer.messages.shop": "1000",
        "sparrowmq.quota.producer.bytes.shop": "1000000",
        "sparrowmq.quota.client.messages": "500",
    },
    "ledger": {"sparrowmq.quota.messages": "7", "sparrowmq.quota.bytes": "70000"},
}
"""Attributes of a topic, of the broker's own topic, and of a group."""


def _set_every_limit(here: Scene, admin: Admin, topic: str) -> None:
    limit_topic(
        here, topic, ",".join(f"+{name}={text}" for name, text in _LIMITS["orders"].items()), 1
    )
    group = here.name("ledger")
    admin.create_group(group)
    admin.set_quota("consumer-group", group, messages=7, bytes=70_000)
    admin.set_quota("producer-group", "shop", messages=1000, bytes=1_000_000)
    admin.set_quota("client", "*", messages=500)


def _shown(admin: Admin) -> str:
    limits = [
        (each.scope, each.name, each.messages, each.bytes, str(each.backlog))
        for each in admin.limits()
    ]
    windows = [(each.topic, each.window_ms, each.most) for each in admin.dedup_windows()]
    return f"{limits} and {windows}"


def _change_both_tables(here: Scene) -> None:
    """Otherwise Apache's broker need not write them."""
    here.topic("another", queues=1)
    reply = raw.call(
        here.cluster.broker, CREATE_GROUP, {}, b'{"groupName":"%s"}' % here.name("other").encode()
    )
    check(reply.code == 0, f"a group is refused: {reply.remark}")
    for file, name in (("topics", "another"), ("subscriptionGroup", "other")):
        table = here.cluster.store / "config" / f"{file}.json"
        here.wait_until(lambda: here.name(name) in table.read_text(), f"{table} is written")  # noqa: B023


def _saved(here: Scene) -> dict[str, dict[str, str]]:
    """The attributes of everything that has a limit, as the store's two tables have them."""
    config = here.cluster.store / "config"
    topics = json.loads((config / "topics.json").read_text())["topicConfigTable"]
    groups = json.loads((config / "subscriptionGroup.json").read_text())["subscriptionGroupTable"]
    found = {
        "orders": topics.get(here.name("orders")),
        "broker-a": topics.get("broker-a"),
        "ledger": groups.get(here.name("ledger")),
    }
    return {name: (each or {}).get("attributes") or {} for name, each in found.items()}


def _meet_the_quota(topic: str, producer: Producer) -> None:
    for number in range(5):
        try:
            producer.send(topic, [f"more-{number}"])
        except PeerError:
            return
    raise AssertionError("the quota refuses nothing")
