"""A second copy of the log: masters feed slaves, slaves follow, and sends wait for copies."""
