"""What a name server answers, one module per capability."""
