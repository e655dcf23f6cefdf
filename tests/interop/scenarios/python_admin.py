"""`sparrowmq.blocking.Admin` against both brokers: the same calls have the same results."""

from typing import Any

from sparrowmq import GroupLag, MessageQueue, NotFound, OffsetMove
from sparrowmq.blocking import Admin
from tests.interop.handles import PATIENCE_S
from tests.interop.registry import PYTHON, Outcome, check, scenario
from tests.interop.scene import Scene

COLLIDING = ("Aa", "BB")
"""Keys with one hash: the index of brokers does not tell them apart, and Apache's give both."""


def admin_of(scene: Scene) -> Admin:
    """Ended with the scenario."""
    admin = Admin(scene.cluster.name_server, timeout_s=PATIENCE_S)
    admin.start()
    scene.closing(admin.stop)
    return admin


def offsets(lag: GroupLag, topic: str) -> list[list[Any]]:
    """Queue by queue, without times."""
    return [
        [each.queue.queue_id, each.min_offset, each.broker_offset, each.consumer_offset, each.lag]
        for each in lag.queues
        if each.queue.topic == topic
    ]


def moved(moves: list[OffsetMove]) -> list[list[Any]]:
    """Queue by queue."""
    return [[move.queue.queue_id, move.before, move.after] for move in moves]


@scenario(clients=PYTHON, needs="admin")
def python_admin_creates_changes_and_describes(scene: Scene) -> Outcome:
    admin, topic, group = admin_of(scene), scene.name("made"), scene.name("shown")
    admin.create_topic(topic, queues=3, attributes={"message.type": "FIFO"})
    changes = admin.update_topic(topic, read_queues=4, attributes={"message.type": None})
    described = admin.topic(topic)
    admin.create_group(group, retries=3)
    altered = admin.update_group(group, retries=5, may_broadcast=False)
    settings = admin.group(group).settings
    unknown = scene.name("unknown")
    for ask in (lambda: admin.group(unknown), lambda: admin.lag(unknown, topic)):
        try:
            ask()
        except NotFound as error:
            check(error.kind == "group", str(error))
        else:
            raise AssertionError(f"group {unknown} was found")
    check(unknown not in admin.groups(), "a group came into being because it was asked for")
    check(group in admin.groups(), "the group is not listed")
    check(topic in admin.topics(), "the topic is not listed")
    admin.delete_group(group)
    admin.delete_topic(topic)
    check(topic not in admin.topics(), "the deleted topic is listed")
    return {
        "changes": [str(change) for change in changes],
        "topic": [
            [each.read_queues, each.write_queues, each.permission, dict(each.attributes)]
            for each in described.settings
        ],
        "queues": [[each.queue.queue_id, each.max_offset] for each in described.queues],
        "altered": [str(change) for change in altered],
        "group": [[each.retries, each.may_broadcast, each.retry_queues] for each in settings],
        "brokers": [[each.name, each.role, each.cluster] for each in admin.brokers()],
        "figures": [each.runtime is not None for each in admin.brokers()],
    }


@scenario(clients=PYTHON, needs="admin")
def python_admin_shows_lag_and_members_and_resets(scene: Scene) -> Outcome:
    admin, topic, group = admin_of(scene), scene.topic(queues=2), scene.name("billing")
    producer, consumer = scene.producer(), scene.push_consumer(topic)
    for queue_id in (0, 0, 0, 1):
        producer.send(topic, ["m"], how="send_to_queue", queue_id=queue_id)
    consumer.received(4)
    scene.wait_until_committed(topic, 4)
    read, live = admin.lag(group), admin.group(group)
    (member,) = live.members
    check({each.owner for each in read.queues} == {member.client_id}, f"owners: {read}")
    check(member.since is not None, "since when it runs is not known")
    admin.reset_offsets(group, topic, {MessageQueue(topic, "broker-a", 0): 1})
    consumer.received(6)
    scene.wait_until_committed(topic, 4)
    consumer.stop()
    scene.wait_until(lambda: not admin.members(group), "the member has left")
    places: list[Any] = ["earliest", "latest", 0, {MessageQueue(topic, "broker-a", 0): 2}]
    resets = [moved(admin.reset_offsets(group, topic, place)) for place in places]
    copy = scene.name("copy")
    return {
        "lag": offsets(read, topic),
        "member": [member.language, sorted(each.expression for each in live.subscriptions)],
        "queues": sorted(q.queue_id for q in member.queues or () if q.topic == topic),
        "resets": resets,
        "after": offsets(admin.lag(group), topic),
        "cloned": moved(admin.clone_offsets(group, copy, topic=topic)),
        "copy": scene.committed(topic, "copy"),
    }


@scenario(clients=PYTHON, needs="admin")
def python_admin_finds_messages(scene: Scene) -> Outcome:
    admin, topic = admin_of(scene), scene.topic(queues=1)
    sent = scene.producer().send(
        topic, [{"body": f"m-{n}", "keys": COLLIDING[n % 2], "tags": "A"} for n in range(4)]
    )
    scene.wait_until(lambda: len(admin.find_messages(topic, COLLIDING[1])) == 2, "all is indexed")
    queue = MessageQueue(topic, "broker-a", 0)
    try:
        admin.read_message(queue, 99)
    except NotFound as error:
        missing = str(error)
    return {
        "by_key": [each.body.decode() for each in admin.find_messages(topic, COLLIDING[0])],
        "cut": admin.find_messages(topic, COLLIDING[0], limit=1).is_cut,
        "by_unique_id": admin.message(sent[1]["unique_id"], topic).body.decode(),
        "by_offset_id": admin.message(sent[2]["offset_id"]).body.decode(),
        "by_place": admin.read_message(queue, 3).body.decode(),
        "from_place": [each.queue_offset for each in admin.read_messages(queue, 1, limit=2)],
        "missing": missing,
    }
