"""Programs to start from; each runs in a test."""
