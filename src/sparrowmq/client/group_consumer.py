"""What all consumers of a group have in common: a client, subscriptions, a place in the group."""

from collections.abc import Sequence

from sparrowmq.client.client import Client
from sparrowmq.client.config import ClientConfig, parse_name_servers
from sparrowmq.client.consume_rates import ConsumeRates
from sparrowmq.client.consumer_calls import routes
from sparrowmq.client.errors import NoRoute, NotStarted
from sparrowmq.client.membership import MemberSettings, Membership
from sparrowmq.client.route_table import subscribe_queues
from sparrowmq.client.running_info import offsets_of, running_info
from sparrowmq.client.subscription_check import check_subscriptions
from sparrowmq.client.subscriptions import Subscriptions
from sparrowmq.protocol.connections import ConsumeDirectlyResult, ConsumerRunningInfo
from sparrowmq.protocol.heartbeat import ConsumerData
from sparrowmq.protocol.message import MessageQueue
from sparrowmq.protocol.message_ext import MessageExt


class GroupConsumer:
    """Base of the consumers; also what the client asks its members for."""

    member: Membership

    def __init__(
        self,
        settings: MemberSettings,
        subscriptions: Subscriptions,
        name_servers: str | Sequence[str],
        client: Client | None,
    ) -> None:
        servers = (
            parse_name_servers(name_servers) if isinstance(name_servers, str) else name_servers
        )
        self.client = client or Client(ClientConfig(name_servers=tuple(servers)), routes=routes)
        self.subscriptions = subscriptions
        self.rates = ConsumeRates()
        self.worker_count = 0
        self._settings = settings
        self._owns_client = client is None
        self._is_started = False
        self._met: set[str] = set()
        """Names of brokers that know of us."""

    @property
    def group(self) -> str:
        """The consumer group."""
        return self._settings.group

    def topics(self) -> set[str]:
        """Topics whose routes are kept fresh."""
        return self.subscriptions.topics | {queue.topic for queue in self.member.held}

    def consumer_data(self) -> ConsumerData:
        """What heartbeats say."""
        return self.member.consumer_data()

    def members_changed(self) -> None:
        """A broker says that somebody came or went."""
        if self._is_started:
            self.member.wake()

    async def reset_offsets(self, offsets: dict[MessageQueue, int]) -> None:
        """An operator moved the group. Raises ValueError in a broadcasting group."""
        await self.member.move(offsets)

    def offsets_of(self, topic: str) -> dict[MessageQueue, int]:
        """Progress in the queues of a topic that are ours."""
        return offsets_of(self.member, topic)

    def running_info(self, *, with_stacks: bool = False) -> ConsumerRunningInfo:
        """What this member is doing."""
        return running_info(
            self.member, self.rates, workers=self.worker_count, with_stacks=with_stacks
        )

    async def consume_directly(self, message: MessageExt) -> ConsumeDirectlyResult:
        """Hand one message to the handler now. Raises ValueError where there is none."""
        raise ValueError(f"group {self.group} has no handler here that could consume a message")

    def assignment(self) -> list[MessageQueue]:
        """The queues this member holds now. Raises NotStarted."""
        return sorted(self._running().held)

    async def queues(self, topic: str) -> list[MessageQueue]:
        """All queues of a topic. Raises NoRoute."""
        self._running()
        route = await self.client.route_table.fetch(topic)
        if route is None:
            raise NoRoute(topic, "it does not exist; create it or send to it first")
        names = {broker.broker_name for broker in route.broker_datas}
        if not names <= self._met:
            # A broker keeps progress of groups that it has heard of.
            self._met |= names
            await self.client.heartbeat_everywhere()
        return sorted(subscribe_queues(topic, route))

    def _check_alone(self) -> None:
        """Raises ValueError for a second consumer of the group in one client."""
        if self.group in self.client.consumers:
            raise ValueError(f"this client has a consumer of group {self.group} already")

    async def _join(self, member: Membership) -> None:
        """Raises BrokerRefused for a subscription that a broker does not accept."""
        self.member = member
        await check_subscriptions(self.client, self.group, self.subscriptions.all())
        self.client.consumers[self.group] = self
        self._is_started = True
        await member.join()

    async def _subscriptions_changed(self) -> None:
        if self._is_started:
            await check_subscriptions(self.client, self.group, self.subscriptions.all())
            await self.client.heartbeat_everywhere()
            self.member.wake()

    def _running(self) -> Membership:
        if not self._is_started:
            raise NotStarted("the consumer is not running: use `async with`, or start() it")
        return self.member
