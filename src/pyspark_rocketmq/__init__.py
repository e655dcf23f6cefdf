"""Lets Spark find the format `rocketmq` by itself.

Spark imports every module named `pyspark_*` and registers its `DefaultSource`, in local mode, on a
cluster and over Spark Connect, so that nobody has to. It does so once per driver, and this is when
the name servers are looked for.
"""

from typing import TYPE_CHECKING

from sparrowmq.spark.source import source_of_driver

if TYPE_CHECKING:
    from sparrowmq.spark.source import RocketMQSource as DefaultSource

__all__ = ["DefaultSource"]


def __getattr__(name: str) -> object:
    # Not at import: that must neither read files nor fail, on executors for instance.
    if name == "DefaultSource":
        return source_of_driver()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
