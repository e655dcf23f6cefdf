"""How groups consume topics, where an operator said so. Only pulling is served."""

from sparrowmq.broker.table_saving import TableSaving
from sparrowmq.protocol.broker_stats import MessageRequestMode, MessageRequestModeTable
from sparrowmq.store.table_file import TableFile

PULL = "PULL"


class RequestModes:
    """The table of messageRequestMode.json."""

    def __init__(
        self,
        table: MessageRequestModeTable,
        *,
        file: TableFile[MessageRequestModeTable],
        saving: TableSaving,
    ) -> None:
        self._modes = {
            topic: dict(groups) for topic, groups in table.message_request_mode_map.items()
        }
        self.file = file
        self._saving = saving

    def get(self, topic: str, group: str) -> MessageRequestMode | None:
        """What an operator set; None means pulling, as everywhere."""
        return self._modes.get(topic, {}).get(group)

    def put(self, mode: MessageRequestMode) -> None:
        """Set how a group consumes a topic; saved soon."""
        self._modes.setdefault(mode.topic, {})[mode.consumer_group] = mode
        self._saving.changed(self)

    def table(self) -> MessageRequestModeTable:
        """All of it, as it is saved and handed to slaves."""
        modes = {topic: dict(groups) for topic, groups in self._modes.items()}
        return MessageRequestModeTable(message_request_mode_map=modes)

    def was_saved(self, table: MessageRequestModeTable) -> None:
        """Nothing depends on that here."""
