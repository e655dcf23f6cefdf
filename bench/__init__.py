"""Compares SparrowMQ's broker with Apache's, using Apache's own Java client as the load."""
