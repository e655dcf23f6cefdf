"""Third-party clients as judges: the same scenarios against SparrowMQ and Apache's servers."""
