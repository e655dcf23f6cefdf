"""Producers: finding a queue, sending, trying again, transactions, requests and traces."""
