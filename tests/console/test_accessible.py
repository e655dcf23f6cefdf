"""Every page works with a screen reader and without a mouse."""

from html.parser import HTMLParser

import pytest

from sparrowmq import Client
from sparrowmq.console.console import Console
from sparrowmq.testing.sim_cluster import RunningCluster
from tests.console.test_pages import PAGES, sim  # noqa: F401  a fixture
from tests.console.visitor import Got, Visitor, as_visitor

UNLABELLED_KINDS = ("hidden", "submit")


class Outline(HTMLParser):
    """Controls, labels, headings and regions of a page."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.faults: list[str] = []
        self.ids: list[str] = []
        self._labels: set[str] = set()
        self._controls: list[tuple[str, dict[str, str | None]]] = []
        self._heading = 0
        self._in_label = 0
        self._names: list[str] = []
        self.feed(html)
        self.close()
        for text, attributes in self._controls:
            if attributes.get("id") not in self._labels and not attributes.get("aria-label"):
                self.faults.append(f"{text} has no label")
        doubled = {each for each in self.ids if self.ids.count(each) > 1}
        self.faults += [f"two elements have the id {each}" for each in sorted(doubled)]
        regions = [each for each in self._names if self._names.count(each) > 1]
        self.faults += [f"two regions are called {each!r}" for each in sorted(set(regions))]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        if attributes.get("id"):
            self.ids.append(attributes["id"] or "")
        if tag == "label":
            self._labels.add(attributes.get("for") or "")
        elif tag in ("input", "select", "textarea"):
            if attributes.get("type") not in UNLABELLED_KINDS:
                self._controls.append((self.get_starttag_text() or tag, attributes))
        elif tag in ("h1", "h2", "h3", "h4"):
            level = int(tag[1])
            if level > self._heading + 1:
                self.faults.append(f"{tag} follows h{self._heading}")
            self._heading = level
        if "scroll" in (attributes.get("class") or "").split():
            self._names.append(attributes.get("aria-label") or "")
            wanted = {"tabindex": "0", "role": "region"}
            if not wanted.items() <= attributes.items() or not attributes.get("aria-label"):
                self.faults.append(f"{self.get_starttag_text()} cannot be reached by keyboard")


@pytest.mark.parametrize("path", PAGES)
def test_controls_have_labels_and_scroll_areas_are_reachable_by_keyboard(
    path: str,
    sim: RunningCluster,  # noqa: F811
) -> None:
    async def work(_: Client, console: Console, visitor: Visitor) -> Got:
        await console.sampler.sample_brokers()
        await console.sampler.sample_names()
        if path == "/":  # only that page shows what the doctor found
            await console.sampler.see_doctor()
        return await visitor.get(path)

    assert Outline(as_visitor(sim, work).html).faults == []


@pytest.mark.parametrize(
    ("html", "fault"),
    [
        ('<h1>A</h1><input name="x">', "has no label"),
        ('<h1>A</h1><div class="scroll"></div>', "cannot be reached"),
        ("<h1>A</h1><h3>B</h3>", "h3 follows h1"),
        ('<h1 id="a">A</h1><p id="a"></p>', "two elements have the id a"),
    ],
)
def test_a_planted_fault_is_found(html: str, fault: str) -> None:
    assert any(fault in each for each in Outline(html).faults)
