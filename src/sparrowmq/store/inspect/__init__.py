"""Reading a store that no process has open: verify it, dump it."""
