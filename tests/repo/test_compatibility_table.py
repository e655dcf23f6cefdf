"""docs/compatibility.md describes for every request code what the routes really do with it.

`python -m tests.repo.test_compatibility_table` writes what the routes say into the page's table.
"""

import importlib
import pkgutil
import re

import pytest

import sparrowmq.client
from sparrowmq.broker.runtime_config import CHANGEABLE
from sparrowmq.broker.server import routes as broker_routes
from sparrowmq.nameserver.server import all_routes
from sparrowmq.net.routes import Routes
from sparrowmq.protocol.codes import RequestCode
from tests.repo.tree import ROOT

PATH = ROOT / "docs" / "compatibility.md"
DOCUMENT = PATH.read_text(encoding="utf-8")
ROW = re.compile(r"^\| (\d+) \| (\w+) \| ([a-z ]+) \| ([^|]+) \| ([^|]*)\|$", re.MULTILINE)
ROWS = {int(code): (name, state, where) for code, name, state, where, _ in ROW.findall(DOCUMENT)}
NOBODY = "–"


def client_codes() -> set[int]:
    """What clients serve: brokers call them too."""
    codes: set[int] = set()
    for module in pkgutil.walk_packages(sparrowmq.client.__path__, "sparrowmq.client."):
        routes = getattr(importlib.import_module(module.name), "routes", None)
        if isinstance(routes, Routes):
            codes |= routes.codes
    return codes


SERVING = {
    "broker": broker_routes.codes,
    "name server": all_routes().codes,
    "client": client_codes(),
}


def serving(code: int) -> str:
    """Who answers a request, as the table says it."""
    return ", ".join(who for who, codes in SERVING.items() if code in codes) or NOBODY


def test_every_request_code_has_one_row() -> None:
    assert len(ROW.findall(DOCUMENT)) == len(ROWS)
    assert {code: name for code, (name, _, _) in ROWS.items()} == {
        int(code): code.name for code in RequestCode
    }


@pytest.mark.parametrize("code", sorted(ROWS))
def test_a_row_agrees_with_the_routes(code: int) -> None:
    _, state, where = ROWS[code]
    remedy = "run python -m tests.repo.test_compatibility_table and look at what it changed"
    assert where == serving(code), remedy
    if where == NOBODY:
        assert state in ("refused by design", "not yet")
    else:
        assert state == "served"


def test_the_settings_that_can_be_changed_are_listed_with_their_ranges() -> None:
    for setting in CHANGEABLE.values():
        allowed = "true or false" if setting.least is None else f"{setting.least} to {setting.most}"
        assert f"\n| `{setting.name}` | {allowed}" in DOCUMENT
    section = DOCUMENT.partition("\n## Settings of a running broker\n")[2].partition("\n## ")[0]
    listed = re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)
    assert listed == list(CHANGEABLE)


def updated(row: re.Match[str]) -> str:
    """A row as the routes require; a request that no server serves any more is "not yet"."""
    code, name, state, _, note = row.groups()
    where = serving(int(code))
    if where != NOBODY:
        state = "served"
    elif state == "served":
        state = "not yet"
    return f"| {code} | {name} | {state} | {where} | {note}|"


if __name__ == "__main__":
    PATH.write_text(ROW.sub(updated, DOCUMENT), encoding="utf-8")
