"""Rows of a DataFrame to messages for brokers."""
