"""Decides about name servers and brokers."""

from collections.abc import Iterator, Mapping

from sparrowmq.admin.doctor.facts import BrokerFacts, BrokerKey, ClusterFacts
from sparrowmq.admin.doctor.findings import Decided, Finding, NotMade, found, shorten
from sparrowmq.admin.values import time_of
from sparrowmq.client.errors import counted
from sparrowmq.protocol.route import MASTER_ID

DISK_SHARE = 0.85
"""From here on Apache's and our brokers delete files before their time."""
SKEW_S = 5.0
BEHIND_BYTES = 16 * 1024 * 1024
_SHOW = "sparrowmq cluster show"
_WAITING_BROKERS = ("SYNC_MASTER", "SYNC")


def decide_cluster(facts: ClusterFacts) -> Decided:
    """What is wrong with name servers and brokers."""
    findings = [
        *_name_servers(facts),
        *_two_of_one_name(facts),
        *_no_master(facts),
        *_versions(facts),
        *_slaves(facts),
        *_wiped(facts),
        *_draining(facts),
    ]
    not_made = list(facts.missing)
    for broker in facts.brokers:
        findings += _broker(broker)
        not_made += _unknown(broker)
    return Decided(findings, not_made)


# ---- name servers


def _name_servers(facts: ClusterFacts) -> Iterator[Finding]:
    answering = [each for each in facts.name_servers if each.brokers is not None]
    share = f"{len(answering)} of {counted(len(facts.name_servers), 'name server')} answering"
    for each in facts.name_servers:
        if each.brokers is None:
            yield found(
                "nameserver-silent",
                f"name server {each.address}",
                f"{each.error}; {share}",
                "sparrowmq nameserver list",
            )
    everywhere: set[BrokerKey] = set()
    for each in answering:
        everywhere |= set(each.brokers or ())
    for each in answering:
        lacking = sorted(everywhere - set(each.brokers or ()))
        if lacking:
            names = shorten(_place(key) for key in lacking)
            yield found(
                "nameservers-differ",
                f"name server {each.address}",
                f"it lacks {len(lacking)} of {counted(len(everywhere), 'broker')}: {names}",
                "sparrowmq nameserver list",
            )


def _place(key: BrokerKey) -> str:
    name, broker_id = key
    return name if broker_id == MASTER_ID else f"{name} (id {broker_id})"


def _wiped(facts: ClusterFacts) -> Iterator[Finding]:
    open_names = {
        each.name
        for each in facts.brokers
        if each.broker_id == MASTER_ID and each.takes_sends and not _drain(each)
    }
    servers = [each for each in facts.name_servers if each.brokers is not None]
    for name in sorted(open_names):
        hiding = [each.address for each in servers if name in each.read_only]
        if hiding:
            yield found(
                "permission-wiped",
                f"broker {name}",
                f"{len(hiding)} of {counted(len(servers), 'name server')} showing it as read-only"
                f" ({shorten(hiding)}), while the broker itself takes sends",
                f"sparrowmq broker resume {name}",
            )


def _draining(facts: ClusterFacts) -> Iterator[Finding]:
    for broker in facts.brokers:
        if broker.broker_id == MASTER_ID and _drain(broker):
            since = time_of(int((broker.runtime or {}).get("drainSince", "0")))
            evidence = f"since {since:%Y-%m-%dT%H:%M:%SZ}" if since else "0 new messages"
            evidence = f"it {_drain(broker)}, {evidence}"
            command = f"sparrowmq broker resume {broker.name}"
            yield found("broker-drains", f"broker {broker.name}", evidence, command)


def _drain(broker: BrokerFacts) -> str:
    return (broker.runtime or {}).get("drain", "")


# ---- brokers by name


def _two_of_one_name(facts: ClusterFacts) -> Iterator[Finding]:
    places: dict[BrokerKey, set[str]] = {}
    for server in facts.name_servers:
        for key, address in (server.brokers or {}).items():
            places.setdefault(key, set()).add(address)
    for key, addresses in sorted(places.items()):
        if len(addresses) > 1:
            evidence = f"name servers have it at {' and at '.join(sorted(addresses))}"
            yield found("two-brokers-one-name", f"broker {_place(key)}", evidence, _SHOW)
    for broker in facts.brokers:
        if len(broker.clusters) > 1:
            evidence = f"it is registered in the clusters {' and '.join(sorted(broker.clusters))}"
            yield found("two-brokers-one-name", f"broker {broker.name}", evidence, _SHOW)
        own = (broker.settings or {}).get("brokerName", broker.name)
        if own != broker.name:
            evidence = f"{broker.address} is registered as {broker.name} and calls itself {own}"
            yield found("two-brokers-one-name", f"broker {broker.name}", evidence, _SHOW)


