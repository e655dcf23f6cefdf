"""Quotas, backlogs and de-duplication of SparrowMQ's broker, as unmodified clients meet them."""

import shutil
import signal
import time

from tests.interop import apache, raw, sparrow
from tests.interop.cluster import Cluster, Settings
from tests.interop.handles import Producer
from tests.interop.outcomes import bodies
from tests.interop.peers import PeerError
from tests.interop.registry import Outcome, check, scenario
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


@scenario(needs="limits", compared=False)
def a_message_that_is_sent_again_is_stored_once(scene: Scene) -> Outcome:
    topic = scene.topic(queues=4)
    limit_topic(scene, topic, "+sparrowmq.dedup=on")
    producer = scene.producer()
    order = {"body": "once", "properties": {"DEDUP_KEY": "o-1"}}
    (first,), (again,) = producer.send(topic, [order]), producer.send(topic, [order])
    check(first["offset_id"] == again["offset_id"], f"{again} is another message than {first}")
    producer.send(topic, [{"body": "another", "properties": {"DEDUP_KEY": "o-2"}}])
    got = scene.push_consumer(topic).received(2)
    return {"bodies": sorted(bodies(got))}


@scenario(needs="limits", compared=False)
def a_group_over_its_quota_gets_everything_and_no_error(scene: Scene) -> Outcome:
    topic, group = scene.topic(queues=2), scene.name("billing")
    body = (
        b'{"groupName":"%s","consumeEnable":true,"consumeFromMinEnable":true,'
        b'"consumeBroadcastEnable":true,"retryQueueNums":1,"retryMaxTimes":16,"brokerId":0,'
        b'"whichBrokerWhenConsumeSlowly":1,"notifyConsumerIdsChangedEnable":true,'
        b'"attributes":{"+sparrowmq.quota.messages":"10"}}' % group.encode()
    )
    reply = raw.call(scene.cluster.broker, CREATE_GROUP, {}, body)
    check(reply.code == 0, f"the quota of the group is refused: {reply.remark}")
    scene.producer().send(topic, [f"m-{number}" for number in range(40)])
    began_s = time.monotonic()
    got = scene.push_consumer(topic).received(40)
    took_s = time.monotonic() - began_s
    check(took_s >= 2.5, f"40 messages at 10 a second came within {took_s:.1f} s")
    return {"bodies": sorted(bodies(got))}


@scenario(clients=("java5",), needs="exchange", lane="apart", compared=False)
def apache_opens_a_store_with_limits_and_keeps_them(scene: Scene) -> Outcome:
    last: Cluster | None = None
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
            _meet_the_quota(here, topic, producer, is_set=step > 0)
        else:
            producer.send(topic, [f"{step}-{number}" for number in range(5)])
        saved = here.cluster.store / "config" / "topics.json"
        here.wait_until(lambda: QUOTA in saved.read_text(), "limits are saved")  # noqa: B023
        here.cluster.stop_broker(signal.SIGTERM)
        check(QUOTA in saved.read_text(), f"{target.NAME} lost the quota")
        last = here.cluster
    return {}


QUOTA = "sparrowmq.quota.messages"


def _meet_the_quota(here: Scene, topic: str, producer: Producer, *, is_set: bool) -> None:
    if not is_set:
        attributes = f"+{QUOTA}=1,+sparrowmq.backlog=100000:refuse:billing"
        limit_topic(here, topic, attributes, queues=1)
    for number in range(5):
        try:
            producer.send(topic, [f"more-{number}"])
        except PeerError:
            return
    raise AssertionError("the quota refuses nothing")
