"""The SQL92 message filter: RocketMQ's expressions on message properties, compiled once."""

from sparrowmq.protocol.sql92.errors import Incomparable, Sql92Error
from sparrowmq.protocol.sql92.filter import MAX_LENGTH, Sql92, check_sql92, compile_sql92

__all__ = ["MAX_LENGTH", "Incomparable", "Sql92", "Sql92Error", "check_sql92", "compile_sql92"]
