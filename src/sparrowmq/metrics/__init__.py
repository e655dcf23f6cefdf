"""Metrics for Prometheus: names, labels, buckets and the text of a page."""
