"""Topics as DataFrames: source, sink and pipelines on PySpark.

Importing it sets PYSPARK_PYTHON where Spark would start another Python (see `worker_python`).
"""

from sparrowmq.spark import worker_python as worker_python
