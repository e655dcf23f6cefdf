"""A driver around our own client, controlled like those of Java and Go."""
