"""Settings every producer and consumer shares."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sparrowmq.client.argument_checks import check_kind
from sparrowmq.config_fields import ConfigError, between, check_fields, more_than, setting
from sparrowmq.net.peers import split_address

DEFAULT_NAME_SERVERS = ("127.0.0.1:9876",)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfig:
    """How a client finds and talks to servers. The defaults are RocketMQ's."""

    name_servers: tuple[str, ...] = setting(
        DEFAULT_NAME_SERVERS,
        "host:port of each; the client asks one at a time and turns to the next when it fails. A"
        " text such as `a:9876;b:9876` is accepted too.",
    )
    instance_name: str = setting(
        "", "The part of the client id after '@'. Empty makes one that no other client has."
    )
    unit_name: str = setting("", "The unit of a deployment in several units, as in RocketMQ.")
    client_ip: str = setting(
        "",
        "The part of the client id before '@'. Empty: the address that reaches the name server.",
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
        object.__setattr__(self, "name_servers", name_servers_of(self.name_servers))
        check_fields(self)
        for address in self.name_servers:
            try:
                split_address(address)
            except ValueError as error:
                raise ConfigError("name_servers", self.name_servers, str(error)) from error
        if not self.name_servers:
            raise ConfigError("name_servers", (), "must be at least one host:port")


def name_servers_of(given: str | Sequence[str]) -> tuple[str, ...]:
    """As a text or one by one. Raises ConfigError for anything else, such as None."""
    if isinstance(given, str):
        return parse_name_servers(given)
    anything: object = given
    if not isinstance(anything, Iterable):
        raise ConfigError("name_servers", given, "must be host:port of each")
    return tuple(given)


def config_of(
    name_servers: str | Sequence[str], config: ClientConfig | None, *, has_client: bool
) -> ClientConfig:
    """Of the client that a producer or consumer makes for itself: `config`, or the defaults with
    `name_servers`. Raises ValueError where one of them would not count."""
    names_servers = name_servers is not DEFAULT_NAME_SERVERS
    if has_client and (names_servers or config is not None):
        given = "name_servers" if names_servers else "config"
        raise ValueError(f"client and {given} exclude each other: the client has settings already")
    if config is None:
        return ClientConfig(name_servers=name_servers_of(name_servers))
    check_kind("config", config, ClientConfig)
    if names_servers:
        raise ValueError("name_servers and config exclude each other: put them into the config")
    return config


def parse_name_servers(text: str) -> tuple[str, ...]:
    """`a:9876;b:9876` (or commas) as Java clients write it."""
    return tuple(part.strip() for part in text.replace(",", ";").split(";") if part.strip())
