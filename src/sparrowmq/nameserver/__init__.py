"""The name server: who is alive, which broker serves which topic. It keeps no routes on disk."""

from sparrowmq.nameserver.config import ConfigError, NameServerConfig
from sparrowmq.nameserver.server import NameServer

__all__ = ["ConfigError", "NameServer", "NameServerConfig"]
