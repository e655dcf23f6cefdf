"""De-duplication of sends: how a topic asks for it, and what makes two messages the same one.

The attribute `sparrowmq.dedup` of a topic is `on`, a time (`10m`), or a time and a number of
messages (`10m/100000`): for so long, and for so many of the last ones, a broker remembers which
messages it has stored.

A message is known by its property DEDUP_KEY, and without one by its unique id.
"""

import re
from functools import lru_cache
from hashlib import blake2b

import msgspec

from sparrowmq.protocol.indexed_properties import indexed_properties, last_value

DEDUP_ATTRIBUTE = "sparrowmq.dedup"
DEDUP_KEY = "DEDUP_KEY"
"""Property: what a message is known by, in place of its unique id."""

_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000}
_FORM = re.compile(r"([0-9]{1,9})(ms|s|m|h)(?:/([0-9]{1,9}))?")
LEAST_MS, MOST_MS = 1_000, 24 * 3_600_000
MOST_IDS = 1_000_000
"""Of one topic, and of all topics of a broker together."""
_ALLOWED = (
    "allowed: on, a time as 10m, or a time and a number of messages as 10m/100000;"
    f" 1s to 24h, 1 to {MOST_IDS} messages"
)


class DedupRule(msgspec.Struct, frozen=True):
    """How long, and how many messages, a topic remembers."""

    time_ms: int = 600_000
    ids: int = 100_000

    def __str__(self) -> str:
        for unit in ("h", "m", "s", "ms"):
            if self.time_ms % _UNITS_MS[unit] == 0:
                break
        return f"{self.time_ms // _UNITS_MS[unit]}{unit}/{self.ids}"


@lru_cache(maxsize=1024)
def parse_dedup(text: str) -> DedupRule:
    """The rule that an attribute's value asks for. Raises ValueError."""
    if text == "on":
        return DedupRule()
    found = _FORM.fullmatch(text)
    if found is None:
        raise ValueError(_ALLOWED)
    number, unit, ids = found.groups()
    rule = DedupRule(int(number) * _UNITS_MS[unit], DedupRule().ids if ids is None else int(ids))
    if not LEAST_MS <= rule.time_ms <= MOST_MS or not 1 <= rule.ids <= MOST_IDS:
        raise ValueError(_ALLOWED)
    return rule


def dedup_fault(text: str) -> str | None:
    """Why a value of the attribute is refused."""
    try:
        parse_dedup(text)
    except ValueError as error:
        return str(error)
    return None


# ---- identities


_LONGEST = 64
"""Characters; of what is longer a digest is kept, so that ids of any length take the same room."""
_MARK = f"\x02{DEDUP_KEY}\x01"


def identity_of(properties: str) -> str:
    """What a message is known by; empty where it has neither key nor unique id.

    Keys and unique ids cannot be taken for each other, nor for a digest.
    """
    if DEDUP_KEY in properties:
        key = last_value(f"\x02{properties}\x02", _MARK)
        if key:
            return _bounded(f"\x01{key}")
    return _bounded(indexed_properties(properties)[1])


def _bounded(identity: str) -> str:
    if len(identity) <= _LONGEST:
        return identity
    return "\x02" + blake2b(identity.encode("utf-8", "surrogatepass"), digest_size=24).hexdigest()
