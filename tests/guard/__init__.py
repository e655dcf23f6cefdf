"""The work of one message, counted in calls and instructions, never in time."""
