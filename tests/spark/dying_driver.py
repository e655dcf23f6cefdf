"""A Spark driver that gets kill -9, or kills others, just before it writes a chosen file of its
checkpoint.

    offsets/N ── tasks run ── _spark_metadata/N (files only) ── commits/N ── offsets/N+1 ── …

Spark writes all of these through one class that a setting names. The class here is compiled by the
compiler that Spark brings for its own use, so that nothing but pip's pyspark is needed.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTING = "spark.sql.streaming.checkpointFileManagerClass"
_SOURCE = """
package sparrowmq.tests;

import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.execution.streaming.checkpointing.*;

public class DyingCheckpoint extends FileContextBasedCheckpointFileManager {
    public DyingCheckpoint(Path path, Configuration conf) {
        super(path, conf);
    }

    public CheckpointFileManager.CancellableFSDataOutputStream createAtomic(
            Path path, boolean overwrite) {
        if (path.toString().endsWith(System.getProperty("sparrowmq.dies.at"))) {
            String[] command = System.getProperty("sparrowmq.dies.by").split(" ");
            try {
                Runtime.getRuntime().exec(command).waitFor();
            } catch (Exception error) {
                throw new RuntimeException(error);
            }
        }
        return super.createAtomic(path, overwrite);
    }
}
"""


def processes_of(spark: SparkSession) -> list[int]:
    """Java first: a test that waits for the end of this process may rely on the end of both."""
    context: Any = spark.sparkContext
    return [int(context._jvm.java.lang.ProcessHandle.current().pid()), os.getpid()]


def die_before(spark: SparkSession, path: str) -> None:
    """Kill driver and Java when the query that is started next is about to write that file."""
    call_before(spark, path, f"kill -KILL {' '.join(map(str, processes_of(spark)))}")


def call_before(spark: SparkSession, path: str, command: str) -> None:
    """Run a command, words with a blank between, and wait for its end before that file."""
    context: Any = spark.sparkContext
    jvm = context._jvm
    thread = jvm.java.lang.Thread.currentThread()
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(thread.getContextClassLoader())
    compiler.cook(_SOURCE)
    # The query's thread inherits it from this one, and finds the class by it.
    thread.setContextClassLoader(compiler.getClassLoader())
    system = jvm.java.lang.System
    system.setProperty("sparrowmq.dies.at", path)
    system.setProperty("sparrowmq.dies.by", command)
    spark.conf.set(SETTING, "sparrowmq.tests.DyingCheckpoint")
