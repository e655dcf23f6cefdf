"""`sparrowmq broker promote` and `demote`: roles change without a failed send, or not at all."""

import json
import threading

import pytest

from sparrowmq.blocking import Admin, Message, Producer
from sparrowmq.broker.config import ReplicationMode
from sparrowmq.client.errors import SendFailed
from sparrowmq.testing import Cluster, cluster
from tests.cli.in_process import Ran, run
from tests.patience import PATIENCE_S

MASTER, SLAVE = "broker-a", "broker-a.1"


def broker(running: Cluster, *arguments: str, answer: str = "") -> Ran:
    return run("broker", *arguments, "--name-servers", running.name_server, answer=answer)


def changed(running: Cluster, new: str) -> str:
    """The last sentence, which names the cluster."""
    return f"{new} is the master of broker-a (name servers {running.name_server})"


class Sender:
    """A producer that sends all the time, and counts what fails."""

    def __init__(self, name_server: str) -> None:
        self.acknowledged: set[str] = set()
        self.failed: list[str] = []
        self._at = name_server
        self._stopping = threading.Event()
        self._sent = threading.Condition()
        self._thread = threading.Thread(target=self._send)

    def __enter__(self) -> "Sender":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()

    def until_sent(self, more: int = 20) -> None:
        """Return when `more` further messages were acknowledged, or one failed."""
        with self._sent:
            wanted = len(self.acknowledged) + more
            assert self._sent.wait_for(
                lambda: self.failed or len(self.acknowledged) >= wanted, PATIENCE_S
            )

    def _send(self) -> None:
        number = 0
        with Producer("shop", name_servers=self._at, timeout_s=PATIENCE_S) as producer:
            while not self._stopping.is_set():
                number += 1
                try:
                    is_ok = producer.send(Message.text("orders", str(number))).is_ok
                except SendFailed as error:
                    is_ok, self.failed = False, [*self.failed, str(error)]
                with self._sent:
                    if is_ok:
                        self.acknowledged.add(str(number))
                    else:
                        self.failed.append(f"{number} has no second copy")
                    self._sent.notify()


def stored(running: Cluster) -> set[str]:
    """The bodies of all messages, as the master has them."""
    found: set[str] = set()
    with Admin(running.name_server, timeout_s=PATIENCE_S) as admin:
        for each in admin.topic("orders").queues:
            offset = each.min_offset
            while offset < each.max_offset:
                read = admin.read_messages(each.queue, offset)
                found |= {message.body.decode() for message in read}
                offset += len(read)
    return found


@pytest.mark.slow
def test_roles_change_and_change_back_while_a_producer_sends() -> None:
    with cluster(slaves=1, replication=ReplicationMode.SYNC) as running:
        running.create_topic("orders", queues=2)
        old, new = (running.broker_addresses[name] for name in (MASTER, SLAVE))
        with Sender(running.name_server) as sender:
            sender.until_sent()
            dry = broker(running, "promote", MASTER, "--dry-run")
            outlook, end = dry.stderr.splitlines()
            assert outlook.startswith(f"broker-a: slave 1 at {new}, ")
            assert outlook.endswith(f" becomes the master, and {old} becomes slave 1")
            assert end == "nothing was changed: a dry run"
            for verb in ("promote", "demote"):
                unasked = broker(running, verb, MASTER, answer="y\nbroker-a\n")
                assert unasked.returncode == 1
                refusal = "broker-a would get another master: nothing was changed; --yes does it"
                assert refusal in unasked.stderr
            promoted = broker(running, "promote", MASTER, "--id", "1", "--yes")
            assert promoted.stderr.splitlines()[-1] == changed(running, new)
            sender.until_sent()
            demoted = broker(running, "demote", MASTER, "--yes", "--json")
            assert demoted.stderr.splitlines()[-1] == changed(running, old)
            (row,) = json.loads(demoted.stdout)["items"]
            assert (row["newMaster"], row["oldMaster"], row["isDone"]) == (old, new, True)
            sender.until_sent()
        assert sender.failed == []
        assert stored(running) >= sender.acknowledged


def test_a_change_that_would_lose_messages_is_refused_with_the_reason() -> None:
    with cluster(slaves=1) as running:
        running.create_topic("orders", queues=1)
        for arguments, text in [
            (("promote", "broker-z"), "broker broker-z does not exist; registered are: broker-a"),
            (("promote", MASTER, "--id", "7"), "slave 7 does not follow; slaves that do: 1"),
            (("demote", MASTER, "--id", "7"), "slave 7 does not follow; slaves that do: 1"),
        ]:
            refused = broker(running, *arguments, "--yes")
            assert (refused.returncode, refused.stdout) == (1, "")
            assert text in refused.stderr
        running.stop_broker(SLAVE)
        for verb in ("promote", "demote"):
            refused = broker(running, verb, MASTER, "--dry-run")
            assert "no slave follows broker-a; start one and try again" in refused.stderr
        assert run("send", "orders", "x", "--name-servers", running.name_server).returncode == 0


def test_a_slave_of_a_lost_master_is_promoted_if_the_loss_is_accepted() -> None:
    with cluster(slaves=1) as running:
        running.create_topic("orders", queues=1)
        running.stop_broker(MASTER)
        lossless = broker(running, "promote", MASTER, "--yes")
        assert "sparrowmq broker promote broker-a --accept-loss broker-a" in lossless.stderr
        accepted = ("promote", MASTER, "--accept-loss", MASTER)
        new = running.broker_addresses[SLAVE]
        shown = f"broker-a has no master: slave 1 at {new} becomes it. Its log ends at "
        assert broker(running, *accepted, "--dry-run").stderr.startswith(shown)
        done = broker(running, *accepted, "--yes")
        assert done.stderr.splitlines()[-1] == changed(running, new)
        sent = run("send", "orders", "after", "--name-servers", running.name_server)
        assert sent.stdout.startswith("SEND_OK")


def test_a_slave_that_was_started_without_a_master_is_promoted_by_its_address() -> None:
    with cluster(slaves=1) as running:
        running.stop_broker(SLAVE)
        running.stop_broker(MASTER)
        running.start_broker(SLAVE)
        accepted = ("promote", MASTER, "--accept-loss", MASTER, "--yes")
        assert "name one with --address" in broker(running, *accepted).stderr
        new = running.broker_addresses[SLAVE]
        done = broker(running, *accepted, "--address", new, "--quiet")
        header, row = (line.split("\t") for line in done.stdout.splitlines())
        assert header == ["BROKER", "SLAVE", "MASTER", "WAS", "BEHIND", "LOG-END", "DONE"]
        assert (row[:5], row[6]) == ([MASTER, "1", new, "?", ""], "yes")
        assert done.stderr == ""


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("promote", "a", "--id", "1", "--address", "h:1"), "--id and --address cannot be"),
        (("promote", "a", "--port", "1"), "--port is for a server that is started, and promote w"),
        (("promote", "a", "--accept-loss", "b", "--yes"), "the broker is 'a'; nothing was changed"),
        (("promote", "a", "--id", "0"), "0 is not in the range x>=1"),
    ],
)
def test_options_that_make_no_sense_are_refused(arguments: tuple[str, ...], text: str) -> None:
    ran = run("broker", *arguments)
    assert ran.returncode == 2
    assert text in " ".join(ran.stderr.split())
