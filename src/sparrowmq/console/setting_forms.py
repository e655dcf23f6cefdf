"""Forms that change the settings of a topic or a group: an empty field leaves a setting as it is.

form ─▶ values for Admin ─▶ preview (a dry run) ─▶ change, if it is still the same
  └───▶ the command that does the same
"""

import shlex
from collections.abc import Mapping

from sparrowmq.console.view import FieldError, View

_MOST_DIGITS = 5
_MOST_SHOWN = 40


def whole(view: View, field: str, least: int = 0) -> int | None:
    """A number of the form; None if it was left empty. Raises FieldError."""
    text = view.entered(field)
    if not text:
        return None
    words = field.replace("_", " ")
    if not text.isascii() or not text.isdecimal() or len(text) > _MOST_DIGITS:
        raise FieldError(field, f"{words} is {text[:_MOST_SHOWN]!r}, must be a number")
    if int(text) < least:
        raise FieldError(field, f"{words} is {text}, must be {least} or more")
    return int(text)


def switch(view: View, field: str) -> bool | None:
    """Yes or no; None if it stays as it is. Raises FieldError."""
    text = view.entered(field)
    if text not in ("", "on", "off"):
        words = field.replace("_", " ")
        raise FieldError(field, f"{words} is {text[:_MOST_SHOWN]!r}, must be on or off")
    return None if not text else text == "on"


def attributes(view: View, field: str = "attributes") -> dict[str, str | None]:
    """Attributes to set, one on each line; None for one to remove. Raises FieldError."""
    found: dict[str, str | None] = {}
    for line in view.entered(field).splitlines():
        text = line.strip()
        name, equals, value = text.removeprefix("+").partition("=")
        if text.startswith("-") and not equals and len(text) > 1:
            name, given = text[1:], None
        elif equals and name:
            given = value
        elif not text:
            continue
        else:
            shown = text[:_MOST_SHOWN]
            raise FieldError(field, f"attribute {shown!r} is neither NAME=VALUE nor -NAME")
        if name in found:
            raise FieldError(field, f"attribute {name[:_MOST_SHOWN]} is given twice")
        found[name] = given
    return found


def update_command(
    kind: str, name: str, options: Mapping[str, object], changed: Mapping[str, str | None]
) -> str:
    """The terminal command that shows the same preview; options that are None are left out."""
    words = ["sparrowmq", kind, "update", name]
    for option, value in options.items():
        if value is not None:
            words += [option, str(value)]
    for attribute, given in changed.items():
        words += ["--attribute", f"-{attribute}" if given is None else f"{attribute}={given}"]
    return shlex.join([*words, "--dry-run"])


def on_or_off(value: bool | None) -> str | None:
    """A switch as options of commands have it."""
    return None if value is None else "on" if value else "off"
