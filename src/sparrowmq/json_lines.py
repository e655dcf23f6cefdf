"""A formatter for Python's logging that writes JSON, as servers do with `--json`.

handler.setFormatter(JsonLines())
"""

import json
import logging
from datetime import UTC, datetime


class JsonLines(logging.Formatter):
    """One JSON object per line: time, level, logger, message, and the error where there is one."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as JSON."""
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)
