"""De-duplication of sends: how a topic requests it, and when two messages are the same.

The attribute `sparrowmq.dedup` of a topic is `on`, a time (`10m`), or a time and a number of
messages (`10m/100000`): a broker remembers which messages it has stored for that long, and for that
many of the latest ones.

A message is identified by its property DEDUP_KEY, or without one by its unique id.
"""

import re
from functools import lru_cache
from hashlib import blake2b

import msgspec

from sparrowmq.protocol.indexed_properties import indexed_properties, last_value

DEDUP_ATTRIBUTE = "sparrowmq.dedup"
DEDUP_KEY = "DEDUP_KEY"
"""Property that identifies a message instead of its unique id."""

_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000}
_FORM = re.compile(r"([0-9]{1,9})(ms|s|m|h)(?:/([0-9]{1,9}))?")
LEAST_MS, MOST_MS = 1_000, 24 * 3_600_000
MOST_IDS = 300_000
"""The limit for one topic: after a start its first send waits until they are read from the log, and
would fail after the 3 s that clients give it. These take a second of the broker's CPU."""
MOST_IDS_TOGETHER = 1_000_000
"""The limit for all topics of a broker."""
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
    """Parse the rule in an attribute's value. Raises ValueError."""
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
"""Characters; longer ids are kept as a digest, so that ids of any length take the same space."""
_MARK = f"\x02{DEDUP_KEY}\x01"


def identity_of(properties: str) -> str:
    """What identifies a message; empty if it has neither key nor unique id.

    Keys, unique ids and digests cannot be mistaken for each other.
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
