"""Measures SparrowMQ's broker beside Apache's, with Apache's own Java client as the load."""
