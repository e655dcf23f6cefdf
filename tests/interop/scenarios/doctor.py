"""The doctor against both brokers: a stuck group, a topic without readers, a message that waits."""

from sparrowmq import Examination, Finding, NotMade
from tests.interop.registry import JAVA, PYTHON, Outcome, check, scenario
from tests.interop.scenarios.python_admin import admin_of
from tests.interop.scene import Scene

FOREVER = 1_000_000


def one(examined: Examination, name: str) -> Finding:
    """The finding with that id."""
    found = [each for each in examined.findings if each.id == name]
    check(bool(found), f"{name} is not among {[str(each) for each in examined.findings]}")
    return found[0]


def not_made(examined: Examination) -> set[str]:
    """Ids of the checks that were not made."""
    skipped: tuple[NotMade, ...] = examined.not_made
    return {name for each in skipped for name in each.ids}


@scenario(clients=(*JAVA, "go", *PYTHON), needs="admin", compared=False)
def the_doctor_finds_an_ordered_group_that_is_stuck(scene: Scene) -> Outcome:
    admin, topic, group = admin_of(scene), scene.topic(queues=1), scene.name("billing")
    producer = scene.producer()
    consumer = scene.push_consumer(topic, orderly=True, fails={"poison": FOREVER})
    producer.send(topic, ["good"])
    consumer.received(1)
    scene.wait_until_committed(topic, 1)
    producer.send(topic, ["poison", "after"])
    consumer.received(2)
    examined = admin.doctor("group", group, for_s=10.0)
    stuck = one(examined, "stuck-at-offset")
    check(f"{topic} broker-a/0 stays at offset 1 " in stuck.evidence, stuck.evidence)
    check("while 2 messages wait" in stuck.evidence, stuck.evidence)
    ids = {each.id for each in examined.findings}
    check(ids <= {"stuck-at-offset", "handler-fails"}, f"beside it: {ids}")
    return {"stuck": stuck.command.replace(topic, "<topic>"), "severity": stuck.severity.value}


@scenario(clients=PYTHON, needs="admin", compared=False)
def the_doctor_finds_a_topic_without_readers_and_examines_the_cluster(scene: Scene) -> Outcome:
    admin, topic = admin_of(scene), scene.topic(queues=2)
    sent = scene.producer().send(topic, ["m-0", "m-1"])
    unread = one(admin.doctor("topic", topic), "nobody-consumes")
    missing = one(admin.doctor("topic", scene.name("unknown")), "no-route")
    cluster = admin.doctor("cluster")
    ids = {each.id for each in cluster.findings}
    check(ids <= {"disk-nearly-full", "clock-skew"}, f"a healthy cluster: {cluster.findings}")
    is_apache = "slave-behind" in not_made(cluster)
    check(("broker-busy" in not_made(cluster)) is is_apache, f"not made: {cluster.not_made}")
    scene.wait_until(
        lambda: not admin.doctor("message", sent[0]["unique_id"], topic=topic).findings,
        "the message is indexed; no group reads it",
    )
    delayed = scene.producer().send(topic, [{"body": "later", "delay_level": 9}])
    waiting = admin.doctor("message", delayed[0]["unique_id"], topic=topic)
    scene.wait_until(
        lambda: any(
            each.id == "still-delayed"
            for each in admin.doctor("message", delayed[0]["unique_id"], topic=topic).findings
        ),
        "the delayed message is found",
    )
    check(not waiting.errors, str(waiting.errors))
    return {
        "unread": unread.evidence,
        "missing": missing.severity.value,
        "never": [
            each.id for each in admin.doctor("message", "0A000001" + "F" * 24, topic=topic).findings
        ],
    }


@scenario(clients=PYTHON, needs="admin", compared=False)
def the_doctor_follows_a_message_to_each_group(scene: Scene) -> Outcome:
    admin, topic = admin_of(scene), scene.topic(queues=1)
    producer, consumer = scene.producer(), scene.push_consumer(topic, fails={"bad": FOREVER})
    sent = producer.send(topic, ["good", "bad"])
    consumer.received(2)
    scene.wait_until_committed(topic, 2)
    good, bad = (each["unique_id"] for each in sent)
    scene.wait_until(
        lambda: (
            len(admin.doctor("message", bad, topic=topic).findings) == 1
            and admin.doctor("message", bad, topic=topic).findings[0].id == "retrying"
        ),
        "the retry is found",
    )
    (read,) = admin.doctor("message", good, topic=topic).findings
    return {"good": [read.id, read.severity.value]}
