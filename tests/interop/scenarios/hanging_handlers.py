"""A handler that never returns in a live Java or Go member: the doctor's finding, and its stack."""

from sparrowmq import Examination
from tests.interop.command_lines import CommandLine
from tests.interop.registry import JAVA, Outcome, check, scenario
from tests.interop.scenarios.doctor import one
from tests.interop.scenarios.python_admin import admin_of
from tests.interop.scene import Scene

HANGS_S = 31.0
"""Just longer than a call may take before the doctor says that it hangs."""


@scenario(clients=(*JAVA, "go"), needs="admin", lane="quiet", compared=False, lasts_s=40)
def a_handler_that_hangs_is_found_with_its_stack(scene: Scene) -> Outcome:
    admin, topic, group = admin_of(scene), scene.topic(queues=1), scene.name("billing")
    consumer = scene.push_consumer(topic, hangs="stuck")
    scene.producer().send(topic, ["stuck"])
    consumer.received(1)
    (member,) = admin.members(group)
    run = CommandLine(scene)
    stacks = run.document("group", "members", group, "--stacks", member.client_id)["stacks"]
    lines = [each["stack"] for each in stacks]
    check(any("hang(" in line for line in lines), f"no stack of the handler: {lines}")
    scene.pause(HANGS_S)

    def examined() -> Examination:
        return admin.doctor("group", group, for_s=1.0)

    # A member's clock is known from its last pull only, which may have waited for 15 s.
    scene.wait_until(
        lambda: any(each.id == "handler-hangs" for each in examined().findings), "it hangs"
    )
    hangs = one(examined(), "handler-hangs")
    check(f"1 message of {topic} broker-a/0 is with" in hangs.evidence, hangs.evidence)
    place = {"JAVA": "PushConsumers$Member.hang(", "GO": "main.(*member).hang ("}
    check(place[member.language] in hangs.cause, hangs.cause)
    return {"command": hangs.command.replace(member.client_id, "CLIENT")}
