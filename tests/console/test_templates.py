"""Templates, style and script: escaped, without inline code, readable and accessible."""

import re
from pathlib import Path

import pytest

from tests.repo.tree import ROOT

CONSOLE = ROOT / "src" / "sparrowmq" / "console"
TEMPLATES = sorted((CONSOLE / "templates").glob("*.html"))
CSS = (CONSOLE / "static" / "console.css").read_text(encoding="utf-8")
SCRIPT = (CONSOLE / "static" / "console.js").read_text(encoding="utf-8")


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda path: path.stem)
def test_a_template_escapes_everything_and_has_no_inline_code(template: Path) -> None:
    text = template.read_text(encoding="utf-8")
    assert not re.search(r"\|\s*safe\b|Markup|autoescape", text)
    assert not re.search(r"\sstyle\s*=|\son[a-z]+\s*=|javascript:|<script(?! src=)", text)
    assert not re.search(r"""(?:src|href|action)="(?!/|\?|#|\{)""", text), "another site"


def test_no_line_of_a_template_is_too_long() -> None:
    sources = [*TEMPLATES, *(CONSOLE / "static").glob("console.*")]
    long = [
        f"{path.name}:{number}"
        for path in sources
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if len(line) > 120
    ]
    assert len(sources) > 20
    assert long == []


def test_code_of_the_console_never_marks_text_as_safe() -> None:
    for path in CONSOLE.rglob("*.py"):
        assert "Markup" not in path.read_text(encoding="utf-8"), path


def test_the_script_is_one_small_file_without_eval() -> None:
    assert len(SCRIPT.splitlines()) < 300
    assert not re.search(r"\beval\b|Function\(|https?://|document\.write", SCRIPT)
    assert len(list((CONSOLE / "static").glob("*.js"))) == 1


def test_the_style_sheet_loads_no_other_files() -> None:
    assert not re.search(r"url\(|@import|https?://", CSS)


def colours(block: str) -> dict[str, str]:
    return dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", block))


def themes() -> dict[str, dict[str, str]]:
    light, system_dark, dark = (
        colours(block) for block in re.findall(r":root[^{]*\{([^}]*)\}", CSS)[:3]
    )
    assert system_dark == dark, "the switch gives the same as the system"
    assert light.keys() == dark.keys()
    return {"light": light, "dark": dark}


def luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


TEXT = [
    *((text, back) for text in ("text", "soft", "link") for back in ("page", "card", "hover")),
    *((tone, f"{tone}-back") for tone in ("good", "warn", "bad")),
    *(("text", "quiet-back"), ("on-main", "main"), ("text", "field"), ("soft", "field")),
    *(("bad", "card"), ("link", "page")),
]
SHAPES = [
    ("field-line", "card"),
    ("field-line", "page"),
    ("line-1", "card"),
    ("line-2", "card"),
    ("focus", "card"),
    ("focus", "page"),
    ("main", "card"),
]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_and_shapes_have_the_contrast_of_wcag_aa(theme: str) -> None:
    values = themes()[theme]
    poor = {
        (front, back): round(contrast(values[front], values[back]), 2)
        for pairs, least in ((TEXT, 4.5), (SHAPES, 3.0))
        for front, back in pairs
        if contrast(values[front], values[back]) < least
    }
    assert poor == {}
