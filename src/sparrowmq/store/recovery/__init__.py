"""Recovery, before messages are served: finding the log's end, rebuilding derived files."""
