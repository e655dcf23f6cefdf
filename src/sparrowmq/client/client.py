"""`Client`: the public object that producers and consumers of one process share."""

from sparrowmq.client.argument_checks import check_kind
from sparrowmq.client.client_core import ClientCore
from sparrowmq.client.config import ClientConfig
from sparrowmq.client.lifecycle import Block
from sparrowmq.client.setting_names import checks_setting_names


@checks_setting_names
class Client(Block):
    """Connections, routes and heartbeats under one client id, shared by any number of producers
    and consumers.

        async with Client(ClientConfig(instance_name="billing-1")) as client:
            async with Producer("orders-svc", client=client) as producer:
                ...

    Start it once, and stop it after its producers and consumers have stopped.
    """

    _core: ClientCore

    def __init__(self, config: ClientConfig | None = None) -> None:
        """Without `config`, the defaults of ClientConfig apply. Raises ValueError."""
        config = ClientConfig() if config is None else config
        check_kind("config", config, ClientConfig)
        self._core = ClientCore(config)

    @property
    def config(self) -> ClientConfig:
        """The settings this client was created with."""
        return self._core.config

    @property
    def client_id(self) -> str:
        """The id under which brokers know this client; empty before the start."""
        return self._core.client_id

    @property
    def is_running(self) -> bool:
        """Whether the client was started and has not been stopped."""
        return self._core.is_running

    @property
    def failure(self) -> BaseException | None:
        """What ended the client's tasks without `stop`, also logged; None while it is alive."""
        return self._core.failure

    async def start(self) -> None:
        """Start polling routes and sending heartbeats; `async with` does it. Raises ValueError if
        the client is already running, NotStarted if it was stopped."""
        await self._core.start()

    async def stop(self) -> None:
        """Close connections and end tasks; `async with` does it. Does nothing if not started."""
        await self._core.stop()

    async def _open(self) -> None:
        await self.start()


def core_of(client: Client) -> ClientCore:
    """The core that a client's producers and consumers use."""
    check_kind("client", client, Client)
    return client._core


def client_around(core: ClientCore) -> Client:
    """Wrap a core that was set up separately, as simulations do."""
    client = Client.__new__(Client)
    client._core = core
    return client
