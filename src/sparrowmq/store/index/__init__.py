"""The key index: which log offsets hold the messages of a key."""