def _no_master(facts: ClusterFacts) -> Iterator[Finding]:
    answering = [each for each in facts.name_servers if each.brokers is not None]
    if answering and not facts.brokers:
        evidence = f"{counted(len(answering), 'name server')} answering, 0 brokers registered"
        yield found(
            "no-master",
            "cluster",
            evidence,
            "sparrowmq nameserver list",
            cause="no broker runs, or brokers have other addresses of name servers",
            remedy="start one: sparrowmq broker run",
        )
    ids: dict[str, set[int]] = {}
    for broker in facts.brokers:
        ids.setdefault(broker.name, set()).add(broker.broker_id)
    for name, known in sorted(ids.items()):
        if MASTER_ID not in known:
            numbers = ", ".join(map(str, sorted(known)))
            yield found(
                "no-master",
                f"broker {name}",
                f"{len(known)} registered, with the ids {numbers}; a master has {MASTER_ID}",
                f"sparrowmq broker show {name}",
            )


def _versions(facts: ClusterFacts) -> Iterator[Finding]:
    by_version: dict[str, list[str]] = {}
    for broker in facts.brokers:
        version = (broker.runtime or {}).get("brokerVersionDesc")
        if version:
            by_version.setdefault(version, []).append(broker.name)
    if len(by_version) > 1:
        evidence = "; ".join(
            f"{version}: {shorten(sorted(names))}" for version, names in sorted(by_version.items())
        )
        yield found("version-mixed", "cluster", evidence, _SHOW)


def _slaves(facts: ClusterFacts) -> Iterator[Finding]:
    for slave in facts.slaves:
        if slave.follows and slave.behind_bytes < BEHIND_BYTES:
            continue
        state = "follows" if slave.follows else "is away"
        heard = f", last heard of {slave.heard:%Y-%m-%dT%H:%M:%SZ}" if slave.heard else ""
        yield found(
            "slave-behind",
            f"slave {slave.broker_id} of broker {slave.broker}",
            f"it {state} and lacks {slave.behind_bytes:,} bytes of its master's log{heard}",
            "sparrowmq slave list",
        )


# ---- one broker


def _broker(broker: BrokerFacts) -> Iterator[Finding]:
    subject = f"broker {_place((broker.name, broker.broker_id))}"
    show = f"sparrowmq broker show {broker.name}"
    if broker.runtime is None:
        if not broker.is_refusal:
            yield found("broker-silent", subject, f"{broker.address}: {broker.error}", show)
        return
    if reason := broker.runtime.get("busyReason"):
        yield found("broker-busy", subject, reason, show)
    used = _number(broker.runtime, "commitLogDiskRatio")
    if used is not None and used >= DISK_SHARE:
        room = broker.runtime.get("commitLogDirCapacity", "").rstrip(". ")
        yield found(
            "disk-nearly-full",
            subject,
            f"{used:.0%} of its disk is used, files are deleted before their time from"
            f" {DISK_SHARE:.0%} on{f' ({room})' if room else ''}",
            f"sparrowmq broker clean {broker.name} --log",
        )
    if broker.skew_s is not None and abs(broker.skew_s) >= SKEW_S + broker.skew_doubt_s:
        side = "ahead of" if broker.skew_s > 0 else "behind"
        evidence = f"its clock is {abs(broker.skew_s):,.0f} s {side} the one here"
        yield found("clock-skew", subject, f"{evidence}, ±{broker.skew_doubt_s:.0f} s", show)
    yield from _ignored(broker, subject)


def _ignored(broker: BrokerFacts, subject: str) -> Iterator[Finding]:
    """Copies that a send should wait for, on a broker that does not wait."""
    settings = broker.settings or {}
    role = settings.get("brokerRole", "")
    if broker.broker_id != MASTER_ID or not role or role in _WAITING_BROKERS:
        return
    for name in ("inSyncReplicas", "minInSyncReplicas"):
        copies = _number(settings, name)
        if copies is not None and copies > 1:
            yield found(
                "protective-setting-ignored",
                subject,
                f"{name} is {copies:.0f}, but brokerRole is {role}, which waits for no slave",
                f"sparrowmq broker config get {broker.name} brokerRole {name}",
            )


def _unknown(broker: BrokerFacts) -> Iterator[NotMade]:
    subject = f"broker {_place((broker.name, broker.broker_id))}"
    if broker.runtime is None:
        ids = ("broker-busy", "disk-nearly-full", "clock-skew", "version-mixed")
        reason = broker.error if broker.is_refusal else "it does not answer"
        yield NotMade(ids, subject, reason)
        return
    if "busyReason" not in broker.runtime:
        yield NotMade(("broker-busy",), subject, "Apache's brokers do not report it")
    if broker.skew_s is None:
        yield NotMade(("clock-skew",), subject, "it does not report since when it runs")
    if broker.settings is None:
        yield NotMade(("protective-setting-ignored",), subject, "it does not tell its settings")


def _number(table: Mapping[str, str], name: str) -> float | None:
    try:
        return float(table[name])
    except (KeyError, ValueError):
        return None
