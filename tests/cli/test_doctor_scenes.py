"""`sparrowmq doctor`, through the entry point, in clusters where something is wrong: the scenes of
all diagnoses, in virtual time."""

import asyncio
from collections.abc import Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from queue import SimpleQueue
from typing import Any

import pytest

from sparrowmq import Admin, Examination
from sparrowmq.admin.doctor.catalogue import CATALOGUE
from sparrowmq.cli import shell
from sparrowmq.testing.sim_cluster import SimCluster
from tests.admin.doctor.provocations import Scene
from tests.admin.doctor.test_live_diagnoses import ALL
from tests.admin.operator import as_client
from tests.cli.in_process import Ran, run
from tests.patience import PATIENCE_S

_Asked = tuple[Coroutine[Any, Any, Any], "Future[Any]"]


class CommandScene(Scene):
    """A scene whose doctor is the command. It runs in a thread and asks the simulated cluster: time
    stands still there while the command parses and prints."""

    ended: Ran

    async def doctor(self, *about: str, **more: Any) -> Examination:
        asked: SimpleQueue[_Asked | None] = SimpleQueue()

        def ask(work: Coroutine[Any, Any, Any]) -> Any:
            answer: Future[Any] = Future()
            asked.put((work, answer))
            return answer.result(PATIENCE_S)

        words = ["--topic", more["topic"]] if "topic" in more else []
        words += ["--for", f"{more['for_s']}s"] if "for_s" in more else []
        with pytest.MonkeyPatch.context() as patch, ThreadPoolExecutor(1) as thread:
            patch.setattr(asyncio, "run", ask)
            patch.setattr(shell, "Admin", lambda _, **given: Admin(client=self.client, **given))
            command = thread.submit(run, "doctor", *about, *words, "--timeout", "5s")
            command.add_done_callback(lambda _: asked.put(None))
            while (question := asked.get(timeout=PATIENCE_S)) is not None:
                work, answer = question
                try:
                    answer.set_result(await work)
                except BaseException as error:
                    answer.set_exception(error)
            self.ended = command.result(PATIENCE_S)
        return Examination((), (), "")


def played(name: str) -> Ran:
    """How the command ends in a scene."""
    cluster, play = ALL.scenes[name]
    with SimCluster(seed=1, **cluster).run() as sim:

        async def ended(client: Any) -> Ran:
            scene = CommandScene(sim, client)
            await play(scene)
            return scene.ended

        return as_client(sim, ended)


@pytest.mark.slow  # some sixty clusters; those below are in every run
@pytest.mark.parametrize("name", ALL.scenes)
def test_the_command_finds_each_provoked_problem_and_its_exit_code_says_how_bad_it_is(
    name: str,
) -> None:
    ended = played(name)
    header, *rows = (line.split("\t") for line in ended.stdout.splitlines())
    assert header == ["SEVERITY", "FINDING", "SUBJECT", "EVIDENCE", "CAUSE", "DO", "COMMAND"]
    found = next(row for row in rows if row[1] == name)
    assert found[0] == CATALOGUE[name].severity
    assert all(found)
    assert ended.returncode == int(any(row[0] != "note" for row in rows))
    assert "checked " in ended.stderr


WHERE = "(name servers 127.0.0.1:9876, from the default)"
TEXTS = {
    "no-members": """\
error|no-members|group billing|5 messages in orders, 0 members online\
|the consumers are stopped, or cannot reach the brokers|start one|sparrowmq group show billing
checked group billing with 0 live members and 1 queue, twice in 2.0 s: 1 error WHERE
""",
    "broker-silent": """\
error|broker-silent|broker broker-b\
|10.0.0.4:10911: 10.0.0.4:10911 did not answer GetRuntimeInfo within 5 s\
|it hangs, was killed less than 2 minutes ago, or registered an address that cannot be reached from\
 here|look at its log; check the address that it advertises|sparrowmq broker show broker-b
4 checks were not made for broker broker-b: it does not answer
checked 1 name server and 2 brokers: 1 error WHERE
""",
    "unequal-subscriptions": """\
error|unequal-subscriptions|group billing\
|10.0.0.4@operator: orders created, 10.0.0.5@other: orders paid\
|an old and a new version run side by side, or two programs share a group name\
|give every member the same subscriptions, or another group\
|sparrowmq group subscriptions billing
checked group billing with 2 live members and 2 queues, twice in 2.0 s: 1 error WHERE
""",
    "dead": """\
error|dead|message 0A00000403E8139929FD47B760150000 and group billing\
|dead since 2023-11-14T22:13:30Z, after 2 attempts|its handler failed on every retry\
|fix the handler, then resend the dead letter\
|sparrowmq dlq resend billing --id 0A00000403E8139929FD47B760150000 --dry-run
checked message 0A00000403E8139929FD47B760150000 of topic orders for 1 group: 1 error WHERE
""",
}
"""What follows the header, with bars for tabs, and standard error."""


@pytest.mark.parametrize("name", TEXTS)
def test_the_texts_of_a_scene(name: str) -> None:
    ended = played(name)
    _, rows = ended.stdout.split("\n", 1)
    printed = f"{rows}{ended.stderr}".replace("\t", "|").replace(WHERE, "WHERE")
    assert (ended.returncode, printed) == (1, TEXTS[name])
