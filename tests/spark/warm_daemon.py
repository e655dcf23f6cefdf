"""Spark's daemon of Python workers, with the imports of all workers done before it forks them.

A worker ends with the task that fails, and every test of an error costs one. Importing pyspark,
pyarrow and the connector again takes it most of a second of CPU; a fork takes milliseconds. Spark
itself imports after the fork because a library may start threads, which a fork leaves behind.
The one thread here is jemalloc's, and jemalloc starts it again in the child.
"""

import gc

import pyspark.sql.worker.plan_data_source_read
import pyspark.sql.worker.write_into_data_source
import pyspark.worker  # noqa: F401  # imported for the workers
from pyspark.daemon import manager

import sparrowmq.spark.log_source
import sparrowmq.spark.sink
import sparrowmq.spark.stream
import sparrowmq.spark.write_task  # noqa: F401  # imported for the workers

if __name__ == "__main__":
    gc.freeze()  # a worker collects garbage after every task, and need not walk all modules then
    manager()
