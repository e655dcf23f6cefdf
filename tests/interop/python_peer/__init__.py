"""A driver around our own client, spoken to like those of Java and Go."""
