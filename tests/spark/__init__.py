"""Tests of the Spark source, sink and pipelines."""
