"""A small blocking client for Spark, whose executors have neither msgspec nor an event loop."""
