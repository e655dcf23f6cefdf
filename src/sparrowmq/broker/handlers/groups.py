"""Creating, changing, deleting and listing consumer groups."""

from collections.abc import Awaitable

import msgspec

from sparrowmq.broker.broker import Broker
from sparrowmq.broker.handlers.table_changes import (
    apply_attributes,
    check_is_master,
    check_room,
    page_of,
    reply_when_deleted,
)
from sparrowmq.net.audit import audit
from sparrowmq.net.errors import RequestRefused
from sparrowmq.net.routes import Reply, Request, Routes
from sparrowmq.net.slices import in_slices
from sparrowmq.protocol.attributes import GROUP_ATTRIBUTES
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.errors import BodyError
from sparrowmq.protocol.group_config import SubscriptionGroupConfig, SubscriptionGroupList
from sparrowmq.protocol.headers.groups import (
    AllGroupConfig,
    CreateGroup,
    CreateGroups,
    DeleteGroup,
    GetAllGroupConfig,
    GetGroupConfig,
)
from sparrowmq.protocol.names import group_fault

routes: Routes[Broker] = Routes()

_MOST_QUEUES = 64
_MOST_RETRIES = 1_000


@routes.on(CreateGroup)
def create_group(broker: Broker, request: Request[CreateGroup]) -> Awaitable[Reply]:
    """Create or change one group."""
    try:
        wanted = SubscriptionGroupConfig.from_json(request.body)
    except BodyError as error:
        raise _unreadable(error) from error
    return _put(broker, request, (wanted,))


@routes.on(CreateGroups)
def create_groups(broker: Broker, request: Request[CreateGroups]) -> Awaitable[Reply]:
    """Create or change several groups: all or none."""
    try:
        wanted = SubscriptionGroupList.from_json(request.body)
    except BodyError as error:
        raise _unreadable(error) from error
    return _put(broker, request, wanted.group_config_list)


def _unreadable(error: BodyError) -> RequestRefused:
    text = f"the group configuration cannot be read: {error}"
    return RequestRefused(ResponseCode.SYSTEM_ERROR, text)


def _put(
    broker: Broker,
    request: Request[CreateGroup] | Request[CreateGroups],
    configs: tuple[SubscriptionGroupConfig, ...],
) -> Awaitable[Reply]:
    check_is_master(broker)
    for config in configs:
        _check(config)
    names = {config.group_name for config in configs}
    check_room(broker.groups, names, "groups", broker.groups.max_groups)
    wanted = [_with_attributes(broker, config) for config in configs]
    broker.groups.put(*wanted)
    # One log line for all of them: thousands would take longer than creating the groups.
    audit(request, "set groups %s", msgspec.json.encode(wanted).decode())
    return broker.saving.reply_when_saved(broker.groups, Reply())


def _with_attributes(broker: Broker, config: SubscriptionGroupConfig) -> SubscriptionGroupConfig:
    known = broker.groups.get(config.group_name)
    current = None if known is None else known.attributes
    whose = f"group {config.group_name}"
    attributes = apply_attributes(whose, GROUP_ATTRIBUTES, current, config.attributes)
    return msgspec.structs.replace(config, attributes=attributes)


def _check(config: SubscriptionGroupConfig) -> None:
    fault = group_fault(config.group_name)
    if fault is None and not 0 <= config.retry_queue_nums <= _MOST_QUEUES:
        fault = f"{config.retry_queue_nums} retry queues, allowed are 0 to {_MOST_QUEUES}"
    if fault is None and not -1 <= config.retry_max_times <= _MOST_RETRIES:
        fault = f"{config.retry_max_times} retries, allowed are -1 to {_MOST_RETRIES}"
    if fault is not None:
        raise RequestRefused(ResponseCode.INVALID_PARAMETER, fault)


@routes.on(DeleteGroup)
async def delete_group(broker: Broker, request: Request[DeleteGroup]) -> Reply:
    """Forget a group and, if asked, its progress."""
    check_is_master(broker)
    header = request.header
    if broker.groups.remove(header.group_name):
        audit(request, "deleted group %s", header.group_name)
    broker.offsets.forget_pulled(header.group_name)
    if header.clean_offset:
        # In slices: a group that reads 10,000 topics has progress in 100,000 queues.
        await in_slices(broker.offsets.removing_group(header.group_name), broker.slices)
    return await reply_when_deleted(broker, broker.groups)


@routes.on(GetGroupConfig)
def get_group_config(broker: Broker, request: Request[GetGroupConfig]) -> Reply:
    """Return one group's configuration, without creating the group."""
    config = broker.groups.get(request.header.group)
    if config is None:
        text = f"group {request.header.group} does not exist on {broker.config.broker_name}"
        raise RequestRefused(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, text)
    return Reply(body=config.to_json())


@routes.on(GetAllGroupConfig)
async def get_all_group_config(broker: Broker, request: Request[GetAllGroupConfig]) -> Reply:
    """Return all groups' configurations, or one page of them in order of their names."""
    header = request.header
    table = broker.groups.table()
    rows, forbidden = table.subscription_group_table, table.forbidden_table
    names = page_of(
        rows,
        table.data_version,
        first=header.group_seq,
        most=header.max_group_num,
        asked_version=header.data_version,
    )
    if len(names) < len(rows):
        table = msgspec.structs.replace(
            table,
            subscription_group_table={name: rows[name] for name in names},
            forbidden_table={name: forbidden[name] for name in names if name in forbidden},
        )
    answer = await broker.workers.run(table.to_json)
    return Reply(AllGroupConfig(total_group_num=len(rows)), answer)
