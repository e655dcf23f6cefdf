"""Clusters for tests: real ones on loopback, and simulated ones in virtual time."""
