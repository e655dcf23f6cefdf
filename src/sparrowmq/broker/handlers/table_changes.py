"""Shared parts of requests about the tables of topics and groups: checks, pages, answers."""

from collections.abc import Collection, Iterable, Mapping

from sparrowmq.broker.broker import Broker
from sparrowmq.broker.groups import Groups
from sparrowmq.broker.table_saving import SavedTable
from sparrowmq.broker.topics import Topics
from sparrowmq.net.errors import RequestRefused
from sparrowmq.net.routes import Reply
from sparrowmq.protocol.attributes import Attribute, AttributeRefused, changed_attributes
from sparrowmq.protocol.body import DataVersion
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.errors import BodyError


def check_is_master(broker: Broker) -> None:
    """Raise RequestRefused on a slave, whose tables are its master's, and on a master that waits
    for its slaves."""
    if not broker.replication.is_master:
        text = broker.replication.reason or (
            f"broker {broker.config.broker_name} with the id {broker.config.broker_id} takes its"
            " topics and groups from its master; change them there (id 0)"
        )
        # The code is that of Apache's AdminBrokerProcessor.validateSlave.
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, text)


def check_room(table: Topics | Groups, names: Collection[str], kind: str, most: int) -> None:
    """Raise RequestRefused if the table would grow past `most`, the setting max_`kind`."""
    new = {name for name in names if name not in table}
    count = len(table) + len(new)
    if new and count > most:
        text = f"this broker would have {count} {kind}, at most {most} allowed (max_{kind})"
        raise RequestRefused(ResponseCode.INVALID_PARAMETER, text)


def page_of(
    names: Iterable[str],
    version: DataVersion,
    *,
    first: int | None,
    most: int | None,
    asked_version: str | None,
) -> list[str]:
    """The names of one page of a table, in order; all from `first` on if no size is asked for.

    A table that has changed since the previous page starts over. Apache's slaves stop asking when
    only one name is missing, so that name joins the page before it.
    """
    ordered = sorted(names)
    start = max(0, first or 0)
    if asked_version and not _is_version(asked_version, version):
        start = 0
    end = start + most if most else len(ordered)
    return ordered[start:] if end >= len(ordered) - 1 else ordered[start:end]


def _is_version(text: str, version: DataVersion) -> bool:
    try:
        return DataVersion.from_json(text.encode()) == version
    except BodyError:
        return False


def apply_attributes(
    whose: str,
    allowed: Mapping[str, Attribute],
    current: Mapping[str, str] | None,
    changes: Mapping[str, str],
) -> dict[str, str]:
    """The attributes after a change. Unlike everything else in a configuration, they come as
    changes, `{"+name": "value"}`. Raises RequestRefused."""
    if not changes and not current:
        return {}
    try:
        return changed_attributes(allowed, current, changes)
    except AttributeRefused as error:
        raise RequestRefused(ResponseCode.INVALID_PARAMETER, f"{whose}: {error}") from error


async def reply_when_deleted(broker: Broker, table: SavedTable) -> Reply:
    """Answer a deletion when it is durable.

    Progress is saved first: a recreated topic or group must not get the old progress back.
    """
    reply = await broker.offset_saving.reply_when_saved(Reply())
    return await broker.saving.reply_when_saved(table, reply)
