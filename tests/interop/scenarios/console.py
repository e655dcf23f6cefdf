"""The console, started by its command, with our brokers and Apache's: pages and forms."""

import http.client
import re
import subprocess
import sys
from html import unescape
from urllib.parse import quote, urlencode

from tests.interop import apache, raw, sparrow
from tests.interop.cluster import Settings
from tests.interop.handles import PATIENCE_S
from tests.interop.registry import PYTHON, Outcome, check, scenario
from tests.interop.scenarios.doctor import one
from tests.interop.scenarios.group_commands import command, rows
from tests.interop.scenarios.python_admin import admin_of
from tests.interop.scenarios.wire import PULL, pull_fields
from tests.interop.scene import Scene

NO_PERMISSION = 16
_TOKEN = re.compile(r'name="token" value="([0-9a-f]+)"')
_STATE = re.compile(r'name="state" value="([^"]*)"')
_ROW = re.compile(r"<tr[^>]*>(.*?)</tr>", re.DOTALL)
_CELL = re.compile(r"<td[^>]*>(.*?)</td>", re.DOTALL)


class Browser:
    """Keeps the console's cookies and the token that its forms carry."""

    def __init__(self, url: str) -> None:
        self._at = url.removeprefix("http://").rstrip("/")
        self._cookies: dict[str, str] = {}
        self._token = ""

    def get(self, path: str) -> str:
        """A page; it must be there."""
        status, html = self._ask("GET", path, {}, "")
        check(status == 200, f"{path} is answered {status}: {words(html)}")
        return html

    def post(self, path: str, **fields: str) -> str:
        """The page that a form leads to."""
        headers = {"content-type": "application/x-www-form-urlencoded"}
        headers["origin"] = f"http://{self._at}"
        status, html = self._ask("POST", path, headers, urlencode({"token": self._token, **fields}))
        check(status == 200, f"the form {path} is answered {status}: {words(html)}")
        return html

    def confirm(self, path: str, **fields: str) -> tuple[str, str]:
        """The preview of a form, and the page after its confirmation."""
        preview = self.post(path, **fields)
        state = _STATE.search(preview)
        check(state is not None, f"no preview: {words(preview)}")
        assert state is not None
        return preview, self.post(path, **fields, state=unescape(state[1]))

    def _ask(self, method: str, path: str, headers: dict[str, str], body: str) -> tuple[int, str]:
        cookies = "; ".join(f"{name}={value}" for name, value in self._cookies.items())
        connection = http.client.HTTPConnection(self._at, timeout=PATIENCE_S)
        try:
            connection.request(
                method, path, body, headers | ({"cookie": cookies} if cookies else {})
            )
            answer = connection.getresponse()
            html = answer.read().decode()
        finally:
            connection.close()
        for each in answer.headers.get_all("set-cookie", ()):
            name, _, rest = each.partition("=")
            self._cookies[name] = rest.partition(";")[0].strip('"')
        if answer.status == http.client.SEE_OTHER:
            return self._ask("GET", answer.headers["location"], {}, "")
        if token := _TOKEN.search(html):
            self._token = token[1]
        return answer.status, html


def words(html: str) -> str:
    """What a reader sees, roughly."""
    main = html.partition("<main")[2] or html
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", main)).split())


def console_of(here: Scene) -> Browser:
    """A console of the scene's cluster, on a free port."""
    place = ("--port", "0", "--state", str(here.cluster.folder / "console"))
    process = subprocess.Popen(
        [sys.executable, "-m", "sparrowmq", "console", *place, "-n", here.cluster.name_server],
        stdout=subprocess.PIPE,
        stderr=(here.cluster.folder / "console.err").open("wb"),
        text=True,
    )

    def end() -> None:
        process.terminate()
        process.wait()

    here.closing(end)
    assert process.stdout is not None
    ready = process.stdout.readline()
    found = re.search(r"http://127\.0\.0\.1:\d+", ready)
    check(found is not None, f"the console is ready: {ready}")
    assert found is not None
    return Browser(found[0])


def pages(topic: str, group: str, message_id: str) -> list[str]:
    """Every page there is, of one topic, group, message and broker."""
    own = [f"/topics/{topic}{more}" for more in ("", "/senders", "/messages", "/messages?tail=1")]
    own += [
        f"/groups/{group}{more}"
        for more in ("", "?matching=1", "/rebalance", "/rebalance/simulate?members=2")
    ]
    fixed = ["", "topics?all=1", "groups", "messages", "dead-letters", "waiting", "waiting/timers"]
    fixed += ["waiting/transactions", "traffic", "clients", "brokers", "brokers/broker-a"]
    fixed += ["nameservers", "audit", f"search?q={group}", f"messages?topic={topic}&key=k-1"]
    found = [f"/dead-letters/{group}", f"/messages/{message_id}?topic={quote(topic)}"]
    return [*(f"/{each}" for each in fixed), *own, *found]


