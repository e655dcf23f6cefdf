"""Attributes of topics and groups are checked as Apache's broker checks them."""

import pytest

from sparrowmq.protocol.attributes import (
    GROUP_ATTRIBUTES,
    OWN_PREFIX,
    TOPIC_ATTRIBUTES,
    Attribute,
    AttributeRefused,
    Number,
    OneOf,
    Unserved,
    changed_attributes,
    parse_changes,
)

KNOWN: dict[str, Attribute] = {
    "colour": OneOf(("red", "blue"), unserved=("green",)),
    "shape": OneOf(("round",), is_changeable=False),
    "size": Number(-1, 10),
    "taste": Unserved(),
}


def changed(current: dict[str, str] | None, changes: str) -> dict[str, str]:
    return changed_attributes(KNOWN, current, parse_changes(changes))


@pytest.mark.parametrize(
    ("current", "changes", "expected"),
    [
        (None, "", {}),
        (
            None,
            "+colour=red,+size=-1,+shape=round",
            {"colour": "red", "size": "-1", "shape": "round"},
        ),
        ({"colour": "red"}, " +colour=blue , +size=10", {"colour": "blue", "size": "10"}),
        ({"colour": "red", "size": "1"}, "-colour", {"size": "1"}),
        ({"odd": "kept", "colour": "red"}, "-colour", {"odd": "kept"}),
        ({"odd": "stored by another version"}, "-odd", {}),
        ({"taste": "stored by Apache"}, "-taste", {}),
    ],
)
def test_changes_are_applied(
    current: dict[str, str] | None, changes: str, expected: dict[str, str]
) -> None:
    assert changed(current, changes) == expected


@pytest.mark.parametrize(
    ("current", "changes", "reason"),
    [
        (None, "colour=red", "allowed: \\+name=value, -name"),
        (None, "+colour", "allowed: \\+name=value, -name"),
        ({"colour": "red"}, "-colour=red", "allowed: \\+name=value, -name"),
        (None, "+=red", "begins with"),
        ({}, "-", "begins with"),
        (None, "+weight=1", "'weight': is unknown, allowed: colour, shape, size"),
        (None, "+colour=RED", "'RED' is unknown, allowed: red, blue"),
        (None, "+colour=", "'' is unknown"),
        (None, "+colour=green", "'green' is not served by this broker, allowed: red, blue"),
        (None, "+taste=sweet", "'taste': is not served by this broker"),
        (None, "+size=11", "'11' is not a number from -1 to 10"),
        (None, "+size=-2", "not a number"),
        (None, "+size=one", "not a number"),
        (None, "+size=٣", "not a number"),
        (None, "-colour", "cannot be removed, it is not set"),
        ({}, "-colour", "cannot be removed, it is not set"),
        ({}, "-weight", "cannot be removed, it is not set"),
        ({"shape": "round"}, "+shape=round", "only be set when"),
        ({}, "+shape=round", "only be set when"),
        ({"shape": "round"}, "-shape", "only be set when"),
        (None, "+colour=red,+colour=blue", "twice"),
        ({"colour": "red"}, "+colour=blue,-colour", "twice"),
    ],
)
def test_disallowed_changes_are_refused_with_the_reason(
    current: dict[str, str] | None, changes: str, reason: str
) -> None:
    with pytest.raises(AttributeRefused, match=reason):
        changed(current, changes)


def test_a_body_may_name_attributes_without_a_sign_which_is_refused() -> None:
    with pytest.raises(AttributeRefused, match="begins with"):
        changed_attributes(KNOWN, None, {"colour": "red"})


def test_a_long_value_is_shown_in_part() -> None:
    with pytest.raises(AttributeRefused) as refused:
        changed(None, "+colour=" + "x" * 10_000)
    assert len(str(refused.value)) < 200


@pytest.mark.parametrize("known", [TOPIC_ATTRIBUTES, GROUP_ATTRIBUTES])
def test_attributes_that_apache_does_not_know_have_a_prefix(known: dict[str, Attribute]) -> None:
    apaches = ("queue.", "cleanup.", "message.", "reserve.", "lite.", "priority.")
    assert all(name.startswith((OWN_PREFIX, *apaches)) for name in known)
    # Apache's AttributeUtil refuses names with signs in them.
    assert not [name for name in known if "+" in name or "-" in name]
