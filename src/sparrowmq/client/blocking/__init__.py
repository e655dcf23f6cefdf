"""The facade of `sparrowmq.blocking`: plain calls that run on a background loop."""
