"""Settings of servers: where they come from, what they may be, how they are shown."""
