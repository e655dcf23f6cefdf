"""Metrics as Prometheus reads them: names, labels, buckets and the text of a page."""
