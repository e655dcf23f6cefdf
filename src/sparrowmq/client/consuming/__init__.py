"""Consumers: pulling, calling handlers, giving back what failed."""
