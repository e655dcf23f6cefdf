"""One way to a SparkSession: for the demo, the jobs and the tests."""

import os
import sys
from collections.abc import Mapping, MutableMapping
from typing import TYPE_CHECKING

from sparrowmq.spark.java_home import find_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_NOTHING: Mapping[str, str] = {}
_DICTIONARY_BYTES = 128 * 1024
"""How large a column's dictionary may grow in a Parquet file before the column goes without.

Topics, tags, hosts and some thousand keys fit. Ids, offsets and bodies never do: with Parquet's own
megabyte, finding that out anew in every file is a seventh of the CPU of writing a topic.
"""


def spark_session(
    name: str,
    *,
    master: str = "local[*]",
    settings: Mapping[str, str] = _NOTHING,
    environ: MutableMapping[str, str] = os.environ,
) -> "SparkSession":
    """A session with Java and Python found for it; `settings` are Spark's and come last.

    On any other master than a local one the package is sent to the executors, which need numpy and
    pyarrow only. Raises NoJava, and ImportError that names the extra if there is no PySpark.
    """
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise ImportError("PySpark is missing; run: pip install 'sparrowmq[spark]'") from error
    # spark-submit, which PySpark starts, knows no other way to be told.
    environ["JAVA_HOME"] = str(find_java(environ).home)
    builder = SparkSession.builder.appName(name).master(master)
    for option, value in {**_defaults(master, environ), **settings}.items():
        builder = builder.config(option, value)
    return builder.getOrCreate()


def _defaults(master: str, environ: MutableMapping[str, str]) -> dict[str, str]:
    defaults = {
        "spark.sql.session.timeZone": "UTC",
        "spark.ui.showConsoleProgress": "false",
        "spark.hadoop.parquet.dictionary.page.size": str(_DICTIONARY_BYTES),
    }
    if master.startswith("local"):
        # The same Python as here: it has the package and the libraries.
        environ.setdefault("PYSPARK_PYTHON", sys.executable)
        # A laptop's address may change or be a name nobody resolves. Checkpoints on this machine
        # go without the checksum files: Hadoop starts a `chmod` for each file that it makes, and a
        # micro-batch of 210 ms is one of 167 ms without half of them.
        return defaults | {
            "spark.hadoop.fs.AbstractFileSystem.file.impl": "org.apache.hadoop.fs.local.RawLocalFs",
            "spark.ui.enabled": "false",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
        }
    from sparrowmq.spark.package import cached_package

    return defaults | {"spark.submit.pyFiles": str(cached_package(environ))}
