"""How values appear on pages: numbers, sizes, times. An unknown value is `?`, never 0."""

import codecs
import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from urllib.parse import quote

from sparrowmq.protocol.perm import is_readable, is_writable

SHOWN_BYTES = 64 * 1024
MOST_FORMATTED = 1024 * 1024
"""Bytes of JSON: formatting more would hold up other pages."""
PREVIEW = 200
_LONGEST_AGO = 10
_HEX_WIDTH = 16
_SECOND, _MINUTE, _HOUR, _DAY = 1, 60, 3600, 86400


def number(value: float | None) -> str:
    """`12,345`; small fractions keep one digit."""
    if value is None:
        return "?"
    if isinstance(value, int) or value >= 100 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:,.1f}"


def rate(value: float | None) -> str:
    """Messages per second."""
    return "?" if value is None else f"{value:,.0f}" if value >= 10 else f"{value:.1f}"


def percent(value: float | None) -> str:
    """A part of 1 as a percentage."""
    return "?" if value is None else f"{value * 100:.0f} %"


def size(value: float | None) -> str:
    """Bytes in a readable unit."""
    if value is None:
        return "?"
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if value < 1024 or unit == "TiB":
            return f"{value:,.0f} {unit}" if unit == "B" or value >= 100 else f"{value:.1f} {unit}"
        value /= 1024
    return ""


def moment(value: datetime | int | None) -> datetime | None:
    """A time as a datetime in UTC; takes milliseconds, too, and returns None if out of range."""
    if value is None or isinstance(value, datetime):
        return value
    try:
        return datetime.fromtimestamp(value / 1000, UTC)
    except (OverflowError, OSError, ValueError):  # a client may report any number
        return None


def instant(value: datetime | int | None) -> str:
    """`2026-11-18 13:05:11Z`."""
    found = moment(value)
    return "?" if found is None else found.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def precise(value: datetime | int | None) -> str:
    """`2026-11-18 13:05:11.123Z`, where steps follow each other within milliseconds."""
    return iso(value).replace("T", " ") or "?"


def iso(value: datetime | int | None) -> str:
    """The `datetime` attribute of a time element."""
    found = moment(value)
    if found is None:
        return ""
    return found.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def age(value: datetime | int | None, now_ms: int) -> str:
    """How long ago: `3 min`."""
    found = moment(value)
    if found is None:
        return "?"
    return duration(max(0.0, now_ms / 1000 - found.timestamp()))


def duration(seconds: float | None) -> str:
    """A duration in the unit that fits."""
    if seconds is None:
        return "?"
    for unit, name in ((_DAY, "d"), (_HOUR, "h"), (_MINUTE, "min")):
        if seconds >= 2 * unit:
            return f"{seconds / unit:.0f} {name}"
    return f"{seconds:.0f} s" if seconds >= 1 or seconds == 0 else "< 1 s"


def plural(count: int, one: str, many: str = "") -> str:
    """`1 topic`, `2 topics`."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def allowed(perm: int) -> str:
    """What clients may do with a topic. Inheriting is for settings, not for clients: left out."""
    rights = (("read", is_readable(perm)), ("write", is_writable(perm)))
    return ", ".join(word for word, has in rights if has) or "nothing"


def queue_counts(read: int, written: int) -> str:
    """`8`, or both numbers while a topic has more queues for one of them."""
    return f"{read}" if read == written else f"{read} read, {written} written"


def encodable(text: str) -> str:
    """The text without lone surrogates, which JSON may contain but UTF-8 may not."""
    return text.encode("utf-8", "replace").decode()


def segment(name: str) -> str:
    """A name as a path segment of an address."""
    return quote(name, safe="")


@dataclass(frozen=True, slots=True)
class ShownBody:
    """A message's body as displayed."""

    form: str
    """`text`, `json` or `hex`."""
    text: str
    size: int
    is_cut: bool
    note: str
    """Why the body is not in the requested form; empty if it is."""


def shown_body(body: bytes, form: str) -> ShownBody:
    """The first 64 KiB as text, JSON or hex; hex where it is neither of them."""
    is_cut = len(body) > SHOWN_BYTES
    part = body[:SHOWN_BYTES]
    if form == "json" and len(body) > MOST_FORMATTED:
        note = f"{size(len(body))}, at most {size(MOST_FORMATTED)} are formatted as JSON."
        return shown_body_noted(body, "text", note)
    if form == "json":
        try:
            text = json.dumps(json.loads(body), indent=2, ensure_ascii=False)
        except (ValueError, RecursionError):
            return shown_body_noted(body, "text", "This body is not JSON; shown as text.")
        return ShownBody("json", text[:SHOWN_BYTES], len(body), len(text) > SHOWN_BYTES, "")
    if form == "hex":
        return ShownBody("hex", "\n".join(_hex_lines(part)), len(body), is_cut, "")
    try:
        # The cut may split a character; anything else that is not UTF-8 makes the body bytes.
        text = codecs.getincrementaldecoder("utf-8")().decode(part, final=not is_cut)
    except UnicodeDecodeError:
        note = "This body is not UTF-8 text; shown as bytes."
        return ShownBody("hex", "\n".join(_hex_lines(part)), len(body), is_cut, note)
    return ShownBody("text", text, len(body), is_cut, "")


def shown_body_noted(body: bytes, form: str, note: str) -> ShownBody:
    """The body in this form, with a note about why."""
    found = shown_body(body, form)
    return ShownBody(found.form, found.text, found.size, found.is_cut, found.note or note)


def best_form(body: bytes) -> str:
    """JSON for an object or a list, else text."""
    if body[:1] in (b"{", b"[") and len(body) <= SHOWN_BYTES:
        try:
            json.loads(body)
        except (ValueError, RecursionError):
            return "text"
        return "json"
    return "text"


def _hex_lines(body: bytes) -> Iterator[str]:
    for at in range(0, len(body), _HEX_WIDTH):
        part = body[at : at + _HEX_WIDTH]
        shown = "".join(chr(each) if 32 <= each < 127 else "." for each in part)
        yield f"{at:08x}  {part.hex(' '):<{_HEX_WIDTH * 3 - 1}}  {shown}"


def preview(body: bytes) -> str:
    """The beginning of a body in one line."""
    text = body[: PREVIEW * 4].decode("utf-8", "replace")
    text = " ".join(text.split())
    return f"{text[:PREVIEW]}…" if len(text) > PREVIEW or len(body) > PREVIEW * 4 else text


def parse_time(text: str, now_ms: int) -> int:
    """Milliseconds of `2026-11-18T13:05`, `2026-11-18 13:05:11Z`, `-30m`, `now`. Raises
    ValueError."""
    text = text.strip()
    if text == "now":
        return now_ms
    units = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
    if text.startswith("-") and text[1:-1].isdecimal() and text[-1:] in units:
        if len(text) > _LONGEST_AGO:
            raise ValueError(f"{text[:20]}… is too long ago; write -30m, -2h or -7d")
        return max(0, now_ms - int(text[1:-1]) * units[text[-1]])
    try:
        found = datetime.fromisoformat(text)
    except ValueError as error:
        raise ValueError(
            f"{text[:40]!r} is not a time; write 2026-11-18T13:05 (UTC), -30m, -2h or now"
        ) from error
    if found.tzinfo is None:
        found = found.replace(tzinfo=UTC)
    return max(0, int(found.timestamp() * 1000))
