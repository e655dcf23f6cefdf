"""The catalogue: every diagnosis that the doctor can make.

An id is stable: scripts and documents name it. Its severity belongs to the id as well.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class Severity(StrEnum):
    """How bad a finding is."""

    ERROR = "error"
    """Messages are lost, refused or do not move."""
    WARNING = "warning"
    """They will be, or some are."""
    NOTE = "note"
    """Worth knowing; nothing has to be done."""

    @property
    def rank(self) -> int:
        """0 for the worst."""
        return _RANKS.index(self)


_RANKS = tuple(Severity)


class About(StrEnum):
    """What an examination is about."""

    CLUSTER = "cluster"
    TOPIC = "topic"
    GROUP = "group"
    MESSAGE = "message"


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """One entry of the catalogue."""

    id: str
    about: About
    severity: Severity
    what: str
    cause: str
    """The most likely one, where the facts do not say more."""
    remedy: str


_ALL = (
    # ---- cluster
    Diagnosis(
        "nameserver-silent",
        About.CLUSTER,
        Severity.ERROR,
        what="a name server does not answer",
        cause="it is stopped, or the address is wrong",
        remedy="start it, or remove its address from the clients' settings",
    ),
    Diagnosis(
        "nameservers-differ",
        About.CLUSTER,
        Severity.ERROR,
        what="name servers know different brokers",
        cause="a broker registers with some of them only",
        remedy="give every broker the addresses of all name servers",
    ),
    Diagnosis(
        "broker-silent",
        About.CLUSTER,
        Severity.ERROR,
        what="a registered broker does not answer",
        cause=(
            "it hangs, was killed less than 2 minutes ago, or registered an address that cannot be"
            " reached from here"
        ),
        remedy="look at its log; check the address that it advertises",
    ),
    Diagnosis(
        "broker-busy",
        About.CLUSTER,
        Severity.ERROR,
        what="a broker refuses sends because it is overloaded",
        cause="its disk or its processor is too slow for the load",
        remedy="spread the topic over more brokers, or find what else uses the machine",
    ),
    Diagnosis(
        "disk-nearly-full",
        About.CLUSTER,
        Severity.ERROR,
        what="the disk of a broker is nearly full",
        cause="more is stored than retention deletes",
        remedy="shorten the retention, delete expired files now, or add space",
    ),
    Diagnosis(
        "clock-skew",
        About.CLUSTER,
        Severity.WARNING,
        what="the clock of a broker differs from the clock here",
        cause="one of the two machines does not synchronise its time",
        remedy=(
            "synchronise both with NTP: delays, retention and searches by time follow the broker's"
            " clock"
        ),
    ),
    Diagnosis(
        "two-brokers-one-name",
        About.CLUSTER,
        Severity.ERROR,
        what="two brokers use one name",
        cause="a copied configuration: both have the same broker name",
        remedy="rename one of them; each keeps the messages in its own store",
    ),
    Diagnosis(
        "no-master",
        About.CLUSTER,
        Severity.ERROR,
        what="a broker name has slaves and no master",
        cause="the master is stopped or lost",
        remedy="start the master again, or promote a slave: sends to this name fail meanwhile",
    ),
    Diagnosis(
        "slave-behind",
        About.CLUSTER,
        Severity.WARNING,
        what="a slave is away or lacks messages of its master",
        cause="the slave is stopped, its disk is full, or the network between them is too slow",
        remedy="start the slave or free space on its disk; if it will not come back, retire it",
    ),
    Diagnosis(
        "version-mixed",
        About.CLUSTER,
        Severity.NOTE,
        what="brokers have different versions",
        cause="an upgrade is under way, or one broker was forgotten",
        remedy="finish the upgrade",
    ),
    Diagnosis(
        "permission-wiped",
        About.CLUSTER,
        Severity.WARNING,
        what="a name server hides a broker from producers",
        cause="its write permission was wiped, probably for maintenance",
        remedy="when the maintenance is over, give the permission back",
    ),
    Diagnosis(
        "broker-drains",
        About.CLUSTER,
        Severity.NOTE,
        what="a broker accepts no new messages because it is draining",
        cause="an operator is draining it before a stop or an upgrade",
        remedy="finish the drain, or resume the broker",
    ),
    Diagnosis(
        "protective-setting-ignored",
        About.CLUSTER,
        Severity.WARNING,
        what="a setting that should protect messages has no effect",
        cause="another setting of the same broker switches it off",
        remedy="set both, or remove the one without effect",
    ),
    # ---- topic
    Diagnosis(
        "no-route",
        About.TOPIC,
        Severity.ERROR,
        what="clients find no broker for a topic",
        cause="the topic was never created, or its name is mistyped",
        remedy="create it",
    ),
    Diagnosis(
        "not-writable",
        About.TOPIC,
        Severity.ERROR,
        what="no broker accepts messages for a topic",
        cause="it has no write permission, or no write queues",
        remedy="let producers write again",
    ),
    Diagnosis(
        "not-readable",
        About.TOPIC,
        Severity.ERROR,
        what="no broker serves messages of a topic",
        cause="it has no read permission, or no read queues",
        remedy="let consumers read again",
    ),
    Diagnosis(
        "nobody-consumes",
        About.TOPIC,
        Severity.WARNING,
        what="a topic has messages and no live consumer",
        cause="its consumers are stopped, or subscribe to another name",
        remedy="start a consumer, or stop sending",
    ),
    Diagnosis(
        "queues-uneven",
        About.TOPIC,
        Severity.WARNING,
        what="one queue gets far more messages than the others",
        cause="few sharding keys, or a producer that chooses the queue itself",
        remedy="choose keys that spread; more queues do not help against one hot key",
    ),
    Diagnosis(
        "queues-differ-by-broker",
        About.TOPIC,
        Severity.NOTE,
        what="brokers disagree about a topic's number of queues",
        cause="it was changed on one broker only",
        remedy="set the same number on all of them",
    ),
    Diagnosis(
        "old-route-in-client",
        About.TOPIC,
        Severity.WARNING,
        what="a client uses queues that its topic does not have",
        cause="its route is older than the last change of the topic; clients ask again every 30 s",
        remedy="wait 30 s; restart the client if the problem persists",
    ),
    Diagnosis(
        "retention-overtakes-lag",
        About.TOPIC,
        Severity.ERROR,
        what="messages will be deleted before a group reads them",
        cause="the group is slower than retention, or stopped",
        remedy="bring the group back, or keep messages for longer",
    ),
    Diagnosis(
        "auto-created",
        About.TOPIC,
        Severity.NOTE,
        what="a topic looks as if its first message created it",
        cause="autoCreateTopicEnable is on, and no operator created the topic",
        remedy="create it with the queues that it needs, on all brokers",
    ),
    Diagnosis(
        "quota-reached",
        About.TOPIC,
        Severity.WARNING,
        what="a quota of the topic refused messages within the last minute",
        cause="more is sent than the quota allows, or it is too low",
        remedy="send less, or raise the quota",
    ),
    Diagnosis(
        "backlog-refused",
        About.TOPIC,
        Severity.ERROR,
        what="sends are refused or slowed, because a group is too far behind",
        cause="the group is slower than the producers",
        remedy="help the group catch up, or raise its backlog limit",
    ),
    Diagnosis(
        "backlog-uncounted",
        About.TOPIC,
        Severity.NOTE,
        what="a backlog limit does not count a group that it names",
        cause="the group is paused, broadcasts, or has had no member for a while",
        remedy="bring the group back, or take it out of the limit",
    ),
    Diagnosis(
        "dedup-window-cut",
        About.TOPIC,
        Severity.WARNING,
        what="a topic forgets messages sooner than its de-duplication promises",
        cause="more messages arrive within its time window than it can remember",
        remedy="let it remember more messages, or for a shorter time",
    ),
    # ---- group
    Diagnosis(
        "no-members",
        About.GROUP,
        Severity.ERROR,
        what="messages are waiting, and no member is online",
        cause="the consumers are stopped, or cannot reach the brokers",
        remedy="start one",
    ),
    Diagnosis(
        "more-members-than-queues",
        About.GROUP,
        Severity.WARNING,
        what="members of a group have no queue to read",
        cause="a queue has one reader per group, and there are more members than queues",
        remedy="add queues, or stop members",
    ),
    Diagnosis(
        "lag-grows",
        About.GROUP,
        Severity.WARNING,
        what="the lag of a group grows",
        cause="messages arrive faster than its members handle them",
        remedy="add members or queues, or make the handler faster",
    ),
    Diagnosis(
        "lag-one-queue",
        About.GROUP,
        Severity.WARNING,
        what="nearly all of the lag is in one queue",
        cause="one hot sharding key, or one member that is slower than the others",
        remedy="look at the member that holds this queue, and at the keys of its messages",
    ),
    Diagnosis(
        "stuck-at-offset",
        About.GROUP,
        Severity.ERROR,
        what="a queue does not advance although messages are waiting",
        cause="one message is never finished: its handler fails again and again, or never returns",
        remedy="read the message at this offset; skip it if it cannot be handled",
    ),
    Diagnosis(
        "handler-slow",
        About.GROUP,
        Severity.WARNING,
        what="a member's handler is slow",
        cause="it waits for another system",
        remedy="look at its stacks; handle in parallel or in batches",
    ),
    Diagnosis(
        "handler-hangs",
        About.GROUP,
        Severity.ERROR,
        what="a member's handler does not return",
        cause="it waits without a timeout",
        remedy="look at its stack, and give the call that it shows a timeout",
    ),
    Diagnosis(
        "handler-fails",
        About.GROUP,
        Severity.WARNING,
        what="the handler of a member fails",
        cause="an error in the handler, or a system that it needs is away",
        remedy="look at the member's log",
    ),
    Diagnosis(
        "flow-controlled",
        About.GROUP,
        Severity.WARNING,
        what="a member has stopped pulling: too many messages wait for its handler",
        cause="messages arrive faster than the handler finishes",
        remedy="add members, or make the handler faster",
    ),
    Diagnosis(
        "unequal-subscriptions",
        About.GROUP,
        Severity.ERROR,
        what="members of one group subscribe to different things",
        cause="an old and a new version run side by side, or two programs share a group name",
        remedy="give every member the same subscriptions, or another group",
    ),
    Diagnosis(
        "doubled-client-id",
        About.GROUP,
        Severity.ERROR,
        what="several processes share one client id",
        cause="copied settings of instance name and address, as in containers",
        remedy="leave the instance name to the client, or give each its own",
    ),
    Diagnosis(
        "filter-matches-nothing",
        About.GROUP,
        Severity.WARNING,
        what="no recent message passes the filter of a group",
        cause="a mistyped tag or property, or producers that changed theirs",
        remedy="compare the filter with the tags that arrive",
    ),
    Diagnosis(
        "offset-out-of-range",
        About.GROUP,
        Severity.ERROR,
        what="a group stands at an offset that its queue does not have",
        cause="messages expired before they were read, or the topic was deleted and created again",
        remedy="reset the group to where it should continue",
    ),
    Diagnosis(
        "never-committed",
        About.GROUP,
        Severity.WARNING,
        what="a live group has no progress in a topic with messages",
        cause="it does not commit, or reads nothing",
        remedy="commit after handling; otherwise every start begins from scratch",
    ),
    Diagnosis(
        "rebalancing-often",
        About.GROUP,
        Severity.WARNING,
        what="queues change their owners",
        cause="members come and go, or are too busy to answer their brokers",
        remedy="find out why members restart",
    ),
    Diagnosis(
        "lock-held-by-dead",
        About.GROUP,
        Severity.WARNING,
        what="messages wait in a queue that no live member holds",
        cause="the lock of a member that is gone has not expired; that takes up to a minute",
        remedy="wait a minute; restart the members if the problem persists",
    ),
    Diagnosis(
        "paused",
        About.GROUP,
        Severity.WARNING,
        what="a group, or a member of it, is switched off",
        cause="it was paused",
        remedy="resume it",
    ),
    Diagnosis(
        "retries-growing",
        About.GROUP,
        Severity.WARNING,
        what="messages are being retried right now",
        cause="the handler fails",
        remedy="look at the member's log; messages become dead letters after the last retry",
    ),
    Diagnosis(
        "dead-letters-growing",
        About.GROUP,
        Severity.WARNING,
        what="messages were dead-lettered recently",
        cause="the handler failed on every retry",
        remedy="look at the dead letters, fix the handler, then resend them",
    ),
    Diagnosis(
        "broadcasting-has-no-lag",
        About.GROUP,
        Severity.NOTE,
        what="a broadcasting group has no lag that brokers know",
        cause="each member keeps its progress in a file of its own",
        remedy="ask the members themselves",
    ),
    Diagnosis(
        "one-strategy-differs",
        About.GROUP,
        Severity.ERROR,
        what="members share queues by different rules",
        cause="an old and a new version run side by side",
        remedy="give every member the same strategy: some queues have two readers or none",
    ),
    # ---- message
    Diagnosis(
        "not-found",
        About.MESSAGE,
        Severity.WARNING,
        what="no broker has the message",
        cause="it was never stored, the id or the topic is mistyped, or it expired long ago",
        remedy="check the id and the topic",
    ),
    Diagnosis(
        "expired",
        About.MESSAGE,
        Severity.WARNING,
        what="the message is older than everything that its broker keeps",
        cause="retention deleted it",
        remedy="keep messages for longer",
    ),
    Diagnosis(
        "still-delayed",
        About.MESSAGE,
        Severity.NOTE,
        what="the message is waiting for its delivery time",
        cause="it was sent with a delay",
        remedy="wait",
    ),
    Diagnosis(
        "half-open",
        About.MESSAGE,
        Severity.WARNING,
        what="the transaction of the message has not ended",
        cause="its producer neither committed nor rolled back, or is offline",
        remedy="start a producer of its group: the broker asks it",
    ),
    Diagnosis(
        "rolled-back",
        About.MESSAGE,
        Severity.NOTE,
        what="the transaction of the message was rolled back",
        cause="its producer rolled it back",
        remedy="nothing to do: no group gets it",
    ),
    Diagnosis(
        "filtered-for-group",
        About.MESSAGE,
        Severity.NOTE,
        what="a group's filter does not let the message pass",
        cause="the group subscribes to other tags or properties",
        remedy="change the subscription if it should get it",
    ),
    Diagnosis(
        "waiting-behind",
        About.MESSAGE,
        Severity.WARNING,
        what="a group has not reached the message yet",
        cause="messages before it are not finished",
        remedy="look at the group",
    ),
    Diagnosis(
        "retrying",
        About.MESSAGE,
        Severity.WARNING,
        what="a group failed to handle the message and will retry it",
        cause="its handler fails with this message",
        remedy="look at the member's log",
    ),
    Diagnosis(
        "dead",
        About.MESSAGE,
        Severity.ERROR,
        what="the message is a dead letter of a group",
        cause="its handler failed on every retry",
        remedy="fix the handler, then resend the dead letter",
    ),
    Diagnosis(
        "consumed-by",
        About.MESSAGE,
        Severity.NOTE,
        what="a group is past the message",
        cause="it was handled, as far as offsets tell",
        remedy="nothing to do",
    ),
)
CATALOGUE: Mapping[str, Diagnosis] = {each.id: each for each in _ALL}
"""By id, in the order of the documentation."""
