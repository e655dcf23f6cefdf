"""Injected faults, and the one checker that decides whether a promise was broken."""
