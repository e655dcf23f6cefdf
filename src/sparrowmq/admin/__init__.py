"""Operations over the wire: what the command line and the console do to a cluster."""
