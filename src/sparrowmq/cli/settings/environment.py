"""Environment variables that begin with SPARROWMQ_: known and unknown ones."""

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from sparrowmq.cli.logs import LOG_LEVEL_VARIABLE, Warn, print_warning
from sparrowmq.cli.settings.apache_conf import setting_of_apache
from sparrowmq.cli.settings.protection import protection_missing
from sparrowmq.cli.settings.settings import LINK, PREFIX, ServerSetting, nearest, where_it_belongs

OTHERS = {
    "SPARROWMQ_CONFIG": "the file of settings, as --config",
    "SPARROWMQ_CONTEXT": "the named cluster that commands, clients and Spark talk to",
    LOG_LEVEL_VARIABLE: "how much commands log, as --log-level",
    "SPARROWMQ_DEV_NEWER": "set by ./dev for itself",
    "SPARROWMQ_REQUIRE_BROWSER": "whether tests of the console fail without a browser",
}
"""Known variables that are not settings."""

# Set by Kubernetes and Docker links for a service of our name; users do not write these.
_OF_SERVICES = re.compile(
    PREFIX + r"(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_\d+_(TCP|UDP|SCTP)(_\w+)?)"
)


class UnknownVariable(NamedTuple):
    """A variable without effect."""

    name: str
    meant: ServerSetting | None
    elsewhere: str = ""
    """What to do instead if it has the name of a flag that is not a setting."""

    @property
    def hint(self) -> str:
        """What to write instead; empty if no known name is similar."""
        maybe = f"did you mean {self.meant.variable}?" if self.meant else ""
        return self.elsewhere or maybe

    @property
    def text(self) -> str:
        """What is wrong and what to do."""
        server = " nameserver" if self.meant and self.meant.name.startswith("nameserver-") else ""
        known = "" if self.elsewhere else f"all settings: sparrowmq config show{server}"
        todo = " ".join(filter(None, (self.hint, known)))
        return f"environment variable {self.name} is not known and has no effect; {todo}"


def unknown_variables(
    environment: Mapping[str, str], settings: Iterable[ServerSetting]
) -> Iterator[UnknownVariable]:
    """Variables that look like settings but are not, sorted by name."""
    by_variable = {setting.variable: setting for setting in settings}
    for name in sorted(environment):
        if not name.upper().startswith(PREFIX) or name in by_variable or name in OTHERS:
            continue
        is_link = name.endswith("_PORT") and LINK.match(environment[name])
        if _OF_SERVICES.fullmatch(name) or is_link:
            continue
        word = name.upper().removeprefix(PREFIX)
        yield UnknownVariable(name, _meant(word, by_variable), where_it_belongs(word))


def _meant(word: str, by_variable: Mapping[str, ServerSetting]) -> ServerSetting | None:
    apache = setting_of_apache(word)
    if apache is not None:
        return next(each for each in by_variable.values() if each.name == apache)
    words = {variable.removeprefix(PREFIX): variable for variable in by_variable}
    found = nearest(word, words)
    return None if found is None else by_variable[words[found]]


def missing_protections(environment: Mapping[str, str]) -> Iterator[str]:
    """Why servers refuse variables that ask for authentication or TLS."""
    for name in sorted(environment):
        if name.upper().startswith(PREFIX):
            text = environment[name]
            if missing := protection_missing(name[len(PREFIX) :], text):
                yield f"environment variable {name} is {text!r}, but {missing}"


def warn_of_unknown_variables(warn: Warn = print_warning) -> None:
    """Warn of unknown variables: a mistyped one would silently leave its setting at the default."""
    from sparrowmq.cli.settings.servers import all_settings

    for unknown in unknown_variables(os.environ, all_settings()):
        warn(unknown.text)
