"""How much work one message is, counted: calls and instructions, never time."""
