"""Finding a program's name servers. Clients and Spark read the environment only here.

    argument ▶ SPARROWMQ_NAME_SERVERS ▶ SPARROWMQ_CONTEXT ▶ NAMESRV_ADDR ▶ 127.0.0.1:9876

`NAMESRV_ADDR` is what RocketMQ's users have set. A context is a named cluster in a file that the
command line maintains. `sparrowmq context use` selects one for commands at a terminal and never for
a program: a choice made in a shell must not decide where a service writes.

    $XDG_CONFIG_HOME/sparrowmq/contexts.toml          (~/.config without XDG_CONFIG_HOME)
        in-use = "production"                         (commands only; programs do not read it)
        [contexts.production]
        name-servers = ["10.0.0.1:9876", "10.0.0.2:9876"]

Spark's driver resolves the addresses once and passes them to executors, which have a different
environment.
"""

import logging
import os
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

NAME_SERVERS_VARIABLE = "SPARROWMQ_NAME_SERVERS"
CONTEXT_VARIABLE = "SPARROWMQ_CONTEXT"
ROCKETMQ_VARIABLE = "NAMESRV_ADDR"
DEFAULT = "127.0.0.1:9876"
DEFAULT_ORIGIN = "the default"

_PREFIXES = re.compile("SPARROW(MQ)?_")
_SIMILAR = 0.7
_log = logging.getLogger("sparrowmq.client")


class NameServerAddresses(NamedTuple):
    """Addresses and their origin, for errors about a cluster that does not answer."""

    addresses: tuple[str, ...]
    origin: str


def find_name_servers(
    given: str | Sequence[str] | None = None,
    *,
    environment: Mapping[str, str] = os.environ,
    log: logging.Logger | None = _log,
) -> NameServerAddresses:
    """The name servers of a program. A mistyped variable is logged once per process. Raises
    ValueError for a value without an address, and for a context that does not exist: only the named
    cluster is ever used."""
    if given is not None:
        addresses = split_addresses(given) if isinstance(given, str) else tuple(given)
        return _checked(addresses, "the argument name_servers", given)
    if text := environment.get(NAME_SERVERS_VARIABLE):
        return _of_variable(NAME_SERVERS_VARIABLE, text)
    found = _without_ours(environment)
    if log is not None:
        for mistyped, meant in mistyped_variables(environment):
            _report(log, mistyped, meant, found.origin, found.addresses)
    return found


def _without_ours(environment: Mapping[str, str]) -> NameServerAddresses:
    if name := environment.get(CONTEXT_VARIABLE):
        return _of_context(name, environment)
    if text := environment.get(ROCKETMQ_VARIABLE):
        return _of_variable(ROCKETMQ_VARIABLE, text)
    return NameServerAddresses((DEFAULT,), DEFAULT_ORIGIN)


def mistyped_variables(environment: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Variables that look like an unset one of ours, each with that one. Only the part after the
    prefix is compared: servers have other variables with the same prefix."""
    ours = {name.partition("_")[2]: name for name in (NAME_SERVERS_VARIABLE, CONTEXT_VARIABLE)}
    for name in environment:
        prefix = _PREFIXES.match(name.upper())
        if prefix is None or name in ours.values():
            continue
        for rest in get_close_matches(name.upper()[prefix.end() :], ours, n=1, cutoff=_SIMILAR):
            if not environment.get(ours[rest]):
                yield name, ours[rest]


@cache  # once is enough, however many clients a program creates
def _report(
    log: logging.Logger, mistyped: str, meant: str, origin: str, addresses: tuple[str, ...]
) -> None:
    text = "environment variable %s is ignored; did you mean %s? name servers are %s, from %s"
    log.warning(text, mistyped, meant, ", ".join(addresses), origin)


def split_addresses(text: str) -> tuple[str, ...]:
    """The addresses of a list with commas, semicolons (as RocketMQ writes them) or spaces."""
    return tuple(part for part in re.split(r"[;,\s]+", text) if part)


def contexts_file(environment: Mapping[str, str] = os.environ) -> Path:
    """The file in which the command line keeps named clusters."""
    home = environment.get("XDG_CONFIG_HOME") or Path(environment.get("HOME", "~"), ".config")
    return Path(home, "sparrowmq", "contexts.toml").expanduser()


def read_contexts(path: Path) -> dict[str, tuple[str, ...]]:
    """Named clusters, none if there is no file. Raises ValueError for an invalid file."""
    try:
        with path.open("rb") as file:
            table: dict[str, Any] = tomllib.load(file)
    except FileNotFoundError:
        return {}
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} cannot be read: {error}; fix it, or move it away") from error
    contexts = table.get("contexts", {})
    try:
        return {name: tuple(each["name-servers"]) for name, each in contexts.items()}
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError(
            f'{path} must have a section [contexts.NAME] with name-servers = ["host:port"] for each'
        ) from error


def _of_variable(name: str, text: str) -> NameServerAddresses:
    return _checked(split_addresses(text), f"environment variable {name}", text)


def _of_context(name: str, environment: Mapping[str, str]) -> NameServerAddresses:
    path = contexts_file(environment)
    named_by = f"environment variable {CONTEXT_VARIABLE}"
    return name_servers_of_context(name, read_contexts(path), path, named_by)


def name_servers_of_context(
    name: str, contexts: Mapping[str, tuple[str, ...]], path: Path, named_by: str
) -> NameServerAddresses:
    """The name servers of a context in a file. Raises ValueError if the file has no such
    context."""
    if name not in contexts:
        known = f"it has: {', '.join(sorted(contexts))}" if contexts else "it has none"
        raise ValueError(f"{named_by} names the context {name!r}, which is not in {path}; {known}")
    return _checked(contexts[name], f"context {name} ({named_by})", contexts[name])


def _checked(addresses: tuple[str, ...], origin: str, given: object) -> NameServerAddresses:
    if not addresses:
        raise ValueError(f"{origin} is {given!r}, which has no address; give host:port of each")
    return NameServerAddresses(addresses, origin)
