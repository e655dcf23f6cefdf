"""`Client`: what producers and consumers of one process share, as users see it."""

from sparrowmq.client.argument_checks import check_kind
from sparrowmq.client.client_core import ClientCore
from sparrowmq.client.config import ClientConfig
from sparrowmq.client.lifecycle import Block
from sparrowmq.client.setting_names import checks_setting_names


@checks_setting_names
class Client(Block):
    """Connections, routes and heartbeats under one client id, for any number of producers and
    consumers.

        async with Client(ClientConfig(instance_name="billing-1")) as client:
            async with Producer("orders-svc", client=client) as producer:
                ...

    Started once, and stopped when its members have left.
    """

    _core: ClientCore

    def __init__(self, config: ClientConfig | None = None) -> None:
        """The defaults of ClientConfig count unless given. Raises ValueError."""
        config = ClientConfig() if config is None else config
        check_kind("config", config, ClientConfig)
        self._core = ClientCore(config)

    @property
    def config(self) -> ClientConfig:
        """Its settings."""
        return self._core.config

    @property
    def client_id(self) -> str:
        """The id that brokers know it by; empty before the start."""
        return self._core.client_id

    @property
    def is_running(self) -> bool:
        """Whether it was started and not stopped."""
        return self._core.is_running

    @property
    def failure(self) -> BaseException | None:
        """What ended its tasks without `stop`, reported in the log too; None while it lives."""
        return self._core.failure

    async def start(self) -> None:
        """Begin to poll routes and send heartbeats; `async with` does it. Raises ValueError when it
        runs already, NotStarted when it was stopped."""
        await self._core.start()

    async def stop(self) -> None:
        """End connections and tasks; `async with` does it. Does nothing when not started."""
        await self._core.stop()

    async def _open(self) -> None:
        await self.start()


def core_of(client: Client) -> ClientCore:
    """What the members of a client work with."""
    check_kind("client", client, Client)
    return client._core


def client_around(core: ClientCore) -> Client:
    """A client with a core that was set up otherwise, as simulations do."""
    client = Client.__new__(Client)
    client._core = core
    return client
