"""Lets Spark find the format `rocketmq` by itself.

Spark imports every module named `pyspark_*` and registers its `DefaultSource`, in local mode, on a
cluster and over Spark Connect, so that nobody has to.
"""

from sparrowmq.spark.source import RocketMQSource as DefaultSource

__all__ = ["DefaultSource"]
