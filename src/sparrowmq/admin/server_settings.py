"""Settings of running brokers and name servers, by Apache's names: looking at them, changing them.

SparrowMQ's servers report which settings may change while they run, and keep a change until their
next start. Apache's accept any name, even an unknown one, and write the change into the file that
they were started with. So names are checked here, against those that a server has.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches

import msgspec

from sparrowmq.admin.brokers import address_of_broker, read_settings
from sparrowmq.admin.cluster_calls import Answers, ClusterCalls, answered, partly_done
from sparrowmq.admin.errors import AdminError, NotFound, not_done
from sparrowmq.admin.values import BrokerFailure, SettingChange
from sparrowmq.client.argument_checks import check_kind
from sparrowmq.protocol.headers.admin import (
    BrokerConfigFound,
    GetBrokerConfig,
    UpdateBrokerConfig,
)
from sparrowmq.protocol.headers.nameserver import (
    GetNameServerConfig,
    NameServerConfigFound,
    UpdateNameServerConfig,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """The settings in force on one server."""

    server: str
    """A broker's name, or the address of a name server."""
    address: str
    values: Mapping[str, str]
    changeable: frozenset[str] | None
    """Names of the settings that may change while it runs; None if the server does not report them,
    like Apache's."""

    origins: Mapping[str, str] | None = None
    """Where settings were given, by name: a flag, a variable, a line of a file. Those that are
    missing have their defaults. None if the server does not report it: Apache's, and one that a
    program started without a command."""

    def origin_of(self, name: str) -> str | None:
        """Where a setting was given, or `default`; None if that is not known."""
        return None if self.origins is None else self.origins.get(name, "default")

    @property
    def is_kept(self) -> bool:
        """Whether a change survives the next start."""
        return self.changeable is None

    def changes(self, wanted: Mapping[str, str]) -> list[SettingChange]:
        """What differs. Raises NotFound for a name that the server does not have, and AdminError
        for one that cannot change while it runs."""
        self.check_known(wanted)
        for name in wanted:
            if self.changeable is not None and name not in self.changeable:
                raise AdminError(
                    f"{name} cannot be changed while {self.server} runs; these can:"
                    f" {', '.join(sorted(self.changeable))}"
                )
        return [
            SettingChange(self.server, name, self.values[name], value)
            for name, value in wanted.items()
            if self.values[name] != value
        ]

    def check_known(self, names: Iterable[str]) -> None:
        """Raises NotFound for a name that the server does not have."""
        for name in names:
            if name not in self.values:
                raise NotFound("setting", name, self._nearest(name))

    def _nearest(self, name: str) -> str:
        near = get_close_matches(name, self.values, n=3)
        meant = f"did you mean {' or '.join(near)}? " if near else ""
        return f"{meant}{self.server} has {len(self.values)} settings"


# ---- brokers


async def broker_settings(cluster: ClusterCalls, broker: str, broker_id: int) -> ServerSettings:
    """The settings of a broker, or of one of its slaves. Raises NotFound."""
    address = await address_of_broker(cluster, broker, broker_id)

    async def ask() -> ServerSettings:
        response = await cluster.call(address, GetBrokerConfig())
        said = response.header(BrokerConfigFound)
        found = _settings(broker, address, response.body, said.changeable)
        return replace(found, origins=_origins(said.origins))

    return await answered(ask)


async def change_broker_settings(
    cluster: ClusterCalls,
    broker: str,
    wanted: Mapping[str, str],
    *,
    broker_id: int,
    dry_run: bool,
) -> list[SettingChange]:
    """Change all of the settings or none. Returns what changed. Raises NotFound, AdminError."""
    check_values(wanted)
    settings = await broker_settings(cluster, broker, broker_id)
    changes = settings.changes(wanted)
    if changes and not dry_run:
        await cluster.call(settings.address, UpdateBrokerConfig(), _lines(changes))
    return changes


# ---- name servers


async def name_server_settings(cluster: ClusterCalls) -> Answers[ServerSettings]:
    """The settings of each name server, by address. Raises NoBrokerAnswers if none answers."""
    addresses = cluster.client.name_servers.addresses

    async def ask(_: str, address: str) -> ServerSettings:
        response = await cluster.call(address, GetNameServerConfig())
        said = response.header(NameServerConfigFound).changeable
        return _settings(address, address, response.body, said)

    return await cluster.ask_each({address: address for address in addresses}, ask)


async def change_name_server_settings(
    cluster: ClusterCalls, wanted: Mapping[str, str], *, dry_run: bool
) -> list[SettingChange]:
    """Change the settings on every name server; they do not know each other. Raises PartlyDone."""
    check_values(wanted)
    found = (await name_server_settings(cluster)).all()
    changes = [change for each in found.values() for change in each.changes(wanted)]
    if not changes or dry_run:
        return changes
    body = _lines([SettingChange("", name, None, value) for name, value in wanted.items()])
    failed = await cluster.change_name_servers(UpdateNameServerConfig(), body)
    if len(failed) == len(found):
        raise not_done(failed)
    if failed:
        missing = {each.address for each in failed}
        done = [address for address in found if address not in missing]
        raise partly_done("settings are changed", done, failed)
    return changes


def name_server_failure(address: str, reason: str) -> BrokerFailure:
    """Why a name server is missing from a result."""
    return BrokerFailure(f"name server {address}", address, reason)


# ---- lines


def check_values(wanted: Mapping[str, str]) -> None:
    """Raises ValueError for settings that cannot be written as `name=value` lines."""
    check_kind("values", wanted, Mapping)
    if not wanted:
        raise ValueError("there is nothing to change: give a name and a value")
    for name, value in wanted.items():
        if not name or any(sign in f"{name}{value}" for sign in "\r\n") or "=" in name:
            raise ValueError(f"{name!r} = {value!r}: a setting is one line, name=value")


def _settings(server: str, address: str, body: bytes, changeable: str | None) -> ServerSettings:
    names = None if changeable is None else frozenset(filter(None, changeable.split(",")))
    return ServerSettings(
        server=server, address=address, values=read_settings(body), changeable=names
    )


def _origins(text: str | None) -> dict[str, str] | None:
    try:
        return None if text is None else msgspec.json.decode(text, type=dict[str, str])
    except msgspec.DecodeError:
        return None


def _lines(changes: list[SettingChange]) -> bytes:
    return "".join(f"{each.setting}={each.after}\n" for each in changes).encode()
