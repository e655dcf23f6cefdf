"""How groups consume topics, where an operator said so. Only pulling is served."""

from collections.abc import Callable

from sparrowmq.protocol.broker_stats import MessageRequestMode, MessageRequestModeTable

PULL = "PULL"
Save = Callable[[bytes], None]


class RequestModes:
    """The table of messageRequestMode.json; a change is saved when `put` returns."""

    def __init__(self, table: MessageRequestModeTable, save: Save) -> None:
        self._modes = {
            topic: dict(groups) for topic, groups in table.message_request_mode_map.items()
        }
        self._save = save

    def get(self, topic: str, group: str) -> MessageRequestMode | None:
        """What an operator set; None means pulling, as everywhere."""
        return self._modes.get(topic, {}).get(group)

    def put(self, mode: MessageRequestMode) -> None:
        """Set how a group consumes a topic."""
        self._modes.setdefault(mode.topic, {})[mode.consumer_group] = mode
        self._save(self.table().to_json())

    def table(self) -> MessageRequestModeTable:
        """All of it, as it is saved and handed to slaves."""
        return MessageRequestModeTable(message_request_mode_map=self._modes)
