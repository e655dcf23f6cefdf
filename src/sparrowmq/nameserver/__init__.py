"""The name server: who is alive, which broker serves which topic. It keeps no routes on disk."""

from sparrowmq.config_fields import ConfigError
from sparrowmq.nameserver.config import NameServerConfig
from sparrowmq.nameserver.server import NameServer

__all__ = ["ConfigError", "NameServer", "NameServerConfig"]
