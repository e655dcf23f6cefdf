"""Topics as DataFrames: source, sink and pipelines on PySpark."""
