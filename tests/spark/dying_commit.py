"""A file sink whose executors die when a task's file is finished and not reported yet.

    rows ── file closed ──▶ here ── commit message ──▶ driver ── _spark_metadata/N

Spark writes a stream's files through a class that a setting names. It has to be on the class path
of driver and executors, and is compiled into a folder there by the compiler that Spark brings.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTING = "spark.sql.streaming.commitProtocolClass"
CLASS = "sparrowmq.tests.DyingCommit"
_FOLDER, _TARGET = "sparrowmq.dying.folder", "sparrowmq.dying.target"
_SOURCE = """
package sparrowmq.tests;

import java.io.File;
import java.util.Iterator;
import org.apache.hadoop.mapreduce.TaskAttemptContext;
import org.apache.spark.TaskContext;
import org.apache.spark.internal.io.FileCommitProtocol;
import org.apache.spark.sql.execution.streaming.ManifestFileCommitProtocol;

public class DyingCommit extends ManifestFileCommitProtocol {
    public DyingCommit(String jobId, String path) {
        super(jobId, path);
    }

    public FileCommitProtocol.TaskCommitMessage commitTask(TaskAttemptContext context) {
        FileCommitProtocol.TaskCommitMessage message = super.commitTask(context);
        TaskContext task = TaskContext.get();
        if (!"1".equals(task.getLocalProperty("streaming.sql.batchId"))) {
            return message;
        }
        try {
            String folder = task.getLocalProperty("sparrowmq.dying.folder");
            if (!new File(folder, "died").createNewFile()) {
                return message;
            }
            if ("worker".equals(task.getLocalProperty("sparrowmq.dying.target"))) {
                Iterator all = ProcessHandle.current().descendants().iterator();
                while (all.hasNext()) {
                    ((ProcessHandle) all.next()).destroyForcibly();
                }
                return message;
            }
            String pid = String.valueOf(ProcessHandle.current().pid());
            Runtime.getRuntime().exec(new String[] {"kill", "-KILL", pid}).waitFor();
        } catch (Exception error) {
            throw new RuntimeException(error);
        }
        return message;
    }
}
"""


def compile_into(spark: SparkSession, folder: Path) -> None:
    """Put the class where the session's class path has it."""
    context: Any = spark.sparkContext
    jvm = context._jvm
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(jvm.java.lang.Thread.currentThread().getContextClassLoader())
    compiler.setTargetVersion(8)  # the least that may call static methods of an interface
    compiler.cook(_SOURCE)
    for name, code in compiler.getBytecodes().items():
        path = folder / f"{name.replace('.', '/')}.class"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes(code))


def die_at_task_commit(spark: SparkSession, folder: Path, target: str) -> None:
    """For the query that is started next: one executor, or all Python of it."""
    spark.sparkContext.setLocalProperty(_FOLDER, str(folder))
    spark.sparkContext.setLocalProperty(_TARGET, target)
    spark.conf.set(SETTING, CLASS)
