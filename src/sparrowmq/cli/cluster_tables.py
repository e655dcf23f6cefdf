"""Tables that several commands print: brokers, changed settings, server settings."""

from collections.abc import Iterable, Sequence

from sparrowmq.admin.brokers import BrokerInfo
from sparrowmq.admin.values import SettingChange
from sparrowmq.cli.output import Column, Kind, Share, Table, Value, Versions, table

_BROKERS = (
    ("CLUSTER", "cluster"),
    ("BROKER", "broker"),
    ("ID", "id", Kind.NUMBER),
    ("ROLE", "role"),
    ("ADDRESS", "address"),
    Column("VERSION", "version", is_versions=True),
    ("IN/S", "inPerS", Kind.NUMBER),
    ("OUT/S", "outPerS", Kind.NUMBER),
    ("DISK", "disk", Kind.NUMBER),
    ("BUSY", "busy"),
    ("SINCE", "since", Kind.TIME),
)


def broker_table(listed: Iterable[BrokerInfo]) -> Table:
    """Brokers with figures, which are missing for those that did not answer."""
    return table(_BROKERS, [_broker(each) for each in listed], empty="no broker is registered")


def _broker(broker: BrokerInfo) -> list[Value]:
    known: list[Value] = [
        broker.cluster,
        broker.name,
        broker.broker_id,
        broker.role,
        broker.address,
    ]
    now = broker.runtime
    if now is None:
        return [*known, None, None, None, None, None, None]
    return [
        *known,
        Versions(now.versions, now.version, now.sparrowmq_version),
        now.stored_per_s,
        now.delivered_per_s,
        part(now.disk_used),
        now.busy_reason or now.drain,
        now.started,
    ]


def part(used: float | None) -> Share | None:
    """A figure of a broker's disk; Apache's brokers report less than 0 for an unreadable one."""
    return None if used is None or used < 0 else Share(used)


def change_table(changes: Sequence[SettingChange], *, server: str = "BROKER") -> Table:
    """The changes, with the server of each."""
    columns = (("FIELD", "field"), (server, server.lower()), ("WAS", "was"), ("NOW", "now"))
    rows = [
        [each.setting.replace("_", "-"), each.broker, _shown(each.before), _shown(each.after)]
        for each in changes
    ]
    return table(columns, rows, empty="nothing differs")


def _shown(value: bool | int | str | None) -> Value:
    """A value as a cell: None is an attribute known to be unset, not an unknown value."""
    return "" if value is None else value
