"""Gives a form back that was filled in wrongly: as it was sent, with the error beside it.

The page of the form is rendered again, and the form is found in it by where it is sent to and by
its hidden fields. Doing this to the finished page keeps errors and entered values out of all
templates. What is put into the page is escaped here.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from html.parser import HTMLParser
from urllib.parse import unquote, urlsplit

PROBLEM = "form-problem"
"""The id of the error's element."""
_UNTOUCHED = ("hidden", "password", "checkbox", "radio", "submit")
_VALUE = re.compile(r'\svalue="[^"]*"')
_SELECTED = re.compile(r"\sselected(?=[\s>])")

_Edit = tuple[int, int, str]
"""Start and end of what is replaced, and by what."""


@dataclass
class _Tag:
    start: int
    text: str
    attributes: dict[str, str]

    @property
    def end(self) -> int:
        return self.start + len(self.text)


@dataclass
class _Control:
    kind: str
    tag: _Tag
    content: tuple[int, int] = (0, 0)
    """Of a textarea."""
    options: list[tuple[_Tag, str]] = field(default_factory=list)
    """Of a select, each with its value."""

    @property
    def name(self) -> str:
        return self.tag.attributes.get("name", "")


@dataclass
class _Form:
    tag: _Tag
    details: list[_Tag]
    """Around it, which have to be open for it to be seen."""
    hidden: dict[str, str] = field(default_factory=dict)
    controls: list[_Control] = field(default_factory=list)

    def is_sent_to(self, path: str) -> bool:
        return unquote(urlsplit(self.tag.attributes.get("action", "")).path) == path


class _Forms(HTMLParser):
    """Finds the forms of a page."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.forms: list[_Form] = []
        self._lines = [0]
        for line in html.splitlines(keepends=True):
            self._lines.append(self._lines[-1] + len(line))
        self._details: list[_Tag] = []
        self._is_inside = False
        self.feed(html)
        self.close()

    def _at(self) -> int:
        line, column = self.getpos()
        return self._lines[line - 1] + column

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note the tags that a filled form changes."""
        found = _Tag(
            self._at(), self.get_starttag_text() or "", {key: value or "" for key, value in attrs}
        )
        if tag == "details":
            self._details.append(found)
        elif tag == "form":
            self.forms.append(_Form(found, [*self._details]))
            self._is_inside = True
        elif self._is_inside:
            self._in_form(tag, found)

    def _in_form(self, tag: str, found: _Tag) -> None:
        form = self.forms[-1]
        if tag == "input" and found.attributes.get("type") == "hidden":
            form.hidden[found.attributes.get("name", "")] = found.attributes.get("value", "")
        elif tag in ("input", "select", "textarea"):
            form.controls.append(_Control(tag, found, (found.end, found.end)))
        elif tag == "option" and form.controls:
            value = found.attributes.get("value", "")
            form.controls[-1].options.append((found, value))

    def handle_data(self, data: str) -> None:
        """An option without a value has its text as value."""
        controls = self.forms[-1].controls if self._is_inside else []
        options = controls[-1].options if controls else []
        if options and "value" not in options[-1][0].attributes and not options[-1][1]:
            options[-1] = (options[-1][0], data.strip())

    def handle_endtag(self, tag: str) -> None:
        """Leave forms and what is around them."""
        if tag == "details" and self._details:
            self._details.pop()
        elif tag == "form":
            self._is_inside = False
        elif tag == "textarea" and self._is_inside:
            control = self.forms[-1].controls[-1]
            control.content = (control.content[0], self._at())


def refilled(
    html: str, path: str, entered: Mapping[str, Sequence[str]], problem: str, wrong: str = ""
) -> str | None:
    """The page with the form that is sent to `path` as it was entered, `problem` beside it, tied to
    the field `wrong` if the form has it; None if the page has no such form."""
    form = next(_candidates(_Forms(html).forms, path, entered), None)
    if form is None:
        return None
    said = f'<p class="notice bad" role="alert" id="{PROBLEM}">{escape(problem)}</p>'
    edits: list[_Edit] = [(form.tag.end, form.tag.end, said)]
    for each in form.details:
        if "open" not in each.attributes:
            edits.append((each.end - 1, each.end - 1, " open"))
    for control in form.controls:
        values = entered.get(control.name)
        if values is not None:
            edits += _filled(control, values[0], is_wrong=control.name == wrong)
    for start, end, text in sorted(edits, reverse=True):
        html = html[:start] + text + html[end:]
    return html


def _candidates(
    forms: Sequence[_Form], path: str, entered: Mapping[str, Sequence[str]]
) -> Iterator[_Form]:
    """Forms to this address; of several, the one with the hidden fields that were sent."""
    for form in forms:
        hidden = {key: value for key, value in form.hidden.items() if key != "token"}
        if form.is_sent_to(path) and all(
            (entered.get(key) or ("",))[0] == value for key, value in hidden.items()
        ):
            yield form


def _filled(control: _Control, value: str, *, is_wrong: bool) -> Iterator[_Edit]:
    tag = control.tag
    mark = f' aria-invalid="true" aria-describedby="{PROBLEM}" autofocus' if is_wrong else ""
    text = tag.text
    if control.kind == "input" and tag.attributes.get("type") not in _UNTOUCHED:
        text = _VALUE.sub("", text)
        mark += f' value="{escape(value)}"'
    if mark:
        yield tag.start, tag.end, f"{text[:-1]}{mark}>"
    if control.kind == "textarea":
        yield *control.content, escape(value)
    if any(each == value for _, each in control.options):
        for option, each in control.options:
            chosen = " selected" if each == value else ""
            plain = _SELECTED.sub("", option.text)
            yield option.start, option.end, f"{plain[:-1]}{chosen}>"
