"""Every command of mqadmin 5.5.0, how it is run, and which part of its output must be equal.

The commands run in this order, in one JVM, on a cluster that `scenarios/mqadmin.py` prepares. In
arguments, {orders}, {billing} and so on stand for its names.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any

Show = Callable[[list[str]], list[str]]
"""What of the printed lines does not depend on time and place."""


class Kind(Enum):
    """What is expected of our broker."""

    SERVED = "works"
    LOCAL = "works (asks no broker)"
    REFUSED = "refused by design"
    PLANNED = "not yet"
    """Refused in the same way until there is something that it could manage."""


UNSERVED = (Kind.REFUSED, Kind.PLANNED)


@dataclass(frozen=True)
class Command:
    """One command line."""

    name: str
    args: str
    show: Show
    kind: Kind = Kind.SERVED
    limit_s: float = 60.0
    """For commands that watch without end."""
    refusal: str = "is not supported here"
    """What a refused command prints; some of them hide the text of the broker."""
    until_code: int = 0
    """For commands that go on in the background: wait until this request was sent."""
    writes: str = ""
    """A JSON file whose keys must be equal, too."""


def whole(lines: list[str]) -> list[str]:
    """Everything, whatever order servers and maps have."""
    return sorted(lines)


def first_words(lines: list[str]) -> list[str]:
    """What the lines are about; the figures change."""
    return sorted({line.split()[0] for line in lines})


def only(*patterns: str) -> Show:
    """The parts of the output that match, each once."""

    def show(lines: list[str]) -> list[str]:
        text = "\n".join(lines)
        found = (match.group() for one in patterns for match in re.finditer(one, text))
        return sorted(set(found))

    return show


def settings(*names: str) -> Show:
    """These settings of many."""

    def show(lines: list[str]) -> list[str]:
        return sorted(line for line in lines if line.split()[0] in names)

    return show


def pieces(lines: list[str]) -> list[str]:
    """Java prints maps and values on one line, in any order."""
    return sorted(piece for line in lines for piece in re.split(r"[{}\[\](), ]+", line) if piece)


def table(*columns: int) -> Show:
    """These columns of each row."""

    def show(lines: list[str]) -> list[str]:
        rows = [line.split() for line in lines]
        return sorted(" ".join(row[at] for at in columns if at < len(row)) for row in rows)

    return show


def without_retry_topic(show: Show) -> Show:
    """A short-lived member has a position in its retry topic only if it rebalanced in time."""
    return lambda lines: show([line for line in lines if "%RETRY%" not in line])


def group_figures(lines: list[str]) -> list[str]:
    """Topic and group, and how much waits for a group without members: others may just commit."""
    rows = [line.split() for line in lines if not line.startswith("#")]
    return sorted(" ".join(row[: 3 if row[1] == "billing" else 2]) for row in rows)


def keys_of(value: Any, at: str = "") -> Iterator[str]:
    """The keys of a JSON document, as paths."""
    for name, inner in value.items() if isinstance(value, dict) else ():
        yield f"{at}{name}"
        yield from keys_of(inner, f"{at}{name}.")


_MESSAGE = only("Topic:.*", "Tags:.*", "Keys:.*", "Reconsume Times:.*", "consumerGroup=[a-z]+")
_BROKER = "-b {broker}"
_CONTROLLER = "-a {broker}"


def _refused(name: str, args: str) -> Command:
    return Command(name, args, whole, Kind.REFUSED)


def _planned(name: str, args: str) -> Command:
    return Command(name, args, whole, Kind.PLANNED)


def _lite(name: str, args: str) -> Command:
    return Command(name, args, whole, Kind.REFUSED, refusal=r"broker-a\]? +error")


COMMANDS = (
    # topics and groups
    Command("updateTopic", f"{_BROKER} -t {{made}} -r 3 -w 3", pieces),
    Command("updateTopicList", f"{_BROKER} -f {{folder}}/topics.json", only("success")),
    Command("updateTopicPerm", f"{_BROKER} -t {{made}} -p 4", whole),
    Command("updateSubGroup", f"{_BROKER} -g {{group}} -r 5", pieces),
    Command("updateSubGroupList", f"{_BROKER} -f {{folder}}/groups.json", only("success")),
    Command(
        "setConsumeMode", f"{_BROKER} -t {{made}} -g {{group}} -m PULL", only("success", "mode.*")
    ),
    Command("topicList", "", only(r"(?m)^orders$")),
    Command("topicRoute", "-t {orders}", pieces),
    Command("topicStatus", "-t {orders}", table(0, 1)),
    Command("topicClusterList", "-t {orders}", whole),
    Command("getConsumerConfig", "-g {group}", pieces),
    Command("updateOrderConf", "-t {made} -v broker-a:3 -m put", whole),
    Command("updateKvConfig", "-s SPACE -k {made} -v green", whole),
    Command("deleteKvConfig", "-s SPACE -k {made}", whole),
    # messages
    Command("sendMessage", "-t {orders} -p hello -k sent -c A", only("SEND_OK")),
    Command("queryMsgById", "-t {orders} -i {offset_id}", _MESSAGE),
    Command("queryMsgByKey", "-t {orders} -k {key}", table(2)),
    Command("queryMsgByUniqueKey", "-t {orders} -i {unique_id}", _MESSAGE),
    Command("queryMsgByOffset", "-t {orders} -b broker-a -i 0 -o 0", only("Topic:.*", "Tags:.*")),
    Command("queryMsgTraceById", "-i {traced_id}", only("Pub", "success", "No message")),
    Command("printMsg", "-t {orders}", only("MSGID")),
    Command("printMsgByQueue", "-t {orders} -a broker-a -i 0 -p true", only("MSGID")),
    Command("queryCq", "-t {orders} -q 0 -i 0 -c 2", only("Queue data", "idx: .", "tagsCode=.*")),
    Command(
        "consumeMessage", "-t {orders} -b broker-a -i 0 -o 0 -c 2", only("MSGID", "Consume ok")
    ),
    Command("checkMsgSendRT", "-t {orders} -a 2 -s 16", only("#.*", "Avg RT")),
    Command("sendMsgStatus", "-b broker-a -c 2 -s 16", only("SEND_OK")),
    # the cluster
    Command("clusterList", "", table(0, 1, 2)),
    Command("brokerStatus", _BROKER, only("putTps", "msgPutTotalTodayNow", "commitLogMaxOffset")),
    Command("getBrokerConfig", _BROKER, settings("brokerName", "brokerClusterName", "brokerRole")),
    Command("updateBrokerConfig", f"{_BROKER} -k fileReservedTime -v 49", whole),
    Command("getNamesrvConfig", "", only("listenPort")),
    Command("updateNamesrvConfig", "-k enableTopicList -v true", whole),
    Command("brokerConsumeStats", _BROKER, only("#Topic", "orders billing", "Diff Total")),
    Command("clusterRT", "-a 1 -s 16 -i 1", only("#.*"), limit_s=5.0),
    Command("haStatus", _BROKER, only("#MasterAddr.*", "#SlaveNum.*")),
    Command("resetMasterFlushOffset", f"{_BROKER} -o 0", whole),
    Command(
        "wipeWritePerm", "-b broker-a", only("wipe write perm of broker.broker-a. in name server")
    ),
    Command(
        "addWritePerm", "-b broker-a", only("add write perm of broker.broker-a. in name server")
    ),
    Command("cleanExpiredCQ", _BROKER, whole),
    Command("deleteExpiredCommitLog", _BROKER, whole),
    Command("cleanUnusedTopic", _BROKER, whole),
    Command("statsAll", "-t {orders}", group_figures),
    # clients and progress
    Command("producer", _BROKER, only("producer group .producers.")),
    Command("producerConnection", "-g {producers} -t {orders}", only("JAVA")),
    Command("consumerConnection", "-g {live}", only("JAVA", "Type:.*", "Model:.*", "Where:.*")),
    Command("consumerStatus", "-g {live}", only("Same subscription.*", "Rebalance OK")),
    Command("consumerProgress", "-g {billing}", without_retry_topic(table(0, 1, 2))),
    Command("allocateMQ", "-t {orders} -i 10.0.0.1,10.0.0.2", pieces),
    Command("cloneGroupOffset", "-s {billing} -d {group} -t {orders}", whole),
    Command("resetOffsetByTime", "-g {billing} -t {orders} -s -1", table(0, 1)),
    Command("skipAccumulatedMessage", "-g {billing} -t {orders} -f true", table(0, 1)),
    # files
    Command("exportMetadata", f"{_BROKER} -t -f {{folder}}", only("export <folder>.* success")),
    Command("exportConfigs", "-c DefaultCluster -f {folder}", only("export <folder>.* success")),
    Command(
        "exportMetrics",
        "-c DefaultCluster -f {folder}",
        only("export <folder>.* success"),
        writes="metrics.json",
    ),
    Command("exportMetadataInRocksDB", "-p {folder} -t topics", whole, Kind.LOCAL),
    Command("dumpCompactionLog", "-f {folder}/none", only("not exist"), Kind.LOCAL),
    # the end
    Command("deleteTopic", "-c DefaultCluster -t {made}", whole),
    Command("deleteSubGroup", f"{_BROKER} -g {{group}}", whole),
    # Its first round comes after 20 s and ends with asking live members
    Command("startMonitoring", "", only("Exception"), until_code=307),
    # what our broker does not do
    _refused("updateStaticTopic", "-b broker-a -t {static} -qn 4"),
    # Static topics cannot be made, so that there is none to map again
    Command(
        "remappingStaticTopic",
        "-b broker-a -t {static}",
        whole,
        Kind.REFUSED,
        refusal="No topic route to do the remapping",
    ),
    _refused("addBroker", "-c {broker} -b {folder}/none.conf"),
    _refused("removeBroker", "-c {broker} -b DefaultCluster:broker-b:1"),
    _refused("exportPopRecord", f"{_BROKER} -d true"),
    _refused("getSyncStateSet", f"{_CONTROLLER} -b broker-a"),
    _refused("getBrokerEpoch", "-b broker-a"),
    _refused("getControllerMetaData", _CONTROLLER),
    _refused("getControllerConfig", _CONTROLLER),
    _refused("updateControllerConfig", f"{_CONTROLLER} -k a -v b"),
    _refused("electMaster", f"{_CONTROLLER} -b 0 -bn broker-a -c DefaultCluster"),
    _refused("cleanBrokerMetadata", f"{_CONTROLLER} -bn broker-a -c DefaultCluster -b 1"),
    _refused("getColdDataFlowCtrInfo", _BROKER),
    _refused("updateColdDataFlowCtrGroupConfig", f"{_BROKER} -g {{billing}} -v 1024"),
    _refused("removeColdDataFlowCtrGroupConfig", f"{_BROKER} -g {{billing}}"),
    _refused("setCommitLogReadAheadMode", f"{_BROKER} -m 0"),
    _refused("rocksDBConfigToJson", "-c DefaultCluster -t topics"),
    _refused("checkRocksdbCqWriteProgress", "-c DefaultCluster"),
    _refused("switchTimerEngine", f"{_BROKER} -e R"),
    _refused("getBrokerLiteInfo", _BROKER),
    _lite("getParentTopicInfo", "-p {orders}"),
    _lite("getLiteTopicInfo", "-p {orders} -l lite"),
    _lite("getLiteClientInfo", "-p {orders} -g {billing} -c none"),
    _lite("getLiteGroupInfo", "-p {orders} -g {billing}"),
    _lite("triggerLiteDispatch", "-p {orders} -g {billing}"),
    # Users and access lists: not served before they are enforced
    _planned("createUser", f"{_BROKER} -u anna -p secret"),
    _planned("updateUser", f"{_BROKER} -u anna -p other"),
    _planned("getUser", f"{_BROKER} -u anna"),
    _planned("listUser", _BROKER),
    _planned("copyUser", "-f {broker} -t {broker}"),
    _planned("createAcl", f"{_BROKER} -s User:anna -r Topic:* -a Pub -d Allow"),
    _planned("updateAcl", f"{_BROKER} -s User:anna -r Topic:* -a Sub -d Allow"),
    _planned("getAcl", f"{_BROKER} -s User:anna"),
    _planned("listAcl", _BROKER),
    _planned("copyAcl", "-f {broker} -t {broker}"),
    _planned("deleteAcl", f"{_BROKER} -s User:anna"),
    _planned("deleteUser", f"{_BROKER} -u anna"),
)
