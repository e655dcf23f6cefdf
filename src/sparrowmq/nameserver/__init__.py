"""The name server: live brokers, and the topics they serve. It keeps no routes on disk."""

from sparrowmq.config_fields import ConfigError
from sparrowmq.nameserver.config import NameServerConfig
from sparrowmq.nameserver.server import NameServer

__all__ = ["ConfigError", "NameServer", "NameServerConfig"]
