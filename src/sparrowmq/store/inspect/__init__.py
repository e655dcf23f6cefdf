"""Reading a store that nobody has open: verify it, dump it."""
