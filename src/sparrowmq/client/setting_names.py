"""Settings by name: a mistyped one is rejected, and similar names are suggested.

Consumers take most of their settings through typed dictionaries (`**settings: Unpack[…]`), which
type checkers and editors read. Python itself does not: without this, a mistyped name would fail in
a constructor that no user has heard of, and `help()` would show no names at all.
"""

import inspect
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from functools import wraps
from typing import Any, TypeVar, get_args, get_type_hints

C = TypeVar("C")


class _Default:
    """Of a setting in a typed dictionary, which has none: `help()` shows dots."""

    def __repr__(self) -> str:
        return "..."


_DEFAULT = _Default()


def settings_of(function: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """The parameters of a constructor or function, with the names of its typed dictionary."""
    found: dict[str, inspect.Parameter] = {}
    hints = get_type_hints(function)
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind is not inspect.Parameter.VAR_KEYWORD:
            kind = hints.get(parameter.name, parameter.annotation)
            found[parameter.name] = parameter.replace(annotation=kind)
            continue
        (dictionary,) = get_args(hints[parameter.name])
        for name, kind in get_type_hints(dictionary).items():
            found[name] = inspect.Parameter(
                name, inspect.Parameter.KEYWORD_ONLY, default=_DEFAULT, annotation=kind
            )
    return found


def checks_setting_names(kind: type[C]) -> type[C]:
    """For classes: unknown settings raise a TypeError that names the class and similar settings,
    and `help()` lists every setting."""
    known = settings_of(_init_of(kind))
    _replace_init(kind, known, list(known.values()))
    return kind


def takes_settings_of(other: type, without: Iterable[str]) -> Callable[[type[C]], type[C]]:
    """The same for a class that passes its settings, defaults included, on to another one; it
    handles those in `without` itself."""

    def decorate(kind: type[C]) -> type[C]:
        own = settings_of(_init_of(kind)).items()  # with a default of its own, or none: as it says
        said = {name: parameter for name, parameter in own if parameter.default is not _DEFAULT}
        known = {**settings_of(_init_of(other)), **said}
        shown = [parameter for name, parameter in known.items() if name not in without]
        _replace_init(kind, known, shown)
        return kind

    return decorate


def _init_of(kind: type) -> Callable[..., None]:
    return kind.__init__  # type: ignore[misc,no-any-return]  # of this very class


def _replace_init(kind: type, known: Iterable[str], shown: list[inspect.Parameter]) -> None:
    init = _init_of(kind)
    names = frozenset(known) - {"self"}

    @wraps(init)
    def checked(self: object, *values: Any, **settings: Any) -> None:
        if not names.issuperset(settings):
            raise TypeError(unknown_settings(type(self).__name__, settings.keys() - names, names))
        init(self, *values, **settings)

    checked.__signature__ = inspect.Signature(shown)  # type: ignore[attr-defined]  # for help()
    kind.__init__ = checked  # type: ignore[misc]  # the same constructor, checked


def unknown_settings(kind: str, unknown: Iterable[str], known: Iterable[str]) -> str:
    """The error text for names that `kind` does not have, one line each."""
    texts = []
    for name in sorted(unknown):
        near = get_close_matches(name, sorted(known), n=3)
        hint = f"did you mean {' or '.join(near)}?" if near else "help() lists its settings"
        texts.append(f"{kind} has no setting named {name}; {hint}")
    return "\n".join(texts)