@scenario(clients=PYTHON, needs="exchange", lane="apart", compared=False, lasts_s=40)
def the_console_and_commands_change_a_cluster_of_either_make(scene: Scene) -> Outcome:
    """Without a browser: tests/console/browser has those, on our broker."""
    for target in (sparrow, apache):
        _visit(scene.on(target.start(scene.folder / target.NAME, Settings())))
    return {}


def _visit(here: Scene) -> None:
    browser, topic, group = console_of(here), here.name("orders"), here.name("billing")
    browser.get("/topics")
    made = browser.post("/topics", name=topic, queues="1")
    check(f"Topic {topic} was created on broker-a" in words(made), words(made))
    here.wait_for_route(topic)
    consumer = here.push_consumer(topic, fails={"bad": 1}, retry_level=-1)
    browser.get(f"/topics/{topic}")
    for body in ("good", "bad"):
        sent = browser.post(f"/topics/{topic}/send", body=body, key="k-1")
        check("The message was stored" in words(sent), words(sent))
    consumer.received(2)
    here.wait_until_committed(topic, 2)
    here.wait_until(
        lambda: 'name="id"' in browser.get(f"/dead-letters/{group}"), "the dead letter is listed"
    )
    letters = browser.get(f"/dead-letters/{group}")
    (letter,) = re.findall(r'name="id" value="([0-9A-F]+)"', letters)
    _, resent = browser.confirm(f"/dead-letters/{group}/resend", id=letter, to="group")
    check("1 sent." in words(resent), words(resent))
    check(consumer.bodies(3)[2] == "bad", "the dead letter comes again")
    for path in pages(topic, group, letter):
        _look(browser, path)
    _use_commands(here, topic, group, letter)
    consumer.stop()
    here.wait_until(lambda: "No member is online" in browser.get(f"/groups/{group}"), "it has left")
    where = {"topic": topic, "to": "earliest"}
    preview, moved = browser.confirm(f"/groups/{group}/reset", **where)
    check("Repeated 2 messages read again" in words(preview), words(preview))
    check(f"{group} was moved in 1 queue" in words(moved), words(moved))
    check(
        here.committed(topic, "billing") == {0: 0},
        f"after the reset: {here.committed(topic, 'billing')}",
    )
    _, undone = browser.confirm(f"/groups/{group}/undo")
    check("was undone" in words(undone), words(undone))
    check(
        here.committed(topic, "billing") == {0: 2},
        f"after the undo: {here.committed(topic, 'billing')}",
    )


def _use_commands(here: Scene, topic: str, group: str, letter: str) -> None:
    """Commands about a live group that no other scenario runs against Apache's broker."""
    simulated = command(here, "rebalance", "simulate", group, "--event", "join")
    in_use = [each for each in simulated["items"] if "in use" in each["strategy"]]
    check([each["strategy"] for each in in_use] == ["AVG (in use)"], f"simulated: {simulated}")
    check((simulated["queues"], simulated["members"]) == (1, 1), f"simulated: {simulated}")
    second = here.push_consumer(topic)
    here.wait_until(
        lambda: len(command(here, "group", "members", group)["members"]) == 2, "two members"
    )
    admin = admin_of(here)
    examined = admin.doctor("group", group, for_s=1.0)
    for name in ("more-members-than-queues", "dead-letters-growing", "handler-fails"):
        one(examined, name)
    here.wait_until(
        lambda: (
            {each.id for each in admin.doctor("message", letter, topic=topic).findings}
            == {"consumed-by"}
        ),
        "the group is past the message",
    )
    second.stop()
    # Apache's broker looks only at pulls that, like those of push consumers, bring no filter.
    pull = pull_fields(group, topic, 0) | {"sysFlag": "0"}
    for word, answered in (("pause", NO_PERMISSION), ("resume", 0)):
        said = command(here, "group", word, group, "--topic", topic)
        check(rows(said, "broker", "result") == [["broker-a", f"{word}d"]], f"it says {said}")
        code = raw.call(here.cluster.broker, PULL, pull).code
        check(code == answered, f"a pull after {word} is answered {code}")
        ids = {each.id for each in admin.doctor("group", group, for_s=1.0).findings}
        check(("paused" in ids) == (word == "pause"), f"after {word} the doctor finds {ids}")


def _look(browser: Browser, path: str) -> None:
    """A page is there, without errors, and not every figure of it is unknown."""
    html = browser.get(path)
    check(html.count("<h1") == 1, f"{path} has no heading: {words(html)}")
    check("did not answer" not in html, f"{path} lacks an answer: {words(html)}")
    for row in _ROW.findall(html):
        cells = [words(each) for each in _CELL.findall(row)]
        check(len(cells) < 2 or set(cells) != {"?"}, f"{path} knows nothing: {words(row)}")
