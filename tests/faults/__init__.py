"""Faults on purpose, and the one checker that says whether a promise was broken."""
