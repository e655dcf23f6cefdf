"""Makes `format("rocketmq-log")` known to Spark, which looks into every package `pyspark_*`."""

from sparrowmq.spark.log_source import LogSource as DefaultSource

__all__ = ["DefaultSource"]
