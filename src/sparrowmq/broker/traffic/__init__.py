"""Limits: who may send and receive how much, and what is stored only once."""
