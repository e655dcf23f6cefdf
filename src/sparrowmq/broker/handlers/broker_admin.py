"""Operation of a broker: its state, clean-up on demand, settings, limits, topics a group must not
read."""

from collections.abc import Awaitable

import msgspec

from sparrowmq.broker.broker import Broker
from sparrowmq.broker.handlers.table_changes import check_is_master
from sparrowmq.broker.housekeeping import clean
from sparrowmq.broker.runtime_config import (
    CHANGEABLE,
    change_config,
    config_lines,
    setting_origins,
)
from sparrowmq.broker.runtime_info import runtime_info
from sparrowmq.broker.traffic.report import limits_of, windows_of
from sparrowmq.net.audit import audit
from sparrowmq.net.errors import RequestRefused
from sparrowmq.net.routes import Reply, Request, Routes
from sparrowmq.protocol.body import KVTable
from sparrowmq.protocol.broker_stats import GroupForbidden
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.headers.admin import (
    BrokerConfigFound,
    Cleaned,
    CleanExpiredQueues,
    CleanUnusedTopics,
    DeleteExpiredLog,
    GetBrokerConfig,
    GetRuntimeInfo,
    UpdateBrokerConfig,
    UpdateGroupForbidden,
)
from sparrowmq.protocol.limit_report import LimitReport, ListLimits
from sparrowmq.protocol.names import group_fault, is_system_topic, topic_fault

routes: Routes[Broker] = Routes()


@routes.on(GetRuntimeInfo)
async def get_runtime_info(broker: Broker, request: Request[GetRuntimeInfo]) -> Reply:
    """Return counters, rates, disk and log, under the names that mqadmin prints and looks for."""
    await broker.sampling.refresh(broker)
    return Reply(body=KVTable(table=runtime_info(broker)).to_json())


@routes.on(CleanExpiredQueues)
async def clean_expired_queues(broker: Broker, request: Request[CleanExpiredQueues]) -> Reply:
    """Clean log files: queue files go with the log files they point into, so nothing else is left.

    The last file of a queue stays: it says how far the queue came. Apache removes it, and the queue
    restarts at 0 while its groups are positioned far beyond that.
    """
    audit(request, "asked to clean consume queues")
    return Reply(Cleaned(deleted=len(await clean(broker))))


@routes.on(DeleteExpiredLog)
async def delete_expired_log(broker: Broker, request: Request[DeleteExpiredLog]) -> Reply:
    """Delete expired log files without waiting for the deletion hour."""
    deleted = await clean(broker, any_hour=True)
    audit(request, "deleted %d log files", len(deleted))
    return Reply(Cleaned(deleted=len(deleted)))


@routes.on(CleanUnusedTopics)
def clean_unused_topics(broker: Broker, request: Request[CleanUnusedTopics]) -> Reply:
    """Delete the queues of topics that no longer exist."""
    stored = {topic for topic, _ in broker.store.queues()}
    unused = sorted(
        topic for topic in stored if topic not in broker.topics and not is_system_topic(topic)
    )
    for topic in unused:
        broker.store.delete_topic(topic, broker.clock())
        audit(request, "deleted unused topic %s", topic)
    return Reply(Cleaned(deleted=len(unused)))


@routes.on(GetBrokerConfig)
def get_broker_config(broker: Broker, request: Request[GetBrokerConfig]) -> Reply:
    """Return all settings in force, as `name=value` lines."""
    version = broker.config_version.to_json().decode()
    origins = setting_origins(broker.config)
    header = BrokerConfigFound(
        version=version,
        changeable=",".join(CHANGEABLE),
        origins=None if origins is None else msgspec.json.encode(origins).decode(),
    )
    return Reply(header, config_lines(broker).encode())


@routes.on(UpdateBrokerConfig)
def update_broker_config(broker: Broker, request: Request[UpdateBrokerConfig]) -> Awaitable[Reply]:
    """Change settings until the broker stops: all of them, or none with the reason."""
    wanted = _properties(request.body)
    change_config(broker, wanted)
    broker.config_version = broker.config_version.next(broker.clock())
    for name, value in wanted.items():
        audit(request, "set %s=%s until the next start", name, value)
    return broker.saving.reply_when_saved(broker.topics, Reply())  # TBW102 may have changed


_MOST_BYTES = 64 * 1024


def _properties(body: bytes) -> dict[str, str]:
    """Parse `name=value` lines in the format of Java properties."""
    if len(body) > _MOST_BYTES:
        text = f"settings of {len(body)} bytes, at most {_MOST_BYTES} allowed"
        raise RequestRefused(ResponseCode.INVALID_PARAMETER, text)
    found = {}
    for line in body.decode(errors="replace").splitlines():
        line = line.strip()
        if not line or line[0] in "#!":
            continue
        name, equals, value = line.partition("=")
        if not equals:
            text = f"{line[:80]!r} is not a setting, expected name=value"
            raise RequestRefused(ResponseCode.INVALID_PARAMETER, text)
        found[name.strip()] = value.strip()
    return found


@routes.on(ListLimits)
async def list_limits(broker: Broker, request: Request[ListLimits]) -> Reply:
    """List quotas and largest backlogs with their use, and topics that are de-duplicated."""
    report = LimitReport(
        limits=tuple(await limits_of(broker)), windows=tuple(await windows_of(broker))
    )
    return Reply(body=report.to_json())


@routes.on(UpdateGroupForbidden)
def update_group_forbidden(
    broker: Broker, request: Request[UpdateGroupForbidden]
) -> Awaitable[Reply]:
    """Forbid a group to read a topic, or allow it again; the answer has the state that results."""
    header = request.header
    fault = group_fault(header.group) or topic_fault(header.topic)
    if fault is not None:
        raise RequestRefused(ResponseCode.INVALID_PARAMETER, fault)
    if header.readable is not None:
        check_is_master(broker)
        broker.groups.set_readable(header.group, header.topic, readable=header.readable)
        audit(
            request,
            "set group %s readable=%s for topic %s",
            header.group,
            header.readable,
            header.topic,
        )
    readable = broker.groups.is_readable(header.group, header.topic)
    answer = GroupForbidden(group=header.group, topic=header.topic, readable=readable)
    return broker.saving.reply_when_saved(broker.groups, Reply(body=answer.to_json()))
