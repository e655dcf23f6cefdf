"""How the broker is doing, and cleaning up at an operator's word."""

from sparrowmq.broker.broker import Broker
from sparrowmq.broker.housekeeping import clean
from sparrowmq.broker.runtime_info import runtime_info
from sparrowmq.broker.sampling import refresh
from sparrowmq.net.reply import Reply, Request
from sparrowmq.net.routes import Routes
from sparrowmq.protocol.headers.admin import (
    CleanExpiredQueues,
    CleanUnusedTopics,
    DeleteExpiredLog,
    GetRuntimeInfo,
)
from sparrowmq.protocol.names import is_system_topic
from sparrowmq.protocol.tables import KVTable

routes: Routes[Broker] = Routes()


@routes.on(GetRuntimeInfo)
def get_runtime_info(broker: Broker, request: Request[GetRuntimeInfo]) -> Reply:
    """Counters, rates, disk and log, under the names that mqadmin prints and looks for."""
    refresh(broker)
    return Reply(body=KVTable(table=runtime_info(broker)).to_json())


@routes.on(CleanExpiredQueues)
def clean_expired_queues(broker: Broker, request: Request[CleanExpiredQueues]) -> Reply:
    """Queue files go together with the log files they point into, so there is nothing else to do.

    The last file of a queue stays: it says how far the queue came. Apache removes it, and the queue
    starts again at 0 while its groups stand far behind that.
    """
    broker.log.info("audit: %s asked to clean consume queues", request.connection.peer)
    clean(broker)
    return Reply()


@routes.on(DeleteExpiredLog)
def delete_expired_log(broker: Broker, request: Request[DeleteExpiredLog]) -> Reply:
    """Delete expired log files without waiting for the deletion hour."""
    deleted = clean(broker, any_hour=True)
    broker.log.info("audit: %s deleted %d log files", request.connection.peer, len(deleted))
    return Reply()


@routes.on(CleanUnusedTopics)
def clean_unused_topics(broker: Broker, request: Request[CleanUnusedTopics]) -> Reply:
    """Delete the queues of topics that do not exist any more."""
    stored = {topic for topic, _ in broker.store.queues()}
    unused = sorted(
        topic for topic in stored if topic not in broker.topics and not is_system_topic(topic)
    )
    for topic in unused:
        broker.store.delete_topic(topic, broker.clock())
        broker.log.info("audit: %s deleted unused topic %s", request.connection.peer, topic)
    return Reply()
