"""Functions that answer requests, one module per capability."""
