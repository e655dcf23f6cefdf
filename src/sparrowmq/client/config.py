"""Settings every producer and consumer shares."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sparrowmq.client.argument_checks import check_kind, check_number, check_time
from sparrowmq.net.peers import split_address

DEFAULT_NAME_SERVERS = ("127.0.0.1:9876",)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfig:
    """How a client finds and talks to servers. The defaults are RocketMQ's."""

    name_servers: tuple[str, ...] = DEFAULT_NAME_SERVERS
    """host:port of each; one is asked at a time, the next when it fails. A text such as
    `a:9876;b:9876` will do."""
    instance_name: str = ""
    """The part of the client id behind '@'. Empty makes one that no other client has."""
    unit_name: str = ""
    client_ip: str = ""
    """The part of the client id before '@'. Empty: the address that reaches the name server."""
    route_poll_s: float = 30.0
    heartbeat_s: float = 30.0
    fast_heartbeat: bool = True
    """Whether consumers beat about once a second to brokers that notice the end of it (ours do), so
    that a host that vanished has its queues taken over within 5 s instead of two minutes."""
    rebalance_s: float = 20.0
    """Time from one look of a consumer at its group's members and queues to the next. Brokers
    notify of most changes; shorter finds the others sooner and costs two requests per topic."""
    lock_renewal_s: float = 20.0
    """Time from one renewal of a consumer's queue locks to the next. A member stops consuming an
    ordered queue whose lock is 30 s old, and a broker gives a lock away after 60 s: hence 25 at
    most, which leaves time to ask again."""
    pull_silence_s: float = 120.0
    """A queue that was not pulled for this long is given up and taken anew. A pull may wait for
    30 s when nothing is wrong: hence 60 at least."""
    name_server_timeout_s: float = 3.0
    call_timeout_s: float = 3.0
    connect_timeout_s: float = 3.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "name_servers", name_servers_of(self.name_servers))
        if not self.name_servers:
            raise ValueError("name_servers is empty, at least one host:port is needed")
        for address in self.name_servers:
            split_address(address)
        check_time("route_poll_s", self.route_poll_s)
        check_time("heartbeat_s", self.heartbeat_s)
        check_number("rebalance_s", self.rebalance_s, 1, 3_600)
        check_number("lock_renewal_s", self.lock_renewal_s, 1, 25, "brokers free a lock after 60 s")
        check_number("pull_silence_s", self.pull_silence_s, 60, 86_400, "a pull may wait for 30 s")
        check_time("name_server_timeout_s", self.name_server_timeout_s)
        check_time("call_timeout_s", self.call_timeout_s)
        check_time("connect_timeout_s", self.connect_timeout_s)
        for name in ("instance_name", "unit_name", "client_ip"):
            check_kind(name, getattr(self, name), str)


def name_servers_of(given: str | Sequence[str]) -> tuple[str, ...]:
    """As a text or one by one. Raises ValueError for anything else, such as a setting that is not
    there."""
    if isinstance(given, str):
        return parse_name_servers(given)
    anything: object = given
    if not isinstance(anything, Iterable):
        raise ValueError(f"name_servers is {given!r}, must be host:port of each")
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
