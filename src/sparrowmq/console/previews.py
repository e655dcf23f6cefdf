"""Previews of changed settings: old values, new values, and the state that they are based on.

The confirming form carries that state. If the cluster differs by then, the preview is shown again
and nothing is changed.
"""

from collections.abc import Sequence

from sparrowmq.admin.values import Setting, SettingChange
from sparrowmq.console.text import allowed
from sparrowmq.console.view import Page, View

_SHOWN = {
    "read_queues": "read queues",
    "write_queues": "write queues",
    "perm": "allowed",
    "order": "consumed in order",
    "may_consume": "may consume",
    "may_broadcast": "may broadcast",
    "orderly": "consumes in order",
    "retry_queues": "retry queues",
}


def shown_setting(name: str) -> str:
    """The name of a setting in the words of its form; others, such as attributes, as they are."""
    return _SHOWN.get(name, name)


def shown_value(setting: str, value: Setting | None) -> str:
    """The value of a setting before or after a change."""
    if value is None:
        return "not set"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if setting == "perm" and isinstance(value, int):
        return allowed(value)
    return str(value)


def state_of(changes: Sequence[SettingChange]) -> str:
    """The state that a preview is based on; it differs when the cluster does."""
    return "; ".join(map(str, changes))


def is_confirmed(view: View, changes: Sequence[SettingChange]) -> bool:
    """Whether the form confirms exactly these changes."""
    return view.entered("state") == state_of(changes)


def change_preview(
    view: View,
    changes: Sequence[SettingChange],
    *,
    title: str,
    area: str,
    fields: Sequence[str],
    back: str,
    command: str = "",
    warning: str = "",
    note: str = "",
) -> Page:
    """The page between a form and its change; `fields` are those of the form."""
    return Page(
        template="change.html",
        title=title,
        area=area,
        command=command,
        is_live=False,
        values={
            "changes": changes,
            "shown_setting": shown_setting,
            "shown_value": shown_value,
            "state": state_of(changes),
            "was_changed": bool(view.entered("state")),
            "fields": {name: view.entered(name) for name in fields},
            "back": back,
            "warning": warning,
            "note": note,
        },
    )


def both_sides(changes: Sequence[SettingChange]) -> tuple[str, str]:
    """The values before and after, for the audit log."""
    before = "; ".join(f"{each.broker}: {each.setting} {each.before}" for each in changes)
    after = "; ".join(f"{each.broker}: {each.setting} {each.after}" for each in changes)
    return before, after
