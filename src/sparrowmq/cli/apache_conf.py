"""Apache's broker.conf: known keys become settings, others are named, dangerous ones refused."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from sparrowmq.cli.apache_keys import TAKEN, refusal, without_effect
from sparrowmq.cli.settings import Given, SettingError

_ROOT, _LOG = "storePathRootDir", "storePathCommitLog"


class _Line(NamedTuple):
    where: str
    key: str
    value: str


def read_broker_conf(path: Path, warn: Callable[[str], None]) -> dict[str, Given]:
    """The settings in a broker.conf. Raises SettingError for a line or key that is refused."""
    found: dict[str, Given] = {}
    lines = list(_lines(path))
    _check_log_path({line.key: line for line in lines})
    for where, key, value in lines:
        if why := refusal(key, value):
            raise SettingError(f"{where}: {key} is refused, {why}; remove the line")
        if key in TAKEN:
            setting, convert = TAKEN[key]
            try:
                found[setting] = Given(convert(value), f"{where}: {key}", value)
            except ValueError as error:
                raise SettingError(f"{where}: {key} is {value!r}, {error}") from error
        elif key != _LOG:
            why_not = without_effect(key, value)
            if why_not is None:
                warn(f"{where}: {key} is not known here and has no effect")
            elif why_not:
                warn(f"{where}: {key} has no effect, {why_not}")
    return found


def _lines(path: Path) -> Iterator[_Line]:
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise SettingError(f"{path} is neither TOML nor a broker.conf in UTF-8: {error}") from error
    for number, line in enumerate(text.split("\n"), start=1):
        content = line.strip()
        if not content or content.startswith(("#", "!")):
            continue
        key, equals, value = (part.strip() for part in content.partition("="))
        where = f"{path} line {number}"
        if not equals:
            raise SettingError(f"{where} is {content!r}, must be key=value; TOML ends in .toml")
        yield _Line(where, key, value)


def _check_log_path(lines: dict[str, _Line]) -> None:
    """A log elsewhere would not be found, and its topics would start empty."""
    log, root = lines.get(_LOG), lines.get(_ROOT)
    if log is None or (root is not None and Path(log.value) == Path(root.value) / "commitlog"):
        return
    expected = f"{root.value}/commitlog" if root is not None else f"commitlog in a {_ROOT}"
    raise SettingError(
        f"{log.where}: {_LOG} is {log.value!r}, the log has to be {expected};"
        " move it there or make that a link to it"
    )
