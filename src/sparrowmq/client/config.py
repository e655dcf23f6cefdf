"""Settings that every producer and consumer shares."""

from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import Self

from sparrowmq.client.argument_checks import check_kind
from sparrowmq.client.setting_names import checks_setting_names
from sparrowmq.cluster_address import find_name_servers, split_addresses
from sparrowmq.config_fields import (
    Allowed,
    ConfigError,
    between,
    check_fields,
    more_than,
    required,
    setting,
)
from sparrowmq.net.peers import split_address


class _NotGiven(tuple[str, ...]):
    """Distinct from an empty tuple and from None: with those a setting of the user's is missing."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "FROM_ENVIRONMENT"


FROM_ENVIRONMENT: tuple[str, ...] = _NotGiven()
"""Name servers that `sparrowmq.cluster_address` finds."""


_PART = Allowed(
    "must have no @ and no blanks",
    why="it is a part of the client id, address@name",
    accepts=lambda value: not any(each == "@" or each.isspace() for each in value),
)


@checks_setting_names
@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfig:
    """How a client finds and talks to servers. The defaults are RocketMQ's."""

    name_servers: tuple[str, ...] = setting(
        FROM_ENVIRONMENT,
        "host:port of each; the client asks one at a time and turns to the next when it fails. A"
        " text such as `a:9876;b:9876` is accepted too. Without it SPARROWMQ_NAME_SERVERS,"
        " SPARROWMQ_CONTEXT and NAMESRV_ADDR of the environment count, in this order, and"
        " 127.0.0.1:9876 if none of them is set.",
    )
    name_servers_from: str = field(
        init=False, default="", metadata=required("Where they are from.")
    )
    instance_name: str = setting(
        "", "The part of the client id after '@'. Empty makes one that no other client has.", _PART
    )
    unit_name: str = setting("", "The unit of a deployment in several units, as in RocketMQ.")
    client_ip: str = setting(
        "",
        "The part of the client id before '@'. Empty: the address that reaches the name server.",
        _PART,
    )
    route_poll_s: float = setting(
        30.0, "How often the routes of the topics in use are fetched again.", more_than(0)
    )
    heartbeat_s: float = setting(
        30.0, "How often brokers hear which producers and consumers are alive.", more_than(0)
    )
    fast_heartbeat: bool = setting(
        True,
        "Whether consumers send a heartbeat about once a second to brokers that notice when it ends"
        " (SparrowMQ's do), so that the queues of a vanished host are taken over within 5 s instead"
        " of two minutes.",
    )
    rebalance_s: float = setting(
        20.0,
        "How often a consumer looks at its group's members and queues. Brokers notify of most"
        " changes; shorter finds the others sooner and costs two requests per topic.",
        between(1, 3_600),
    )
    lock_renewal_s: float = setting(
        20.0,
        "How often a consumer renews its queue locks. A member stops consuming an ordered queue"
        " whose lock is 30 s old, and a broker gives a lock away after 60 s: hence 25 at most,"
        " which leaves time to ask again.",
        between(1, 25, "brokers free a lock after 60 s"),
    )
    pull_silence_s: float = setting(
        120.0,
        "A queue that was not pulled for this long is given up and taken again. A pull may wait"
        " for 30 s when nothing is wrong: hence 60 at least.",
        between(60, 86_400, "a pull may wait for 30 s"),
    )
    name_server_timeout_s: float = setting(
        3.0, "How long a request to a name server may take.", more_than(0)
    )
    call_timeout_s: float = setting(
        3.0, "How long a request to a broker may take, other than sends and pulls.", more_than(0)
    )
    connect_timeout_s: float = setting(3.0, "How long opening a connection may take.", more_than(0))

    def __post_init__(self) -> None:
        addresses, origin = _found(self.name_servers)
        object.__setattr__(self, "name_servers", addresses)
        object.__setattr__(self, "name_servers_from", origin)
        check_fields(self)
        for address in self.name_servers:
            try:
                split_address(address)
            except ValueError as error:
                allowed = f"{error} (from {origin})"
                raise ConfigError("name_servers", self.name_servers, allowed) from error
        if not self.name_servers:
            raise ConfigError("name_servers", (), "must be at least one host:port")

    def from_origin(self, origin: str) -> Self:
        """The same settings, with addresses of name servers that come from elsewhere than the
        argument: errors name it."""
        found = copy(self)
        object.__setattr__(found, "name_servers_from", origin)
        return found


def _found(given: str | Sequence[str]) -> tuple[tuple[str, ...], str]:
    """Addresses, and where they come from. Raises ConfigError for anything but text or a list,
    such as None, and ValueError if the environment names a cluster that cannot be found."""
    if given is FROM_ENVIRONMENT:
        try:
            return find_name_servers()
        except ValueError as error:
            raise ValueError(str(error)) from error
    anything: object = given
    if isinstance(anything, str):
        return split_addresses(anything), "the argument name_servers"
    if not isinstance(anything, Iterable):
        raise ConfigError("name_servers", given, "must be host:port of each")
    return tuple(anything), "the argument name_servers"


def config_of(
    name_servers: str | Sequence[str], config: ClientConfig | None, *, has_client: bool
) -> ClientConfig:
    """The settings of the client that a producer or consumer creates for itself: `config`, or the
    defaults with `name_servers`. Raises ValueError if one of the arguments would be ignored."""
    names_servers = name_servers is not FROM_ENVIRONMENT
    if has_client and (names_servers or config is not None):
        given = "name_servers" if names_servers else "config"
        raise ValueError(f"client and {given} cannot be combined: the client has settings already")
    if config is None:
        return ClientConfig(name_servers=name_servers)  # type: ignore[arg-type]  # it takes a text too
    check_kind("config", config, ClientConfig)
    if names_servers:
        raise ValueError("name_servers and config cannot be combined: put them into the config")
    return config
